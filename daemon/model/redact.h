/*
 * redact.h - keep one secret out of a stream of bytes.
 */
#ifndef DAEMON_MODEL_REDACT_H
#define DAEMON_MODEL_REDACT_H

#include "common/buf.h"

#include <stddef.h>

#define REDACTED          "[redacted]"
#define REDACT_SECRET_MAX 1024 /* bytes of a secret, none of which is a backslash */
#define REDACT_ESCAPE     6    /* bytes of \u00xx */
#define REDACT_HELD_MAX   ((size_t)REDACT_ESCAPE * (REDACT_SECRET_MAX + 1))

struct redact {
	const char *secret; /* borrowed; "" = nothing is secret */
	size_t len;
	size_t held; /* bytes of the secret that the stream ended with so far */
	unsigned char widths[REDACT_SECRET_MAX]; /* bytes that stood for each of them */
	char raw[REDACT_HELD_MAX];               /* those */
	size_t raw_len;
	char escape[REDACT_ESCAPE]; /* one that has begun */
	size_t escape_len;
};

void redact_init(struct redact *r, const char *secret);

/*
 * Append data to out with the secret replaced, also where JSON escapes bytes of it; what may be
 * its beginning is held back.
 */
void redact_take(struct redact *r, const char *data, size_t len, struct buf *out);

/* The stream has ended: append what was held back, REDACT_HELD_MAX bytes at most. */
void redact_end(struct redact *r, struct buf *out);

#endif
