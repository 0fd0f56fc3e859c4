/* Messages has one message for an answer, and one for all that comes before the next. */
#include "daemon/model/prompt_format.h"

#define BUDGET_MIN 1024 /* tokens */

/* The input has to be an object, so arguments that are none are shown as what they are. */
static struct json *input_of(const struct prompt_work *w, size_t i)
{
	const struct item *item = &w->prompt->transcript->items[i];
	struct json *input = NULL;
	struct err e = ERR_INIT;

	if (json_parse(item->body ? item->body : "", item->body_len, &input, &e) == 0 &&
	    json_type(input) == JSON_OBJECT)
		return input;
	json_free(&input);
	input = json_new_object();
	prompt_put_text(input, "malformed_arguments", w, i);
	return input;
}

static struct json *call_json(const struct prompt_work *w, size_t i)
{
	const struct item *item = &w->prompt->transcript->items[i];
	struct json *block = prompt_typed("tool_use");

	json_put_str(block, "id", item->call_id);
	json_put_str(block, "name", item->tool);
	json_put(block, "input", input_of(w, i));
	return block;
}

static void push_images(struct json *content, const struct prompt_work *w, size_t i)
{
	const struct model_image *image;
	size_t at = 0;

	while ((image = prompt_next_image(w, i, &at))) {
		struct json *block = prompt_typed("image"), *source = prompt_typed("base64");

		json_put_str(source, "media_type", image->type);
		prompt_put_base64(source, "data", "", image);
		json_put(block, "source", source);
		json_push(content, block);
	}
}

static struct json *result_json(const struct prompt_work *w, size_t i)
{
	struct json *block = prompt_typed("tool_result"), *content;

	json_put_str(block, "tool_use_id", w->prompt->transcript->items[i].call_id);
	if (!prompt_has_image(w, i)) {
		prompt_put_text(block, "content", w, i);
		return block;
	}
	content = json_new_array();
	if (w->prompt->transcript->items[i].body_len) /* there are no empty texts */
		json_push(content, prompt_text_part("text", w, i));
	push_images(content, w, i);
	json_put(block, "content", content);
	return block;
}

/* Push the blocks of item i; the last one of them, NULL for one that is not to be touched. */
static struct json *push_item(struct json *content, const struct prompt_work *w, size_t i)
{
	enum item_kind kind = w->prompt->transcript->items[i].kind;
	struct json *block;

	if (kind == ITEM_REASONING) {
		prompt_push_reasoning(content, &w->prompt->transcript->items[i]);
		return NULL;
	}
	if (kind == ITEM_USER)
		push_images(content, w, i);
	if (kind == ITEM_TOOL_CALL)
		block = call_json(w, i);
	else if (kind == ITEM_TOOL_RESULT)
		block = result_json(w, i);
	else
		block = prompt_text_part("text", w, i);
	json_push(content, block);
	return block;
}

/* So that the next request pays little for what this one has said. */
static void mark_cached(struct json *block)
{
	json_put(block, "cache_control", prompt_typed("ephemeral"));
}

static bool says_something(const struct prompt_work *w, size_t i)
{
	return prompt_is_answer(w->prompt->transcript, i) && prompt_is_told(w, i);
}

/* Past an answer that nothing is told of, too, so that messages alternate. */
static size_t input_end(const struct prompt_work *w, size_t at)
{
	while (at < w->prompt->transcript->count && !says_something(w, at))
		at++;
	return at;
}

static void put_transcript(struct json *messages, const struct prompt_work *w)
{
	const struct item_list *list = w->prompt->transcript;
	struct json *last = NULL;
	size_t end;

	for (size_t at = 0; at < list->count; at = end) {
		bool answer = says_something(w, at);
		struct json *content = json_new_array();

		end = answer ? prompt_answer_end(list, at) : input_end(w, at);
		for (size_t i = at; i < end; i++)
			if (prompt_is_told(w, i))
				last = push_item(content, w, i);
		if (json_len(content))
			prompt_push_message(messages, answer ? "assistant" : "user", content);
		else
			json_free(&content);
	}
	if (last)
		mark_cached(last);
}

/* -- reasoning ----------------------------------------------------------------------------- */

/*
 * A turn that goes on has to begin with its reasoning, if there is to be more of it; it does
 * not when the answers are from before the operator changed the model.
 */
static bool may_think(const struct prompt_work *w)
{
	const struct item_list *list = w->prompt->transcript;
	size_t at = list->count;

	while (at > 0 && list->items[at - 1].kind != ITEM_USER)
		at--;
	while (at < list->count && !says_something(w, at))
		at++;
	return at == list->count || list->items[at].kind == ITEM_REASONING;
}

/* A share of the output for each level, as far as the format takes it. */
static int64_t budget_of(const struct prompt_work *w)
{
	int64_t most = w->to->max_output_tokens;
	int64_t budget = most * effort_percent(w->prompt->effort) / 100;

	if (budget < BUDGET_MIN)
		budget = BUDGET_MIN;
	return budget < most ? budget : 0;
}

static void put_budget(struct json *o, const struct prompt_work *w)
{
	struct json *thinking;

	if (!budget_of(w) || !may_think(w))
		return;
	thinking = prompt_typed("enabled");
	json_put_int(thinking, "budget_tokens", budget_of(w));
	json_put(o, "thinking", thinking);
}

static void put_reasoning(struct json *o, const struct prompt_work *w)
{
	const char *effort = prompt_effort(w);
	struct json *thinking, *output;

	if (!w->to->reasoning.on || effort_is_none(w->prompt->effort))
		return;
	if (w->to->reasoning.budget) {
		put_budget(o, w);
		return;
	}
	thinking = prompt_typed("adaptive");
	if (w->to->reasoning.summaries)
		json_put_str(thinking, "display", "summarized");
	json_put(o, "thinking", thinking);
	if (!effort)
		return;
	output = json_new_object();
	json_put_str(output, "effort", effort);
	json_put(o, "output_config", output);
}

void prompt_write_messages(struct json *o, const struct prompt_work *w)
{
	struct json *messages = json_new_array();

	json_put_int(o, "max_tokens", w->to->max_output_tokens);
	put_reasoning(o, w);
	if (w->prompt->system)
		json_put_str(o, "system", w->prompt->system);
	put_transcript(messages, w);
	json_put(o, "messages", messages);
}
