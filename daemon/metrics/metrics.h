/*
 * metrics.h - what the server counts, in the form that Prometheus reads.
 *
 * Counters of the whole process, each an atomic number in a fixed table: to count takes no
 * lock and no memory, and no name that a client chose ever becomes one.  What is a state
 * rather than a count is asked for when it is read (daemon/status/).
 */
#ifndef DAEMON_METRICS_METRICS_H
#define DAEMON_METRICS_METRICS_H

#include "common/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum metric {
	METRIC_TURNS,         /* enum metric_end */
	METRIC_SANDBOX_START, /* enum metric_start */
	METRIC_SANDBOX_END,   /* enum metric_loss */
	METRIC_EXEC,          /* enum exec_reason of daemon/sandbox/sandbox.h */
	METRIC_EXEC_BYTES,    /* 0 standard output, 1 standard error */
	METRIC_FILE_BYTES,    /* 0 read, 1 written */
	METRIC_STREAMS,
	METRIC_STREAM_RESETS,
	METRIC_EVENTS,
	METRIC_PROVIDER, /* 0 answered, 1 failed */
	METRIC_TOKENS,   /* 0 input, 1 output, 2 of the input from a cache */
	METRIC_ATTEMPTS, /* wrong tokens: 0 answered with 401, 1 with 429 */
	METRIC_DATABASE_CONNECTS,
	METRIC_DATABASE_WAITS, /* that were given up */
	METRIC_COUNT,
};

#define METRIC_VALUES 8 /* of a label, at most */

enum metric_end {
	METRIC_COMPLETED,
	METRIC_FAILED,
	METRIC_CANCELLED,
};

enum metric_start {
	METRIC_RUNS,
	METRIC_NOT_STARTED,
	METRIC_LIMIT,
	METRIC_NO_ROOM,
};

enum metric_loss {
	METRIC_ENDED, /* asked to, or by itself */
	METRIC_OOM,
	METRIC_PIDS,
	METRIC_DISK_FULL,
	METRIC_LOST, /* anything else: it, its runner or its launcher was killed or failed */
};

/* One more, or n more, of that value of the metric's label. */
void metric_add(enum metric m, size_t value, uint64_t n);

static inline void metric_count(enum metric m, size_t value)
{
	metric_add(m, value, 1);
}

enum metric_time {
	METRIC_TIME_START,    /* of a sandbox, until its guest is ready */
	METRIC_TIME_PROVIDER, /* of an answer of a model, whole */
	METRIC_TIME_COUNT,
};

void metric_time(enum metric_time m, uint64_t microseconds);

/* -- requests: by their route, which has a number below METRIC_ROUTES -- */

#define METRIC_ROUTES 64 /* the last one: none, or one more than have a number */

/* Borrowed; before the first request. */
void metric_route(size_t route, const char *method, const char *pattern);

void metric_request(size_t route, int status, uint64_t microseconds);

/* -- reading -- */

/* Append all of it. */
void metrics_write(struct buf *out);

/* Append a family whose values the caller has: its head, and then each sample. */
void metrics_head(struct buf *out, const char *name, const char *type, const char *help);

/* label NULL = none; value is escaped. */
void metrics_sample(struct buf *out, const char *name, const char *label, const char *value,
                    uint64_t n);

/* Two labels. */
void metrics_sample2(struct buf *out, const char *name, const char *const labels[2],
                     const char *const values[2], uint64_t n);

#endif
