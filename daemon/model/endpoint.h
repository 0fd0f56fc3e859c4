/*
 * endpoint.h - a place that the courier may send to, as the operator declared it: a URL, and
 * the file of the key that is sent there.
 */
#ifndef DAEMON_MODEL_ENDPOINT_H
#define DAEMON_MODEL_ENDPOINT_H

#include "common/attr.h"
#include "common/err.h"
#include "daemon/tenant/registry.h"
#include "daemon/tenant/trusted.h"

#include <stdbool.h>
#include <stdint.h>

#define ENDPOINT_URL_MAX    1024
#define ENDPOINT_KEY_MIN    8 /* bytes; a shorter one could not be told from ordinary text */
#define ENDPOINT_KEY_MAX    1024
#define ENDPOINT_HEADER_MAX 64 /* bytes of a header's name */

struct endpoint {
	char url[ENDPOINT_URL_MAX + 1]; /* http or https */
	bool secure;                    /* https */
	bool local;                     /* of this machine: 127.0.0.1, localhost, [::1] */
	uint16_t port;
	char key_file[TRUSTED_PATH_MAX + 1];      /* "" = none is sent */
	char key_header[ENDPOINT_HEADER_MAX + 1]; /* "" = what is usual there */
};

/*
 * Take a URL as the file has it; key_field is the name of the field that holds the key's
 * file, or NULL when there is none: then it may be http to anywhere.
 */
int endpoint_url(struct endpoint *ep, const char *url, const char *key_field, struct err *e)
	must_check;

/*
 * Take the file of the key, which must hold one now.  It must not lie in a workspace of the
 * registry (NULL = nobody's).
 */
int endpoint_key_file(struct endpoint *ep, const char *file, const struct registry *registry,
                      struct err *e) must_check;

/* The key, NUL-terminated, into ret; "" when there is none.  The caller wipes it. */
int endpoint_key(const struct endpoint *ep, char ret[ENDPOINT_KEY_MAX + 1], struct err *e)
	must_check;

/* Printable ASCII from first on. */
bool endpoint_printable(const char *text, char first);

/* 1 to ENDPOINT_HEADER_MAX letters, digits, "-" and "_". */
bool endpoint_header_valid(const char *name);

/* One that a request is made of, so that nobody else sets it. */
bool endpoint_header_reserved(const char *name);

#endif
