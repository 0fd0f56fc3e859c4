/*
 * transcript.h - a turn's items in memory while its loop runs (inside this folder only).
 *
 * They are read from the store once; what the loop commits after that is added here, so
 * that a turn's cost grows with its length and not with the square of it.  Whenever it is
 * not known what was committed, they are forgotten, and read anew by the next round.
 */
#ifndef DAEMON_TURN_TRANSCRIPT_H
#define DAEMON_TURN_TRANSCRIPT_H

#include "daemon/store/turn.h"

struct transcript {
	struct item_list list;
	size_t room;  /* items that list has memory for */
	size_t bytes; /* of all bodies but the input's */
	bool known;
	bool told; /* the input says where what came with it is */
};

/* Read the items unless they are known.  Codes as of turn_items(). */
int transcript_read(struct transcript *t, struct store *s, const struct uuid *tenant,
                    const struct uuid *turn, struct err *e) must_check;

void transcript_forget(struct transcript *t);

/*
 * Add what was committed, with its seq; takes bodies, details and opaque parts.  Items that do not
 * follow the last one, or for which there is no memory, make the transcript forget.
 */
void transcript_add(struct transcript *t, struct item *items, size_t n);

/* The state of the call at seq was committed. */
void transcript_mark(struct transcript *t, uint32_t seq, enum call_state state);

#endif
