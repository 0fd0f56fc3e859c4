/*
 * result.h - the result of a call as text.
 */
#ifndef DAEMON_MCP_RESULT_H
#define DAEMON_MCP_RESULT_H

#include "common/err.h"
#include "common/json.h"
#include "daemon/mcp/tools.h"

/*
 * The texts of its content, one below the other; what is no text is named by its kind and
 * size.  Without content, its structured content.  -1: MCP_MALFORMED, MCP_TOO_LARGE.
 */
int mcp_result_read(const struct json *result, struct mcp_result *ret, struct err *e) must_check;

#endif
