/*
 * process.h - one harness: a process in a tenant's sandbox that speaks the serve protocol
 * (inside this folder and for its caller alone; one thread at a time).
 *
 * Nothing that it says is trusted, and it may stop to speak or to listen whenever it likes:
 * every wait has a deadline or a cancel.
 */
#ifndef DAEMON_HARNESS_PROCESS_H
#define DAEMON_HARNESS_PROCESS_H

#include "common/buf.h"
#include "daemon/harness/message.h"
#include "daemon/sandbox/stream.h"

#include <stdbool.h>
#include <stdint.h>

enum harness_code {
	HARNESS_UNAVAILABLE = ERR_PROGRAM_BASE + 700, /* it did not start, or speaks otherwise */
	HARNESS_ENDED,                                /* by itself, in the middle of something */
	HARNESS_LIMIT,       /* the tenant has as many as it may, and all are at work */
	HARNESS_REFUSED,     /* it did not begin what it was given */
	HARNESS_SILENT,      /* it said nothing for too long */
	HARNESS_INTERRUPTED, /* the daemon ended, or lost it, while it worked */
};

#define PROCESS_READY_MS 30000 /* from its start to "ready" */
#define PROCESS_REPLY_MS 5000  /* for the answer to "hello" and "ping" */

struct process;

/* Start it and shake hands.  HARNESS_UNAVAILABLE, and the codes of sandbox_exec(). */
int process_start(const struct sandbox_use *use, const char *cwd, const char *const *argv,
                  struct process **ret, struct err *e) must_check;

/* Ask whether it listens.  SANDBOX_CANCELLED, HARNESS_ENDED. */
int process_ping(struct process *p, struct cancel *cancel, struct err *e) must_check;

enum process_event {
	PROCESS_LINE,     /* see process_line() */
	PROCESS_TOO_LONG, /* a line was thrown away; process_skipped() bytes */
	PROCESS_TIMEOUT,
	PROCESS_CANCELLED,
	PROCESS_ENDED,
};

/* What comes next; cancel NULL = none, deadline (monotonic ms) 0 = none. */
enum process_event process_next(struct process *p, const struct cancel *cancel,
                                uint64_t deadline_ms);

const struct buf *process_line(const struct process *p);
uint64_t process_skipped(const struct process *p);

/* Whether it echoes ids of operations, so that they may be sent. */
bool process_takes_op_ids(const struct process *p);
int64_t process_pid(const struct process *p); /* as it says; 0 = it does not */

/* Send what the buffer holds; HARNESS_ENDED when it has not read for too long. */
int process_send(struct process *p, const struct buf *lines, struct err *e) must_check;

/* What it writes to standard error from now on belongs to something new. */
void process_forget_stderr(struct process *p);

/* After PROCESS_ENDED: HARNESS_ENDED with how, and the last that it wrote to standard error. */
int process_why(const struct process *p, struct err *e);

/* -- for whoever watches many -- */
enum process_state {
	PROCESS_SILENT, /* nothing new */
	PROCESS_SPEAKS, /* it has written something */
	PROCESS_OVER,
};

int process_fd(const struct process *p); /* readable when process_look() may say another thing */
enum process_state process_look(struct process *p);

/* One that rests does not keep its sandbox from being stopped as idle. */
void process_rest(struct process *p, bool rest);

void process_shutdown(struct process *p); /* ask it to end */
bool process_drain(struct process *p);    /* throw away what it says; false once it has ended */
void process_kill(struct process *p);
void process_close(struct process **p); /* kills it when it lives, and waits for that */

#endif
