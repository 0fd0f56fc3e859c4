/* session.h - sessions of one tenant. */
#ifndef DAEMON_STORE_SESSION_H
#define DAEMON_STORE_SESSION_H

#include "daemon/store/setup.h"

#define SESSION_MODEL_MAX      128  /* bytes */
#define SESSION_CWD_MAX        4096 /* bytes */
#define SESSION_CREDENTIAL_MAX 64   /* bytes */
#define SESSION_TITLE_MAX      512  /* bytes */
#define SESSION_HARNESS_MAX    4096 /* bytes */

#define SESSION_INSTRUCTIONS_MAX 32768 /* bytes */

struct session {
	struct uuid id;
	uint64_t created_ms; /* wall clock */
	uint64_t updated_ms;
	char model[SESSION_MODEL_MAX + 1];
	char credential[SESSION_CREDENTIAL_MAX + 1]; /* whose account of a provider; "" = none */
	char effort[16];
	char cwd[SESSION_CWD_MAX + 1];     /* absolute, inside the sandbox */
	char title[SESSION_TITLE_MAX + 1]; /* "" = none */
	bool title_is_manual;
	bool archived;
	char approvals[16];                    /* "sandbox" or "ask" */
	bool planning;                         /* only what reads is run */
	char harness[SESSION_HARNESS_MAX + 1]; /* its command as a JSON array; "" = it has none */
	uint64_t input_tokens, output_tokens, cached_tokens;
	char instructions[SESSION_INSTRUCTIONS_MAX + 1]; /* to the model; "" = none */
	uint64_t reasoning_tokens;                       /* of output_tokens */
	int64_t cost_nano; /* billionths of the prices' currency; -1 = not known */
	struct setup setup;
};

/* What makes a request happen once, however often it is sent. */
struct client_request {
	struct uuid id;
	unsigned char digest[32]; /* of all that the request asks for */
};

/*
 * Insert; id and times are set by the caller, and when it begins with a repository that (the
 * set-up is pending then, and the tenant marked as unfinished before).  When key (NULL = none) is
 * known with the same digest, *io becomes the session that it made; with another: STORE_KEY_REUSED.
 * STORE_TENANT_FULL.
 */
int session_insert(struct store *s, const struct uuid *tenant, struct session *io,
                   const struct client_request *key, struct err *e) must_check;

struct session_change {
	const char *title;        /* NULL = as it is; "" = none */
	const bool *archived;     /* NULL = as it is */
	const char *instructions; /* NULL = as they are; "" = none */
	uint64_t now_ms;
};

/* *ret is the session as changed.  STORE_BUSY when it has an active turn. */
int session_update(struct store *s, const struct uuid *tenant, const struct uuid *id,
                   const struct session_change *change, struct session *ret, struct err *e)
	must_check;

/*
 * Remove the session with its turns, items and requests.  STORE_BUSY when it has an
 * active turn.  A tenant that is near its bound gets the room back.
 */
int session_delete(struct store *s, const struct uuid *tenant, const struct uuid *id, struct err *e)
	must_check;

struct session_fork {
	struct uuid source;
	const uint32_t *through;          /* index of the last turn to copy; NULL = all */
	const char *title;                /* NULL = the source's */
	const char *cwd;                  /* NULL = the source's */
	const struct client_request *key; /* as of session_insert(); NULL = none */
};

/*
 * Make a session with copies of the source's turns and their items; tokens are counted
 * anew.  The caller sets id and times of *io.  STORE_BUSY when the source has an active
 * turn; STORE_NO_SUCH_TURN when it has none of that index.
 */
int session_fork(struct store *s, const struct uuid *tenant, const struct session_fork *fork,
                 struct session *io, struct err *e) must_check;

/* *ret is not to be looked at when it fails. */
int session_get(struct store *s, const struct uuid *tenant, const struct uuid *id,
                struct session *ret, struct err *e) must_check;

#define SESSION_IDS_MAX 16

struct session_ids {
	struct uuid ids[SESSION_IDS_MAX];
	size_t n;
};

/* Calls fn once for each of these that there is, in any order. */
int session_each(struct store *s, const struct uuid *tenant, const struct session_ids *ids,
                 void (*fn)(void *ctx, const struct session *row), void *ctx, struct err *e)
	must_check;

/* Where a page of the list begins: rows strictly older than (updated_ms, id); zero updated_ms =
 * newest. */
struct session_key {
	uint64_t updated_ms;
	struct uuid id;
};

enum session_filter {
	SESSION_ACTIVE,
	SESSION_ARCHIVED,
	SESSION_ALL,
};

struct session_page {
	enum session_filter filter;
	const struct session_key *after; /* NULL = from the newest on */
	size_t limit;
	bool more; /* set by the call: older ones remain */
};

/* Newest first, at most page->limit rows.  Calls fn for each. */
int session_list(struct store *s, const struct uuid *tenant, struct session_page *page,
                 void (*fn)(void *ctx, const struct session *row), void *ctx, struct err *e)
	must_check;

#endif
