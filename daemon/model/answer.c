#include "daemon/model/answer.h"

#include "common/id.h"
#include "common/json.h"
#include "common/utf8.h"
#include "daemon/model/fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void answer_init(struct answer *a, size_t bytes_max)
{
	*a = (struct answer){ .bytes_max = bytes_max };
}

void answer_release(struct answer *a)
{
	for (size_t i = 0; i < a->part_count; i++) {
		buf_release(&a->parts[i].text);
		buf_release(&a->parts[i].opaque);
	}
	free(a->parts);
	a->parts = NULL;
	a->part_count = 0;
}

/* -- what is said ------------------------------------------------------------------------------ */

static struct answer_part *last_of(struct answer *a, enum item_kind kind)
{
	for (size_t i = a->part_count; i-- > 0;)
		if (a->parts[i].kind == kind)
			return &a->parts[i];
	return NULL;
}

/* There is always room for as many calls as an answer may have. */
static struct answer_part *begin(struct answer *a, enum item_kind kind)
{
	size_t room = ANSWER_PARTS_MAX - (kind == ITEM_TOOL_CALL ? 0 : READER_CALLS_MAX + 2);
	struct answer_part *part = a->parts && a->part_count >= room ? last_of(a, kind) : NULL;

	if (part)
		return part;
	part = realloc(a->parts, (a->part_count + 1) * sizeof(*part));
	if (!part)
		abort();
	a->parts = part;
	part += a->part_count++;
	*part = (struct answer_part){ .kind = kind,
		                      .text = BUF_INIT(ANSWER_ITEM_MAX),
		                      .opaque = BUF_INIT(ANSWER_ITEM_MAX) };
	return part;
}

/* What goes on with the last part of its kind, unless something else came between. */
static struct answer_part *current(struct answer *a, enum item_kind kind)
{
	struct answer_part *last = a->part_count ? &a->parts[a->part_count - 1] : NULL;

	return last && last->kind == kind && !last->whole ? last : begin(a, kind);
}

static void add(struct answer *a, struct buf *to, const struct said *said)
{
	a->bytes += said->len;
	if (!a->bytes_max || a->bytes <= a->bytes_max)
		buf_add(to, said->text, said->len);
}

static void begin_call(struct answer *a, const struct said *said)
{
	struct answer_part *part = begin(a, ITEM_TOOL_CALL);

	part->call = said->call;
	(void)snprintf(part->name, sizeof(part->name), "%s", said->text);
}

static struct answer_part *call_of(struct answer *a, unsigned int call)
{
	size_t i = 0;

	while (a->parts[i].kind != ITEM_TOOL_CALL || a->parts[i].call != call)
		i++; /* it has begun */
	return &a->parts[i];
}

static void end_reasoning(struct answer *a, const struct said *said)
{
	struct answer_part *part = current(a, ITEM_REASONING);

	if (!part->whole) /* else there was no room for one more part */
		add(a, &part->opaque, said);
	part->whole = true;
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
		add(a, &current(a, ITEM_ASSISTANT)->text, said);
		break;
	case SAID_REASONING:
		add(a, &current(a, ITEM_REASONING)->text, said);
		break;
	case SAID_REASONING_END:
		end_reasoning(a, said);
		break;
	case SAID_CALL:
		begin_call(a, said);
		break;
	case SAID_ARGUMENTS:
		add(a, &call_of(a, said->call)->text, said);
		break;
	case SAID_USAGE:
		a->usage = said->usage;
		break;
	case SAID_STOP:
		a->stop = said->stop;
		break;
	case SAID_CALL_END:
		break;
	}
}

/* -- what it becomes --------------------------------------------------------------------------- */

static bool has(const struct answer *a, enum item_kind kind)
{
	for (size_t i = 0; i < a->part_count; i++)
		if (a->parts[i].kind == kind)
			return true;
	return false;
}

/* Arguments are parsed several times before anybody looks at what they are. */
static bool has_many_values(const struct answer *a)
{
	for (size_t i = 0; i < a->part_count; i++)
		if (a->parts[i].kind == ITEM_TOOL_CALL &&
		    json_too_many(a->parts[i].text.data, a->parts[i].text.len, JSON_VALUES_MAX))
			return true;
	return false;
}

