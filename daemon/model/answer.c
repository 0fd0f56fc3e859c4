#include "daemon/model/answer.h"

#include "common/id.h"
#include "daemon/model/fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void answer_init(struct answer *a, size_t bytes_max)
{
	*a = (struct answer){ .text = BUF_INIT(ANSWER_ITEM_MAX), .bytes_max = bytes_max };
}

void answer_release(struct answer *a)
{
	buf_release(&a->text);
	for (unsigned int i = 0; i < a->call_count; i++)
		buf_release(&a->calls[i].arguments);
	a->call_count = 0;
}

static void begin_call(struct answer *a, const struct said *said)
{
	struct answer_call *call = &a->calls[a->call_count++]; /* the stream counts them */

	call->arguments = (struct buf)BUF_INIT(ANSWER_ITEM_MAX);
	(void)snprintf(call->name, sizeof(call->name), "%s", said->text);
}

static void add_text(struct answer *a, struct buf *to, const struct said *said)
{
	a->bytes += said->len;
	if (!a->bytes_max || a->bytes <= a->bytes_max)
		buf_add(to, said->text, said->len);
}

int answer_check(const struct answer *a, struct err *e)
{
	if (!a->bytes_max || a->bytes <= a->bytes_max)
		return 0;
	return err_set(e, MODEL_TOO_LONG,
	               "the model's answer has more than the %zu bytes that it may have",
	               a->bytes_max);
}

void answer_take(struct answer *a, const struct said *said)
{
	switch (said->kind) {
	case SAID_TEXT:
	case SAID_REFUSAL:
		add_text(a, &a->text, said);
		break;
	case SAID_CALL:
		begin_call(a, said);
		break;
	case SAID_ARGUMENTS:
		add_text(a, &a->calls[said->call].arguments, said);
		break;
	case SAID_USAGE:
		a->usage = said->usage;
		break;
	case SAID_STOP:
		a->stop = said->stop;
		break;
	case SAID_REASONING:
	case SAID_CALL_END:
		break;
	}
}

static int judge(const struct answer *a, struct err *e)
{
	bool failed = buf_failed(&a->text);

	for (unsigned int i = 0; i < a->call_count; i++)
		failed = failed || buf_failed(&a->calls[i].arguments);
	if (failed)
		return err_set(e, MODEL_FAILED,
		               "the model's answer has a part of more than %zu bytes",
		               ANSWER_ITEM_MAX);
	if (a->stop == STOP_LENGTH && a->call_count)
		return err_set(e, MODEL_FAILED,
		               "the model reached its limit of output within a tool call");
	if (a->text.len || a->call_count)
		return 0;
	if (a->stop == STOP_REFUSAL)
		return err_set(e, MODEL_FAILED, "the model, or a filter of its provider, declines");
	if (a->stop == STOP_LENGTH)
		return err_set(e, MODEL_FAILED,
		               "the model reached its limit of output before it said anything");
	return err_set(e, MODEL_EMPTY, "the model answered nothing");
}

static void add_item(struct item_list *list, enum item_kind kind, struct buf *body)
{
	struct item *items = realloc(list->items, (list->count + 1) * sizeof(*items));
	size_t len = body->len;

	if (!items)
		abort();
	list->items = items;
	items[list->count++] = (struct item){
		.kind = kind,
		.body = buf_take(body),
		.body_len = len,
	};
}

static void add_call(struct item_list *list, struct answer_call *call)
{
	struct uuid id = uuid_new();
	struct item *item;

	if (!call->arguments.len)
		buf_adds(&call->arguments, "{}");
	add_item(list, ITEM_TOOL_CALL, &call->arguments);
	item = &list->items[list->count - 1];
	item->call_state = CALL_PENDING;
	(void)snprintf(item->call_id, sizeof(item->call_id), "call_%s", id.text);
	(void)snprintf(item->tool, sizeof(item->tool), "%s", call->name);
}

int answer_items(struct answer *a, struct item_list *ret, struct err *e)
{
	if (answer_check(a, e) < 0 || judge(a, e) < 0)
		return -1;
	if (a->text.len)
		add_item(ret, ITEM_ASSISTANT, &a->text);
	for (unsigned int i = 0; i < a->call_count; i++)
		add_call(ret, &a->calls[i]);
	return 0;
}
