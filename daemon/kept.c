#include "daemon/kept.h"

#include "common/fd.h"

#include <limits.h>
#include <sodium.h>
#include <string.h>
#include <unistd.h>

#define METRICS "the token for metrics (--metrics-token-file)"

static void keep_self(struct guarded *g)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

	if (n <= 0)
		return;
	path[n] = '\0';
	guarded_file(g, path, "the program cloisterd");
}

void kept_options(struct guarded *g, const struct options *o)
{
	const struct {
		const char *path, *what;
	} files[] = {
		{ o->runner, "the runner (--runner)" },
		{ o->guest, "the guest (--guest)" },
		{ o->runsc, "gVisor (--runsc)" },
		{ o->slirp4netns, "slirp4netns (--slirp4netns)" },
		{ o->postgres_bin, "the directory of PostgreSQL (--postgres-bin)" },
		{ o->state, "the state directory (--state)" },
		{ o->models, "the file of the models (--models)" },
		{ o->mcp, "the file of the MCP servers (--mcp)" },
		{ o->token_file, "the bearer token (--token-file)" },
		{ o->metrics_token_file, METRICS },
		{ o->database_url_file, "the URL of the database (--database-url-file)" },
	};

	keep_self(g);
	guarded_tree(g, o->rootfs, "the root filesystem (--rootfs)");
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		guarded_file(g, files[i].path, "%s", files[i].what);
}

static void keep_key(struct guarded *g, const struct endpoint *ep, const char *what)
{
	unsigned char digest[TOKEN_DIGEST];
	char key[ENDPOINT_KEY_MAX + 1];
	struct err ignored = ERR_INIT;

	if (!ep->key_file[0])
		return;
	guarded_file(g, ep->key_file, "%s", what);
	if (endpoint_key(ep, key, &ignored) == 0 && token_digest(key, strlen(key), digest))
		guarded_secret(g, digest, "%s", what);
	sodium_memzero(key, sizeof(key));
}

void kept_models(struct guarded *g, const struct models *models)
{
	char what[TENANT_MODEL_MAX + 64];

	for (size_t i = 0; models && i < models->n; i++) {
		(void)snprintf(what, sizeof(what), "the key of model %s (apiKeyFile)",
		               models->v[i].id);
		keep_key(g, &models->v[i].at, what);
	}
}

void kept_mcp(struct guarded *g, const struct mcp_servers *mcp)
{
	char what[TENANT_MCP_MAX + 64];

	for (size_t i = 0; mcp && i < mcp->n; i++) {
		(void)snprintf(what, sizeof(what), "the token of MCP server %s (tokenFile)",
		               mcp->v[i].id);
		keep_key(g, &mcp->at[i], what);
	}
}

void kept_metrics(struct guarded *g, const unsigned char *digest)
{
	if (digest)
		guarded_secret(g, digest, METRICS);
}

void kept_database(struct guarded *g, const struct database_url *url)
{
	if (!url)
		return;
	if (url->local)
		guarded_file(g, url->host, "the directory of the socket of PostgreSQL");
	if (url->ca_file[0])
		guarded_file(g, url->ca_file, "sslrootcert of the database");
}
