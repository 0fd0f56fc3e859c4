/*
 * setups.h - puts the repository of a session into its sandbox.
 *
 * A few threads of their own clone and check out, inside the sandbox, one set-up of a tenant
 * at a time; turns of the session wait for it.  A credential is kept in memory until its
 * set-up ends and nowhere else, so a set-up that needed one fails when the daemon was
 * restarted in the middle, and wants it again; all others go on.  Thread-safe.
 */
#ifndef DAEMON_SETUP_SETUPS_H
#define DAEMON_SETUP_SETUPS_H

#include "common/cancel.h"
#include "daemon/event/bus.h"
#include "daemon/sandbox/sandbox.h"
#include "daemon/store/session.h"

#include <stdatomic.h>

enum setups_code {
	SETUPS_FULL = ERR_PROGRAM_BASE + 600, /* as many wait as may */
	SETUPS_STOPPING,
	SETUPS_FAILED, /* the session's; text: why */
};

struct setups_conf {
	struct store *store;
	struct sandboxes *sandboxes;
	struct bus *bus;
	bool allow_http;             /* URLs may begin with http:// */
	const struct cancel *end;    /* of the waiting at start; NULL = nothing does */
	const atomic_bool *orphaned; /* set when the launcher is gone, before any sandbox is lost
	                                with it: set-ups are left as they are.  NULL = never */
};

struct setups;
struct setup_job;

/* Take up what the store has unfinished, which is waited for.  conf's members outlive it. */
int setups_start(const struct setups_conf *conf, struct setups **ret, struct err *e) must_check;

/* Leave what runs as it is, to go on after the next start; join, free. */
void setups_stop(struct setups **at);

bool setups_allow_http(const struct setups *s);

/* Before anything is stored: a place for one more.  SETUPS_FULL, SETUPS_STOPPING. */
int setups_take(struct setups *s, const struct uuid *tenant, struct setup_job **ret, struct err *e)
	must_check;

/* Give the place back; NULL in is fine. */
void setups_drop(struct setup_job **at);

struct setup_credential {
	const char *username, *password; /* as repository_secret_fault() has them */
};

/*
 * Run the set-up of the session, which is stored as pending, in that place; the credential
 * (NULL = none) is copied.  When the session's runs already, the place is given back.
 */
void setups_run(struct setup_job **at, const struct uuid *session,
                const struct setup_credential *credential);

/* The session is gone. */
void setups_forget(struct setups *s, const struct uuid *tenant, const struct uuid *session);

/*
 * 0 once the session, which has a set-up, is ready.  SETUPS_FAILED; SANDBOX_CANCELLED;
 * the store's codes.
 */
int setups_wait(struct setups *s, const struct uuid *tenant, const struct uuid *session,
                struct cancel *cancel, struct err *e) must_check;

#endif
