/*
 * approval.h - whether a call may be run: by the session's rules, and by people (inside
 * this folder only).
 *
 * A session that asks has a request about every call that writes, before it is begun; one
 * that plans runs none of them.  A call that looks as if it removed everything (removal.h) has
 * a request of its own in every session, and calls of MCP servers ask in every session.  What
 * is run are the bytes that were shown: arguments that cannot be shown whole and as they are,
 * or that are no JSON, are refused.
 */
#ifndef DAEMON_TURN_APPROVAL_H
#define DAEMON_TURN_APPROVAL_H

#include "daemon/store/session.h"
#include "daemon/store/turn.h"
#include "daemon/tool/tools.h"

#define APPROVAL_KIND "tool_approval"

enum approval {
	APPROVAL_RUN,
	APPROVAL_ASK,    /* the request is filled in */
	APPROVAL_REFUSE, /* the outcome is filled in: the result to show the model */
};

struct approval_case {
	struct store *store;
	const struct uuid *tenant;
	const struct uuid *turn;
	const struct session *session;
	const struct item *call; /* pending, or started by us and not run */
	bool writes;             /* it may change something */
	bool asks;               /* a call that writes asks, whatever the session says */
};

/*
 * Decide; the caller releases what was filled in.  request has its id, turn, session and
 * time set.  Codes as of request_of_call(); a request that is open is STORE_CONFLICT.
 */
int approval_of(const struct approval_case *c, struct request *request,
                struct tool_outcome *refusal, enum approval *ret, struct err *e) must_check;

/*
 * The same for a call of a child agent, which asks nobody: what would have to be asked is
 * refused, unless its tool was allowed for the session.  Codes as of request_decided().
 */
int approval_of_child(const struct approval_case *c, struct tool_outcome *refusal, bool *ret_run,
                      struct err *e) must_check;

#endif
