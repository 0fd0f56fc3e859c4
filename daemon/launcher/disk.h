/*
 * disk.h - room on the file system of the state directory, which PostgreSQL needs.
 *
 * Nothing but that file system bounds the files of a sandbox, and a database that cannot
 * write ends the daemon for all.  So below one limit no sandbox starts, below a lower one
 * those that run are ended, and a file of zeros is held in reserve: it is given back once
 * they are gone, because what they have written stays.
 *
 * A sandbox is meant only when a place that it writes to is short of room as well.  On
 * most machines its guest state is: it lies in the state directory.  The places of a
 * sandbox are opened and looked at only while the state directory is short: a file system
 * that hangs must not hold up the launcher in ordinary times.
 */
#ifndef DAEMON_LAUNCHER_DISK_H
#define DAEMON_LAUNCHER_DISK_H

#include "daemon/tenant/registry.h"

#include <stdbool.h>
#include <stdint.h>

#define DISK_RESERVE_NAME "reserve"

#define DISK_INTERVAL 250 /* ms between two looks while sandboxes run */

struct disk_limits { /* MiB; 0 = none */
	unsigned int start;
	unsigned int end;
	unsigned int reserve;
};

enum disk_level {
	DISK_ENOUGH,
	DISK_NO_START,
	DISK_END, /* what writes there must end */
};

struct disk {
	int state_fd; /* borrowed */
	struct disk_limits limits;
	enum disk_level level; /* as of the last look */
	bool reserved;
};

/* Where a sandbox writes.  -1 stands for what could not be opened: it counts as short. */
struct disk_places {
	int fds[REGISTRY_MAX_PARTS + 1];
	unsigned int n;
};

/* Also makes the reserve, when it leaves room enough; without it a line is logged. */
void disk_open(struct disk *d, int state_fd, const struct disk_limits *limits);

/* Look how much room there is now, and say so when the level changes. */
enum disk_level disk_look(struct disk *d);

/* Make the reserve again when there is room for it. */
void disk_refill(struct disk *d);

/* Give the reserve back, for PostgreSQL to use, when less room than that is left. */
void disk_release(struct disk *d);

/* The same for a state directory without room at the start.  False when there is none. */
bool disk_drop_reserve(int state_fd);

/* Is one of the places short of that much? */
bool disk_short(const struct disk_places *p, unsigned int mib);

/* The tenant's workspace, and where in the state directory its guest state is or will be. */
void disk_places_open(struct disk_places *p, int state_fd, const struct tenant *tenant);
void disk_places_close(struct disk_places *p);

#endif
