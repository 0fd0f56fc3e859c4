#include "daemon/api/public.h"

#include "common/buf.h"
#include "common/utf8.h"
#include "daemon/tool/output.h"
#include "daemon/turn/redact.h"
#include "daemon/turn/render.h"

#include <string.h>

#define TEXT_MAX ((size_t)64 * 1024 * 1024) /* bytes of a text that had to be repaired */

static const char *const kinds[] = {
	[ITEM_USER] = "user",           [ITEM_ASSISTANT] = "assistant",
	[ITEM_TOOL_CALL] = "tool_call", [ITEM_TOOL_RESULT] = "tool_result",
	[ITEM_REASONING] = "reasoning", [ITEM_DISCARDED] = "discarded",
};

/* -- text ------------------------------------------------------------------------------- */

static size_t characters(const char *text, size_t len)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++)
		n += ((unsigned char)text[i] & 0xc0) != 0x80;
	return n;
}

/* Put at most max characters and, when there are more, an ellipsis; true when it was cut. */
static bool put_cut(struct json *o, const char *key, const char *text, size_t len, size_t max)
{
	auto_buf struct buf repaired = BUF_INIT(TEXT_MAX), out = BUF_INIT(4 * (max + 1));
	size_t fits;

	if (!utf8_valid(text, len)) {
		(void)utf8_repair(text, len, &repaired);
		text = repaired.data ? repaired.data : "";
		len = repaired.len;
	}
	fits = output_prefix(text, len, max);
	buf_add(&out, text, fits);
	if (fits < len)
		buf_adds(&out, "\xe2\x80\xa6");
	json_put_strn(o, key, out.data ? out.data : "", out.len);
	return fits < len;
}

struct text {
	const char *at;
	size_t len;
	bool more; /* at is only the beginning */
};

static void put_text(struct json *o, const char *key, const char *flag, struct text t,
                     struct public_budget *b)
{
	size_t max = b->chars < PUBLIC_CHARS ? b->chars : PUBLIC_CHARS;
	size_t used = characters(t.at, output_prefix(t.at, t.len, max));
	bool cut = put_cut(o, key, t.at, t.len, max) || t.more;

	json_put_bool(o, flag, cut);
	b->exceeded = b->exceeded || cut;
	b->chars -= used < b->chars ? used : b->chars;
}

void public_put_arguments(struct json *o, const char *key, const struct item *call,
                          size_t max_chars)
{
	auto_buf struct buf text = BUF_INIT(REDACT_MAX);
	bool redacted = call->kind == ITEM_TOOL_CALL && redact_arguments(call, &text);

	(void)put_cut(o, key, redacted ? text.data : call->body,
	              redacted ? text.len : call->body_len, max_chars);
}

/* -- items ------------------------------------------------------------------------------ */

void public_put_attachments(struct json *o, const struct turn *t)
{
	struct json *list = NULL;
	struct err e = ERR_INIT;

	if (!t->attachments || json_parse(t->attachments, strlen(t->attachments), &list, &e))
		list = json_new_array();
	json_put(o, "attachments", list);
}

void public_put_usage(struct json *o, const struct turn *t)
{
	json_put(o, "usage",
	         usage_json(t->input_tokens, t->output_tokens, t->cached_tokens,
	                    t->reasoning_tokens, t->cost_nano));
}

struct json *public_details(const struct item *result)
{
	struct json *details = NULL;
	struct err e = ERR_INIT;

	if (!result->details || json_parse(result->details, strlen(result->details), &details, &e))
		return NULL;
	return details;
}

void public_put_details(struct json *o, const char *key, const struct item *result)
{
	struct json *details = public_details(result);

	if (details)
		json_put(o, key, details);
	else
		json_put_null(o, key);
}

static void put_call(struct json *o, const struct item *call, struct public_budget *b)
{
	static const char *const states[] = { [CALL_NONE] = "done",
		                              [CALL_PENDING] = "pending",
		                              [CALL_STARTED] = "started",
		                              [CALL_DONE] = "done" };
	auto_buf struct buf text = BUF_INIT(REDACT_MAX);
	bool redacted = redact_arguments(call, &text);

	json_put_str(o, "callId", call->call_id);
	json_put_str(o, "name", call->tool);
	json_put_str(o, "state", states[call->call_state]);
	put_text(o, "arguments", "argumentsTruncated",
	         (struct text){ redacted ? text.data : call->body,
	                        redacted ? text.len : call->body_len, call->beginning },
	         b);
	json_put_bool(o, "argumentsRedacted", redacted);
}

static void put_result(struct json *o, const struct item *result, struct public_budget *b)
{
	json_put_str(o, "callId", result->call_id);
	json_put_str(o, "name", result->tool);
	put_text(o, "output", "truncated",
	         (struct text){ result->body, result->body_len, result->beginning }, b);
	if (result->truncated)
		json_put_bool(o, "truncated", true);
	json_put_bool(o, "lossy", result->lossy);
	json_put_int(o, "totalBytes", (int64_t)result->total_bytes);
	public_put_details(o, "details", result);
}

static void put_discarded(struct json *o, const struct item *item, struct public_budget *b)
{
	auto_json struct json *details = public_details(item);

	put_text(o, "text", "textTruncated",
	         (struct text){ item->body, item->body_len, item->beginning || item->truncated },
	         b);
	json_put_str(o, "reason", details ? json_str(json_get(details, "reason")) : NULL);
}

static size_t nodes(const struct json *v);

static void add_nodes(void *ctx, const char *key, const struct json *value)
{
	size_t *n = ctx;

	(void)key;
	*n += nodes(value);
}

static size_t nodes(const struct json *v) /* NOLINT(misc-no-recursion) */
{
	size_t n = 1;

	if (json_type(v) == JSON_OBJECT)
		json_each(v, add_nodes, &n);
	for (size_t i = 0; i < json_len(v); i++)
		n += nodes(json_at(v, i));
	return n;
}

static struct json *new_item(const struct item *item)
{
	struct json *o = json_new_object();

	json_put_int(o, "seq", item->seq);
	json_put_str(o, "kind", kinds[item->kind]);
	return o;
}

/* Counted against the budget; NULL, and o freed, where there is no room for it. */
static struct json *within(struct json *o, struct public_budget *budget)
{
	size_t n = nodes(o);

	if (n > budget->nodes) {
		json_free(&o);
		budget->exceeded = true;
		budget->nodes = 0;
		return NULL;
	}
	budget->nodes -= n;
	return o;
}

struct json *public_reasoning(const struct item *item, struct public_budget *budget)
{
	struct json *o = new_item(item);

	json_put_str(o, "encrypted_content", item->sealed ? "[redacted]" : NULL);
	return within(o, budget);
}

struct json *public_item(const struct item *item, struct public_budget *budget)
{
	struct json *o = new_item(item);

	if (item->kind == ITEM_TOOL_CALL)
		put_call(o, item, budget);
	else if (item->kind == ITEM_TOOL_RESULT)
		put_result(o, item, budget);
	else if (item->kind == ITEM_DISCARDED)
		put_discarded(o, item, budget);
	else
		put_text(o, "text", "textTruncated",
		         (struct text){ item->body, item->body_len, item->beginning }, budget);
	return within(o, budget);
}
