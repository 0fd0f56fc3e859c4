/*
 * call.h - the table of open calls and the credit of each.
 *
 * A call is embedded in the struct of its kind.  It lives from START until the
 * turn of the loop after its EXIT; then release frees it.
 */
#ifndef GUEST_CALL_H
#define GUEST_CALL_H

#include "common/err.h"
#include "common/frame.h"
#include "common/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct call;

/* What one turn of the loop knows and collects. */
struct turn {
	uint64_t now_ms;
	uint64_t wake_ms; /* earliest moment the next turn is needed; 0 = none */
};

static inline void turn_wake(struct turn *t, uint64_t when_ms)
{
	if (when_ms && (!t->wake_ms || when_ms < t->wake_ms))
		t->wake_ms = when_ms;
}

struct call_kind {
	/* Takes input that credit covered; grants it back with call_grant(). */
	void (*input)(struct call *c, const char *data, size_t len);
	void (*end)(struct call *c);
	void (*cancel)(struct call *c);
	/* One bounded step of work, and deadlines; once per turn of the loop. */
	void (*step)(struct call *c, struct turn *t);
	void (*release)(struct call *c); /* frees the struct around c */
};

struct call {
	uint64_t id; /* 0 = detached */
	const struct call_kind *kind;
	uint64_t credit_out; /* bytes the daemon still takes */
	uint64_t credit_in;  /* bytes the daemon may still send */
	bool input_ended;
	bool exited;
};

/* Give a fresh call its kind.  Returns c. */
struct call *call_init(struct call *c, const struct call_kind *kind);

/* A frame for the calls, after HELLO.  A breach of the protocol ends the guest. */
void calls_frame(const struct frame *f);

/* Let every call do its step, and free those that exited. */
void calls_turn(struct turn *t);

/* Release every call without a word. */
void calls_close(void);

/* Bytes of data the call may send now: at most one frame, 0 without credit or room. */
size_t call_sendable(const struct call *c);

/* Send at most call_sendable() bytes. */
void call_send(struct call *c, enum frame_type type, const char *data, size_t len);

void call_grant(struct call *c, size_t bytes);

/* Answer with EXIT.  Takes result. */
void call_exit(struct call *c, struct json *result);

/* Answer with EXIT, and go on without an id: nobody hears or says anything from then on. */
void call_detach(struct call *c, struct json *result);
void call_fail(struct call *c, const struct err *e);

/* The kinds without input drop it, and end their work when cancelled. */
void call_drop_input(struct call *c, const char *data, size_t len);
void call_ignore_end(struct call *c);
void call_cancelled(struct call *c);

#endif
