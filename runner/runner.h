/*
 * runner.h - one tenant's sandbox from start to end.
 */
#ifndef RUNNER_RUNNER_H
#define RUNNER_RUNNER_H

#include "common/err.h"
#include "runner/args.h"
#include "runner/cgroup.h"
#include "runner/lock.h"
#include "runner/nl.h"
#include "runner/output.h"
#include "runner/policy.h"
#include "runner/runsc.h"
#include "runner/slirp.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Exit codes of the program. */
#define EXIT_ORDERLY 0
#define EXIT_REFUSED 2
#define EXIT_LOST    3
#define EXIT_MEMORY  4 /* the leaf cgroup's limit of memory ended the sandbox */
#define EXIT_PIDS    5 /* the leaf cgroup's limit of processes did */

struct runner {
	const struct runner_args *args;
	struct lock lock;
	struct cgroup cgroup; /* without a leaf in the development boundary */
	int signals;          /* signalfd of TERM, INT, CHLD and USR1, which are blocked */
	int routes;           /* watch on what is local to the host; -1 without a network */
	uint64_t routes_ms;   /* when what it says is read; 0: it has said nothing */
	struct policy policy;
	const char *runsc[RUNSC_ARGS_MAX]; /* its arguments */
	struct nl rules;                   /* NETFILTER socket of the router's network namespace */
	pid_t router;                      /* 0: none, or reaped */
	pid_t box;
	int channel; /* to the box */
	struct slirp slirp;
	struct output errors, log, slirp_output;
	bool box_refused;      /* the box ended before a sandbox existed */
	bool box_ended_well;   /* ... or as a guest does whose input ended */
	struct err box_reason; /* how the box ended */
};

void runner_init(struct runner *r, const struct runner_args *args);

/* Stages 1 to 8: everything up to the execution of runsc.  On failure call runner_end(). */
int runner_start(struct runner *r, struct err *e) must_check;

/*
 * Stage 9: serve until the end of standard input, SIGTERM, or the loss of the
 * sandbox.  Returns an exit code; e says why when it is not EXIT_ORDERLY.
 */
int runner_serve(struct runner *r, struct err *e);

/*
 * Stage 10: end what still runs, prove that nothing does, and let go of the lock.
 * A runner that cannot prove it stops itself and keeps the lock.
 */
void runner_end(struct runner *r);

#endif
