/*
 * reader.h - what a provider says while it answers: bytes in, typed events out.
 *
 * One reader for each wire format, all with the same events.  It allocates, but never
 * waits; pieces may be cut anywhere.  Events come in the order of the answer; what has
 * been said is only worth something when reader_end() says so.
 */
#ifndef DAEMON_MODEL_READER_H
#define DAEMON_MODEL_READER_H

#include "common/err.h"
#include "daemon/model/fault.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define READER_BYTES_MAX ((size_t)64 << 20) /* of one answer, as it comes over the wire */
#define READER_CALLS_MAX 64                 /* tool calls in one answer */
#define READER_NAME_MAX  64                 /* bytes of a tool's name */

enum dialect {
	DIALECT_CHAT,      /* "chat-completions" */
	DIALECT_RESPONSES, /* "responses" */
	DIALECT_MESSAGES,  /* "messages" */
};

enum stop {
	STOP_NONE,
	STOP_END,     /* it has said all */
	STOP_CALLS,   /* it waits for the results of its calls */
	STOP_LENGTH,  /* cut: it may not say more, or the context is full */
	STOP_REFUSAL, /* it, or a filter, declines to go on */
};

struct usage {
	uint64_t input;     /* tokens, those from a cache included */
	uint64_t cached;    /* of input */
	uint64_t output;    /* reasoning included, where the provider counts it */
	uint64_t reasoning; /* of output */
};

enum said_kind {
	SAID_TEXT,
	SAID_REASONING,
	SAID_REASONING_END, /* text: what its provider is to get back of it, as JSON; may be "" */
	SAID_REFUSAL,
	SAID_CALL,      /* a call begins; text: the tool's name */
	SAID_ARGUMENTS, /* text: more of a call's arguments, which need not be JSON */
	SAID_CALL_END,
	SAID_USAGE, /* replaces what was said before */
	SAID_STOP,
};

struct said {
	enum said_kind kind;
	unsigned int call; /* SAID_CALL, _ARGUMENTS, _CALL_END: its number, from 0 */
	const char *text;  /* well-formed UTF-8, NUL-terminated; borrowed; not "" */
	size_t len;
	enum stop stop;
	struct usage usage;
};

struct reader;

struct reader_sink {
	void (*said)(void *ctx, const struct said *said);
	void *ctx;
};

/* sink's members must outlive the stream.  Never NULL: without memory the program ends. */
struct reader *reader_new(enum dialect dialect, const struct reader_sink *sink);
void reader_free(struct reader **s);

/* -1 with a code of fault.h: the answer is of no use. */
int reader_feed(struct reader *s, const char *data, size_t len, struct err *e) must_check;

/* The provider has said its last word; what may still come is not needed. */
bool reader_done(const struct reader *s);

/* There are no more bytes.  -1 when the answer is not whole. */
int reader_end(struct reader *s, struct err *e) must_check;

#endif
