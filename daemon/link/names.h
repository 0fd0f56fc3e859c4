/*
 * names.h - waiting for what may never come: a descriptor, or name service.
 *
 * Whoever connects may give up meanwhile, which ends every wait.
 */
#ifndef DAEMON_LINK_NAMES_H
#define DAEMON_LINK_NAMES_H

#include "common/attr.h"
#include "common/err.h"

#include <netdb.h>
#include <stdint.h>

#define NAMES_LOOKUPS_MAX 64 /* at once, those that nobody waits for any more included */

/*
 * 0 when fd has one of the events, or an error, before the deadline (monotonic).  Else -1 with
 * ETIMEDOUT; or with ECANCELED when the client, a local socket, has closed its end.
 */
int names_wait(int fd, short events, int client, uint64_t deadline, struct err *e) must_check;

/* A thread that nobody joins. */
int names_detach(void *(*run)(void *ctx), void *ctx, struct err *e) must_check;

/*
 * The addresses of a host, for freeaddrinfo(3).  glibc's resolver cannot be interrupted, so it
 * has a thread of its own, which goes on when nobody waits for it any more.  Errors as of
 * names_wait(), or text that says what name service has answered.
 */
int names_look_up(const char *host, uint16_t port, int client, uint64_t deadline,
                  struct addrinfo **ret, struct err *e) must_check;

#endif
