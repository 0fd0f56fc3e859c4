/*
 * patience.h - how long a start waits for a database that is away.  It may be asked to end between
 * two tries; one try has the bounds of connecting and of statements (pg.c).
 *
 *     struct patience patience = patience_begin(stop_fd);
 *
 *     while (something(store, &e))
 *             if (patience_wait(&patience, &e) < 0)
 *                     return -1;
 */
#ifndef DAEMON_STORE_PATIENCE_H
#define DAEMON_STORE_PATIENCE_H

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

#define PATIENCE_MS 30000

struct patience {
	int stop_fd; /* ends the waiting when it becomes readable; -1 = nothing does */
	uint64_t until;
	bool told;
};

struct patience patience_begin(int stop_fd);

/*
 * After a failure: 0 after half a second, to try once more.  -1 with *e as it was when another
 * try is of no use (not STORE_UNAVAILABLE) or the time is over, ECANCELED when stop_fd says so.
 * The first time it logs what is waited for.
 */
int patience_wait(struct patience *p, struct err *e) must_check;

#endif
