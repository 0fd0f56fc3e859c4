/*
 * net.h - the machine's side of the doctor's network checks (inside this folder only).
 *
 * That something is refused proves nothing unless it would have answered: so the doctor
 * listens on the machine's own addresses while its sandbox tries them, and asks for a
 * public one only when the machine itself reaches it.
 */
#ifndef DAEMON_DOCTOR_NET_H
#define DAEMON_DOCTOR_NET_H

#include "common/err.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NET_ADDRESSES 8

struct net_listener {
	char address[INET_ADDRSTRLEN];
	uint16_t port;
	int fd;
};

/*
 * Listen on up to max - 1 of this machine's IPv4 addresses, and on loopback, which comes
 * last.  Only those to which this process itself can connect are kept.  Returns how many.
 */
size_t net_listen(struct net_listener *ret, size_t max);
void net_close(struct net_listener *l, size_t n);

/* Somebody has connected since net_listen(). */
bool net_reached(const struct net_listener *l);

/* Connect within timeout_ms, and close again. */
bool net_connects(const char *address, uint16_t port, int timeout_ms);

/* The machine's own resolver answers for name; at most some 2 s. */
bool net_resolves(const char *name);

#endif
