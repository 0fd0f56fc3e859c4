/*
 * outbox.h - messages that wait until the server reads them.
 *
 * The launcher never blocks on the server.  A server that does not read reaches the
 * limit, and that is an error like any other breach of the protocol.
 */
#ifndef DAEMON_LAUNCHER_OUTBOX_H
#define DAEMON_LAUNCHER_OUTBOX_H

#include "common/err.h"
#include "daemon/launcher/message.h"

#include <stdbool.h>
#include <stddef.h>

struct outbox_item;

struct outbox {
	struct outbox_item *first, *last;
	size_t count;
	size_t limit; /* messages */
};

void outbox_init(struct outbox *o, size_t limit);
void outbox_release(struct outbox *o);

/*
 * Put a message at the end.  Takes the descriptors (fds NULL = none) whatever
 * happens, and leaves -1 in their place.  Fails with ENOBUFS at the limit.
 */
int outbox_put(struct outbox *o, const struct launcher_message *m, int fds[2], struct err *e)
	must_check;

/* Send what the socket (non-blocking) takes now; the rest stays. */
int outbox_flush(struct outbox *o, int sock, struct err *e) must_check;

static inline bool outbox_empty(const struct outbox *o)
{
	return o->count == 0;
}

#endif
