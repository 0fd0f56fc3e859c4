/*
 * rpc.h - JSON-RPC as MCP uses it: what is sent, and what a message is that came.
 *
 * Messages come from somebody else's program.  They are strict JSON (common/json.h), and
 * whatever is none of the shapes below is a fault.
 */
#ifndef DAEMON_MCP_RPC_H
#define DAEMON_MCP_RPC_H

#include "common/attr.h"
#include "common/buf.h"
#include "common/err.h"
#include "common/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MCP_VERSION "2025-06-18" /* the one that is asked for */

enum mcp_code {
	MCP_CANCELLED = ERR_PROGRAM_BASE + 600,
	MCP_TIMEOUT,     /* nothing, or no end, in time */
	MCP_UNREACHABLE, /* no connection: nothing was sent */
	MCP_CUT,         /* the answer, or what was to be one, ends too early */
	MCP_REFUSED,     /* by a status of HTTP */
	MCP_EXPIRED,     /* the session is not known there any more */
	MCP_BAD,         /* 400: with some servers that is what MCP_EXPIRED is */
	MCP_MALFORMED,   /* not HTTP, not JSON-RPC, or not MCP */
	MCP_TOO_LARGE,
	MCP_ERROR, /* an error of JSON-RPC; its text is the server's own */
};

/* Append a request, with what its params are as JSON text; or a notification. */
void rpc_request(struct buf *out, int64_t id, const char *method, const char *params);
void rpc_notification(struct buf *out, const char *method, const char *params);

/*
 * tools/call; arguments are sent byte for byte as they are, so they must be an object of
 * JSON: rpc_arguments_check().
 */
void rpc_call(struct buf *out, int64_t id, const char *tool, const char *arguments, size_t len);
int rpc_arguments_check(const char *arguments, size_t len, struct err *e) must_check;

/* The answer to a request of the server's: to a ping, or that there is no such method. */
void rpc_answer(struct buf *out, const struct json *request);

enum rpc_kind {
	RPC_RESULT,       /* of the request that is asked for */
	RPC_OTHER,        /* a notification, or an answer that nobody waits for */
	RPC_LIST_CHANGED, /* notifications/tools/list_changed */
	RPC_REQUEST,      /* somebody is to answer it: *ret is the request */
};

/*
 * What text is, for who waits for the answer to request id.  *ret is the message, owned by
 * the caller, and of RPC_RESULT has a "result".  -1: MCP_MALFORMED, and MCP_ERROR for an
 * error that answers the request.
 */
int rpc_read(const char *text, size_t len, int64_t id, enum rpc_kind *ret_kind, struct json **ret,
             struct err *e) must_check;

#endif
