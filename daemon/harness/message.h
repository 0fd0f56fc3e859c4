/*
 * message.h - lines of the serve protocol (docs/harness.md), read and written.
 *
 * A line is one strict JSON object (common/json.h) with a "type"; fields and types that are
 * not known are no fault, so that a harness may say more than we understand.  Nothing here
 * is trusted: a line that is not what it should be is MESSAGE_MALFORMED, and what its text
 * was is the caller's to keep.
 */
#ifndef DAEMON_HARNESS_MESSAGE_H
#define DAEMON_HARNESS_MESSAGE_H

#include "common/buf.h"
#include "common/err.h"
#include "common/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HARNESS_PROTOCOL   1
#define HARNESS_RUN_ID_MAX 64    /* bytes */
#define HARNESS_VALUES_MAX 16384 /* of a line; see json_too_many() */
#define HARNESS_OP_ID_LEN  12    /* hex digits */

enum message_type {
	MESSAGE_MALFORMED, /* no JSON object with a type, or a field of a wrong type */
	MESSAGE_UNKNOWN,   /* a type that we do not know */
	MESSAGE_READY,
	MESSAGE_HELLO,
	MESSAGE_PONG,
	MESSAGE_ERROR,
	MESSAGE_START,
	MESSAGE_DELTA,
	MESSAGE_NOTIFY,
	MESSAGE_LOG,
	MESSAGE_RESULT,
};

const char *message_type_name(enum message_type type);

struct message {
	enum message_type type;
	struct json *doc;        /* owned; NULL when malformed */
	int64_t seq;             /* 0 = none */
	const char *run_id;      /* borrowed from doc; NULL = none */
	const char *op_id;       /* likewise */
	const char *text;        /* of a delta or log, and the message of an error; likewise */
	const char *kind;        /* of a notify; likewise */
	const struct json *data; /* of a notify; NULL = none */
	struct err why;          /* malformed: what is wrong */
};

#define auto_message __attribute__((cleanup(message_release)))

/* Read a line; *ret is to be released whatever it is. */
void message_read(const char *line, size_t len, struct message *ret);
void message_release(struct message *m);

/* What a harness says it can do, in "ready" and "hello". */
struct message_abilities {
	int64_t version; /* missing or unreadable = 1 */
	int64_t pid;     /* 0 = not said */
	bool hello;
	bool op_id;
	bool ping;
	bool ask_id;
};

void message_abilities(const struct message *m, struct message_abilities *ret);

/* -- lines for the harness; op_id NULL = none.  A buffer that overflows has failed. -- */
void message_put_submit(struct buf *out, const char *run_id, const char *prompt, const char *op_id);
void message_put_answer(struct buf *out, const char *run_id, const struct json *answers,
                        const char *ask_id, const char *op_id); /* ask_id NULL = none */
void message_put_cancel(struct buf *out, const char *run_id, const char *op_id);
void message_put_hello(struct buf *out, const char *op_id); /* not NULL */
void message_put_ping(struct buf *out, const char *op_id);
void message_put_shutdown(struct buf *out);

/* A fresh id of an operation. */
void message_op_id(char ret[HARNESS_OP_ID_LEN + 1]);

#endif
