/*
 * said.h - what a step of a set-up says, and what of it is told (inside this folder only).
 *
 * A server may repeat what it was sent, and git cuts what it repeats.  So of a credential
 * every piece of SAID_PIECE bytes is looked for, and not the whole alone.
 */
#ifndef DAEMON_SETUP_SAID_H
#define DAEMON_SETUP_SAID_H

#include "common/buf.h"

#define SAID_MAX   ((size_t)2000) /* bytes kept of either */
#define SAID_PIECE ((size_t)8)    /* bytes of a secret that are not told in a row */
#define TOLD_MAX   400            /* bytes of a complaint in an error */

struct said {
	struct buf out; /* the beginning of what it prints */
	struct buf err; /* the end of its complaints */
};

#define SAID_INIT                                      \
	{                                              \
		BUF_INIT(SAID_MAX), BUF_INIT(SAID_MAX) \
	}

/* An output sink; ctx: a struct said. */
void said_take(void *ctx, int stream, const char *data, size_t len);

/*
 * The end of its complaints as one line, "" when there is none, with '*' for what is in them
 * of the credential: as it is, or as the header that carries it.  credential: as git's protocol
 * has it, with a user and a password; NULL = there was none.
 */
void said_complaint(struct said *said, const char *credential, char ret[TOLD_MAX + 1]);

void said_release(struct said *said);

#endif
