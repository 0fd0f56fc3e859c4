/*
 * control.h - the socket in the state directory through which the operator gives a word.
 *
 * Only root and the service user reach it: the directory is 0700, the socket 0600, and the
 * kernel says who called.  A request is one message of one fixed size; one caller is
 * served at a time.  The answer is lines and an exit status.
 */
#ifndef DAEMON_LAUNCHER_CONTROL_H
#define DAEMON_LAUNCHER_CONTROL_H

#include "common/buf.h"
#include "common/err.h"
#include "common/id.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum control_word {
	CONTROL_RELOAD = 1,  /* read the registry again */
	CONTROL_PURGE,       /* drop what is kept of tenant, who is not declared */
	CONTROL_STATUS,      /* say how things stand, for people ... */
	CONTROL_STATUS_JSON, /* ... or for programs */
	CONTROL_DRAIN,       /* take no more work; CONTROL_BUSY while some is left */
};

struct control_request {
	uint32_t word;
	struct uuid tenant; /* CONTROL_PURGE, else zeros */
};

/* -- the launcher's side -- */
struct control {
	int epoll_fd; /* readable when control_serve() has something to do; -1 = not open */
	int listen_fd;
	int reserve_fd; /* held for a caller for whom there is no other */
	int fd;         /* the caller; -1 = none */
	bool asked;     /* the request has come */
	bool answered;  /* the exit status is in out */
	struct buf out; /* packets, each with its length in front */
	char path[108];
};

int control_open(struct control *c, const char *state_dir, struct err *e) must_check;
void control_close(struct control *c);

/* In a child: close what it has of this, and leave the socket's file to the launcher. */
void control_forget(struct control *c);

/* Take what came and send what the caller takes.  True with the request of a new caller. */
bool control_serve(struct control *c, struct control_request *ret);

/* One line of the answer, for standard error or output.  Without a caller it is dropped. */
void control_line(struct control *c, bool error, const char *text);

#define CONTROL_BUSY 3 /* the exit status of a drain that is not over */

/* The end of the answer; 0 to 9.  A caller that has not asked yet is left as it is. */
void control_end(struct control *c, int exit_status);

/* -- the operator's side -- */

/*
 * Ask the daemon of state_dir and wait; say takes the lines.  The exit status it says, or -1
 * with e.
 */
int control_ask(const char *state_dir, const struct control_request *request,
                void (*say)(bool error, const char *line), struct err *e) must_check;

#endif
