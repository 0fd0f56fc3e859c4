/*
 * link.h - the process that stands between the server and a PostgreSQL elsewhere.
 *
 * The server may not connect out and opens no file, and libpq wants both for TLS.  So it
 * speaks to a local socket, as with the cluster of its own, and the link carries the bytes to
 * one declared host and port, over TLS.  It verifies chain and name by itself, always; it has
 * no password and understands no SQL.  A login by SCRAM goes through it from end to end, and
 * any that would show the password to the other side does not go through (sasl.h).
 *
 * Powers on entry: those of the server before it is confined.  Kept: TCP to that one port and
 * to name servers; datagrams for name service; the few files that name service reads; taking
 * connections from the one local socket, in a directory that only the service user may enter.
 * Given up: programs, other files, other local sockets, listening, other processes
 * (confine_link()).  The authorities are read before.  It ends with the server.
 *
 * Between the two stands a keeper (daemon/launcher/keeper.h), which starts another link when one
 * dies.  The local socket outlives each of them: who connects meanwhile waits for the next.
 *
 * What goes wrong before a session is one is told to libpq as PostgreSQL would, in a FATAL
 * error that names cause and remedy.
 */
#ifndef DAEMON_LINK_LINK_H
#define DAEMON_LINK_LINK_H

#include "common/attr.h"
#include "common/err.h"
#include "daemon/confine/confine.h"

#include <stdint.h>

#define LINK_HOST_MAX        253  /* bytes */
#define LINK_CONNECTIONS_MAX 4096 /* threads */
#define LINK_PATIENCE_MS     5000 /* for name, TCP and TLS in all; and for each answer of a login */
#define LINK_PLACE_MS        1000 /* for a connection that was closed to be gone */

struct link_conf {
	const char *host; /* a name, or an address as text; the certificate must name it */
	uint16_t port;
	const char *ca_file;      /* PEM, absolute; NULL = the system's authorities */
	unsigned int connections; /* at once; one more hears soon that there are too many */
	enum confine_mode mode;
};

/*
 * Listen on socket_dir/.s.PGSQL.5432, where a stale socket is removed (the caller holds the
 * lock of the state directory), fork the keeper and with it the link, and wait until it
 * reports that it is confined and ready.  To be called by a process with one thread that is
 * not confined yet and has no_new_privs set.  conf is not needed afterwards.
 *
 * *ret_sock stays open as long as the link shall live; closing it ends it.  That it becomes
 * readable says that the keeper is gone, and so there will be no link any more.  A server that
 * cannot be reached is no error here, but one of each connection.
 */
int link_start(const struct link_conf *conf, const char *socket_dir, int *ret_sock, struct err *e)
	must_check;

#endif
