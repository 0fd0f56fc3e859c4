/*
 * pool.h - the supervisors that PID 1 has, busy and spare.
 *
 * Forking is the dear part of an exec, so a supervisor whose tree is gone is
 * used again and one is kept ready.
 */
#ifndef GUEST_POOL_H
#define GUEST_POOL_H

#include "common/err.h"
#include "guest/loop.h"
#include "guest/supervisor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct supervisor {
	struct source sock;
	pid_t pid;
	bool busy;
	/* Called with each report while an exec owns the supervisor; NULL afterwards. */
	void (*on_report)(void *owner, const struct report *r);
	void *owner;
	struct supervisor *next;
};

/* At most max supervisors at once.  files is the descriptor limit of the execs. */
void pool_open(size_t max, const struct rlimit *files);
void pool_close(void);

/*
 * Hand a supervisor the job (4 descriptors, still owned by the caller).  The
 * owner must forget the supervisor when a report says that it is free.
 */
struct supervisor *pool_run(const int *fds, void *owner,
                            void (*on_report)(void *owner, const struct report *r), struct err *e);

/* The order never waits: a supervisor that does not take it ends the guest. */
void pool_order(struct supervisor *s, enum order order, const int *fds, size_t n);

/* True when the report is the last one about a tree. */
bool report_is_last(const struct report *r);

/* How many supervisors hold what is left of a command that has ended. */
size_t pool_left(void);

/* Note the death of a child.  Losing track of a running exec ends the guest. */
void pool_reaped(pid_t pid);

/* Upkeep, once per turn: fork a spare when things are quiet.  Returns when it wants to
 * be called again (monotonic ms), 0 = no wish. */
uint64_t pool_turn(uint64_t now_ms);

#endif
