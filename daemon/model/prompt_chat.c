/*
 * Chat completions has one message for an answer with its calls, and one for each result.
 * A result is text only, so images of results follow in a user's message of their own.
 * Reasoning is not part of the format: no answer of it has any that is taken back.
 */
#include "daemon/model/prompt_format.h"

static struct json *call_json(const struct prompt_work *w, size_t i)
{
	const struct item *item = &w->prompt->transcript->items[i];
	struct json *call = prompt_typed("function"), *function = json_new_object();

	json_put_str(call, "id", item->call_id);
	json_put_str(function, "name", item->tool);
	prompt_put_text(function, "arguments", w, i);
	json_put(call, "function", function);
	return call;
}

static void put_answer(struct json *messages, const struct prompt_work *w, size_t at, size_t end)
{
	struct json *message = json_new_object(), *calls = json_new_array();
	auto_buf struct buf text = BUF_INIT(3 * PROMPT_BYTES_MAX);

	for (; at < end; at++) {
		if (!prompt_is_told(w, at))
			continue;
		if (w->prompt->transcript->items[at].kind == ITEM_ASSISTANT)
			prompt_add_text(&text, w, at);
		if (w->prompt->transcript->items[at].kind == ITEM_TOOL_CALL)
			json_push(calls, call_json(w, at));
	}
	json_put_str(message, "role", "assistant");
	if (text.len)
		json_put_strn(message, "content", text.data, text.len);
	else
		json_put_null(message, "content");
	if (json_len(calls))
		json_put(message, "tool_calls", calls);
	else
		json_free(&calls);
	if (calls || text.len)
		json_push(messages, message);
	else
		json_free(&message);
}

static void push_images(struct json *parts, const struct prompt_work *w, size_t i)
{
	const struct model_image *image;
	size_t at = 0;

	while ((image = prompt_next_image(w, i, &at))) {
		struct json *part = prompt_typed("image_url"), *url = json_new_object();

		prompt_put_data_url(url, "url", image);
		json_put(part, "image_url", url);
		json_push(parts, part);
	}
}

static void put_input(struct json *messages, const struct prompt_work *w, size_t i)
{
	struct json *message, *parts;

	if (prompt_has_image(w, i)) {
		parts = json_new_array();
		json_push(parts, prompt_text_part("text", w, i));
		push_images(parts, w, i);
		prompt_push_message(messages, "user", parts);
		return;
	}
	message = json_new_object();
	json_put_str(message, "role", "user");
	prompt_put_text(message, "content", w, i);
	json_push(messages, message);
}

static void put_result(struct json *messages, const struct prompt_work *w, size_t i)
{
	struct json *message = json_new_object();

	json_put_str(message, "role", "tool");
	json_put_str(message, "tool_call_id", w->prompt->transcript->items[i].call_id);
	prompt_put_text(message, "content", w, i);
	json_push(messages, message);
}

static void put_result_images(struct json *messages, const struct prompt_work *w, size_t at,
                              size_t end)
{
	struct json *parts = json_new_array();

	for (; at < end; at++) {
		const struct item *result = &w->prompt->transcript->items[at];
		auto_buf struct buf text = BUF_INIT(256);
		struct json *part;

		if (!prompt_has_image(w, at))
			continue;
		part = prompt_typed("text");
		buf_addf(&text, "[what the call %s returned:]", result->call_id);
		json_put_str(part, "text", text.data);
		json_push(parts, part);
		push_images(parts, w, at);
	}
	if (json_len(parts))
		prompt_push_message(messages, "user", parts);
	else
		json_free(&parts);
}

/* All results of an answer stand together. */
static size_t put_results(struct json *messages, const struct prompt_work *w, size_t at)
{
	const struct item_list *list = w->prompt->transcript;
	size_t end = at;

	while (end < list->count && list->items[end].kind == ITEM_TOOL_RESULT)
		put_result(messages, w, end++);
	put_result_images(messages, w, at, end);
	return end;
}

static void put_transcript(struct json *messages, const struct prompt_work *w)
{
	const struct item_list *list = w->prompt->transcript;
	size_t end;

	for (size_t at = 0; at < list->count; at = end) {
		end = at + 1;
		if (list->items[at].kind == ITEM_USER)
			put_input(messages, w, at);
		else if (list->items[at].kind == ITEM_TOOL_RESULT)
			end = put_results(messages, w, at);
		else
			put_answer(messages, w, at, end = prompt_answer_end(list, at));
	}
}

void prompt_write_chat(struct json *o, const struct prompt_work *w)
{
	struct json *messages = json_new_array(), *options = json_new_object(), *system;

	json_put_int(o, "max_completion_tokens", w->to->max_output_tokens);
	json_put_bool(options, "include_usage", true);
	json_put(o, "stream_options", options);
	if (prompt_effort(w))
		json_put_str(o, "reasoning_effort", prompt_effort(w));
	if (w->prompt->system) {
		system = json_new_object();
		json_put_str(system, "role", "system");
		json_put_str(system, "content", w->prompt->system);
		json_push(messages, system);
	}
	put_transcript(messages, w);
	json_put(o, "messages", messages);
}
