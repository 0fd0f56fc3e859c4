/*
 * The files that declare the models and the MCP servers: loaded whole, or refused with at least
 * one fault.  Each input is read as either.
 */
#include "fuzz/files.h"
#include "fuzz/fuzz.h"

#include "daemon/mcp/servers.h"
#include "daemon/model/models.h"

#include <string.h>

static void count(void *ctx, const char *line)
{
	size_t *faults = ctx;

	demand(line[0] && !strchr(line, '\n'));
	++*faults;
}

static void check_models(const char *path, const struct registry *nobody)
{
	struct models *m = NULL;
	struct err e = ERR_INIT;
	size_t faults = 0;
	int rc = models_load(path, nobody, &m, count, &faults, &e);

	demand(rc == 0 ? m && !faults && m->n > 0 : !m && e.text[0]);
	for (size_t i = 0; m && i < m->n; i++)
		demand(models_find(m, m->v[i].id) == &m->v[i]);
	models_free(&m);
}

static void check_server(const struct mcp_servers *s, size_t i)
{
	const struct endpoint *at = &s->at[i];

	demand(registry_mcp_valid(s->v[i].id) && s->v[i].call_ms >= 1000);
	demand(s->v[i].call_ms <= 3600000);
	demand(strncmp(at->url, at->secure ? "https://" : "http://", 7 + at->secure) == 0);
	demand(at->port && !strpbrk(at->url, "@?#\\ "));
	demand(at->secure || at->local || !at->key_file[0]);
	demand(!at->key_header[0] || at->key_file[0]);
	for (size_t k = 0; k < i; k++)
		demand(strcmp(s->v[i].id, s->v[k].id) != 0);
}

static void check_servers(const char *path, const struct registry *nobody)
{
	struct mcp_servers *s = NULL;
	struct err e = ERR_INIT;
	size_t faults = 0;
	int rc = mcp_servers_load(path, nobody, &s, count, &faults, &e);

	demand(rc == 0 ? s && !faults && s->n > 0 : !s && e.text[0]);
	for (size_t i = 0; s && i < s->n; i++)
		check_server(s, i);
	mcp_servers_free(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct registry *nobody;
	static char root[] = "/run";
	static char *const roots[] = { root };
	const char *path = input_file(data, size);
	struct err e = ERR_INIT;

	if (!nobody)
		demand(registry_local(roots, 1, "/nowhere", NULL, &nobody, &e) == 0);
	check_models(path, nobody);
	check_servers(path, nobody);
	return 0;
}
