/*
 * harness_line.h - what a tenant's own program said in a turn, line by line, as it came.
 */
#ifndef DAEMON_STORE_HARNESS_LINE_H
#define DAEMON_STORE_HARNESS_LINE_H

#include "daemon/store/turn.h"

struct harness_line {
	uint32_t number; /* from 1 in each turn; those that are not kept leave gaps */
	char *text;      /* bytes; owned by whoever filled it */
	size_t len;
};

/*
 * Keep n lines of a turn, whatever its state, in one transaction; those that are there
 * already stay.  STORE_TENANT_FULL.
 */
int harness_lines_keep(struct store *s, const struct uuid *tenant, const struct uuid *turn,
                       const struct harness_line *lines, size_t n, struct err *e) must_check;

struct harness_page {
	const struct uuid *turn;
	uint32_t after; /* only lines of a higher number */
	size_t limit;   /* lines */
	size_t bytes;   /* of all lines together; one is given in any case */
	bool more;      /* set by the call */
};

/* In order.  STORE_NOT_FOUND: no such turn. */
int harness_lines_list(struct store *s, const struct uuid *tenant, struct harness_page *page,
                       void (*fn)(void *ctx, const struct harness_line *line), void *ctx,
                       struct err *e) must_check;

/* Count what a step used for the turn and its session, whatever the turn's state. */
int harness_count_tokens(struct store *s, const struct uuid *tenant, const struct uuid *turn,
                         const struct turn_step *step, struct err *e) must_check;

#endif
