/*
 * sse.h - server-sent events out of a byte stream, however it is cut into pieces.
 *
 * As the HTML standard describes it: lines end in CR, LF or CRLF, a byte order mark at
 * the beginning is skipped, lines of data are joined by LF, a blank line ends the event,
 * comments and unknown fields are skipped, what is unfinished at the end is dropped.
 */
#ifndef DAEMON_MODEL_SSE_H
#define DAEMON_MODEL_SSE_H

#include "common/attr.h"
#include "common/buf.h"
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>

#define SSE_EVENT_MAX ((size_t)4 << 20) /* bytes of one event, and of one line */

/* type is "" unless the event has one; data is not "" and NUL-terminated. 0 = go on. */
struct sse_receiver {
	int (*event)(void *ctx, const char *type, const char *data, size_t len, struct err *e);
	void *ctx;
};

struct sse {
	struct buf line;
	struct buf data;
	char type[64];     /* longer ones are cut */
	unsigned int mark; /* bytes of a byte order mark seen at the beginning; 3 = beyond it */
	bool after_cr;     /* a LF now belongs to the line that has ended */
	bool has_data;
};

void sse_init(struct sse *s);
void sse_release(struct sse *s);

/*
 * Take len more bytes and call to->event for every one that they complete.  -1 when a line or
 * an event is too long (EMSGSIZE), or when the callee returned -1; s is of no use then.
 */
int sse_feed(struct sse *s, const char *data, size_t len, const struct sse_receiver *to,
             struct err *e) must_check;

#endif
