/*
 * child.h - processes that do not outlive the runner.
 */
#ifndef RUNNER_CHILD_H
#define RUNNER_CHILD_H

#include "common/err.h"

#include <stdint.h>
#include <sys/types.h>

/*
 * Fork into the new namespaces of flags (CLONE_NEW*, and CLONE_PARENT to make a
 * sibling).  Uses clone(2), whose flags a seccomp filter can see; returns as fork(2).
 */
pid_t child_clone(unsigned long flags, struct err *e) must_check;

/*
 * As child_clone(), and the child is in the cgroup (an open directory; -1: ours)
 * before it returns here.  It is born there; where a filter hides clone3(2), it is
 * moved while it waits.  Not for CLONE_PARENT.
 */
pid_t child_clone_into(int cgroup, unsigned long flags, struct err *e) must_check;

/* The second of the two ways. */
pid_t child_clone_gated(int cgroup, unsigned long flags, struct err *e) must_check;

/* Have the kernel kill this process when its parent dies; the parent may be dead already. */
int child_bind(struct err *e) must_check;

/* In a new user namespace: map id 0 of both kinds to the given ids of the one outside. */
int child_map_root(uid_t uid, gid_t gid, struct err *e) must_check;

/* Undo what the runner did to its signals, for a program that is about to be executed. */
void child_reset_signals(void);

/* Make from[i] descriptor i for all i below n, close the rest; -1 in from is /dev/null. */
int child_set_fds(const int *from, int n, struct err *e) must_check;

/* Execute path with an empty environment.  argv ends with NULL.  Returns only on failure. */
int child_exec(const char *path, const char *const *argv, struct err *e);

/* Drop every capability that is not in the mask keep, from the bounding set too. */
int child_keep_capabilities(uint64_t keep, struct err *e) must_check;

#endif
