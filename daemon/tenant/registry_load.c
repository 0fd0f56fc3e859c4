/*
 * Reading a registry.  What it declares decides who may become whom, so nothing in
 * it is repaired, guessed or skipped: every fault is reported, and one is enough
 * to refuse the whole.  Tokens are hashed where they are read and then wiped.
 */
#include "common/fd.h"
#include "daemon/tenant/registry_draft.h"
#include "daemon/tenant/trusted.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

static void entries_reserve(struct entries *list, size_t n)
{
	list->v = draft_alloc(n, sizeof(*list->v));
}

static void entries_add(struct entries *list, const void *key, size_t len, size_t tenant,
                        size_t credential)
{
	list->v[list->n++] = (struct entry){
		.key = key,
		.len = len,
		.tenant = tenant,
		.credential = credential,
	};
}

/* False when v is absent (reported by its table already) or not a canonical id. */
static bool read_id(struct draft *d, const struct json *v, const char *path, struct uuid *ret)
{
	const char *text = json_str(v);

	if (!text)
		return false;
	if (registry_id_reserved(text)) {
		json_fault(&d->faults, path,
		           strcmp(text, REGISTRY_LOCAL_ID) == 0
		                   ? "this UUID is that of the person in local mode"
		                   : "the nil UUID is nobody's");
		return false;
	}
	if (!uuid_parse(text, ret)) {
		json_fault(&d->faults, path, "must be a UUID in canonical form, lower case");
		return false;
	}
	return true;
}

/* -- credentials ----------------------------------------------------------------------- */

/* field is where the token is declared; true when it is one. */
static bool read_secret(struct draft *d, const char *field, const char *value,
                        const struct entry *at, unsigned char digest[TOKEN_DIGEST])
{
	bool in_file = strcmp(field, "tokenFile") == 0;
	char path[96];
	struct err e = ERR_INIT;
	int rc = in_file ? trusted_path_check(value, &e) : token_read_hash(value, digest, &e);

	if (rc == 0 && in_file) {
		entries_add(&d->token_files, value, strlen(value), at->tenant, at->credential);
		rc = token_read_file(value, digest, &e);
	}
	if (rc < 0) {
		draft_path(at, field, path, sizeof(path));
		json_fault(&d->faults, path, "%s", e.text);
	}
	return rc == 0;
}

static void read_credential(struct draft *d, const struct json *v, const char *path,
                            struct credential *c, size_t index)
{
	static const struct json_field fields[] = {
		{ "id", JSON_STRING, .required = true },
		{ "tokenFile", JSON_STRING },
		{ "tokenHash", JSON_STRING },
	};
	const struct json *found[ARRAY_LEN(fields)];
	const struct entry where = { .tenant = d->registry->count - 1, .credential = index };
	const char *secret;
	char at[96];

	(void)json_fields(v, path, fields, ARRAY_LEN(fields), found, &d->faults);
	if (json_type(v) != JSON_OBJECT)
		return;
	json_path_field(at, sizeof(at), path, "id");
	if (read_id(d, found[0], at, &c->id))
		entries_add(&d->credential_ids, c->id.text, UUID_TEXT_LEN, where.tenant, index);
	c->in_file = json_get(v, "tokenFile") != NULL;
	secret = json_str(found[c->in_file ? 1 : 2]);
	if (c->in_file == (json_get(v, "tokenHash") != NULL))
		json_fault(&d->faults, path, "%s",
		           c->in_file ? "tokenFile and tokenHash exclude one another"
		                      : "tokenFile or tokenHash is missing");
	else if (secret && read_secret(d, secret_field(c), secret, &where, c->digest))
		entries_add(&d->digests, c->digest, sizeof(c->digest), where.tenant, index);
}

static void read_credentials(struct draft *d, struct tenant *t, const struct json *list,
                             const char *path)
{
	size_t n = json_len(list);

	if (!list)
		return;
	if (n < 1 || n > REGISTRY_MAX_CREDENTIALS) {
		json_fault(&d->faults, path, "%zu entries, must be 1 to %d", n,
		           REGISTRY_MAX_CREDENTIALS);
		n = n ? REGISTRY_MAX_CREDENTIALS : 0;
	}
	t->credentials = draft_alloc(n, sizeof(*t->credentials));
	t->credential_count = n;
	for (size_t i = 0; i < n; i++) {
		char at[80];

		json_path_index(at, sizeof(at), path, i);
		read_credential(d, json_at(list, i), at, &t->credentials[i], i);
	}
}

/* -- tenants --------------------------------------------------------------------------- */

