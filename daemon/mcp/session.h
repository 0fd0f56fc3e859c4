/*
 * session.h - sessions with MCP servers: one for each tenant and server, so that nothing a
 * server remembers of one tenant is there for another.  Thread-safe.
 */
#ifndef DAEMON_MCP_SESSION_H
#define DAEMON_MCP_SESSION_H

#include "common/cancel.h"
#include "common/id.h"
#include "daemon/mcp/client.h"
#include "daemon/mcp/servers.h"

#include <stdbool.h>

#define MCP_SESSIONS_MAX 1024 /* that are kept; the one that was not used longest goes first */

struct mcp; /* all of them */

/* servers and courier (of courier_start()) outlive it. */
int mcp_new(const struct mcp_servers *servers, int courier, struct mcp **ret, struct err *e)
	must_check;

/* Nobody asks any more.  Tells the servers that their sessions are over, for a second at most. */
void mcp_free(struct mcp **at);

const struct mcp_servers *mcp_servers_of(const struct mcp *m);

struct mcp_use {
	struct mcp *mcp;
	struct uuid tenant;
	size_t server;
	const struct cancel *cancel;
	uint64_t deadline_ms; /* monotonic */
	bool list_changed;    /* set when the server said so meanwhile */
	bool sent;            /* set when the server may have got the request */
};

/* What is to be asked: appends the request of that id. */
struct mcp_question {
	void (*write)(void *ctx, int64_t id, struct buf *out);
	void *ctx;
	bool repeatable; /* to ask twice is as good as once */
};

/*
 * Ask in the session, which is made when there is none; one that is not known there any more
 * is made anew, once, and the request repeated in it, which was not taken then.  So is one
 * that may be meant by MCP_BAD, if the request is repeatable.  *ret is the
 * "result" and what holds it, owned by the caller.  When the request is given up, because of
 * a cancel or the deadline, the server is told.
 */
int mcp_ask(struct mcp_use *u, const struct mcp_question *q, struct json **ret, struct err *e)
	must_check;

/*
 * Whether the server has just kept somebody of the tenant's waiting in vain, so that it is
 * not to be asked for what can be done without.
 */
bool mcp_is_resting(struct mcp *m, const struct uuid *tenant, size_t server);
void mcp_rest(struct mcp *m, const struct uuid *tenant, size_t server);

#endif
