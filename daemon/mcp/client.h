/*
 * client.h - one exchange with an MCP server: a POST through the courier, and its answer,
 * as JSON or as a stream of events.
 */
#ifndef DAEMON_MCP_CLIENT_H
#define DAEMON_MCP_CLIENT_H

#include "common/attr.h"
#include "common/buf.h"
#include "common/json.h"
#include "daemon/mcp/rpc.h"
#include "daemon/model/courier_client.h"

#define MCP_REQUEST_MAX ((size_t)1 << 20)  /* bytes of what is sent */
#define MCP_MESSAGE_MAX ((size_t)4 << 20)  /* of one message that comes */
#define MCP_STREAM_MAX  ((size_t)16 << 20) /* of all that comes in one exchange */

/* Where to, and as whom. */
struct mcp_peer {
	int courier; /* of courier_start() */
	uint32_t place;
	char session[COURIER_SESSION_MAX + 1]; /* "" = none */
	char version[COURIER_VERSION_MAX + 1]; /* "" = not agreed on */
};

struct mcp_exchange {
	const struct mcp_peer *peer;
	const struct buf *body;
	int64_t id;               /* of the request in it */
	struct courier_wait wait; /* until the whole of the answer */
	/* Set by the exchange: */
	char session[COURIER_SESSION_MAX + 1]; /* that the server gave */
	bool list_changed;                     /* the server said so */
	bool sent; /* the server may have got it, so it may have had an effect */
};

/*
 * Send a request, and wait for its answer; requests that the server makes meanwhile are
 * answered.  *ret is the message with the "result", owned by the caller.
 */
int mcp_exchange(struct mcp_exchange *x, struct json **ret, struct err *e) must_check;

/* Send what has no answer, and wait until the server has it, but no longer than that. */
int mcp_tell(const struct mcp_peer *peer, enum courier_to to, const struct buf *body,
             const struct courier_wait *wait, struct err *e) must_check;

#endif
