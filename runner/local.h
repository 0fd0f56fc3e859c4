/*
 * local.h - what is local to the host: the routes of its table `local`, and those of
 * every other table that end at the host itself.
 *
 * An address list misses some of it (addresses that a route makes local without
 * an interface that bears them), so the routing tables are asked, and watched.
 */
#ifndef RUNNER_LOCAL_H
#define RUNNER_LOCAL_H

#include "common/err.h"
#include "runner/deny.h"

#include <linux/netlink.h>

/*
 * Subscribe to changes of the IPv4 routes of this process's network namespace.
 * Do it before local_snapshot(), or a change in between is lost.  Non-blocking.
 */
int local_watch(int *ret_fd, struct err *e) must_check;

/* Add all that is local now to d. */
int local_snapshot(struct deny *d, struct err *e) must_check;

/*
 * Take in what the watch has to say; after an overflow, a new snapshot.  What was
 * local once stays denied.  Returns 1 when d grew, 0 when not, -1 on failure.
 */
int local_update(int watch, struct deny *d, struct err *e) must_check;

/* Add what one message announces.  Returns as local_update(); other messages give 0. */
int local_parse(const struct nlmsghdr *message, struct deny *d, struct err *e) must_check;

#endif
