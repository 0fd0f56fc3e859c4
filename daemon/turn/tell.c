#include "daemon/turn/tell.h"

#include "common/utf8.h"
#include "daemon/event/bus.h"
#include "daemon/tool/output.h"
#include "daemon/turn/redact.h"
#include "daemon/turn/render.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Put text under key, cut at the public bound with an ellipsis; flag says whether it was. */
static void put_public(struct json *o, const char *key, const char *flag, const char *text,
                       size_t len)
{
	auto_buf struct buf out = BUF_INIT((size_t)4 * TELL_CHARS + 16);
	size_t whole = utf8_whole(text, len); /* what the store cut may end within a character */
	size_t fits = output_prefix(text, whole, TELL_CHARS);

	buf_add(&out, text, fits);
	if (fits < len)
		buf_adds(&out, "\xe2\x80\xa6");
	json_put_strn(o, key, out.data ? out.data : "", out.len);
	json_put_bool(o, flag, fits < len);
}

void tell_usage(struct json *o, const struct model_answer *usage)
{
	struct json *u;

	if (!usage) {
		json_put_null(o, "usage");
		return;
	}
	u = json_new_object();
	json_put_int(u, "inputTokens", (int64_t)usage->input_tokens);
	json_put_int(u, "outputTokens", (int64_t)usage->output_tokens);
	json_put_int(u, "cachedTokens", (int64_t)usage->cached_tokens);
	json_put_int(u, "reasoningTokens", (int64_t)usage->reasoning_tokens);
	json_put_cost(u, "cost", usage->cost_nano);
	json_put(o, "usage", u);
}

struct json *tell_answer(const struct uuid *turn, const struct item *last,
                         const struct model_answer *usage)
{
	struct json *data = json_new_object();
	bool text = last->kind == ITEM_ASSISTANT;
	char id[80];

	(void)snprintf(id, sizeof(id), "%s-%u", turn->text, last->seq);
	json_put_str(data, "responseId", id);
	put_public(data, "assistantText", "assistantTextTruncated", text ? last->body : "",
	           text ? last->body_len : 0);
	tell_usage(data, usage);
	return data;
}

static struct json *call_json(const struct item *call)
{
	struct json *data = json_new_object();

	json_put_str(data, "callId", call->call_id);
	json_put_str(data, "name", call->tool);
	json_put_str(data, "kind", "function");
	json_put_bool(data, "async", false);
	return data;
}

struct json *tell_call(const struct item *call)
{
	auto_buf struct buf text = BUF_INIT(REDACT_MAX);
	bool redacted = redact_arguments(call, &text);
	struct json *data = call_json(call);

	json_put_bool(data, "argumentsEncrypted", redacted);
	put_public(data, "arguments", "argumentsTruncated", redacted ? text.data : call->body,
	           redacted ? text.len : call->body_len);
	return data;
}

static bool shows_image(const struct json *details)
{
	const struct json *image = details ? json_get(details, "image") : NULL;

	return image && json_bool(json_get(image, "shown"));
}

struct json *tell_plan(const struct json *details)
{
	const struct json *plan = details ? json_get(details, "plan") : NULL;
	struct json *data = plan ? json_new_object() : NULL;

	if (data)
		json_put(data, "plan", json_copy(plan));
	return data;
}

struct json *tell_result(const struct item *call, const struct item *result,
                         const struct json *details)
{
	struct json *data = call_json(call);

	put_public(data, "output", "truncated", result->body ? result->body : "", result->body_len);
	if (result->truncated || result->beginning)
		json_put_bool(data, "truncated", true);
	json_put_bool(data, "lossy", result->lossy);
	json_put_int(data, "totalBytes", (int64_t)result->total_bytes);
	json_put_int(data, "imageCount", shows_image(details));
	json_put(data, "details", details ? json_copy(details) : json_new_object());
	return data;
}

struct json *tell_reply(const struct item *result, const char *reason)
{
	auto_json struct json *details = json_new_object();

	json_put_str(details, "reason", reason);
	return tell_result(result, result, details);
}

const char *tell_end_type(enum turn_state state)
{
	if (state == TURN_COMPLETED)
		return "turn.completed";
	return state == TURN_FAILED ? "turn.failed" : "turn.cancelled";
}

struct json *tell_end(const char *code, const char *text)
{
	struct json *data = json_new_object(), *error;

	if (!code) {
		json_put_null(data, "error");
		return data;
	}
	error = json_new_object();
	json_put_str(error, "code", code);
	json_put_str(error, "message", text);
	json_put(data, "error", error);
	return data;
}

