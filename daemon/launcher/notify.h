/*
 * notify.h - tells the service manager how far we are: sd_notify(3), without its library.
 *
 * The manager names a datagram socket in NOTIFY_SOCKET.  Whoever has that variable may
 * try to speak for the service, so it goes out of the environment before anything else
 * is started.
 */
#ifndef DAEMON_LAUNCHER_NOTIFY_H
#define DAEMON_LAUNCHER_NOTIFY_H

#include "common/err.h"

#include <sys/socket.h>
#include <sys/un.h>

struct notify {
	struct sockaddr_un address;
	socklen_t len; /* 0 = nobody asked to be told */
};

/*
 * Take the manager's address from the environment, and everything of it out of there.
 * -1 when there is one that cannot be used.  For a process with one thread.
 */
int notify_take(struct notify *ret, struct err *e) must_check;

/*
 * Send assignments such as "READY=1", one a line, in one datagram; nothing when nobody
 * asked.  Never blocks: -1 when the manager does not read.
 */
int notify_send(const struct notify *n, const char *state, struct err *e) must_check;

#endif
