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

/*
 * Kill what lives in DIR/sandboxes/TENANT and remove it.  *ret_gone says whether it is
 * away; when not, its processes have not ended yet: try again soon.  Without a leaf it
 * is away.  Only for a tenant that has no runner.
 */
int remains_clear(const char *dir, const struct uuid *tenant, bool *ret_gone, struct err *e)
	must_check;

#endif
