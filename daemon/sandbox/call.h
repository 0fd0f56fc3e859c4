/*
 * call.h - one call on a sandbox, seen from the thread that blocks in it (inside this
 * folder only).
 *
 * The link thread puts output into the queue of the call, which the credit bounds, and
 * wakes the caller by an eventfd; the caller takes it, hands it on, and grants credit
 * for it.  A struct call lives on its caller's stack from call_begin() to call_finish().
 */
#ifndef DAEMON_SANDBOX_CALL_H
#define DAEMON_SANDBOX_CALL_H

#include "daemon/sandbox/pool.h"

#include "common/json.h"

enum call_state {
	CALL_WAITING, /* for the start of the sandbox */
	CALL_OPEN,
	CALL_EXITED,  /* exit holds the payload of its EXIT */
	CALL_DOOMED,  /* the sandbox is gone; why is not known yet */
	CALL_LOST,    /* the sandbox ended; loss says by what */
	CALL_REFUSED, /* never opened; refusal says why */
};

struct call {
	struct sandboxes *pool;
	struct sandbox *sb;
	struct call *next; /* in sb->waiting or sb->doomed */
	enum call_state state;
	int event;            /* eventfd: look again */
	uint64_t generation;  /* of the sandbox; while waiting 0 = that of the next start */
	uint64_t id;          /* on the wire; 0 until opened */
	unsigned int streams; /* output allowed: bit 0 stdout, bit 1 stderr */
	bool has_input;       /* END is not sent with START */
	bool alone;           /* runs while no other does, where none has run before */
	bool restarts;        /* alone: its turn came, and a fresh sandbox is under way */
	struct buf start;     /* payload of START */
	struct err refusal;
	enum exec_reason loss; /* EXEC_LOST, or what the host says ended the sandbox */
	struct buf queue;      /* output: chunks of 4 bytes (length, stream) and data */
	size_t last;           /* where the last chunk of the queue begins */
	size_t window;         /* bytes that the guest may still send */
	size_t taken;          /* bytes taken from the queue for which no credit was granted yet */
	size_t credit;         /* bytes of input that may still be sent */
	size_t sent;           /* bytes of input sent */
	bool input_ended;      /* END was sent */
	uint64_t deadline;     /* monotonic ms, for the caller alone; 0 = none */
	bool wants_room;       /* waits for the queue towards the guest to become shorter */
	bool resting;          /* does not keep the sandbox from being idle */
	struct buf exit;
};

/* What the caller wants from its call. */
struct call_plan {
	const struct json *start; /* payload of START */
	unsigned int streams;
	bool has_input;
	const char *input; /* sent, then END */
	size_t input_len;
	bool more_input; /* no END after it */
	/* Takes output; -1 (with a reason) when the guest must not have sent it. */
	int (*take)(void *ctx, int stream, const char *data, size_t len, struct err *e);
	void *ctx;
	uint64_t timeout_ms; /* 0 = none; the guest enforces it, this is the backstop */
	/* out */
	struct cancel *cancel; /* of the use */
	bool cancelled;        /* CANCEL was sent */
	bool timed_out;        /* the time had passed when the call ended */
	uint64_t begun;        /* monotonic ms, before the guest could know of the call */
};

#define auto_call __attribute__((cleanup(call_finish)))
#define CALL_INIT                                                                                \
	{                                                                                        \
		.event = -1, .start = BUF_INIT(FRAME_CONTROL_MAX),                               \
		.queue = BUF_INIT((size_t)5 * FRAME_WINDOW), .exit = BUF_INIT(FRAME_CONTROL_MAX) \
	}

/*
 * Open a call, starting the sandbox if need be, and run it to its end.  0 when it was
 * opened: c->state is CALL_EXITED or CALL_LOST.  -1 when nothing was sent to the guest.
 */
int call_run(struct call *c, const struct sandbox_use *use, struct call_plan *plan, struct err *e)
	must_check;
void call_finish(struct call *c);

/* -- the parts of call_run(), for whoever does other things meanwhile ------------------------- */

/* Open it; plan->cancel ends the wait for the sandbox. */
int call_open(struct call *c, const struct sandbox_use *use, const struct call_plan *plan,
              struct err *e) must_check;

/* Sleep until there is something to look at; true when the cancel (NULL = none) fired. */
bool call_sleep(const struct call *c, const struct cancel *cancel, int timeout_ms);

/* Grant for what was taken, swap the full queue for the empty batch, send input. */
enum call_state call_exchange(struct call *c, const struct call_plan *plan, struct buf *batch);

/* Hand on what the batch holds and empty it.  After a lie the rest is thrown away. */
void call_deliver(struct call *c, const struct call_plan *plan, struct buf *batch, bool *lied);

/* CANCEL; from then on the call has CANCEL_GRACE_MS to end. */
void call_send_cancel(struct call *c, struct call_plan *plan);

/* End the sandbox because this call does not end. */
void call_give_up(struct call *c, const char *why);

/* -- results ---------------------------------------------------------------------------------- */

#define auto_exit __attribute__((cleanup(call_exit_release)))

/* An EXIT that is no error: its table, and what was read. */
struct call_exit {
	const struct json_field *fields;
	size_t n;
	const struct json **values; /* n of them, borrowed from doc */
	struct json *doc;           /* owned */
};

static inline void call_exit_release(struct call_exit *x)
{
	json_free(&x->doc);
}

/* json_parse() for a text of the guest's, which the daemon keeps small whatever it is. */
int call_parse(const char *text, size_t len, struct json **ret, struct err *e) must_check;

/*
 * Read the EXIT of a call.  One that is an error gives -1 with the code of sandbox.h.
 * One that breaks the protocol ends the sandbox: -1 with SANDBOX_LOST.
 */
int call_result(struct call *c, const struct call_plan *plan, struct call_exit *ret, struct err *e)
	must_check;

/* The guest lied: end its sandbox if it still is the one of this call.  Returns -1, SANDBOX_LOST.
 */
int call_lie(struct call *c, const char *reason, struct err *e);

/* -- for the link thread and the life of a sandbox, all (locked) ----------------------------- */
/* waiting -> open or refused, or as it is, when it or another has to be alone */
void call_admit(struct call *c);
void call_refuse(struct call *c, int code, const char *why); /* waiting -> refused */
void call_doom(struct call *c);                              /* open -> doomed */
void call_lose(struct call *c, enum exec_reason loss);       /* open or doomed -> lost */
void call_wake(struct call *c);

/* A frame of the guest for a call; -1 with the reason when it breaks the protocol. */
int call_frame(struct sandbox *sb, const struct frame *f, struct err *e) must_check;

#endif
