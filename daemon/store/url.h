/*
 * url.h - where an external database is, as the operator's one line says it.
 *
 *   postgresql://cloister_owner:PASSWORD@HOST[:PORT]/cloister[?sslrootcert=/path.pem]
 *   postgresql://cloister_owner:PASSWORD@/cloister?host=/run/postgresql[&port=5433]
 *
 * libpq parses it; what is said beyond this form is refused by name, because it would be
 * ignored, or would lower a guard.  No error has the password, or any part of the line, in it.
 */
#ifndef DAEMON_STORE_URL_H
#define DAEMON_STORE_URL_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>

#define URL_MAX          4096 /* bytes of the file, white space around the line included */
#define URL_HOST_MAX     253  /* bytes of a name */
#define URL_SOCKET_MAX   90   /* bytes of the directory of a Unix socket */
#define URL_PASSWORD_MAX 512  /* bytes */
#define URL_PATH_MAX     1024 /* bytes */

struct database_url {
	bool local;                  /* a Unix socket; else TCP, and TLS that is verified in full */
	char host[URL_HOST_MAX + 1]; /* name or address; local: the directory of the socket */
	unsigned int port;           /* 1 to 65535 */
	char password[URL_PASSWORD_MAX + 1];
	char ca_file[URL_PATH_MAX + 1]; /* absolute; "" = the authorities of this machine */
};

/* Read the bytes of a file.  *ret is filled, or without a password. */
int url_parse(const char *text, size_t len, struct database_url *ret, struct err *e) must_check;

/* The password is not needed here any more. */
void url_wipe(struct database_url *url);

#endif
