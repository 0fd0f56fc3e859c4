/*
 * The three formats tell the same story with different borders.  Chat completions has one
 * message for an answer with its calls and one for each result; messages has one for an
 * answer and one for all its results; responses has one list of items.
 */
#include "daemon/model/prompt.h"

#include "common/utf8.h"
#include "daemon/model/fault.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

static void put_body(struct json *o, const char *key, const struct item *item)
{
	auto_buf struct buf whole = BUF_INIT(3 * item->body_len);
	const char *data = item->body ? item->body : "";

	if (utf8_valid(data, item->body_len)) {
		json_put_strn(o, key, data, item->body_len);
		return;
	}
	(void)utf8_repair(data, item->body_len, &whole);
	json_put_strn(o, key, whole.data ? whole.data : "", whole.len);
}

static struct json *typed(const char *type)
{
	struct json *o = json_new_object();

	json_put_str(o, "type", type);
	return o;
}

static struct json *text_part(const char *type, const struct item *item)
{
	struct json *part = typed(type);

	put_body(part, "text", item);
	return part;
}

/* The prefix and the image in base64. */
static void put_image(struct json *o, const char *key, const char *prefix,
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

static void put_data_url(struct json *o, const char *key, const struct model_image *image)
{
	auto_buf struct buf prefix = BUF_INIT(512);

	buf_addf(&prefix, "data:%s;base64,", image->type);
	put_image(o, key, prefix.data ? prefix.data : "", image);
}

/* NULL = the item is not the input, or no image came with it. */
static const struct model_image *image_of(const struct model_prompt *p, const struct item *item)
{
	return p->image.data && item == p->transcript->items ? &p->image : NULL;
}

static void push_message(struct json *messages, const char *role, const char *key,
                         struct json *content)
{
	struct json *message = json_new_object();

	json_put_str(message, "role", role);
	json_put(message, key, content);
	json_push(messages, message);
}

/* -- the transcript ------------------------------------------------------------------------ */

/* Items that are one message: from list->items[at] to before the returned index. */
static size_t span_end(const struct item_list *list, size_t at)
{
	enum item_kind kind = list->items[at].kind;
	enum item_kind more = kind == ITEM_ASSISTANT ? ITEM_TOOL_CALL : kind;
	size_t end = at + 1;

	if (kind == ITEM_USER)
		return end;
	while (end < list->count && list->items[end].kind == more)
		end++;
	return end;
}

static bool has_result(const struct item_list *list, const struct item *call)
{
	for (size_t i = 0; i < list->count; i++)
		if (list->items[i].kind == ITEM_TOOL_RESULT &&
		    strcmp(list->items[i].call_id, call->call_id) == 0)
			return true;
	return false;
}

/* What a model is told of an item: every one, but for calls that nothing came of. */
static bool is_told(const struct item_list *list, const struct item *item)
{
	if (item->kind == ITEM_TOOL_CALL)
		return has_result(list, item);
	return item->kind != ITEM_ASSISTANT || item->body_len;
}

/* -- chat completions ------------------------------------------------------------------------ */

static struct json *chat_call(const struct item *item)
{
	struct json *call = typed("function"), *function = json_new_object();

	json_put_str(call, "id", item->call_id);
	json_put_str(function, "name", item->tool);
	put_body(function, "arguments", item);
	json_put(call, "function", function);
	return call;
}

static void chat_answer(struct json *messages, const struct item_list *list, size_t at, size_t end)
{
	struct json *message = json_new_object(), *calls = json_new_array();

	json_put_str(message, "role", "assistant");
	json_put_null(message, "content");
	for (; at < end; at++) {
		const struct item *item = &list->items[at];

		if (!is_told(list, item))
			continue;
		if (item->kind == ITEM_ASSISTANT)
			put_body(message, "content", item);
		else
			json_push(calls, chat_call(item));
	}
	if (json_len(calls))
		json_put(message, "tool_calls", calls);
	else
		json_free(&calls);
	if (calls || json_str(json_get(message, "content")))
		json_push(messages, message);
	else
		json_free(&message);
}

static struct json *chat_parts(const struct item *item, const struct model_image *image)
{
	struct json *parts = json_new_array(), *part = typed("image_url"), *url = json_new_object();

	json_push(parts, text_part("text", item));
	put_data_url(url, "url", image);
	json_put(part, "image_url", url);
	json_push(parts, part);
	return parts;
}

static void chat_item(struct json *messages, const struct model_prompt *p, const struct item *item)
{
	const struct model_image *image = image_of(p, item);
	struct json *message = json_new_object();

	json_put_str(message, "role", item->kind == ITEM_USER ? "user" : "tool");
	if (item->kind == ITEM_TOOL_RESULT)
		json_put_str(message, "tool_call_id", item->call_id);
	if (image)
		json_put(message, "content", chat_parts(item, image));
	else
		put_body(message, "content", item);
	json_push(messages, message);
}

static void chat_messages(struct json *messages, const struct model_prompt *p)
{
	const struct item_list *list = p->transcript;
	size_t end;

	for (size_t at = 0; at < list->count; at = end) {
		enum item_kind kind = list->items[at].kind;

		end = kind == ITEM_TOOL_RESULT ? at + 1 : span_end(list, at);
		if (kind == ITEM_USER || kind == ITEM_TOOL_RESULT)
			chat_item(messages, p, &list->items[at]);
		else
			chat_answer(messages, list, at, end);
	}
}

static void write_chat(struct json *o, const struct model_prompt *p, const struct prompt_target *to)
{
	struct json *messages = json_new_array(), *options = json_new_object(), *system;

	json_put_int(o, "max_completion_tokens", to->max_output_tokens);
	json_put_bool(options, "include_usage", true);
	json_put(o, "stream_options", options);
	if (p->system) {
		system = json_new_object();
		json_put_str(system, "role", "system");
		json_put_str(system, "content", p->system);
		json_push(messages, system);
	}
	chat_messages(messages, p);
	json_put(o, "messages", messages);
}

/* -- responses ------------------------------------------------------------------------------- */

static struct json *one_part(const char *type, const struct item *item)
{
	struct json *content = json_new_array();

	json_push(content, text_part(type, item));
	return content;
}

static struct json *responses_call(const struct item *item)
{
	struct json *call = typed("function_call");

	json_put_str(call, "call_id", item->call_id);
	json_put_str(call, "name", item->tool);
	put_body(call, "arguments", item);
	return call;
}

static struct json *responses_result(const struct item *item)
{
	struct json *result = typed("function_call_output");

	json_put_str(result, "call_id", item->call_id);
	put_body(result, "output", item);
	return result;
}

static struct json *responses_input(const struct item *item, const struct model_image *image)
{
	struct json *content = one_part("input_text", item), *part;

	if (image) {
		part = typed("input_image");
		put_data_url(part, "image_url", image);
		json_push(content, part);
	}
	return content;
}

static void responses_item(struct json *input, const struct model_prompt *p,
                           const struct item *item)
{
	switch (item->kind) {
	case ITEM_USER:
		push_message(input, "user", "content", responses_input(item, image_of(p, item)));
		break;
	case ITEM_ASSISTANT:
		push_message(input, "assistant", "content", one_part("output_text", item));
		break;
	case ITEM_TOOL_CALL:
		json_push(input, responses_call(item));
		break;
	case ITEM_TOOL_RESULT:
		json_push(input, responses_result(item));
		break;
	}
}

/* The provider is to keep nothing: what it needs to know, it is told again. */
static void write_responses(struct json *o, const struct model_prompt *p,
                            const struct prompt_target *to)
{
	struct json *input = json_new_array();

	json_put_int(o, "max_output_tokens", to->max_output_tokens);
	json_put_bool(o, "store", false);
	if (p->system)
		json_put_str(o, "instructions", p->system);
	for (size_t i = 0; i < p->transcript->count; i++)
		if (is_told(p->transcript, &p->transcript->items[i]))
			responses_item(input, p, &p->transcript->items[i]);
	json_put(o, "input", input);
}

/* -- messages -------------------------------------------------------------------------------- */

/* The input has to be an object, so arguments that are none are shown as what they are. */
static struct json *input_of(const struct item *item)
{
	struct json *input = NULL;
	struct err e = ERR_INIT;

	if (json_parse(item->body ? item->body : "", item->body_len, &input, &e) == 0 &&
	    json_type(input) == JSON_OBJECT)
		return input;
	json_free(&input);
	input = json_new_object();
	put_body(input, "malformed_arguments", item);
	return input;
}

static struct json *messages_block(const struct item *item)
{
	struct json *block;

	if (item->kind == ITEM_TOOL_CALL) {
		block = typed("tool_use");
		json_put_str(block, "id", item->call_id);
		json_put_str(block, "name", item->tool);
		json_put(block, "input", input_of(item));
		return block;
	}
	if (item->kind != ITEM_TOOL_RESULT)
		return text_part("text", item);
	block = typed("tool_result");
	json_put_str(block, "tool_use_id", item->call_id);
	put_body(block, "content", item);
	return block;
}

static struct json *messages_image(const struct model_image *image)
{
	struct json *block = typed("image"), *source = typed("base64");

	json_put_str(source, "media_type", image->type);
	put_image(source, "data", "", image);
	json_put(block, "source", source);
	return block;
}

/* So that the next request pays little for what this one has said. */
static void mark_cached(struct json *block)
{
	json_put(block, "cache_control", typed("ephemeral"));
}

static void messages_list(struct json *messages, const struct model_prompt *p)
{
	const struct item_list *list = p->transcript;
	struct json *last = NULL;
	size_t end;

	for (size_t at = 0; at < list->count; at = end) {
		enum item_kind kind = list->items[at].kind;
		bool users = kind == ITEM_USER || kind == ITEM_TOOL_RESULT;
		struct json *content = json_new_array();

		end = span_end(list, at);
		for (size_t i = at; i < end; i++) {
			if (!is_told(list, &list->items[i]))
				continue;
			if (image_of(p, &list->items[i]))
				json_push(content, messages_image(&p->image));
			last = messages_block(&list->items[i]);
			json_push(content, last);
		}
		if (json_len(content))
			push_message(messages, users ? "user" : "assistant", "content", content);
		else
			json_free(&content);
	}
	if (last)
		mark_cached(last);
}

static void write_messages(struct json *o, const struct model_prompt *p,
                           const struct prompt_target *to)
{
	struct json *messages = json_new_array();

	json_put_int(o, "max_tokens", to->max_output_tokens);
	if (p->system)
		json_put_str(o, "system", p->system);
	messages_list(messages, p);
	json_put(o, "messages", messages);
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
	outer = typed("function");
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
	static void (*const writers[])(struct json * o, const struct model_prompt *p,
	                               const struct prompt_target *to) = {
		[DIALECT_CHAT] = write_chat,
		[DIALECT_RESPONSES] = write_responses,
		[DIALECT_MESSAGES] = write_messages,
	};
	auto_json struct json *o = json_new_object();

	json_put_str(o, "model", to->model);
	json_put_bool(o, "stream", true);
	if (put_tools(o, p, to->dialect, e) < 0)
		return -1;
	writers[to->dialect](o, p, to);
	json_write(o, out);
	return buf_failed(out) ? err_set(e, MODEL_CONTEXT,
	                                 "the conversation is longer than %zu bytes", out->max)
	                       : 0;
}
