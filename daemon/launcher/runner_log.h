/*
 * runner_log.h - what a runner writes on its standard error.
 *
 * Each line becomes a line of the operator's log that names the tenant.  However much
 * a runner writes, the memory is this struct and the log grows by a bounded rate;
 * what is left out is counted and said.  The rate is the tenant's, however many runners
 * it has one after the other: what it used up is remembered between two of them.
 */
#ifndef DAEMON_LAUNCHER_RUNNER_LOG_H
#define DAEMON_LAUNCHER_RUNNER_LOG_H

#include "common/id.h"
#include "common/sanitizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RUNNER_LOG_LINE  1024 /* bytes of a line that are kept */
#define RUNNER_LOG_LINES 50   /* lines at once */
/* Reports of a sanitizer are long, and none may be lost. */
#define RUNNER_LOG_BURST  (SANITIZED_ADDRESSES ? 300 : RUNNER_LOG_LINES)
#define RUNNER_LOG_RATE   5 /* lines a second after those */
#define RUNNER_LOG_REASON 256

struct runner_log {
	struct uuid tenant;
	char line[RUNNER_LOG_LINE + 1]; /* begun, not ended */
	size_t len;
	bool cut;                       /* the begun line was longer */
	char reason[RUNNER_LOG_REASON]; /* message of the last line that ended; "" = none */
	unsigned int budget;            /* lines that may be logged now */
	uint64_t filled_ms;             /* when the budget last grew; monotonic */
	uint64_t left_out;              /* lines since the last one that was logged */
};

/* What tenants without a runner have used up, for as long as that is some. */
struct runner_log_past;

void runner_log_init(struct runner_log *l, const struct uuid *tenant, uint64_t now_ms);

/* Go on with what the tenant's former runner has left. */
void runner_log_resume(struct runner_log *l, struct runner_log_past **list, uint64_t now_ms);

/* Remember what this one has left for the next. */
void runner_log_keep(const struct runner_log *l, struct runner_log_past **list, uint64_t now_ms);

/* Forget all. */
void runner_log_forget(struct runner_log_past **list);

/* Take bytes as they come. */
void runner_log_feed(struct runner_log *l, const char *data, size_t len, uint64_t now_ms);

/* End of the stream: a line without newline counts, and what was left out is said. */
void runner_log_end(struct runner_log *l, uint64_t now_ms);

#endif
