/*
 * slirp.h - slirp4netns, which carries the router's packets as sockets of the host.
 */
#ifndef RUNNER_SLIRP_H
#define RUNNER_SLIRP_H

#include "common/err.h"

#include <sys/types.h>

struct slirp {
	pid_t pid;  /* 0: not started */
	int exit;   /* slirp4netns ends when this is closed */
	int ready;  /* becomes readable when tap0 is there */
	int output; /* what it says */
};

/*
 * Start program for the network namespace net, in the user namespace user but in
 * this process's network namespace, and in a cgroup (-1: ours).  The descriptors stay
 * the caller's; what is in *ret becomes the caller's.
 */
int slirp_start(const char *program, int user, int net, int cgroup, struct slirp *ret,
                struct err *e) must_check;

/* Wait until it is ready. */
int slirp_wait(struct slirp *s, struct err *e) must_check;

void slirp_close(struct slirp *s);

#endif
