/*
 * remains.h - the cgroup that a sandbox leaves when its runner is killed.
 *
 * A runner removes its sandbox's leaf (delegation.h) as its last act, and the next one
 * of the tenant would.  Between the two the launcher does: a tenant that does not come
 * back must not leave anything.
 */
#ifndef DAEMON_LAUNCHER_REMAINS_H
#define DAEMON_LAUNCHER_REMAINS_H

#include "common/err.h"
#include "common/id.h"

#include <stdbool.h>
#include <stdint.h>

struct remain;

/* Of which tenants something may be left. */
struct remains {
	const char *dir;     /* of the unit's cgroup; borrowed */
	struct remain *list; /* NULL = nothing is */
	uint64_t look_ms;    /* monotonic: when remains_look() is to be called again; 0 = never */
};

/* Its runner was reaped: clear now what can be, and the rest by remains_look(). */
void remains_add(struct remains *r, const struct uuid *tenant);

/* A new runner of the tenant sees to it, and makes a leaf of the same name. */
void remains_forget(struct remains *r, const struct uuid *tenant);

/* Try again; what cannot be cleared, or not within 10 s, is logged and given up. */
void remains_look(struct remains *r);

/* Forget all. */
void remains_release(struct remains *r);

/*
 * Kill what lives in DIR/sandboxes/TENANT and remove it.  *ret_gone says whether it is
 * away; when not, its processes have not ended yet: try again soon.  Without a leaf it
 * is away.  Only for a tenant that has no runner.
 */
int remains_clear(const char *dir, const struct uuid *tenant, bool *ret_gone, struct err *e)
	must_check;

#endif
