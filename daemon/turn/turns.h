/*
 * turns.h - admission, scheduling and life of turns.
 *
 * A turn that runs has a thread; one that waits for a person has none and holds no slot:
 * it is taken up again from its last committed step, by the same code that goes on after
 * a restart.  Tenants take turns in starting; a session has at most one unfinished turn
 * (the store's rule).  When the store did not say whether something was committed, it is
 * asked again until that is known, so no turn is forgotten.  Every function may block on
 * the store.  Thread-safe.
 */
#ifndef DAEMON_TURN_TURNS_H
#define DAEMON_TURN_TURNS_H

#include "daemon/event/bus.h"
#include "daemon/sandbox/sandbox.h"
#include "daemon/setup/setups.h"
#include "daemon/store/session.h"
#include "daemon/store/turn.h"
#include "daemon/tenant/roster.h"

#include <stdatomic.h>

enum turns_code {
	TURNS_QUEUE_FULL = ERR_PROGRAM_BASE + 400, /* of the daemon */
	TURNS_TENANT_QUEUE_FULL,
	TURNS_STOPPING,
	TURNS_BAD_DECISION,   /* not one of the request's options, or it needs a value */
	TURNS_WAITING_LIMIT,  /* too many turns of the tenant wait for a person */
	TURNS_NOT_PROVEN,     /* the sandbox of an earlier daemon may still be alive */
	TURNS_NOT_ATTACHED,   /* the sandbox did not take what came with the turn */
	TURNS_TOO_LARGE,      /* its answers and results have more than max_turn_bytes */
	TURNS_TOO_MANY_STEPS, /* the model has answered max_turn_steps times */
	TURNS_LOOP,           /* the model repeats a call that fails */
};

struct mcp;

struct turns_conf {
	struct store *store;
	struct sandboxes *sandboxes;
	struct bus *bus;
	struct mcp *mcp;          /* NULL = no MCP servers */
	struct setups *setups;    /* NULL = no session has a repository */
	struct roster *roster;    /* which models tenants may use; NULL = all */
	const struct cancel *end; /* of the waiting at start; NULL = nothing does */
	/*
	 * Set when the launcher is gone, before any sandbox is lost with it: from then on turns
	 * are left as they are, none is begun, and turns_stop() has to follow.  NULL = never.
	 */
	const atomic_bool *orphaned;
	unsigned int max_running;
	unsigned int max_running_tenant;
	unsigned int max_queued;
	unsigned int max_queued_tenant;
	unsigned int max_waiting_tenant; /* for a person */
	size_t max_queued_bytes;         /* inputs of turns that have not begun */
	size_t max_queued_bytes_tenant;
	size_t max_turn_bytes;           /* of what is said and done in one turn */
	unsigned int max_turn_steps;     /* answers of the model in one turn */
	unsigned int harness_silence_ms; /* between two lines of a harness in a turn; not 0 */
	unsigned int proof_ms; /* how long a turn waits for the end of an earlier sandbox */
};

struct turns;

/*
 * Take up every unfinished turn of the store; those of a tenant whose database does not
 * answer now are taken up when it does.  conf's members outlive the turns.
 */
int turns_start(const struct turns_conf *conf, struct turns **ret, struct err *e) must_check;

/*
 * Admit t (session, input, client_request and attachments are set) and queue it; t is filled in.
 * Nothing is stored when a queue is full.  Store codes as of turn_insert(); when the
 * client request id is known already, *t is the stored turn, also when a queue is full.
 */
int turns_submit(struct turns *ts, const struct uuid *tenant, struct turn *t, struct err *e)
	must_check;

/*
 * Cancel.  What runs is stopped at once, whatever the store does.  Returns within two
 * seconds: 0 with the turn, which is terminal then (a finished turn stays as it is); or
 * -1, STORE_UNAVAILABLE, when the end could not be committed in that time.
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

struct turns_census {
	unsigned int running;
	unsigned int queued;  /* or being stored */
	unsigned int waiting; /* for a person */
};

/* Of a tenant; NULL = of all. */
void turns_count(struct turns *ts, const struct uuid *tenant, struct turns_census *ret);

/* The session was deleted: what it has resident in the sandbox is asked to end. */
void turns_forget_session(struct turns *ts, const struct uuid *session);

/* Start nothing new and wait until nothing runs, at most that long.  True when nothing runs. */
bool turns_drain(struct turns *ts, unsigned int seconds);

/*
 * Stop what runs, without ending the turns: they go on from their last committed step
 * after the next start.  Joins everything and frees.
 */
void turns_stop(struct turns **ts);

#endif
