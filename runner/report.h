/*
 * report.h - what the runner and the processes it starts tell each other.
 *
 * One record on a SOCK_SEQPACKET pair carries the number of the step that is done
 * (or permitted), a number, an error, and descriptors.  The order of steps:
 *
 *   runner                          router                    box
 *   1 record the router        -->  REPORT_GO
 *   2                          <--  REPORT_ROUTER (4 fds)
 *   3                          <--  REPORT_BOX (pid)
 *   4 record the box           -->                            REPORT_GO
 *   5                          <--                            REPORT_LINKS (1 fd)
 *   6                          <--                            REPORT_ROOT
 *   7 network and rules stand  -->                            REPORT_RUN
 *   8 runsc could not be run   <--                            REPORT_ROOT with an error
 */
#ifndef RUNNER_REPORT_H
#define RUNNER_REPORT_H

#include "common/err.h"
#include "common/fdmsg.h"

#include <stddef.h>
#include <stdint.h>

enum report_step {
	REPORT_GO = 1, /* do your part */
	REPORT_ROUTER, /* fds: user namespace, network namespace, NETFILTER and ROUTE sockets */
	REPORT_BOX,    /* value: pid of the box */
	REPORT_LINKS,  /* fd: ROUTE socket of the sandbox's network namespace */
	REPORT_ROOT,   /* the private root stands */
	REPORT_RUN,    /* execute runsc */
};

struct report {
	enum report_step step;
	int32_t value;
	int fds[FDMSG_MAX]; /* owned by the receiver */
	size_t fd_count;
};

/* A pair of connected ends, close-on-exec. */
int report_pair(int ret_ends[2], struct err *e) must_check;

/* Send; the descriptors stay the sender's. */
int report_send(int channel, const struct report *r, struct err *e) must_check;

/* Send an error in place of the step. */
void report_error(int channel, enum report_step step, const struct err *why);

/*
 * Wait at most timeout_ms (-1: for ever) for the given step with exactly
 * fd_count descriptors.  Fails with the sender's error when it sent one, with
 * EPIPE when the other end is gone, with ETIMEDOUT, and with EPROTO for any other step.
 */
int report_wait(int channel, enum report_step step, size_t fd_count, int timeout_ms,
                struct report *ret, struct err *e) must_check;

#endif
