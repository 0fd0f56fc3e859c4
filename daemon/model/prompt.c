#include "daemon/model/prompt.h"

#include "common/utf8.h"
#include "daemon/model/fault.h"
#include "daemon/model/prompt_format.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define TYPE_MAX 256 /* bytes of a media type that are told */

struct json *prompt_typed(const char *type)
{
	struct json *o = json_new_object();

	json_put_str(o, "type", type);
	return o;
}

void prompt_push_message(struct json *messages, const char *role, struct json *content)
{
	struct json *message = json_new_object();

	json_put_str(message, "role", role);
	json_put(message, "content", content);
	json_push(messages, message);
}

/* -- text ---------------------------------------------------------------------------------- */

static void add_body(struct buf *out, const struct item *item)
{
	const char *data = item->body ? item->body : "";

	if (utf8_valid(data, item->body_len))
		buf_add(out, data, item->body_len);
	else
		(void)utf8_repair(data, item->body_len, out);
}

static void add_unseen(struct buf *out, const struct prompt_work *w, size_t i)
{
	for (size_t k = 0; k < w->prompt->image_count; k++) {
		const struct model_image *image = &w->prompt->images[k];

		if (image->item == i)
			buf_addf(out,
			         "\n[an image is here that this model cannot see: %.*s, %zu bytes]",
			         TYPE_MAX, image->type, image->len);
	}
}

void prompt_add_text(struct buf *out, const struct prompt_work *w, size_t i)
{
	add_body(out, &w->prompt->transcript->items[i]);
	if (!w->to->sees_images)
		add_unseen(out, w, i);
}

void prompt_put_text(struct json *o, const char *key, const struct prompt_work *w, size_t i)
{
	auto_buf struct buf text = BUF_INIT(3 * PROMPT_BYTES_MAX);

	prompt_add_text(&text, w, i);
	json_put_strn(o, key, text.data ? text.data : "", text.len);
}

struct json *prompt_text_part(const char *type, const struct prompt_work *w, size_t i)
{
	struct json *part = prompt_typed(type);

	prompt_put_text(part, "text", w, i);
	return part;
}

/* -- images -------------------------------------------------------------------------------- */

const struct model_image *prompt_next_image(const struct prompt_work *w, size_t i, size_t *at)
{
	while (w->to->sees_images && *at < w->prompt->image_count) {
		const struct model_image *image = &w->prompt->images[(*at)++];

		if (image->item == i)
			return image;
	}
	return NULL;
}

bool prompt_has_image(const struct prompt_work *w, size_t i)
{
	size_t at = 0;

	return prompt_next_image(w, i, &at) != NULL;
}

void prompt_put_base64(struct json *o, const char *key, const char *prefix,
                       const struct model_image *image)
{
	size_t size = sodium_base64_encoded_len(image->len, sodium_base64_VARIANT_ORIGINAL);
	auto_buf struct buf text = BUF_INIT(strlen(prefix) + size);
	char *at;

	buf_adds(&text, prefix);
	at = buf_extend(&text, size - 1); /* size counts the NUL, which a buffer has anyway */
	if (!at)
		abort(); /* as the JSON that it becomes part of does */
	(void)sodium_bin2base64(at, size, (const unsigned char *)image->data, image->len,
	                        sodium_base64_VARIANT_ORIGINAL);
	json_put_strn(o, key, text.data, text.len);
}

void prompt_put_data_url(struct json *o, const char *key, const struct model_image *image)
{
	auto_buf struct buf prefix = BUF_INIT(TYPE_MAX + 32);

	buf_addf(&prefix, "data:%.*s;base64,", TYPE_MAX, image->type);
	prompt_put_base64(o, key, prefix.data ? prefix.data : "", image);
}

/* -- the transcript ------------------------------------------------------------------------ */

/* Results follow soon, so this is short but for the few calls that have none. */
static bool has_result(const struct item_list *list, size_t call)
{
	for (size_t i = call + 1; i < list->count; i++)
		if (list->items[i].kind == ITEM_TOOL_RESULT &&
		    strcmp(list->items[i].call_id, list->items[call].call_id) == 0)
			return true;
	return false;
}