/* -- again ----------------------------------------------------------------------------- */

struct again {
	const struct turn *turn;
	const struct item_list *list;
	struct buf *out;
	bool cut;
};

static void add(struct again *a, const char *type, struct json *data, uint64_t at_ms)
{
	const struct bus_event event = {
		.type = type, .turn = &a->turn->id, .session = &a->turn->session, .data = data
	};

	bus_rebuilt(a->out, &event, at_ms);
}

static void add_text(struct again *a, const char *type, const struct item *said)
{
	const char *text = said->body;
	size_t len = utf8_whole(text, said->body_len);

	while (len > 0) {
		size_t n = output_prefix(text, len, TELL_CHARS);
		struct json *data = json_new_object();

		json_put_strn(data, "text", text, n);
		json_put_bool(data, "truncated", said->beginning && n == len);
		add(a, type, data, 0);
		text += n;
		len -= n;
	}
}

static const struct item *call_of(const struct again *a, size_t result)
{
	for (size_t i = result; i-- > 0;)
		if (a->list->items[i].kind == ITEM_TOOL_CALL &&
		    strcmp(a->list->items[i].call_id, a->list->items[result].call_id) == 0)
			return &a->list->items[i];
	return &a->list->items[result];
}

static void add_result(struct again *a, size_t i)
{
	const struct item *result = &a->list->items[i], *call = call_of(a, i);
	auto_json struct json *details = NULL;
	struct err e = ERR_INIT;
	struct json *plan;

	if (result->details && json_parse(result->details, strlen(result->details), &details, &e))
		details = NULL;
	add(a, "tool.started", tell_call(call), 0);
	add(a, "tool.finished", tell_result(call, result, details), 0);
	plan = tell_plan(details);
	if (plan)
		add(a, "plan.updated", plan, 0);
}

static void add_discarded(struct again *a, const struct item *said)
{
	auto_json struct json *details = NULL;
	struct json *data = json_new_object();
	struct err e = ERR_INIT;

	if (said->details && json_parse(said->details, strlen(said->details), &details, &e))
		details = NULL;
	add_text(a, "response.text.delta", said);
	json_put_str(data, "reason", json_str(json_get(details, "reason")));
	json_put_bool(data, "displayOnly", true);
	add(a, "response.attempt.discarded", data, 0);
}

static bool is_answer(const struct item *item)
{
	return item->kind != ITEM_USER && item->kind != ITEM_TOOL_RESULT;
}

static void add_item(struct again *a, size_t i)
{
	const struct item *item = &a->list->items[i];
	bool last = i + 1 == a->list->count || !is_answer(item + 1) || item[1].seq != item->seq + 1;

	a->cut = a->cut || item->beginning;
	if (item->kind == ITEM_TOOL_RESULT) {
		add_result(a, i);
		return;
	}
	if (!is_answer(item))
		return;
	if (!is_answer(item - 1))
		add(a, "agent.turn.started", NULL, 0);
	if (item->kind == ITEM_ASSISTANT)
		add_text(a, "response.text.delta", item);
	if (item->kind == ITEM_REASONING)
		add_text(a, "response.reasoning.delta", item);
	if (item->kind == ITEM_DISCARDED)
		add_discarded(a, item);
	else if (last)
		add(a, "agent.turn.finished", tell_answer(&a->turn->id, item, NULL), 0);
}

static void add_warning(struct again *a)
{
	struct json *data = json_new_object();

	json_put_str(data, "text", "some of what the turn said is left out; its history has more");
	json_put_bool(data, "truncated", true);
	add(a, "warning", data, 0);
}

int tell_again(struct store *s, const struct uuid *tenant, const struct turn *t, struct buf *out,
               struct err *e)
{
	struct item_list list = { NULL, 0 };
	struct again a = { .turn = t, .list = &list, .out = out };

	if (turn_items_shown(s, tenant, &t->id, &list, e))
		return -1;
	add(&a, "turn.queued", NULL, t->created_ms);
	if (t->started_ms)
		add(&a, "turn.started", NULL, t->started_ms);
	for (size_t i = 1; i < list.count; i++) /* the first is the input */
		add_item(&a, i);
	if (a.cut || list.count >= ITEMS_SHOWN)
		add_warning(&a);
	add(&a, tell_end_type(t->state),
	    tell_end(t->error_code[0] ? t->error_code : NULL, t->error), t->finished_ms);
	item_list_release(&list);
	return buf_failed(out) ? err_set(e, ENOMEM, "no memory for the events of a turn") : 0;
}
