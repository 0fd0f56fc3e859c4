/* kept.h - what the command line and the operator's files name that no workspace may hold. */
#ifndef DAEMON_KEPT_H
#define DAEMON_KEPT_H

#include "daemon/mcp/servers.h"
#include "daemon/model/models.h"
#include "daemon/options.h"
#include "daemon/store/url.h"
#include "daemon/tenant/guarded.h"

/* As the options were written: before a link in them is followed. */
void kept_options(struct guarded *g, const struct options *o);

/* What those files say; NULL = nothing.  Keys are read once more, and wiped. */
void kept_models(struct guarded *g, const struct models *models);
void kept_mcp(struct guarded *g, const struct mcp_servers *mcp);
void kept_metrics(struct guarded *g, const unsigned char *digest);
void kept_database(struct guarded *g, const struct database_url *url);

#endif
