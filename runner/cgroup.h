/*
 * cgroup.h - the leaf cgroup that holds every process of one sandbox.
 *
 *   DIR                the service's own cgroup, delegated to its user
 *   DIR/supervisor     daemon and runners; its share (memory.low, cpu.weight) is the
 *                      service manager's and the launcher's to give
 *   DIR/sandboxes/ID   one sandbox: made fresh for every start, never used twice,
 *                      because some kernels kill what is cloned into a killed one
 */
#ifndef RUNNER_CGROUP_H
#define RUNNER_CGROUP_H

#include "common/err.h"
#include "common/id.h"
#include "runner/args.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct cgroup {
	int parent; /* DIR/sandboxes; -1: there is no leaf */
	int dir;    /* the leaf, which child_clone() takes; -1: none */
	char name[UUID_TEXT_LEN + 1];
	struct limits limits;
};

#define CGROUP_INIT         \
	{                   \
		-1, -1, "", \
	}

/* Why a sandbox ended, by the counters of its leaf. */
enum cgroup_cause {
	CGROUP_OTHER,
	CGROUP_MEMORY,        /* its own limit */
	CGROUP_MEMORY_AROUND, /* that of all sandboxes, or the machine's */
	CGROUP_PROCESSES,
};

/*
 * Verify DIR and this process's place in it, remove what a predecessor left of the
 * tenant's leaf (killing what lives in it), make the leaf and set its limits, each
 * of which is read back.  Fails with the reason and the remedy; *ret is then unchanged.
 */
int cgroup_make(const char *path, const struct uuid *tenant, const struct limits *limits,
                struct cgroup *ret, struct err *e) must_check;

/* Fails unless every limit reads as set and the process (as this one numbers it) is inside. */
int cgroup_verify(const struct cgroup *c, pid_t pid, struct err *e) must_check;

enum cgroup_cause cgroup_cause(const struct cgroup *c);

/* Kill all that is inside.  Without a leaf, nothing. */
void cgroup_kill(const struct cgroup *c);

/* Wait until the leaf is empty, remove it and close c.  False at the deadline; try again. */
bool cgroup_remove(struct cgroup *c, uint64_t deadline_ms);

/* -- parts, for the tests -- */

/* The place of the service at an open DIR; self must be in its supervisor. */
int cgroup_check_place(int dir, pid_t self, struct err *e) must_check;

/* Write the limits into an open leaf and compare what it then reads. */
int cgroup_set_limits(int leaf, const struct limits *limits, struct err *e) must_check;

/* Make parent/name, fresh. */
int cgroup_make_leaf(int parent, const char *name, int *ret_fd, struct err *e) must_check;

/* The value of a line "key value" of text; 0 when there is none. */
uint64_t cgroup_counter(const char *text, const char *key);

#endif