/* Of all but reasoning. */
static bool is_said(const struct item_list *list, size_t i)
{
	const struct item *item = &list->items[i];

	if (item->kind == ITEM_TOOL_CALL)
		return has_result(list, i);
	return item->kind != ITEM_DISCARDED && (item->kind != ITEM_ASSISTANT || item->body_len);
}

static bool takes_back(const struct prompt_work *w, const struct item *item)
{
	return item->opaque_len && w->to->origin && strcmp(item->origin, w->to->origin) == 0;
}

/* Providers refuse reasoning without what it led to, which comes next. */
static bool leads_to_something(const struct prompt_work *w, size_t i)
{
	const struct item_list *list = w->prompt->transcript;
	size_t end = prompt_answer_end(list, i);

	while (i < end && list->items[i].kind == ITEM_REASONING)
		i++;
	return i < end && is_said(list, i);
}

bool prompt_is_told(const struct prompt_work *w, size_t i)
{
	const struct item *item = &w->prompt->transcript->items[i];

	if (item->kind == ITEM_REASONING)
		return takes_back(w, item) && leads_to_something(w, i);
	return is_said(w->prompt->transcript, i);
}

bool prompt_is_answer(const struct item_list *list, size_t i)
{
	return list->items[i].kind != ITEM_USER && list->items[i].kind != ITEM_TOOL_RESULT;
}

size_t prompt_answer_end(const struct item_list *list, size_t at)
{
	while (at < list->count && prompt_is_answer(list, at))
		at++;
	return at;
}

/* -- reasoning ----------------------------------------------------------------------------- */

const char *prompt_effort(const struct prompt_work *w)
{
	return effort_for(&w->to->reasoning, w->prompt->effort);
}

/* It was written by us when it came. */
void prompt_push_reasoning(struct json *to, const struct item *item)
{
	struct json *back = NULL;
	struct err e = ERR_INIT;

	if (json_parse(item->opaque, item->opaque_len, &back, &e) == 0)
		json_push(to, back);
}

/* -- all --------------------------------------------------------------------------------------- */

/* Chat completions wraps what the others say at once. */
static struct json *tool_json(const struct model_tool *tool, enum dialect dialect,
                              struct json *schema)
{
	struct json *o = json_new_object(), *outer;

	json_put_str(o, "name", tool->name);
	json_put_str(o, "description", tool->description);
	json_put(o, dialect == DIALECT_MESSAGES ? "input_schema" : "parameters", schema);
	if (dialect == DIALECT_RESPONSES) {
		json_put_str(o, "type", "function");
		json_put_bool(o, "strict", false);
	}
	if (dialect != DIALECT_CHAT)
		return o;
	outer = prompt_typed("function");
	json_put(outer, "function", o);
	return outer;
}

static int put_tools(struct json *o, const struct model_prompt *p, enum dialect dialect,
                     struct err *e)
{
	struct json *tools = json_new_array();

	if (!p->tool_count) {
		json_free(&tools);
		return 0;
	}
	json_put(o, "tools", tools);
	for (size_t i = 0; i < p->tool_count; i++) {
		const struct model_tool *tool = &p->tools[i];
		struct json *schema = NULL;

		if (json_parse(tool->schema, strlen(tool->schema), &schema, e) < 0)
			return err_wrap(e, "schema of the tool %s", tool->name);
		json_push(tools, tool_json(tool, dialect, schema));
	}
	return 0;
}

int prompt_write(const struct model_prompt *p, const struct prompt_target *to, struct buf *out,
                 struct err *e)
{
	static void (*const writers[])(struct json * o, const struct prompt_work *w) = {
		[DIALECT_CHAT] = prompt_write_chat,
		[DIALECT_RESPONSES] = prompt_write_responses,
		[DIALECT_MESSAGES] = prompt_write_messages,
	};
	const struct prompt_work w = { p, to };
	auto_json struct json *o = json_new_object();

	json_put_str(o, "model", to->model);
	json_put_bool(o, "stream", true);
	if (put_tools(o, p, to->dialect, e) < 0)
		return -1;
	writers[to->dialect](o, &w);
	json_write(o, out);
	return buf_failed(out) ? err_set(e, MODEL_CONTEXT,
	                                 "the conversation is longer than %zu bytes", out->max)
	                       : 0;
}
