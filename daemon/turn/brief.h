/*
 * brief.h - all that a model is given for one answer (inside this folder only).
 */
#ifndef DAEMON_TURN_BRIEF_H
#define DAEMON_TURN_BRIEF_H

#include "daemon/turn/run.h"

struct brief {
	struct model_prompt prompt; /* borrows from here, and from the run */
	struct composed composed;
	struct buf system;
	/* What came with the input, which is owned, or nothing; then those of results. */
	struct model_image images[1 + SEEN_MAX];
	size_t beside; /* tokens of the prompt but for its items */
};

/*
 * Fill *ret for the run's next answer, which may have so many bytes, with a summary of what is
 * too long.  The caller releases it in any case.
 */
enum round brief_make(struct run *r, size_t answer_max, struct brief *ret, struct err *e);

void brief_release(struct brief *b);

#endif
