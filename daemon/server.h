/*
 * server.h - the process that faces the network.
 *
 * It parses HTTP, speaks to PostgreSQL over its Unix socket, and moves frames to and
 * from sandboxes that the launcher starts.  It starts no program and opens no file of
 * a tenant.
 */
#ifndef DAEMON_SERVER_H
#define DAEMON_SERVER_H

#include "daemon/mcp/servers.h"
#include "daemon/model/models.h"
#include "daemon/options.h"
#include "daemon/store/url.h"
#include "daemon/tenant/registry.h"

struct server_conf {
	const struct options *options;
	struct registry *registry;            /* the first; the server only reads it */
	const struct models *models;          /* NULL = the built-in one alone */
	const struct mcp_servers *mcp;        /* NULL = none */
	const unsigned char *operator_digest; /* of the token for /metrics; NULL = none */
	const struct tenant *anyone;          /* who a request without a token is; NULL = nobody */
	struct database_url *database;        /* wiped once it was used; NULL = the managed one */
	const char *state_dir;                /* canonical */
};

/*
 * The body of the server process (launcher.h): ctx is a struct server_conf.  Serves
 * until the launcher says drain or is gone.  Returns the exit status: 0 after an
 * orderly stop.
 */
int server_main(void *ctx, int launcher_sock, const char *database_socket_dir);

#endif
