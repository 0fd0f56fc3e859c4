/*
 * Chat completions, as OpenAI published them and many servers speak them: unnamed
 * events with one "chat.completion.chunk" each, then "[DONE]".
 *
 * Servers differ.  Usage may come with the last choice, after it, or never; a role, an
 * index or an id may be missing; calls may come whole, several with the same index.
 */
#include "daemon/model/reader_format.h"

#include <string.h>

/* The call that a piece belongs to, begun if need be; NULL = malformed. */
static struct open_call *find_call(struct reader *s, const struct json *piece,
                                   const struct json *function, int64_t at, struct err *e)
{
	const struct json *index = json_get(piece, "index");
	const char *id = json_str(json_get(piece, "id"));
	int64_t key = index ? json_int(index) : at;
	struct open_call *call = reader_find(s, key);
	bool other = call && id && *id && call->id[0] &&
	             strncmp(call->id, id, READER_ID_MAX) != 0 &&
	             json_str_len(json_get(function, "name"));

	if (call && !other)
		return call;
	if (call)
		reader_call_end(s, call);
	if (reader_call(s, key, id, json_get(function, "name"), e) < 0)
		return NULL;
	return reader_find(s, key);
}

static int take_calls(struct reader *s, const struct json *list, struct err *e)
{
	for (size_t i = 0; i < json_len(list); i++) {
		const struct json *piece = json_at(list, i);
		const struct json *function = json_get(piece, "function");
		const struct json *arguments = json_get(function, "arguments");
		struct open_call *call = find_call(s, piece, function, (int64_t)i, e);

		if (!call)
			return -1;
		reader_arguments(s, call, json_str(arguments), json_str_len(arguments));
	}
	return 0;
}

static const struct stop_row stops[] = {
	{ "stop", STOP_END },         { "length", STOP_LENGTH },
	{ "tool_calls", STOP_CALLS }, { "content_filter", STOP_REFUSAL },
	{ NULL, STOP_NONE },
};

static int take_choice(struct reader *s, const struct json *choice, struct err *e)
{
	const struct json *delta = json_get(choice, "delta");
	const char *reason = json_str(json_get(choice, "finish_reason"));
	const struct json *reasoning = json_get(delta, "reasoning_content");

	reader_text(s, SAID_REASONING,
	            json_str(reasoning) ? reasoning : json_get(delta, "reasoning"));
	reader_text(s, SAID_TEXT, json_get(delta, "content"));
	reader_text(s, SAID_REFUSAL, json_get(delta, "refusal"));
	if (take_calls(s, json_get(delta, "tool_calls"), e) < 0)
		return -1;
	return reason ? reader_stop_as(s, stops, reason, e) : 0;
}

int chat_event(struct reader *s, const struct json *event, struct err *e)
{
	const struct json *error = json_get(event, "error");
	const struct json *choices = json_get(event, "choices");

	if (error && json_type(error) != JSON_NULL)
		return fault_object(0, error, e);
	if (json_type(choices ? choices : event) != JSON_ARRAY)
		return reader_malformed(e, "a chunk without choices");
	reader_usage_of(s, json_get(event, "usage"), "prompt_tokens", "completion_tokens");
	/* One answer was asked for. */
	return json_len(choices) ? take_choice(s, json_at(choices, 0), e) : 0;
}
