/*
 * seen.h - images that results of calls show the model, while the turn goes on (inside this
 * folder only).
 *
 * They are in memory alone: the model may read a file again.  The latest ones are kept.
 */
#ifndef DAEMON_TURN_SEEN_H
#define DAEMON_TURN_SEEN_H

#include "daemon/model/prompt.h"

#define SEEN_MAX   8
#define SEEN_BYTES ((size_t)4 << 20) /* of all; one is kept in any case */

struct seen {
	struct seen_image {
		char call_id[65];
		struct model_image image; /* data is owned */
	} at[SEEN_MAX];
	size_t count;
};

/* Take the image of a call's result, whose data is NULL afterwards; it may have none. */
void seen_take(struct seen *s, const char *call_id, struct model_image *image);

/* The images of the results that are in list, in ret, which has room for SEEN_MAX; how many. */
size_t seen_in(const struct seen *s, const struct item_list *list, struct model_image *ret);

void seen_release(struct seen *s);

#endif
