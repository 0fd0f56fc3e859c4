/*
 * carry.h - bytes from a client to a server and back, until one of them closes.
 *
 * Nothing is kept beyond one buffer each way: who does not read stops the other one.  Until a
 * login is over, the server's messages go through sasl.h one by one.
 */
#ifndef DAEMON_LINK_CARRY_H
#define DAEMON_LINK_CARRY_H

#include "common/attr.h"
#include "common/err.h"

#include <openssl/ssl.h>

#define CARRY_BUFFER    16384 /* bytes each way */
#define CARRY_LINGER_MS 5000  /* for the last bytes to one when the other has closed */

/*
 * Both sockets are non-blocking and stay the caller's.  0 when one side has closed, and the
 * other one is to be closed.  -1 when the server was refused before a login was over, with
 * the reason; the client has had nothing but whole messages then.
 */
int carry(SSL *server, int client, struct err *e) must_check;

#endif
