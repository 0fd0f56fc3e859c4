#include "daemon/model/reader.h"

#include "daemon/model/reader_format.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader *reader_new(enum dialect dialect, const struct reader_sink *sink)
{
	static int (*const events[])(struct reader * s, const struct json *event, struct err *e) = {
		[DIALECT_CHAT] = chat_event,
		[DIALECT_RESPONSES] = responses_event,
		[DIALECT_MESSAGES] = messages_event,
	};
	struct reader *s = calloc(1, sizeof(*s));

	if (!s)
		abort();
	s->sink = *sink;
	s->event = events[dialect];
	s->thought.text = (struct buf)BUF_INIT(READER_THOUGHT_MAX);
	s->thought.signature = (struct buf)BUF_INIT(READER_THOUGHT_MAX);
	sse_init(&s->sse);
	return s;
}

void reader_free(struct reader **s)
{
	if (!*s)
		return;
	sse_release(&(*s)->sse);
	buf_release(&(*s)->thought.text);
	buf_release(&(*s)->thought.signature);
	free(*s);
	*s = NULL;
}

/* -- what formats say -------------------------------------------------------------------- */

int reader_malformed(struct err *e, const char *what)
{
	return err_set(e, MODEL_MALFORMED, "the provider's answer is malformed: %s", what);
}

uint64_t reader_count(const struct json *v)
{
	int64_t n = json_int(v);

	return n > 0 ? (uint64_t)n : 0;
}

static uint64_t detail(const struct json *usage, const char *total, const char *name)
{
	char details[64];

	(void)snprintf(details, sizeof(details), "%s_details", total);
	return reader_count(json_get(json_get(usage, details), name));
}

void reader_usage_of(struct reader *s, const struct json *usage, const char *input,
                     const char *output)
{
	const struct usage found = {
		.input = reader_count(json_get(usage, input)),
		.output = reader_count(json_get(usage, output)),
		.cached = detail(usage, input, "cached_tokens"),
		.reasoning = detail(usage, output, "reasoning_tokens"),
	};

	if (usage && json_type(usage) == JSON_OBJECT)
		reader_usage(s, &found);
}

int reader_stop_as(struct reader *s, const struct stop_row *rows, const char *reason, struct err *e)
{
	for (; rows->reason; rows++) {
		if (strcmp(rows->reason, reason) != 0)
			continue;
		s->stop = rows->stop;
		return 0;
	}
	return reader_malformed(e, "it ends for a reason that is not known");
}

int reader_event_as(struct reader *s, const struct event_row *rows, const struct json *event,
                    struct err *e)
{
	const char *type = json_str(json_get(event, "type"));

	if (!type)
		return reader_malformed(e, "an event without a type");
	for (; rows->type; rows++)
		if (strcmp(rows->type, type) == 0)
			return rows->take(s, event, e);
	return 0;
}

static void say(struct reader *s, const struct said *said)
{
	s->sink.said(s->sink.ctx, said);
}

void reader_words(struct reader *s, enum said_kind kind, const char *text, size_t len)
{
	const struct said said = { .kind = kind, .text = text, .len = len };

	if (len && !s->stop)
		say(s, &said);
}

void reader_text(struct reader *s, enum said_kind kind, const struct json *text)
{
	reader_words(s, kind, json_str(text), json_str_len(text));
}

int reader_reasoning_end(struct reader *s, const struct json *back, struct err *e)
{
	auto_buf struct buf text = BUF_INIT(2 * READER_THOUGHT_MAX);
	struct said said = { .kind = SAID_REASONING_END };

	if (back)
		json_write(back, &text);
	if (buf_failed(&text))
		return reader_malformed(e, "a part of its reasoning is too long");
	said.text = text.data ? text.data : "";
	said.len = text.len;
	if (!s->stop)
		say(s, &said);
	return 0;
}

