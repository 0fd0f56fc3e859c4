/*
 * lock.h - at most one runner for a tenant, and nothing left of the one before.
 */
#ifndef RUNNER_LOCK_H
#define RUNNER_LOCK_H

#include "common/err.h"
#include "common/id.h"

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

struct lock {
	int dir;                    /* DIR/TENANT, private to us */
	int file;                   /* DIR/TENANT/lock, locked while it is open */
	char mount_point[PATH_MAX]; /* DIR/TENANT/root, empty */
};

#define LOCK_INIT              \
	{                      \
		-1, -1, { 0 }, \
	}

/*
 * Take the lock of a tenant below runtime_dir, which exists and is ours.  Kills
 * and awaits the recorded processes of a runner that was killed; fails with EBUSY
 * when another runner lives, or when such a process does not end.
 */
int lock_take(const char *runtime_dir, const struct uuid *tenant, struct lock *ret, struct err *e)
	must_check;

/* Record a child, before it does anything, so that a successor can find it. */
int lock_record(struct lock *l, pid_t pid, struct err *e) must_check;

/* Forget the children (none may live) and let go. */
void lock_release(struct lock *l);

/* Field 22 of the text of /proc/PID/stat: when the process started.  False when malformed. */
bool lock_parse_start(const char *stat, unsigned long long *ret);

#endif
