/*
 * confine.h - what the runner gives up once the sandbox runs.
 *
 * Kept: its descriptors, new NETLINK_ROUTE sockets, signals to itself and to its
 * children, the files of its sandbox's cgroup, removing that and what is in its lock
 * directory.  Given up for good: programs, processes, namespaces, mounts, sockets of
 * other kinds, every other file, memory that becomes executable.
 */
#ifndef RUNNER_CONFINE_H
#define RUNNER_CONFINE_H

#include "common/err.h"
#include "runner/args.h"

#include <stdbool.h>
#include <sys/types.h>

#define CONFINE_CHILDREN 3

struct confine {
	enum confine_mode mode;
	bool need_landlock; /* fail without it; else its absence leaves files to seccomp alone */
	pid_t children[CONFINE_CHILDREN]; /* who may be sent signals; 0: nobody */
	int leaf;      /* directory whose files may be read and written; -1: none */
	int sandboxes; /* directory from which directories may be removed; -1: none */
	int lock;      /* directory from which anything may be removed; -1: none */
};

/*
 * To be called by the only thread, with no_new_privs set.  After a failure the
 * process may be confined in part, and must end.
 */
int confine_self(const struct confine *c, struct err *e) must_check;

#endif
