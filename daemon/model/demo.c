#include "daemon/model/demo.h"

#include "common/fd.h"
#include "common/id.h"
#include "common/json.h"
#include "common/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_MAX ((size_t)4 * 1024 * 1024) /* bytes of one item's body */

struct span {
	const char *at;
	size_t len;
};

static struct span trim(struct span s)
{
	while (s.len && (*s.at == ' ' || *s.at == '\t')) {
		s.at++;
		s.len--;
	}
	while (s.len && strchr(" \t\r", s.at[s.len - 1]))
		s.len--;
	return s;
}

/* Cut the part of *rest before the first sep off; *rest is what follows it. */
static struct span cut(struct span *rest, char sep)
{
	const char *end = memchr(rest->at, sep, rest->len);
	struct span head = { rest->at, end ? (size_t)(end - rest->at) : rest->len };

	rest->at += head.len + (end ? 1 : 0);
	rest->len -= head.len + (end ? 1 : 0);
	return head;
}

static struct item *add_item(struct item_list *list, enum item_kind kind)
{
	struct item *items = realloc(list->items, (list->count + 1) * sizeof(*items));

	if (!items)
		return NULL;
	list->items = items;
	items[list->count] = (struct item){ .kind = kind };
	return &items[list->count++];
}

/* Append an item whose body is the content of body. */
static int add_body(struct item_list *list, enum item_kind kind, const char *tool, struct buf *body,
                    struct err *e)
{
	struct item *item;
	size_t len = body->len;

	if (buf_failed(body))
		return err_set(e, MODEL_FAILED, "an answer of the demo model is too large");
	item = add_item(list, kind);
	if (!item)
		return err_set(e, ENOMEM, "no memory for a model answer");
	if (tool) {
		struct uuid id = uuid_new();

		(void)snprintf(item->call_id, sizeof(item->call_id), "call_%s", id.text);
		(void)snprintf(item->tool, sizeof(item->tool), "%s", tool);
		item->call_state = CALL_PENDING;
	}
	item->body = buf_take(body);
	item->body_len = len;
	return item->body ? 0 : err_set(e, ENOMEM, "no memory for a model answer");
}

static int add_call(struct item_list *list, const char *tool, const struct json *arguments,
                    struct err *e)
{
	auto_buf struct buf body = BUF_INIT(ANSWER_MAX);

	json_write(arguments, &body);
	return add_body(list, ITEM_TOOL_CALL, tool, &body, e);
}

static int add_shell(struct item_list *list, struct span command, struct err *e)
{
	auto_json struct json *arguments = json_new_object();

	json_put_strn(arguments, "command", command.at, command.len);
	return add_call(list, "shell", arguments, e);
}

static int add_question(struct item_list *list, struct span line, struct err *e)
{
	auto_json struct json *arguments = json_new_object();
	struct json *options = json_new_array();
	struct span question = trim(cut(&line, '|'));

	json_put_strn(arguments, "question", question.at, question.len);
	while (line.len) {
		struct span option = trim(cut(&line, '|'));
		auto_free char *text = strndup(option.at, option.len);

		if (text && *text)
			json_push_str(options, text);
	}
	json_put(arguments, "options", options);
	return add_call(list, "ask_user", arguments, e);
}

/* "@tool {json}": the bytes after the name are the arguments, as they are. */
static int add_named(struct item_list *list, struct span line, struct err *e)
{
	auto_buf struct buf body = BUF_INIT(ANSWER_MAX);
	struct span name = cut(&line, ' ');
	char tool[65];

	(void)snprintf(tool, sizeof(tool), "%.*s",
	               (int)(name.len < 64 ? name.len : utf8_whole(name.at, 64)), name.at);
	line = trim(line);
	if (json_too_many(line.at, line.len, JSON_VALUES_MAX))
		return err_set(e, MODEL_FAILED, "a tool call with more than %d values",
		               JSON_VALUES_MAX);
	buf_add(&body, line.at, line.len);
	return add_body(list, ITEM_TOOL_CALL, tool, &body, e);
}

static bool starts(struct span line, const char *prefix)
{
	size_t n = strlen(prefix);

	return line.len > n && memcmp(line.at, prefix, n) == 0;
}

static struct span skip(struct span s, size_t n)
{
	return (struct span){ s.at + n, s.len - n };
}

static int read_line(struct item_list *calls, struct buf *text, struct span line, struct err *e)
{
	if (starts(line, "$ "))
		return add_shell(calls, skip(line, 2), e);
	if (starts(line, "? "))
		return add_question(calls, skip(line, 2), e);
	if (starts(line, "@") && line.at[1] >= 'a' && line.at[1] <= 'z')
		return add_named(calls, skip(line, 1), e);
	if (text->len)
		buf_addc(text, '\n');
	buf_add(text, line.at, line.len);
	return 0;
}

static int say(const char *text, size_t len, const struct model_sink *sink,
               struct model_answer *ret, struct err *e)
{
	auto_buf struct buf body = BUF_INIT(ANSWER_MAX);

	sink->text(sink->ctx, text, len);
	buf_add(&body, text, len);
	ret->output_tokens += (len + 3) / 4;
	return add_body(&ret->items, ITEM_ASSISTANT, NULL, &body, e);
}

/* First answer: the calls that the input asks for, or its text again. */
static int open_turn(const struct item *user, const struct model_sink *sink,
                     struct model_answer *ret, struct err *e)
{
	auto_buf struct buf text = BUF_INIT(ANSWER_MAX);
	struct span rest = { user->body, user->body_len };
	struct item_list calls = { 0 };
	int rc = 0;

	while (rest.len && !rc) {
		rc = read_line(&calls, &text, cut(&rest, '\n'), e);
		if (!rc && calls.count > DEMO_CALLS_MAX)
			rc = err_set(e, MODEL_FAILED, "more than %d tool calls in one input",
			             DEMO_CALLS_MAX);
	}
	if (rc || calls.count == 0) {
		item_list_release(&calls);
		return rc ? rc : say(text.data ? text.data : "", text.len, sink, ret, e);
	}
	ret->items = calls;
	return 0;
}

int demo_respond(const struct item_list *transcript, const struct model_sink *sink,
                 struct model_answer *ret, struct err *e)
{
	const struct item *last;
	int rc;

	if (transcript->count == 0)
		return err_set(e, MODEL_FAILED, "the transcript is empty");
	*ret = (struct model_answer){ .cost_nano = -1 };
	for (size_t i = 0; i < transcript->count; i++)
		ret->input_tokens += (transcript->items[i].body_len + 3) / 4;
	last = &transcript->items[transcript->count - 1];
	if (last->kind == ITEM_TOOL_RESULT) {
		rc = say(last->body, last->body_len, sink, ret, e);
	} else {
		rc = open_turn(last, sink, ret, e);
	}
	if (rc)
		item_list_release(&ret->items);
	return rc;
}
