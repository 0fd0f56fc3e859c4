/*
 * turns.h - admission, scheduling and life of turns.
 *
 * A turn that runs has a thread; one that waits for a person has none, and nothing
 * in memory: it is taken up again from its last committed step, by the same code that
 * goes on after a restart.  Tenants take turns in starting; a session has at most one
 * unfinished turn (the store's rule).  Every function may block on the store.
 * Thread-safe.
 */
#ifndef DAEMON_TURN_TURNS_H
#define DAEMON_TURN_TURNS_H

#include "daemon/event/bus.h"
#include "daemon/sandbox/sandbox.h"
#include "daemon/store/session.h"
#include "daemon/store/turn.h"

enum turns_code {
	TURNS_QUEUE_FULL = ERR_PROGRAM_BASE + 400, /* of the daemon */
	TURNS_TENANT_QUEUE_FULL,
	TURNS_STOPPING,
	TURNS_BAD_DECISION, /* not one of the request's options, or it needs a value */
};

struct turns_conf {
	struct store *store;
	struct sandboxes *sandboxes;
	struct bus *bus;
	unsigned int max_running;
	unsigned int max_running_tenant;
	unsigned int max_queued;
	unsigned int max_queued_tenant;
};

struct turns;

/* Take up every unfinished turn of the store.  conf's members outlive the turns. */
int turns_start(const struct turns_conf *conf, struct turns **ret, struct err *e) must_check;

/*
 * Admit t (session, input, client_request are set) and queue it; t is filled in.
 * Nothing is stored when a queue is full.  Store codes as of turn_insert(); when the
 * client request id is known already, *t is the stored turn.
 */
int turns_submit(struct turns *ts, const struct uuid *tenant, struct turn *t, struct err *e)
	must_check;

/*
 * Cancel.  Waits up to 2.5 s for the turn to end; *ret is the turn then, terminal
 * unless its thread could not be stopped in that time.  A finished turn stays as it is.
 */
int turns_cancel(struct turns *ts, const struct uuid *tenant, const struct uuid *id,
                 struct turn *ret, struct err *e) must_check;

struct answer {
	const char *decision; /* one of the request's options */
	const char *value;    /* NULL = none */
};

/*
 * Answer a request, once, and queue its turn again.  *ret is the request as answered; the
 * caller releases it.
 */
int turns_answer(struct turns *ts, const struct uuid *tenant, const struct uuid *request,
                 const struct answer *answer, struct request *ret, struct err *e) must_check;

/* Start nothing new and wait until nothing runs, at most that long.  True when nothing runs. */
bool turns_drain(struct turns *ts, unsigned int seconds);

/*
 * Stop what runs, without ending the turns: they go on from their last committed step
 * after the next start.  Joins everything and frees.
 */
void turns_stop(struct turns **ts);

#endif
