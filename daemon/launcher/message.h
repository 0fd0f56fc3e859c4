/*
 * message.h - the closed vocabulary between launcher and server.
 *
 * One socket pair (SOCK_SEQPACKET), messages of one fixed size, a default branch
 * that refuses at both ends.  The launcher takes every path from its own copy of
 * the registry; a message names a tenant and nothing else.  An order of the launcher has
 * a number (generation), and the server answers each with LAUNCHER_DONE.
 */
#ifndef DAEMON_LAUNCHER_MESSAGE_H
#define DAEMON_LAUNCHER_MESSAGE_H

#include "common/err.h"
#include "common/id.h"

#include <stdint.h>

/* Exit codes of the runner with a meaning for calls in flight; all others: the sandbox is lost. */
#define RUNNER_OOM  4 /* its memory limit ended it */
#define RUNNER_PIDS 5 /* its limit of host tasks ended it */

/* In place of one: the disk is too full, so it was not started or was ended (disk.h). */
#define RUNNER_NO_ROOM (-2)

enum launcher_op {
	/* server to launcher */
	LAUNCHER_READY = 1, /* the server accepts connections; port says where */
	LAUNCHER_START,     /* start a runner for tenant; generation chosen by the server, > 0 */
	LAUNCHER_KILL,      /* end that runner at once: it and its sandbox */
	/* launcher to server */
	LAUNCHER_STARTED, /* with two descriptors: write end to the guest, read end from it */
	LAUNCHER_EXITED,  /* that runner is gone and reaped; also the answer to a START that failed
	                   */
	LAUNCHER_DRAIN,   /* finish what runs, then exit */
	/* orders; the answer is from server to launcher */
	LAUNCHER_REGISTRY, /* with one descriptor: a compiled registry, to be in force from now on
	                    */
	LAUNCHER_PURGE,    /* drop what the database has of that tenant, who is not declared */
	LAUNCHER_STATUS,   /* with one descriptor: a view (view.h), to be written to */
	LAUNCHER_PAUSE,    /* take no more work, while all that runs goes on */
	LAUNCHER_DONE,     /* status 0, or cause says why not; the order of that number is over */
};

struct launcher_message {
	uint32_t op;
	uint32_t port;       /* LAUNCHER_READY */
	uint64_t generation; /* of the sandbox meant; a late message of an older one is ignored.
	                        Of an order: its number, > 0 */
	struct uuid tenant;
	uint32_t processes; /* LAUNCHER_STARTED: the most that the tenant may have.
	                       LAUNCHER_DONE of a PAUSE: turns that still run */
	int32_t status;     /* LAUNCHER_EXITED: exit code, or 128 + signal; -1 = never started;
	                       RUNNER_NO_ROOM.
	                       LAUNCHER_DONE: 0 or 1 */
	char cause[256];    /* LAUNCHER_EXITED, LAUNCHER_DONE: one line for people, may be empty */
};

/*
 * Send one message with up to 2 descriptors (fds NULL = none; fds[1] may be -1).  The
 * sender keeps its descriptors.
 */
int launcher_send(int sock, const struct launcher_message *m, const int fds[2], struct err *e)
	must_check;

/*
 * Receive one message.  Returns 1, or 0 when the other end is gone, or -1.  A message of
 * another size, with an unknown op, an unterminated text or unexpected descriptors is
 * refused (EPROTO).  ret_fds are -1 when none came.
 *
 * They are both -1, too, when a message that has to carry descriptors is right in all else, and
 * this process may not have so many more: the message counts, its receiver does without.
 */
int launcher_receive(int sock, struct launcher_message *ret, int ret_fds[2], struct err *e)
	must_check;

#endif
