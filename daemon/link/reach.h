/*
 * reach.h - from nothing to a TLS session with the declared PostgreSQL.
 *
 * TLS 1.2 or newer; the chain ends at a given authority and the certificate names the host.
 * There is no way of doing without either.  Nothing of the client is sent before.
 */
#ifndef DAEMON_LINK_REACH_H
#define DAEMON_LINK_REACH_H

#include "common/attr.h"
#include "common/err.h"
#include "daemon/link/link.h"

#include <openssl/ssl.h>
#include <stdbool.h>

struct reach {
	char host[LINK_HOST_MAX + 1];
	uint16_t port;
	bool is_address; /* and no name */
	SSL_CTX *tls;
};

/* Of the configuration, and authorities in PEM.  from: where those are, for people. */
int reach_init(struct reach *r, const struct link_conf *conf, const char *authorities, size_t len,
               struct err *e) must_check;

/*
 * A session of the caller, for reach_close(), on a non-blocking socket.  Takes at most
 * LINK_PATIENCE_MS.  Errors name cause and remedy; ECANCELED: the client has gone meanwhile.
 */
int reach_open(const struct reach *r, int client, SSL **ret, struct err *e) must_check;

/* With its socket. */
void reach_close(SSL **tls);

/* What OpenSSL says of its last failure in this thread, and forgets. */
const char *reach_reason(void);

#endif
