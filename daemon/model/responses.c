/*
 * Responses, as OpenAI published them: events that name themselves, output items that
 * are added, filled by deltas and done, and a last event with the whole response.
 */
#include "daemon/model/reader_format.h"

#include <string.h>

static int64_t place_of(const struct json *event)
{
	return json_int(json_get(event, "output_index"));
}

static bool is(const struct json *item, const char *wanted)
{
	const char *type = json_str(json_get(item, "type"));

	return type && strcmp(type, wanted) == 0;
}

/* Pieces are optional: what came whole counts when nothing came before. */
static void take_whole(struct reader *s, struct open_call *call, const struct json *arguments)
{
	if (!call->spoken)
		reader_arguments(s, call, json_str(arguments), json_str_len(arguments));
}

static int item_added(struct reader *s, const struct json *event, struct err *e)
{
	const struct json *item = json_get(event, "item");
	int64_t place = place_of(event);

	if (is(item, "reasoning"))
		s->thought.spoken = false;
	if (!is(item, "function_call"))
		return 0;
	if (reader_find(s, place))
		return reader_malformed(e, "two items in one place");
	return reader_call(s, place, NULL, json_get(item, "name"), e);
}

static void copy(struct json *to, const struct json *from, const char *key)
{
	const struct json *v = json_get(from, key);

	if (v && json_type(v) != JSON_NULL)
		json_put(to, key, json_copy(v));
}

/* Nothing is kept for us, so what has neither content is of no use to the provider. */
static bool has_content(const struct json *item)
{
	return json_str_len(json_get(item, "encrypted_content")) ||
	       json_len(json_get(item, "content"));
}

static int thought_done(struct reader *s, const struct json *item, struct err *e)
{
	auto_json struct json *back = json_new_object();
	const struct json *summary = json_get(item, "summary");

	for (size_t i = 0; !s->thought.spoken && i < json_len(summary); i++)
		reader_text(s, SAID_REASONING, json_get(json_at(summary, i), "text"));
	s->thought.spoken = false;
	json_put_str(back, "type", "reasoning");
	copy(back, item, "id");
	json_put(back, "summary", json_len(summary) ? json_copy(summary) : json_new_array());
	if (json_len(json_get(item, "content")))
		copy(back, item, "content");
	copy(back, item, "encrypted_content");
	return reader_reasoning_end(s, has_content(item) ? back : NULL, e);
}

static int item_done(struct reader *s, const struct json *event, struct err *e)
{
	const struct json *item = json_get(event, "item");
	struct open_call *call = reader_find(s, place_of(event));

	if (is(item, "reasoning"))
		return thought_done(s, item, e);
	if (!is(item, "function_call"))
		return 0;
	if (!call)
		return reader_malformed(e, "a tool call ends that did not begin");
	take_whole(s, call, json_get(item, "arguments"));
	reader_call_end(s, call);
	return 0;
}

static int arguments_delta(struct reader *s, const struct json *event, struct err *e)
{
	const struct json *delta = json_get(event, "delta");
	struct open_call *call = reader_find(s, place_of(event));

	if (!call)
		return reader_malformed(e, "arguments of a tool call that did not begin");
	reader_arguments(s, call, json_str(delta), json_str_len(delta));
	return 0;
}

static int arguments_done(struct reader *s, const struct json *event, struct err *e)
{
	struct open_call *call = reader_find(s, place_of(event));

	if (!call)
		return reader_malformed(e, "arguments of a tool call that did not begin");
	take_whole(s, call, json_get(event, "arguments"));
	return 0;
}

static int text_delta(struct reader *s, const struct json *event, struct err *e)
{
	(void)e;
	reader_text(s, SAID_TEXT, json_get(event, "delta"));
	return 0;
}

static int refusal_delta(struct reader *s, const struct json *event, struct err *e)
{
	(void)e;
	reader_text(s, SAID_REFUSAL, json_get(event, "delta"));
	return 0;
}

static int reasoning_delta(struct reader *s, const struct json *event, struct err *e)
{
	(void)e;
	s->thought.spoken = true;
	reader_text(s, SAID_REASONING, json_get(event, "delta"));
	return 0;
}

/* Parts of a summary are paragraphs. */
static int summary_part(struct reader *s, const struct json *event, struct err *e)
{
	(void)event;
	(void)e;
	if (s->thought.spoken)
		reader_words(s, SAID_REASONING, "\n\n", 2);
	return 0;
}

static void take_usage(struct reader *s, const struct json *response)
{
	reader_usage_of(s, json_get(response, "usage"), "input_tokens", "output_tokens");
}

static int completed(struct reader *s, const struct json *event, struct err *e)
{
	take_usage(s, json_get(event, "response"));
	reader_stop(s, s->call_count ? STOP_CALLS : STOP_END);
	return reader_finish(s, e);
}

static int incomplete(struct reader *s, const struct json *event, struct err *e)
{
	const struct json *response = json_get(event, "response");
	const char *reason = json_str(json_get(json_get(response, "incomplete_details"), "reason"));

	if (!reason)
		return reader_malformed(e, "it is incomplete without a reason");
	take_usage(s, response);
	if (strcmp(reason, "content_filter") == 0)
		reader_stop(s, STOP_REFUSAL);
	else if (strcmp(reason, "max_output_tokens") == 0)
		reader_stop(s, STOP_LENGTH);
	else
		return reader_malformed(e, "it is incomplete for a reason that is not known");
	return reader_finish(s, e);
}

static int failed(struct reader *s, const struct json *event, struct err *e)
{
	(void)s;
	return fault_object(0, json_get(json_get(event, "response"), "error"), e);
}

static int error(struct reader *s, const struct json *event, struct err *e)
{
	const struct json *inner = json_get(event, "error");

	(void)s;
	return fault_object(0, inner && json_type(inner) == JSON_OBJECT ? inner : event, e);
}

int responses_event(struct reader *s, const struct json *event, struct err *e)
{
	static const struct event_row rows[] = {
		{ "response.output_text.delta", text_delta },
		{ "response.refusal.delta", refusal_delta },
		{ "response.reasoning_summary_text.delta", reasoning_delta },
		{ "response.reasoning_text.delta", reasoning_delta },
		{ "response.reasoning_summary_part.added", summary_part },
		{ "response.function_call_arguments.delta", arguments_delta },
		{ "response.function_call_arguments.done", arguments_done },
		{ "response.output_item.added", item_added },
		{ "response.output_item.done", item_done },
		{ "response.completed", completed },
		{ "response.incomplete", incomplete },
		{ "response.failed", failed },
		{ "error", error },
		{ NULL, NULL },
	};

	return reader_event_as(s, rows, event, e);
}
