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

/*
 * Call fn with each pid in what is left of a /proc/PID/task/TID/children, "12 345 6 ".  A number
 * that nothing follows is none, and neither is one that no child can have.
 */
void tree_each_pid(int fd, void (*fn)(void *ctx, pid_t pid), void *ctx);

#endif
