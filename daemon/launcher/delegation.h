/*
 * delegation.h - the unit's own cgroup, which the service manager delegates.
 *
 *   DIR                     of the unit: its limits are out of our reach, no process stays in it
 *   DIR/supervisor          launcher, server, PostgreSQL, runners: protected
 *   DIR/sandboxes           limited as a whole, so that tenants together cannot starve the above
 *   DIR/sandboxes/TENANT    one leaf each, made by that tenant's runner
 *
 * cgroup v2 only; exactly the controllers cpu, memory and pids are enabled in DIR and in
 * DIR/sandboxes.  Errors name the directive of the unit that is missing.
 */
#ifndef DAEMON_LAUNCHER_DELEGATION_H
#define DAEMON_LAUNCHER_DELEGATION_H

#include "common/err.h"

#include <limits.h>

#define CGROUP_ROOT "/sys/fs/cgroup"

/*
 * Find the unit's cgroup, demand what delegation gives, and arrange the above with the
 * calling process (and all others of the unit) in supervisor.  Everything is read back.
 * ret_dir: DIR, absolute.
 */
int delegation_prepare(char ret_dir[PATH_MAX], struct err *e) must_check;

/* -- parts of it, for a tree that need not be the kernel's ------------------------------- */

/* DIR below root, from the text of /proc/self/cgroup. */
int delegation_locate(const char *text, const char *root, char ret_dir[PATH_MAX], struct err *e)
	must_check;

/* DIR is ours, can be written, and has the controllers. */
int delegation_check(const char *path, struct err *e) must_check;

/* Directories, processes, controllers, limits and protection. */
int delegation_arrange(const char *path, const char *root, struct err *e) must_check;

/* What sandboxes may take together of that many bytes of memory, or tasks. */
unsigned long long delegation_memory_share(unsigned long long all);
unsigned long long delegation_tasks_share(unsigned long long all);

#endif
