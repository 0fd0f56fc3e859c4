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
};

void answer_init(struct answer *a);
void answer_release(struct answer *a);

void answer_take(struct answer *a, const struct said *said);

/*
 * After reader_end(): append the text, when there is any, and then the calls, each with an
 * id of our own, pending, its arguments byte for byte ("{}" for none).  -1 with
 * MODEL_EMPTY, or MODEL_FAILED when it is cut within its calls, declined without a word, or
 * too long; nothing is appended then.
 */
int answer_items(struct answer *a, struct item_list *ret, struct err *e) must_check;

#endif
