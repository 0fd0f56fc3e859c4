/*
 * budget.h - what all parties have together, and none alone, inside daemon/http.
 *
 * The memory for bodies of requests is one: a body counts from the moment that its length is
 * known, else as it arrives, until its request is answered.  No party has more than half, and
 * those whom nobody knows have no more than one body, so that a tenant with many large requests
 * delays itself.  Connections that are kept when there are too many are another (connection.c).
 * For the loop thread only.
 */
#ifndef DAEMON_HTTP_BUDGET_H
#define DAEMON_HTTP_BUDGET_H

#include "common/id.h"

#include <stdbool.h>
#include <stddef.h>

#define BUDGET_BODIES 8 /* of the largest size */

struct budget_party;

struct budget {
	size_t max;    /* of all */
	size_t share;  /* of one party */
	size_t nobody; /* of those whom nobody knows, together */
	size_t used;
	struct budget_party *parties; /* that use some of it */
};

static inline struct budget budget_of_bodies(size_t max_body)
{
	return (struct budget){ .max = max_body * BUDGET_BODIES,
		                .share = max_body * BUDGET_BODIES / 2,
		                .nobody = max_body };
}

/* The party of those whom nobody knows has no text.  False: there is no room. */
bool budget_take(struct budget *b, const struct uuid *party, size_t n);

/* Give back n of what the party took. */
void budget_give(struct budget *b, const struct uuid *party, size_t n);

#endif
