/*
 * servers.h - the MCP servers that the operator declared, read once and then constant.
 *
 * The file is strict JSON (docs/mcp.md).  Where they are and which key they get is the
 * courier's to know (daemon/model/courier.h); who uses them names them by their place.
 */
#ifndef DAEMON_MCP_SERVERS_H
#define DAEMON_MCP_SERVERS_H

#include "common/attr.h"
#include "common/err.h"
#include "daemon/model/courier.h"
#include "daemon/model/endpoint.h"
#include "daemon/tenant/registry.h"

#include <stddef.h>

#define MCP_SERVERS_MAX COURIER_MCP_MAX

struct mcp_server {
	char id[TENANT_MCP_MAX + 1];
	unsigned int call_ms; /* how long a call may take */
};

struct mcp_servers {
	struct endpoint at[MCP_SERVERS_MAX];
	struct mcp_server v[MCP_SERVERS_MAX];
	size_t n;
};

/*
 * Read and validate, keys too.  Calls line once for every fault, as registry_load() does.
 * Files of keys must not lie in a workspace of the registry.
 */
int mcp_servers_load(const char *path, const struct registry *registry, struct mcp_servers **ret,
                     void (*line)(void *ctx, const char *line), void *ctx, struct err *e)
	must_check;

void mcp_servers_free(struct mcp_servers **s);

#endif