static void read_name(struct draft *d, struct tenant *t, const struct json *v, const char *path)
{
	const char *name = json_str(v);

	if (!name)
		return;
	if (!registry_name_valid(name)) {
		json_fault(&d->faults, path,
		           "must be 1 to %d of a-z, 0-9 and \"-\", and start with a letter",
		           TENANT_NAME_MAX);
		return;
	}
	memcpy(t->name, name, strlen(name) + 1);
	entries_add(&d->names, t->name, strlen(t->name), t->index, NOT_A_CREDENTIAL);
}

static void read_workspace(struct draft *d, struct tenant *t, const struct json *v,
                           const char *path)
{
	const char *workspace = json_str(v);
	struct stat st;
	struct err e = ERR_INIT;

	if (!workspace)
		return;
	if (trusted_path_check(workspace, &e) < 0) {
		json_fault(&d->faults, path, "%s", e.text);
		return;
	}
	t->workspace = draft_copy(workspace);
	entries_add(&d->workspaces, t->workspace, strlen(workspace), t->index, NOT_A_CREDENTIAL);
	if (trusted_directory(workspace, &st, &e) < 0) {
		json_fault(&d->faults, path, "%s", e.text);
		return;
	}
	t->place.device = st.st_dev;
	t->place.inode = st.st_ino;
	entries_add(&d->places, &t->place, sizeof(t->place), t->index, NOT_A_CREDENTIAL);
}

/* What a list of ids is of. */
struct ids_kind {
	bool (*valid)(const char *id);
	const char *what;
};

static bool stands_in(const struct model_list *list, const char *id)
{
	for (size_t i = 0; i < list->count; i++)
		if (strcmp(list->ids[i], id) == 0)
			return true;
	return false;
}

/* An empty list is one: the tenant may use none. */
static void read_ids(struct draft *d, struct model_list *ret, const struct ids_kind *kind,
                     const struct json *list, const char *path)
{
	size_t n = json_len(list);

	if (!list)
		return;
	ret->given = true;
	if (n > TENANT_MODELS_MAX) {
		json_fault(&d->faults, path, "%zu entries, must be at most %d", n,
		           TENANT_MODELS_MAX);
		return;
	}
	ret->ids = draft_alloc(n, sizeof(*ret->ids));
	for (size_t i = 0; i < n; i++) {
		const char *id = json_str(json_at(list, i));
		char at[80];

		json_path_index(at, sizeof(at), path, i);
		if (!id || !kind->valid(id))
			json_fault(&d->faults, at, "must be the id of %s", kind->what);
		else if (stands_in(ret, id))
			json_fault(&d->faults, at, "stands there twice");
		else
			memcpy(ret->ids[ret->count++], id, strlen(id) + 1);
	}
}

static void read_tenant(struct draft *d, const struct json *v, const char *path)
{
	static const struct ids_kind models = { registry_model_valid, "a model" };
	static const struct ids_kind mcp = { registry_mcp_valid, "an MCP server" };
	static const struct json_field fields[] = {
		{ "id", JSON_STRING, .required = true },
		{ "name", JSON_STRING, .required = true },
		{ "workspaceRoot", JSON_STRING, .required = true },
		{ "credentials", JSON_ARRAY, .required = true },
		{ "egress", JSON_OBJECT },
		{ "limits", JSON_OBJECT },
		{ "models", JSON_ARRAY },
		{ "mcp", JSON_ARRAY },
		{ "approvals", JSON_STRING },
	};
	const struct json *found[ARRAY_LEN(fields)];
	struct registry *r = d->registry;
	struct tenant *t = &r->tenants[r->count];
	char at[64];

	t->index = r->count++;
	(void)json_fields(v, path, fields, ARRAY_LEN(fields), found, &d->faults);
	json_path_field(at, sizeof(at), path, "id");
	if (read_id(d, found[0], at, &t->id))
		entries_add(&d->ids, t->id.text, UUID_TEXT_LEN, t->index, NOT_A_CREDENTIAL);
	json_path_field(at, sizeof(at), path, "name");
	read_name(d, t, found[1], at);
	json_path_field(at, sizeof(at), path, "workspaceRoot");
	read_workspace(d, t, found[2], at);
	json_path_field(at, sizeof(at), path, "credentials");
	read_credentials(d, t, found[3], at);
	json_path_field(at, sizeof(at), path, "egress");
	egress_read(found[4], at, &d->faults, &t->egress);
	json_path_field(at, sizeof(at), path, "limits");
	limits_read(found[5], at, &d->faults, &t->limits);
	json_path_field(at, sizeof(at), path, "models");
	read_ids(d, &t->models, &models, found[6], at);
	json_path_field(at, sizeof(at), path, "mcp");
	read_ids(d, &t->mcp, &mcp, found[7], at);
	json_path_field(at, sizeof(at), path, "approvals");
	if (found[8] && !registry_approvals(json_str(found[8]), &t->approvals))
		json_fault(&d->faults, at, "must be sandbox, ask or plan");
}

