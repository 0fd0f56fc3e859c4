/*
 * answer.h - what a provider has said so far, and the items that it becomes.
 */
#ifndef DAEMON_MODEL_ANSWER_H
#define DAEMON_MODEL_ANSWER_H

#include "common/buf.h"
#include "daemon/model/reader.h"
#include "daemon/store/turn.h"

#define ANSWER_ITEM_MAX ((size_t)4 << 20) /* bytes of one item */

struct answer_call {
	char name[READER_NAME_MAX + 1];
	struct buf arguments;
};

struct answer {
	struct buf text; /* refusals included */
	struct answer_call calls[READER_CALLS_MAX];
	unsigned int call_count;
	enum stop stop;
	struct usage usage;
	size_t bytes, bytes_max; /* of text and arguments; bytes_max 0 = no bound for all of it */
};

void answer_init(struct answer *a, size_t bytes_max);
void answer_release(struct answer *a);

void answer_take(struct answer *a, const struct said *said);

/* -1 with MODEL_TOO_LONG once there was more than bytes_max; no more is kept then. */
int answer_check(const struct answer *a, struct err *e) must_check;

/*
 * After reader_end(): append the text, when there is any, and then the calls, each with an
 * id of our own, pending, its arguments byte for byte ("{}" for none).  -1 with
 * MODEL_EMPTY, or MODEL_FAILED when it is cut within its calls, declined without a word, or
 * too long; nothing is appended then.
 */
int answer_items(struct answer *a, struct item_list *ret, struct err *e) must_check;

#endif
