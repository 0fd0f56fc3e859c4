/*
 * orders.h - what the operator asks of a running daemon: another registry, a purge, how things
 * stand, no more work.
 *
 * One at a time.  The launcher reads and validates the file, hands the server a compiled
 * registry, and makes its own copy the one in force when the server has taken it; until
 * then, and with any fault, the old one stays.  A purge first drops the database, which is
 * the server's part, and then the files, in a process of its own.
 */
#ifndef DAEMON_LAUNCHER_ORDERS_H
#define DAEMON_LAUNCHER_ORDERS_H

#include "daemon/launcher/control.h"
#include "daemon/launcher/launcher.h"
#include "daemon/launcher/message.h"

#include <sys/types.h>

struct orders {
	struct control control;
	const struct launcher_conf *conf;
	int state_fd;                    /* borrowed */
	const struct registry *registry; /* in force */
	struct registry *owned;          /* the same, when it was read here */
	struct registry *next;           /* with the server */
	enum {
		ORDER_NONE,
		ORDER_REGISTRY,
		ORDER_PURGE,
		ORDER_FILES, /* of a purge: a child removes them */
		ORDER_STATUS,
		ORDER_PAUSE,
	} under_way;
	uint64_t number; /* of the order that the server has, or had last */
	bool accepting;  /* the server is there to take orders */
	bool again;      /* a reload was asked for meanwhile */
	struct uuid tenant;
	pid_t remover; /* -1 = none */
	int view_fd;   /* of a status; -1 = none */
	off_t view_at; /* where its lines begin */
	bool paused;   /* was ordered once */
	/* Send to the server; takes the descriptors. */
	void (*tell)(void *ctx, const struct launcher_message *m, int fds[2]);
	/*
	 * Another registry is in force; before is the one until now.  When it is the same one,
	 * then that which was to follow it does not.
	 */
	void (*changed)(void *ctx, const struct registry *before);
	bool (*runs)(void *ctx, const struct uuid *tenant); /* has a runner */
	/* As view_open(), of all runners. */
	int (*view)(void *ctx, bool json, int *ret_fd, off_t *ret_at, struct err *e);
	void *ctx;
};

/* conf, state_fd and the callbacks are set. */
int orders_open(struct orders *o, struct err *e) must_check;
void orders_close(struct orders *o);

/* The server is ready (true), or ends (false): then what is under way has failed. */
void orders_accept(struct orders *o, bool accepting);

/* The control socket has something. */
void orders_serve(struct orders *o);

/* A declared tenant.  The server may know one of the next registry before it has told us so. */
const struct tenant *orders_tenant(const struct orders *o, const struct uuid *id);

/* SIGHUP. */
void orders_reload(struct orders *o);

/* LAUNCHER_DONE; false when it answers nothing. */
bool orders_done(struct orders *o, const struct launcher_message *m);

/* A child ended; false when it is not one of ours. */
bool orders_reaped(struct orders *o, pid_t pid, int wait_status);

#endif
