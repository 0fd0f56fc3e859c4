/*
 * state.h - the state directory: what the daemon keeps on disk.
 *
 *   tenants/UUID/state/   seen by the tenant's sandbox as /state; nothing here opens what is in it
 *   tenants/UUID/run/     the runner's own, private to it
 *
 * Beside tenants/ lie the managed cluster (cluster.h) and a reserve of room for it (disk.h), or
 * db/, where the server meets an external one (daemon/link/link.h).
 */
#ifndef DAEMON_LAUNCHER_STATE_H
#define DAEMON_LAUNCHER_STATE_H

#include "common/err.h"
#include "common/id.h"

#include <limits.h>
#include <sys/types.h>

#define STATE_MIN_FREE (32ULL << 20) /* bytes; PostgreSQL's log alone takes segments of 16 MiB */

/*
 * The absolute and canonical form of what the operator wrote.  The directory itself
 * need not exist, its parent must; it may not be a symbolic link.
 */
int state_canonical(const char *path, char ret_path[PATH_MAX], struct err *e) must_check;

/*
 * Open the directory, made with mode 0700 when missing, and demand that it is ours
 * alone, can be written, and has space.  Takes a lock on it, so that a second launcher
 * fails here.  *ret_fd holds the lock and is the caller's.
 */
int state_open(const char *path, int *ret_fd, struct err *e) must_check;

/*
 * Whether state_open() would refuse the directory, or could not make it, by its place, owner
 * and mode.  Makes and locks nothing.  path is canonical.
 */
int state_examine(const char *path, struct err *e) must_check;

struct state_tenant {
	char state[PATH_MAX]; /* absolute */
	char run[PATH_MAX];
	dev_t device; /* of state */
	ino_t inode;
};

/* Make and name a tenant's two directories.  path is the one that state_fd was opened from. */
int state_tenant(int state_fd, const char *path, const struct uuid *tenant,
                 struct state_tenant *ret, struct err *e) must_check;

#endif
