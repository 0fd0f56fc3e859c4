/* Responses has one list of items, each on its own. */
#include "daemon/model/prompt_format.h"

static void push_images(struct json *content, const struct prompt_work *w, size_t i)
{
	const struct model_image *image;
	size_t at = 0;

	while ((image = prompt_next_image(w, i, &at))) {
		struct json *part = prompt_typed("input_image");

		prompt_put_data_url(part, "image_url", image);
		json_push(content, part);
	}
}

static struct json *input_content(const struct prompt_work *w, size_t i)
{
	struct json *content = json_new_array();

	json_push(content, prompt_text_part("input_text", w, i));
	push_images(content, w, i);
	return content;
}

static struct json *answer_content(const struct prompt_work *w, size_t i)
{
	struct json *content = json_new_array();

	json_push(content, prompt_text_part("output_text", w, i));
	return content;
}

static struct json *call_json(const struct prompt_work *w, size_t i)
{
	const struct item *item = &w->prompt->transcript->items[i];
	struct json *call = prompt_typed("function_call");

	json_put_str(call, "call_id", item->call_id);
	json_put_str(call, "name", item->tool);
	prompt_put_text(call, "arguments", w, i);
	return call;
}

static struct json *result_json(const struct prompt_work *w, size_t i)
{
	struct json *result = prompt_typed("function_call_output");

	json_put_str(result, "call_id", w->prompt->transcript->items[i].call_id);
	if (prompt_has_image(w, i))
		json_put(result, "output", input_content(w, i));
	else
		prompt_put_text(result, "output", w, i);
	return result;
}

static void put_item(struct json *input, const struct prompt_work *w, size_t i)
{
	switch (w->prompt->transcript->items[i].kind) {
	case ITEM_USER:
		prompt_push_message(input, "user", input_content(w, i));
		break;
	case ITEM_ASSISTANT:
		prompt_push_message(input, "assistant", answer_content(w, i));
		break;
	case ITEM_TOOL_CALL:
		json_push(input, call_json(w, i));
		break;
	case ITEM_TOOL_RESULT:
		json_push(input, result_json(w, i));
		break;
	case ITEM_REASONING:
		prompt_push_reasoning(input, &w->prompt->transcript->items[i]);
		break;
	case ITEM_DISCARDED:
		break;
	}
}

/* Since it keeps nothing, it has to hand its reasoning out, which only it can read. */
static void put_reasoning(struct json *o, const struct prompt_work *w)
{
	struct json *include, *reasoning;
	const char *effort = prompt_effort(w);

	if (!w->to->reasoning.on)
		return;
	include = json_new_array();
	json_push_str(include, "reasoning.encrypted_content");
	json_put(o, "include", include);
	if (!effort && !w->to->reasoning.summaries)
		return;
	reasoning = json_new_object();
	if (effort)
		json_put_str(reasoning, "effort", effort);
	if (w->to->reasoning.summaries)
		json_put_str(reasoning, "summary", "auto");
	json_put(o, "reasoning", reasoning);
}

/* The provider is to keep nothing: what it needs to know, it is told again. */
void prompt_write_responses(struct json *o, const struct prompt_work *w)
{
	const struct item_list *list = w->prompt->transcript;
	struct json *input = json_new_array();

	json_put_int(o, "max_output_tokens", w->to->max_output_tokens);
	json_put_bool(o, "store", false);
	put_reasoning(o, w);
	if (w->prompt->system)
		json_put_str(o, "instructions", w->prompt->system);
	for (size_t i = 0; i < list->count; i++)
		if (prompt_is_told(w, i))
			put_item(input, w, i);
	json_put(o, "input", input);
}
