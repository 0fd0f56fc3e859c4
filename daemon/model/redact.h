/*
 * redact.h - keep one secret out of a stream of bytes.
 */
#ifndef DAEMON_MODEL_REDACT_H
#define DAEMON_MODEL_REDACT_H

#include "common/buf.h"

#include <stddef.h>

#define REDACTED "[redacted]"

struct redact {
	const char *secret; /* borrowed; "" = nothing is secret */
	size_t len;
	size_t held; /* bytes of the secret that the stream ended with so far */
};

void redact_init(struct redact *r, const char *secret);

/* Append data to out with the secret replaced; what may be its beginning is held back. */
void redact_take(struct redact *r, const char *data, size_t len, struct buf *out);

/* The stream has ended: append what was held back. */
void redact_end(struct redact *r, struct buf *out);

#endif