/* Room for the largest registry of n tenants. */
static void make_room(struct draft *d, size_t n)
{
	struct entries *of_tenants[] = { &d->ids, &d->names, &d->workspaces, &d->places };
	struct entries *of_credentials[] = { &d->credential_ids, &d->token_files, &d->digests };

	d->registry->tenants = draft_alloc(n, sizeof(*d->registry->tenants));
	for (size_t i = 0; i < ARRAY_LEN(of_tenants); i++)
		entries_reserve(of_tenants[i], n);
	for (size_t i = 0; i < ARRAY_LEN(of_credentials); i++)
		entries_reserve(of_credentials[i], n * REGISTRY_MAX_CREDENTIALS);
}

static void read_tenants(struct draft *d, const struct json *list)
{
	size_t n = json_len(list);

	if (list && (n < 1 || n > REGISTRY_MAX_TENANTS)) {
		json_fault(&d->faults, "tenants", "%zu entries, must be 1 to %d", n,
		           REGISTRY_MAX_TENANTS);
		n = n ? REGISTRY_MAX_TENANTS : 0;
	}
	make_room(d, n);
	for (size_t i = 0; i < n; i++) {
		char at[32];

		json_path_index(at, sizeof(at), "tenants", i);
		read_tenant(d, json_at(list, i), at);
	}
}

/* -- the whole ------------------------------------------------------------------------- */

static void read_document(struct draft *d, const struct json *document)
{
	static const struct json_field fields[] = {
		{ "version", JSON_INT, .required = true },
		{ "tenants", JSON_ARRAY, .required = true },
	};
	const struct json *found[ARRAY_LEN(fields)];

	(void)json_fields(document, "", fields, ARRAY_LEN(fields), found, &d->faults);
	if (found[0] && json_int(found[0]) != 1)
		json_fault(&d->faults, "version", "must be 1");
	read_tenants(d, found[1]);
	draft_compare(d);
}

/* Everything up to the syntax; a fault there ends the reading. */
static int open_document(struct draft *d, const char *path, struct json **ret, struct err *e)
{
	auto_free char *text = NULL;
	struct err own = ERR_INIT;
	size_t len;

	if (trusted_read_anyway(path, REGISTRY_MAX_BYTES, &text, &len, &own, e) < 0)
		return -1;
	if (own.code)
		json_fault(&d->faults, "",
		           "%s; let root own it with mode 0644 at most, or the service user with "
		           "0600",
		           own.text);
	if (trusted_canonical(path, &d->registry_path, e) < 0)
		return -1;
	if (json_parse(text, len, ret, e) < 0)
		return err_wrap(e, "%.200s", path);
	return 0;
}

static void draft_release(struct draft *d)
{
	struct entries *lists[] = { &d->ids,    &d->names,          &d->workspaces,
		                    &d->places, &d->credential_ids, &d->token_files,
		                    &d->digests };

	for (size_t i = 0; i < ARRAY_LEN(lists); i++)
		free(lists[i]->v);
	free(d->registry_path);
	free(d->state_dir);
	registry_free(&d->registry);
}

int registry_load(const char *path, const char *state_dir, struct registry **ret,
                  void (*fault)(void *ctx, const char *line), void *ctx, struct err *e)
{
	struct json_lines to = { .line = fault, .ctx = ctx };
	struct draft d = { .faults = { .report = json_report_line, .ctx = &to } };
	auto_json struct json *document = NULL;
	struct err cause = ERR_INIT;

	if (sodium_init() < 0)
		abort();
	d.registry = draft_alloc(1, sizeof(*d.registry));
	if (state_dir && trusted_canonical(state_dir, &d.state_dir, &cause) < 0)
		json_fault(&d.faults, "", "state directory: %s", cause.text);
	if (open_document(&d, path, &document, &cause) < 0)
		json_fault(&d.faults, "", "%s", cause.text);
	else
		read_document(&d, document);
	if (!d.faults.count) {
		registry_index(d.registry);
		*ret = mem_take(&d.registry);
	} else {
		(void)err_set(e, EINVAL, "%.200s: %zu fault%s", path, d.faults.count,
		              d.faults.count == 1 ? "" : "s");
	}
	draft_release(&d);
	return d.faults.count ? -1 : 0;
}
