/*
 * tree.h - the processes below the calling one.
 *
 * The caller is a child subreaper or PID 1, so whatever its descendants do
 * (fork twice, start sessions, ignore signals) they stay below it.  Reads /proc.
 */
#ifndef GUEST_TREE_H
#define GUEST_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Descendants of the caller that live (a zombie does not). */
size_t tree_count(void);

/*
 * Kill and reap every descendant, first the process group of leader (a child of
 * the caller not yet waited for; 0 = none), whose wait status goes to *ret_status.
 * SIGCHLD must be blocked.  False when some are left at the deadline (monotonic
 * milliseconds).
 */
bool tree_kill(pid_t leader, int *ret_status, uint64_t deadline_ms);

#endif
