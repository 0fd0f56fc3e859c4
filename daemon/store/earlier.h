/*
 * earlier.h - what a session said and did before one of its turns, for who goes on from it.
 */
#ifndef DAEMON_STORE_EARLIER_H
#define DAEMON_STORE_EARLIER_H

#include "daemon/store/turn.h"

struct earlier_turn {
	struct uuid id;
	enum turn_state state;
	char error_code[64]; /* "" = none */
	char *attachments;   /* owned; JSON array of what came with it, or NULL */
	size_t first, count; /* where its items are in the list */
};

struct earlier {
	struct earlier_turn *turns; /* oldest first */
	size_t turn_count;
	struct item_list items; /* of all of them, in order, without details */
	bool cut;               /* there are older ones */
};

#define EARLIER_ITEM_BYTES 256 /* what an item counts beside its body and opaque part */

/*
 * The turns of the same session before this one: whole turns, the newest ones whose items
 * come to at most max_bytes.
 */
int session_earlier(struct store *s, const struct uuid *tenant, const struct uuid *turn,
                    size_t max_bytes, struct earlier *ret, struct err *e) must_check;

void earlier_release(struct earlier *earlier);

#endif
