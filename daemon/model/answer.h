/*
 * answer.h - what a provider has said so far, and the items that it becomes.
 */
#ifndef DAEMON_MODEL_ANSWER_H
#define DAEMON_MODEL_ANSWER_H

#include "common/buf.h"
#include "daemon/model/reader.h"
#include "daemon/store/turn.h"

#define ANSWER_ITEM_MAX  ((size_t)4 << 20) /* bytes of one item */
#define ANSWER_PARTS_MAX 256               /* what changes more often is put together */
#define ANSWER_KEPT_MAX  ((size_t)65536)   /* bytes kept of an answer that failed */

/* Becomes an item. */
struct answer_part {
	enum item_kind kind; /* ITEM_ASSISTANT (refusals too), ITEM_REASONING, ITEM_TOOL_CALL */
	bool whole;          /* reasoning that has ended */
	unsigned int call;
	char name[READER_NAME_MAX + 1]; /* of the tool */
	struct buf text;                /* or arguments */
	struct buf opaque;
};

struct answer {
	struct answer_part *parts; /* in the order in which they began; at most ANSWER_PARTS_MAX */
	size_t part_count;
	enum stop stop;
	struct usage usage;
	size_t bytes, bytes_max; /* of all parts; bytes_max 0 = no bound for all of it */
};

void answer_init(struct answer *a, size_t bytes_max);
void answer_release(struct answer *a);

void answer_take(struct answer *a, const struct said *said);

/* -1 with MODEL_TOO_LONG once there was more than bytes_max; no more is kept then. */
int answer_check(const struct answer *a, struct err *e) must_check;

/*
 * After reader_end(): append its items in their order.  Calls get an id of our own, pending,
 * their arguments byte for byte ("{}" for none); reasoning gets the origin, and is left out
 * where nothing follows it.  -1 with MODEL_EMPTY, or MODEL_FAILED when it is cut within its
 * calls, declined without a word, or too long; nothing is appended then.
 */
int answer_items(struct answer *a, const char *origin, struct item_list *ret, struct err *e)
	must_check;

/* Append an ITEM_DISCARDED with the beginning of the text, if there is any, and why it failed. */
void answer_discard(const struct answer *a, const char *why, struct item_list *ret);

#endif
