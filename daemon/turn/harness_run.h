/*
 * harness_run.h - a turn that a harness runs (inside this folder only).
 *
 * What is in memory of it lives as long as the run in the harness: across the thread of a
 * turn that waits for a person, and not across the end of the daemon.  A turn is given to a
 * harness once at most.
 */
#ifndef DAEMON_TURN_HARNESS_RUN_H
#define DAEMON_TURN_HARNESS_RUN_H

#include "daemon/harness/ask.h"
#include "daemon/harness/harness.h"
#include "daemon/harness/outcome.h"
#include "daemon/store/harness_line.h"
#include "daemon/turn/run.h"

#define HARNESS_CALLS_MAX  64                /* of tools, begun and not ended, at once */
#define HARNESS_KEPT_MAX   ((size_t)8 << 20) /* bytes of lines kept of a turn, and its result */
#define HARNESS_BATCH      64                /* lines that are stored together */
#define HARNESS_BATCH_SIZE ((size_t)256 << 10)

/* What becomes of the process when this job lets go of it. */
enum harness_fate {
	FATE_NONE, /* there is none, or it was given back */
	FATE_WIND, /* its run is cancelled */
	FATE_DROP,
	FATE_PARK, /* its run waits for a person */
};

/* A use of a tool, as far as the harness told of it. */
struct harness_call {
	struct item item; /* seq 0 = not committed; the body is owned */
	bool named;       /* by "tool_start" */
	bool described;   /* by "tool_calls" */
};

struct harness_asking {
	struct json *data; /* owned; NULL = nothing is asked */
	struct ask ask;    /* borrowed from it */
	struct json *answers;
	size_t next;  /* question */
	uint32_t seq; /* item of the question that a person was asked; 0 = none */
};

struct harness_run {
	struct resident *resident;
	enum harness_fate fate;
	bool started;
	bool told; /* that it is cancelled */
	bool seq_warned;
	bool in_round;     /* "agent.turn.started" was said */
	uint64_t deadline; /* monotonic ms; for "start", and then for the next line */
	int64_t seq;       /* of the newest line */
	uint32_t lines;    /* read so far */
	uint32_t next;     /* seq of the next item */
	uint32_t calls_made;
	size_t bytes;    /* of items and of text */
	struct buf text; /* said, and in no item yet */
	struct outcome outcome;
	struct buf refusals; /* what the harness's protocol side refused, a line each */
	struct outcome_usage usage;
	struct harness_asking asking;
	struct harness_call calls[HARNESS_CALLS_MAX];
	size_t call_count;
	struct harness_line kept[HARNESS_BATCH]; /* not stored yet */
	size_t kept_count, kept_size, kept_total;
	char submit_id[HARNESS_OP_ID_LEN + 1], answer_id[HARNESS_OP_ID_LEN + 1];
};

struct harness_run *harness_run_new(size_t max_bytes);
void harness_run_free(void *run);

/* -- harness_keep.c: committed before it is told, or with what it led to -- */

/* Append items; takes no bodies.  Bytes count for the turn's bound. */
int harness_commit(struct run *r, struct turn_step *step, struct err *e) must_check;
int harness_start_call(struct run *r, struct harness_call *c, struct err *e) must_check;
int harness_finish_call(struct run *r, struct harness_call *c, struct item *result, struct err *e)
	must_check;

/* What was said and done, committed or not, against the turn's bound. */
int harness_check_bytes(const struct run *r, struct err *e) must_check;

/* How a line is told of, beside what it led to. */
struct harness_note {
	const char *type;      /* NULL = it is none of ours */
	const char *kind;      /* likewise */
	const char *dropped;   /* why it led to nothing; NULL = it did not */
	const char *malformed; /* likewise */
	int64_t seq_expected;  /* another one than it has; 0 = no */
	bool unknown_kind;
	bool whole; /* keep it whatever was kept before */
};

/* Keep the line that was just read, and publish it. */
int harness_keep_line(struct run *r, const struct harness_note *note, struct err *e) must_check;
int harness_tell_skipped(struct run *r, struct err *e) must_check; /* one that was too long */
int harness_flush(struct run *r, struct err *e) must_check;        /* store what is kept */
void harness_warn(const struct run *r, const char *fmt, ...) printf_like(2, 3);

/* -- harness_tools.c: texts and uses of tools become items -- */
int harness_say(struct run *r, const char *text, size_t len, struct err *e) must_check;
void harness_begin_round(struct run *r);
int harness_end_round(struct run *r, struct err *e) must_check; /* commit text and calls */
int harness_discard(struct run *r, struct err *e) must_check;   /* what no round has committed */
int harness_tool_names(struct run *r, const struct json *data, struct err *e) must_check;
int harness_tool_calls(struct run *r, const struct json *data, struct err *e) must_check;
int harness_tool_runs(struct run *r, const struct json *data, struct err *e) must_check;
int harness_tool_ended(struct run *r, const struct json *data, struct err *e) must_check;
void harness_call_id(struct harness_run *h, char *ret, size_t size);

/* -- harness_ask.c: its questions -- */
enum round harness_ask(struct run *r, const struct json *data, struct err *e);
enum round harness_answered(struct run *r, struct err *e); /* a person did, or nobody does */

/* -- harness_line.c: one line, and what it leads to -- */
enum round harness_line(struct run *r, struct err *e);

/* After the result: its items and tokens; the process is given back. */
enum round harness_finish(struct run *r, const struct json *result, struct err *e);

/* The cancelled run's text and tokens, as far as they came, without waiting for the store. */
void harness_save(struct run *r);

#endif
