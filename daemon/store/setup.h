/*
 * setup.h - the repository that a session begins with, and how far that has come.
 *
 *   pending -> running -> ready | failed;  failed -> pending, when it is tried again
 */
#ifndef DAEMON_STORE_SETUP_H
#define DAEMON_STORE_SETUP_H

#include "daemon/store/store.h"

#define SETUP_URL_MAX   2048 /* bytes */
#define SETUP_REF_MAX   255  /* bytes, of branches too */
#define SETUP_ERROR_MAX 500  /* bytes */

enum setup_state {
	SETUP_NONE, /* the session has no repository */
	SETUP_PENDING,
	SETUP_RUNNING,
	SETUP_READY,
	SETUP_FAILED,
};

struct setup {
	enum setup_state state;
	char url[SETUP_URL_MAX + 1];
	char ref[SETUP_REF_MAX + 1];    /* "" = what the repository's HEAD names */
	char branch[SETUP_REF_MAX + 1]; /* to be made; "" = none */
	bool private;                   /* has a credential, which is not stored */
	char head[65];                  /* the commit that was checked out, once it is ready */
	char code[64];                  /* why it failed */
	char error[SETUP_ERROR_MAX + 1];
};

const char *setup_state_name(enum setup_state state);

static inline bool setup_is_open(const struct setup *s)
{
	return s->state == SETUP_PENDING || s->state == SETUP_RUNNING;
}

/* Calls fn for the session of each set-up that is pending or running. */
int setup_each_unfinished(struct store *s, const struct uuid *tenant,
                          void (*fn)(void *ctx, const struct uuid *session), void *ctx,
                          struct err *e) must_check;

/* pending or running -> running.  STORE_CONFLICT when it is neither, or not there any more. */
int setup_mark_running(struct store *s, const struct uuid *tenant, const struct uuid *session,
                       struct err *e) must_check;

/* pending or running -> what end has of state, head, code and error.  STORE_CONFLICT likewise. */
int setup_finish(struct store *s, const struct uuid *tenant, const struct uuid *session,
                 const struct setup *end, struct err *e) must_check;

/* failed -> pending; the tenant is marked as unfinished first.  STORE_CONFLICT: it had not failed.
 */
int setup_retry(struct store *s, const struct uuid *tenant, const struct uuid *session,
                bool private, struct err *e) must_check;

#endif
