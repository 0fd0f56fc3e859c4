/*
 * Messages, as Anthropic published them: a message begins, content blocks begin, grow
 * and stop, the message gets a reason to stop, and stops.
 */
#include "daemon/model/reader_format.h"

#include <string.h>

#define INPUT_MAX ((size_t)4 << 20)

static bool is(const struct json *v, const char *type)
{
	const char *text = json_str(json_get(v, "type"));

	return text && strcmp(text, type) == 0;
}

static int64_t place_of(const struct json *event)
{
	return json_int(json_get(event, "index"));
}

/* A count that is not repeated stays as it was. */
static void renew(uint64_t *count, const struct json *usage, const char *name)
{
	const struct json *v = json_get(usage, name);

	if (v && json_type(v) == JSON_INT)
		*count = reader_count(v);
}

/* input_tokens leaves out what went through the cache; a later report gives input anew. */
static void take_usage(struct reader *s, const struct json *v)
{
	struct usage usage = s->usage;
	uint64_t fresh = usage.input - usage.cached, made = 0;

	if (!v || json_type(v) != JSON_OBJECT)
		return;
	renew(&fresh, v, "input_tokens");
	renew(&made, v, "cache_creation_input_tokens");
	renew(&usage.cached, v, "cache_read_input_tokens");
	renew(&usage.output, v, "output_tokens");
	if (json_get(v, "input_tokens"))
		fresh += made;
	usage.input = fresh + usage.cached;
	reader_usage(s, &usage);
}

/* -- reasoning: it has to come back as it was, signature and all ------------------------------ */

static void begin_thought(struct reader *s, int64_t place, const struct json *block)
{
	const struct json *signature = json_get(block, "signature");
	struct open_thought *t = &s->thought;

	t->key = place;
	t->open = true;
	buf_reset(&t->text);
	buf_reset(&t->signature);
	buf_add(&t->text, json_str(json_get(block, "thinking")),
	        json_str_len(json_get(block, "thinking")));
	buf_add(&t->signature, json_str(signature), json_str_len(signature));
	reader_text(s, SAID_REASONING, json_get(block, "thinking"));
}

static void grow_thought(struct reader *s, int64_t place, const struct json *delta)
{
	const struct json *text = json_get(delta, "thinking");
	const struct json *signature = json_get(delta, "signature");
	struct open_thought *t = &s->thought;

	reader_text(s, SAID_REASONING, text);
	if (!t->open || t->key != place)
		return;
	buf_add(&t->text, json_str(text), json_str_len(text));
	buf_add(&t->signature, json_str(signature), json_str_len(signature));
}

/* Without a signature its provider would not take it back. */
static int end_thought(struct reader *s, struct err *e)
{
	auto_json struct json *block = json_new_object();
	struct open_thought *t = &s->thought;

	t->open = false;
	if (buf_failed(&t->text) || buf_failed(&t->signature))
		return reader_malformed(e, "a part of its reasoning is too long");
	json_put_str(block, "type", "thinking");
	json_put_strn(block, "thinking", t->text.data ? t->text.data : "", t->text.len);
	json_put_strn(block, "signature", t->signature.data ? t->signature.data : "",
	              t->signature.len);
	return reader_reasoning_end(s, t->signature.len ? block : NULL, e);
}

static int hidden_thought(struct reader *s, const struct json *block, struct err *e)
{
	auto_json struct json *back = json_new_object();
	const struct json *data = json_get(block, "data");

	json_put_str(back, "type", "redacted_thinking");
	json_put_strn(back, "data", json_str(data) ? json_str(data) : "", json_str_len(data));
	return reader_reasoning_end(s, json_str_len(data) ? back : NULL, e);
}

/* -- blocks ------------------------------------------------------------------------------------ */

/* Input comes in pieces, but for servers that give it whole with the beginning. */
static void whole_input(struct reader *s, struct open_call *call, const struct json *input)
{
	auto_buf struct buf text = BUF_INIT(INPUT_MAX);

	if (!input || json_type(input) != JSON_OBJECT)
		return;
	json_write(input, &text);
	if (!buf_failed(&text) && text.len > 2)
		reader_arguments(s, call, text.data, text.len);
}

static int block_start(struct reader *s, const struct json *event, struct err *e)
{
	const struct json *block = json_get(event, "content_block");
	int64_t place = place_of(event);

	if (is(block, "text"))
		reader_text(s, SAID_TEXT, json_get(block, "text"));
	if (is(block, "thinking"))
		begin_thought(s, place, block);
	if (is(block, "redacted_thinking"))
		return hidden_thought(s, block, e);
	if (!is(block, "tool_use"))
		return 0;
	if (reader_find(s, place))
		return reader_malformed(e, "two blocks in one place");
	if (reader_call(s, place, NULL, json_get(block, "name"), e) < 0)
		return -1;
	whole_input(s, reader_find(s, place), json_get(block, "input"));
	return 0;
}

static int block_delta(struct reader *s, const struct json *event, struct err *e)
{
	const struct json *delta = json_get(event, "delta");
	const struct json *piece = json_get(delta, "partial_json");
	struct open_call *call;

	if (is(delta, "text_delta"))
		reader_text(s, SAID_TEXT, json_get(delta, "text"));
	if (is(delta, "thinking_delta") || is(delta, "signature_delta"))
		grow_thought(s, place_of(event), delta);
	if (!is(delta, "input_json_delta"))
		return 0;
	call = reader_find(s, place_of(event));
	if (!call)
		return reader_malformed(e, "input of a tool call that did not begin");
	reader_arguments(s, call, json_str(piece), json_str_len(piece));
	return 0;
}

static int block_stop(struct reader *s, const struct json *event, struct err *e)
{
	int64_t place = place_of(event);
	struct open_call *call = reader_find(s, place);

	if (s->thought.open && s->thought.key == place)
		return end_thought(s, e);
	if (call)
		reader_call_end(s, call);
	return 0;
}

static int message_start(struct reader *s, const struct json *event, struct err *e)
{
	(void)e;
	take_usage(s, json_get(json_get(event, "message"), "usage"));
	return 0;
}

static int message_delta(struct reader *s, const struct json *event, struct err *e)
{
	static const struct stop_row stops[] = {
		{ "end_turn", STOP_END },
		{ "stop_sequence", STOP_END },
		{ "tool_use", STOP_CALLS },
		{ "max_tokens", STOP_LENGTH },
		{ "model_context_window_exceeded", STOP_LENGTH },
		{ "pause_turn", STOP_LENGTH },
		{ "refusal", STOP_REFUSAL },
		{ NULL, STOP_NONE },
	};
	const char *reason = json_str(json_get(json_get(event, "delta"), "stop_reason"));

	take_usage(s, json_get(event, "usage"));
	return reason ? reader_stop_as(s, stops, reason, e) : 0;
}

static int message_stop(struct reader *s, const struct json *event, struct err *e)
{
	(void)event;
	return reader_finish(s, e);
}

static int error(struct reader *s, const struct json *event, struct err *e)
{
	(void)s;
	return fault_object(0, json_get(event, "error"), e);
}

int messages_event(struct reader *s, const struct json *event, struct err *e)
{
	static const struct event_row rows[] = {
		{ "content_block_delta", block_delta },
		{ "content_block_start", block_start },
		{ "content_block_stop", block_stop },
		{ "message_start", message_start },
		{ "message_delta", message_delta },
		{ "message_stop", message_stop },
		{ "error", error },
		{ NULL, NULL },
	};

	return reader_event_as(s, rows, event, e);
}
