#include "daemon/mcp/servers.h"

#include "common/json.h"
#include "daemon/model/declared.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALL_STANDARD 60 /* seconds */
#define CALL_MAX      3600
#define PATH_SIZE     96

struct reading {
	struct json_faults *faults;
	const struct registry *registry;
	struct mcp_servers *servers;
	const char *path; /* of the entry that is read */
};

static void fault(struct reading *r, const char *field, const char *text)
{
	char at[PATH_SIZE];

	json_path_field(at, sizeof(at), r->path, field);
	json_fault(r->faults, at, "%s", text);
}

static void read_id(struct reading *r, const char *id)
{
	struct mcp_servers *s = r->servers;

	if (!registry_mcp_valid(id)) {
		fault(r, "id",
		      "must be 1 to 24 of a-z, 0-9 and \"-\", and start with a letter: it is part "
		      "of the names of tools");
		return;
	}
	for (size_t i = 0; i < s->n; i++)
		if (strcmp(s->v[i].id, id) == 0)
			fault(r, "id", "the same id as of a server before it");
	(void)snprintf(s->v[s->n].id, sizeof(s->v[s->n].id), "%s", id);
}

static void read_url(struct reading *r, const char *url, bool has_key)
{
	struct err e = ERR_INIT;

	if (endpoint_url(&r->servers->at[r->servers->n], url, has_key ? "tokenFile" : NULL, &e) < 0)
		fault(r, "url", e.text);
}

static void read_token(struct reading *r, const char *file)
{
	struct err e = ERR_INIT;

	if (endpoint_key_file(&r->servers->at[r->servers->n], file, r->registry, &e) < 0)
		fault(r, "tokenFile", e.text);
}

static void read_header(struct reading *r, const char *name, bool has_key)
{
	struct endpoint *ep = &r->servers->at[r->servers->n];

	if (!has_key)
		fault(r, "tokenHeader", "there is no tokenFile");
	else if (!endpoint_header_valid(name) || endpoint_header_reserved(name))
		fault(r, "tokenHeader",
		      "must be 1 to 64 of letters, digits, \"-\" and \"_\", and none that a request "
		      "is made of");
	else
		(void)snprintf(ep->key_header, sizeof(ep->key_header), "%s", name);
}

static void read_seconds(struct reading *r, const struct json *v)
{
	int64_t seconds = v ? json_int(v) : CALL_STANDARD;

	if (seconds < 1 || seconds > CALL_MAX)
		fault(r, "timeoutSeconds", "must be 1 to 3600");
	else
		r->servers->v[r->servers->n].call_ms = (unsigned int)seconds * 1000;
}

static void read_server(struct reading *r, const struct json *v)
{
	static const struct json_field fields[] = {
		{ "id", JSON_STRING, .required = true },
		{ "url", JSON_STRING, .required = true },
		{ "tokenFile", JSON_STRING },
		{ "tokenHeader", JSON_STRING },
		{ "timeoutSeconds", JSON_INT },
	};
	const struct json *found[ARRAY_LEN(fields)];

	(void)json_fields(v, r->path, fields, ARRAY_LEN(fields), found, r->faults);
	if (found[0])
		read_id(r, json_str(found[0]));
	if (found[1])
		read_url(r, json_str(found[1]), found[2] != NULL);
	if (found[2])
		read_token(r, json_str(found[2]));
	if (found[3])
		read_header(r, json_str(found[3]), found[2] != NULL);
	read_seconds(r, found[4]);
}

/* Counted after it is read, so that it is compared with those before it only. */
static void read_entry(void *ctx, const struct json *v, const char *at, struct json_faults *faults)
{
	struct reading *r = ctx;

	r->faults = faults;
	r->path = at;
	read_server(r, v);
	r->servers->n++;
}

int mcp_servers_load(const char *path, const struct registry *registry, struct mcp_servers **ret,
                     void (*line)(void *ctx, const char *line), void *ctx, struct err *e)
{
	struct reading r = { .registry = registry, .servers = calloc(1, sizeof(*r.servers)) };
	const struct declared_file file = { .path = path,
		                            .list = "servers",
		                            .most = MCP_SERVERS_MAX,
		                            .entry = read_entry,
		                            .ctx = &r,
		                            .line = line,
		                            .line_ctx = ctx };

	if (!r.servers)
		abort();
	if (declared_read(&file, e) < 0) {
		mcp_servers_free(&r.servers);
		return -1;
	}
	*ret = r.servers;
	return 0;
}

void mcp_servers_free(struct mcp_servers **s)
{
	free(*s);
	*s = NULL;
}