/* Providers take a name back only in this alphabet. */
static void take_name(char ret[READER_NAME_MAX + 1], const char *name)
{
	(void)snprintf(ret, READER_NAME_MAX + 1, "%s", name);
	for (char *c = ret; *c; c++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", *c))
			*c = '_';
}

int reader_call(struct reader *s, int64_t key, const char *id, const struct json *name,
                struct err *e)
{
	char text[READER_NAME_MAX + 1];
	struct said said = { .kind = SAID_CALL, .text = text, .call = s->call_count };
	struct open_call *call;

	if (s->stop)
		return reader_malformed(e, "a tool call after its finish");
	if (!json_str_len(name))
		return reader_malformed(e, "a tool call without a name");
	if (s->call_count == READER_CALLS_MAX)
		return err_set(e, MODEL_FAILED, "more than %d tool calls in one answer",
		               READER_CALLS_MAX);
	call = &s->calls[s->call_count++];
	*call = (struct open_call){ .key = key };
	(void)snprintf(call->id, sizeof(call->id), "%s", id ? id : "");
	take_name(text, json_str(name));
	said.len = strlen(text);
	say(s, &said);
	return 0;
}

struct open_call *reader_find(struct reader *s, int64_t key)
{
	for (unsigned int i = s->call_count; i-- > 0;)
		if (s->calls[i].key == key && !s->calls[i].ended)
			return &s->calls[i];
	return NULL;
}

void reader_arguments(struct reader *s, struct open_call *call, const char *text, size_t len)
{
	const struct said said = { .kind = SAID_ARGUMENTS,
		                   .call = (unsigned int)(call - s->calls),
		                   .text = text,
		                   .len = len };

	if (!text || !len || call->ended)
		return;
	call->spoken = true;
	say(s, &said);
}

void reader_call_end(struct reader *s, struct open_call *call)
{
	const struct said said = { .kind = SAID_CALL_END, .call = (unsigned int)(call - s->calls) };

	if (call->ended)
		return;
	call->ended = true;
	say(s, &said);
}

void reader_usage(struct reader *s, const struct usage *usage)
{
	s->usage = *usage;
	s->usage_said = true;
}

void reader_stop(struct reader *s, enum stop stop)
{
	s->stop = stop;
}

int reader_finish(struct reader *s, struct err *e)
{
	const struct said usage = { .kind = SAID_USAGE, .usage = s->usage };
	const struct said stop = { .kind = SAID_STOP, .stop = s->stop };

	if (s->stop == STOP_NONE)
		return reader_malformed(e, "it ends without a reason for its end");
	for (unsigned int i = 0; i < s->call_count; i++)
		reader_call_end(s, &s->calls[i]);
	if (s->usage_said)
		say(s, &usage);
	say(s, &stop);
	s->done = true;
	return 0;
}

/* -- bytes in ------------------------------------------------------------------------------ */

/* Every format of the three has objects in its events, or the word with which one ends. */
static int take_event(void *ctx, const char *type, const char *data, size_t len, struct err *e)
{
	struct reader *s = ctx;
	auto_json struct json *event = NULL;
	struct err cause = ERR_INIT;

	(void)type; /* the data repeats it */
	if (s->done)
		return 0;
	if (len == 6 && memcmp(data, "[DONE]", 6) == 0)
		return reader_finish(s, e);
	if (json_too_many(data, len, JSON_VALUES_MAX))
		return reader_malformed(e, "an event has too many values");
	if (json_parse(data, len, &event, &cause) < 0)
		return reader_malformed(e, cause.text);
	if (json_type(event) != JSON_OBJECT)
		return reader_malformed(e, "an event is not an object");
	return s->event(s, event, e);
}

int reader_feed(struct reader *s, const char *data, size_t len, struct err *e)
{
	const struct sse_receiver to = { take_event, s };

	s->bytes += len;
	if (s->bytes > READER_BYTES_MAX)
		return err_set(e, MODEL_FAILED, "the provider's answer is longer than %zu bytes",
		               READER_BYTES_MAX);
	if (sse_feed(&s->sse, data, len, &to, e) < 0)
		return e->code == EMSGSIZE ? reader_malformed(e, "an event is too long") : -1;
	return 0;
}

bool reader_done(const struct reader *s)
{
	return s->done;
}

int reader_end(struct reader *s, struct err *e)
{
	if (s->done)
		return 0;
	if (s->stop == STOP_NONE)
		return err_set(e, MODEL_CUT, "the provider's answer ends in the middle");
	return reader_finish(s, e);
}
