/*
 * box.h - the two processes that live in the namespaces the runner makes.
 */
#ifndef RUNNER_BOX_H
#define RUNNER_BOX_H

#include "common/attr.h"
#include "common/buf.h"
#include "runner/args.h"

#include <sys/types.h>

/* Exit code of the box when runsc ended without a sandbox; no guest can end it with this one. */
#define BOX_NOT_STARTED 124

/* What the processes are to do; all borrowed, all decided before the first of them exists. */
struct box_plan {
	const struct runner_args *args;
	const char *mount_point;  /* an empty directory of ours */
	const char *const *runsc; /* its arguments */
	const struct buf *config;
	int router_channel;
	int box_channel;
	int errors; /* runsc's and the guest's standard error */
	int log;    /* runsc's log */
};

/*
 * Body of the process that makes the router's network namespace (it has been
 * cloned into its user and network namespace by the given user) and the box, which
 * it leaves to the runner as the runner's own child.
 */
no_return void router_main(const struct box_plan *plan, uid_t uid, gid_t gid);

#endif
