/*
 * tools.h - the tools of MCP servers as one turn of a tenant has them, and their calls.
 *
 * Everything here is text of somebody else's: names, descriptions and schemas are bounded,
 * and what does not fit is left out and told.  A tool "t" of the server "s" is mcp__s__t, so
 * it stands beside no tool of ours, and no two servers can have the same.
 */
#ifndef DAEMON_MCP_TOOLS_H
#define DAEMON_MCP_TOOLS_H

#include "common/cancel.h"
#include "common/id.h"
#include "daemon/mcp/session.h"
#include "daemon/model/prompt.h"

#include <stdbool.h>
#include <stddef.h>

#define MCP_PREFIX           "mcp__"
#define MCP_NAME_MAX         64 /* bytes; what providers take, and the store */
#define MCP_SERVER_TOOLS_MAX 128
#define MCP_TURN_TOOLS_MAX   256
#define MCP_PAGES_MAX        16
#define MCP_DESCRIPTION_MAX  2048              /* bytes; more is cut */
#define MCP_SCHEMA_MAX       ((size_t)32768)   /* bytes; with more the tool is left out */
#define MCP_TURN_BYTES_MAX   ((size_t)1 << 18) /* of descriptions and schemas */

struct mcp_tools;

/* Which servers a tenant may use, and who is told what is not there. */
struct mcp_turn {
	struct mcp *mcp;
	struct uuid tenant;
	const struct cancel *cancel;
	bool (*allowed)(void *ctx, const char *server);
	/* One line for a person of the tenant's; of a server that is not there, and the like. */
	void (*missing)(void *ctx, const char *text);
	void *ctx;
};

/*
 * Ask every server for its tools, which last as long as what ctx points to; one that does not
 * answer, in 8 s and all of them in 20 s, is done without.  Never NULL.
 */
struct mcp_tools *mcp_tools_get(const struct mcp_turn *t);
void mcp_tools_free(struct mcp_tools **at);

/* To be shown to a model. */
const struct model_tool *mcp_tools_offered(const struct mcp_tools *t, size_t *ret_count);

/* A server said that it has others now. */
bool mcp_tools_changed(const struct mcp_tools *t);

/* The name is one of an MCP tool, whether it is there or not. */
bool mcp_is_name(const char *name);

enum mcp_known {
	MCP_UNKNOWN,   /* there is no such tool, or its server is not there */
	MCP_READ_ONLY, /* its server says that it changes nothing */
	MCP_WRITES,
};

enum mcp_known mcp_tools_know(const struct mcp_tools *t, const char *name);

struct mcp_result {
	char *text; /* owned by the caller; what there is to show of it */
	size_t len;
	bool is_error; /* the server says so */
};

struct mcp_call {
	const char *tool; /* mcp__... */
	const char *arguments;
	size_t len;
};

/*
 * Call a tool that is known; the arguments are sent byte for byte, and have passed
 * rpc_arguments_check().  -1 with a code of rpc.h; *ret_sent says whether it may have had an
 * effect then.
 */
int mcp_tools_call(struct mcp_tools *t, const struct mcp_call *call, struct mcp_result *ret,
                   bool *ret_sent, struct err *e) must_check;

#endif
