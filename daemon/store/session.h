/* session.h - sessions of one tenant. */
#ifndef DAEMON_STORE_SESSION_H
#define DAEMON_STORE_SESSION_H

#include "daemon/store/store.h"

#define SESSION_MODEL_MAX 128  /* bytes */
#define SESSION_CWD_MAX   4096 /* bytes */
#define SESSION_TITLE_MAX 512  /* bytes */

struct session {
	struct uuid id;
	uint64_t created_ms; /* wall clock */
	uint64_t updated_ms;
	char model[SESSION_MODEL_MAX + 1];
	char effort[16];
	char cwd[SESSION_CWD_MAX + 1];     /* absolute, inside the sandbox */
	char title[SESSION_TITLE_MAX + 1]; /* "" = none */
	bool title_is_manual;
	bool archived;
	uint64_t input_tokens, output_tokens, cached_tokens;
};

/* Insert; id and times are set by the caller. */
int session_insert(struct store *s, const struct uuid *tenant, const struct session *in,
                   struct err *e) must_check;

int session_get(struct store *s, const struct uuid *tenant, const struct uuid *id,
                struct session *ret, struct err *e) must_check;

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
