/*
 * keeper.h - a process that is started again when it dies.
 *
 * For what the server forks before it confines itself, and could not fork again.  The keeper
 * stands between the two.  It reads from nobody, holds no secret, and but for memory that
 * nobody may look into has the powers that the server had, as the launcher has them; it does
 * nothing but fork, wait and sleep.
 *
 * Both end with the server: what is kept sees the other end of its socket closed, and the keeper
 * sees that one end in order.  Where Landlock keeps the server's signals to itself (version 6),
 * its death sends none, so one that is stopped lives until it goes on; the unit ends all of them.
 */
#ifndef DAEMON_LAUNCHER_KEEPER_H
#define DAEMON_LAUNCHER_KEEPER_H

#include "common/attr.h"
#include "common/err.h"

struct kept {
	const char *name; /* of the process, for people: "the process that ..." */
	const char *who;  /* in one word, for sanitizer_fault() */
	int fd;           /* a descriptor that each of them has beside its socket; -1 = none */
	/* In a process of its own: get ready, give powers up. */
	int (*begin)(void *ctx, int sock, struct err *e);
	/* Work until the other end of the socket is closed. */
	void (*work)(void *ctx);
	void *ctx;
};

/*
 * Fork the keeper and with it a first such process, and wait until that has begun.  To be
 * called by a process with one thread.  *ret_sock is the other end of the socket, for
 * messages (SOCK_SEQPACKET), which outlives each of them: what waits in it is the next one's.
 * It stays open as long as they shall live.
 */
int keeper_start(const struct kept *kept, int *ret_sock, struct err *e) must_check;

#endif