static int judge(const struct answer *a, struct err *e)
{
	bool failed = false;

	for (size_t i = 0; i < a->part_count; i++)
		failed = failed || buf_failed(&a->parts[i].text) || buf_failed(&a->parts[i].opaque);
	if (failed)
		return err_set(e, MODEL_FAILED,
		               "the model's answer has a part of more than %zu bytes",
		               ANSWER_ITEM_MAX);
	if (has_many_values(a))
		return err_set(e, MODEL_FAILED,
		               "the model's answer has a tool call with more than %d values",
		               JSON_VALUES_MAX);
	if (a->stop == STOP_LENGTH && has(a, ITEM_TOOL_CALL))
		return err_set(e, MODEL_FAILED,
		               "the model reached its limit of output within a tool call");
	if (has(a, ITEM_ASSISTANT) || has(a, ITEM_TOOL_CALL))
		return 0;
	if (a->stop == STOP_REFUSAL)
		return err_set(e, MODEL_FAILED, "the model, or a filter of its provider, declines");
	if (a->stop == STOP_LENGTH)
		return err_set(e, MODEL_FAILED,
		               "the model reached its limit of output before it said anything");
	return err_set(e, MODEL_EMPTY, "the model answered nothing");
}

static struct item *add_item(struct item_list *list, enum item_kind kind, struct buf *body)
{
	struct item *items = realloc(list->items, (list->count + 1) * sizeof(*items));
	size_t len = body->len;

	if (!items)
		abort();
	list->items = items;
	items += list->count++;
	buf_adds(body, ""); /* so that there is something to take */
	*items = (struct item){ .kind = kind, .body = buf_take(body), .body_len = len };
	if (!items->body)
		abort();
	return items;
}

static void add_call(struct item_list *list, struct answer_part *part)
{
	struct uuid id = uuid_new();
	struct item *item;

	if (!part->text.len)
		buf_adds(&part->text, "{}");
	item = add_item(list, ITEM_TOOL_CALL, &part->text);
	item->call_state = CALL_PENDING;
	(void)snprintf(item->call_id, sizeof(item->call_id), "call_%s", id.text);
	(void)snprintf(item->tool, sizeof(item->tool), "%s", part->name);
}

static void add_reasoning(struct item_list *list, struct answer_part *part, const char *origin)
{
	struct item *item = add_item(list, ITEM_REASONING, &part->text);

	(void)snprintf(item->origin, sizeof(item->origin), "%s", origin);
	item->opaque_len = part->opaque.len;
	item->sealed = item->opaque_len > 0;
	item->opaque = item->sealed ? buf_take(&part->opaque) : NULL;
}

static bool is_something(const struct answer_part *part)
{
	return part->kind != ITEM_REASONING || part->text.len || part->opaque.len;
}

int answer_items(struct answer *a, const char *origin, struct item_list *ret, struct err *e)
{
	size_t n = a->part_count;

	if (answer_check(a, e) < 0 || judge(a, e) < 0)
		return -1;
	while (a->parts[n - 1].kind == ITEM_REASONING) /* judge() found another */
		n--;
	for (size_t i = 0; i < n; i++) {
		struct answer_part *part = &a->parts[i];

		if (part->kind == ITEM_TOOL_CALL)
			add_call(ret, part);
		else if (part->kind == ITEM_REASONING && is_something(part))
			add_reasoning(ret, part, origin);
		else if (part->kind == ITEM_ASSISTANT)
			(void)add_item(ret, ITEM_ASSISTANT, &part->text);
	}
	return 0;
}

static char *why_json(const char *why)
{
	auto_buf struct buf text = BUF_INIT(4096);
	auto_json struct json *details = json_new_object();

	json_put_str(details, "reason", why);
	json_write(details, &text);
	return buf_take(&text);
}

void answer_discard(const struct answer *a, const char *why, struct item_list *ret)
{
	auto_buf struct buf text = BUF_INIT(ANSWER_ITEM_MAX);
	struct item *item;
	size_t total;

	for (size_t i = 0; i < a->part_count; i++)
		if (a->parts[i].kind == ITEM_ASSISTANT)
			buf_add(&text, a->parts[i].text.data, a->parts[i].text.len);
	total = text.len;
	if (!total)
		return;
	if (total > ANSWER_KEPT_MAX)
		buf_truncate(&text, utf8_whole(text.data, ANSWER_KEPT_MAX));
	item = add_item(ret, ITEM_DISCARDED, &text);
	item->truncated = total > item->body_len;
	item->total_bytes = total;
	item->details = why_json(why);
}
