/*
 * target.h - the target of a request: a path, decoded once, and a query.
 *
 * libmicrohttpd would decode %2F and cut at %00 before anybody looks; so the target is read
 * as it was sent.  Everything happens in place.  A fault is a static text, NULL is none; after
 * a fault the text is of no use.
 */
#ifndef DAEMON_HTTP_TARGET_H
#define DAEMON_HTTP_TARGET_H

#include <stddef.h>

#define HTTP_QUERY_MAX 16 /* parameters in one query */

struct target_query {
	struct {
		const char *name, *value; /* decoded; borrowed from the target */
	} v[HTTP_QUERY_MAX];
	size_t count;
};

/* End the path where the query begins; that, or NULL without one. */
char *target_split(char *target);

/*
 * Decode a path.  What is left is UTF-8, begins with a slash, and has no empty, "." or ".."
 * segment, no control character of ASCII, and no slash or backslash that was an escape.
 */
const char *target_path(char *path);

/* Decode a query (NULL = none): UTF-8 without NULs, no name twice, none empty. */
const char *target_query(char *query, struct target_query *ret);

/* Value of a parameter, or NULL. */
const char *target_value(const struct target_query *q, const char *name);

#endif
