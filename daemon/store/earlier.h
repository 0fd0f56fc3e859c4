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

/* What stands for the beginning of a session, up to one of its items. */
struct summary {
	struct uuid turn;
	uint32_t through; /* seq of the last item that it covers */
	char *text;       /* owned; NULL = there is none */
	size_t len;
	uint64_t created_ms; /* wall clock; for summary_add() */
};

#define SUMMARY_MAX ((size_t)262144) /* bytes */

/* The last one of the turn's session that covers nothing behind the turn. */
int summary_get(struct store *s, const struct uuid *tenant, const struct uuid *turn,
                struct summary *ret, struct err *e) must_check;

/*
 * Add one while the turn runs, and count the tokens that it took for the session (usage has
 * no items).  One that is there already stays.
 */
int summary_add(struct store *s, const struct uuid *tenant, const struct uuid *turn,
                const struct summary *summary, const struct turn_step *usage, struct err *e)
	must_check;

void summary_release(struct summary *summary);

#define EARLIER_ITEM_BYTES 256 /* what an item counts beside its body and opaque part */

/* Which of them are wanted. */
struct earlier_range {
	const struct uuid *turn;       /* those before this one */
	const struct summary *covered; /* and behind what this covers */
	size_t max_bytes;              /* the newest, whose items come to at most this */
};

/*
 * Whole turns of the same session, but for the one in which the summary ends: of that, the
 * input and what is not covered.
 */
int session_earlier(struct store *s, const struct uuid *tenant, const struct earlier_range *range,
                    struct earlier *ret, struct err *e) must_check;

void earlier_release(struct earlier *earlier);

#endif
