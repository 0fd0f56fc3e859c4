/* authorities.h - where this system keeps the authorities that vouch for servers. */
#ifndef COMMON_AUTHORITIES_H
#define COMMON_AUTHORITIES_H

#include <stdlib.h>

#define AUTHORITIES_MAX ((size_t)16 << 20) /* bytes of such a file */

/* SSL_CERT_FILE names another file, as for other programs. */
static inline const char *authorities_path(void)
{
	const char *path = getenv("SSL_CERT_FILE");

	return path && *path ? path : "/etc/ssl/certs/ca-certificates.crt";
}

#endif
