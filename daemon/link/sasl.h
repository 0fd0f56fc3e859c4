/*
 * sasl.h - what a PostgreSQL says until a login is over, judged and made fit for libpq.
 *
 * The only reader of foreign bytes in the link, and a pure function.  Four things happen here:
 *
 *  - SCRAM-SHA-256-PLUS is taken out of the mechanisms that a server offers.  It would bind
 *    the login to the TLS session, of which libpq, at its local socket, has none; offered it
 *    nevertheless, libpq suspects an attack and gives up.
 *  - What would show the password to the server is refused by name: libpq gives it to
 *    whoever asks, at any time before the login is over.
 *  - A login that proves nothing is refused by name: libpq before 16 takes the server's word
 *    that all is well, although nobody was asked for anything.  With SCRAM each side has
 *    proved to the other that it knows the password (libpq verifies the server's proof).
 *  - So is one that would keep libpq busy with hashing for minutes.
 */
#ifndef DAEMON_LINK_SASL_H
#define DAEMON_LINK_SASL_H

#include "common/attr.h"
#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

#define SASL_MESSAGE_MAX 2048   /* bytes of one, with its type and length */
#define SASL_ROUNDS_MAX  100000 /* of hashing, which PostgreSQL calls scram_iterations */

/* How far the login of one connection has come. */
enum sasl_login {
	SASL_BEGUN,
	SASL_OFFERED,    /* the mechanisms */
	SASL_CHALLENGED, /* the client is to prove itself */
	SASL_PROVED,     /* the server has sent its proof */
};

enum sasl_verdict {
	SASL_MORE,   /* it is not whole yet */
	SASL_PASS,   /* its bytes are for the client; then comes another one */
	SASL_OVER,   /* the login is, or has failed: this and all that follows is for the client */
	SASL_REFUSE, /* nothing of it is for the client; e says why */
};

/*
 * Judge the message that data[0..*len) begins with, where *len may be more or less than it.
 * When something was taken out, *len is less than before, and what follows the message has
 * moved up.  *ret_message is how long it is now, for SASL_PASS alone.  *login, SASL_BEGUN at
 * first, is of this connection.
 */
enum sasl_verdict sasl_judge(uint8_t *data, size_t *len, enum sasl_login *login,
                             size_t *ret_message, struct err *e) must_check;

#endif
