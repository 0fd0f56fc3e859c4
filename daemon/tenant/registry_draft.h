/*
 * registry_draft.h - between the files of the registry: what is known while it is read.
 *
 * Everything is read first, each value judged alone; then values are compared with
 * one another.  A malformed value is left out of the comparisons.
 */
#ifndef DAEMON_TENANT_REGISTRY_DRAFT_H
#define DAEMON_TENANT_REGISTRY_DRAFT_H

#include "common/buf.h"
#include "common/json.h"
#include "daemon/tenant/registry.h"

struct slot {
	const struct tenant *tenant; /* NULL = empty */
	const struct credential *credential;
};

struct registry {
	size_t refs; /* of a roster, under its lock */
	struct tenant *tenants;
	size_t count;
	struct slot *by_id; /* sorted by the tenant's id; count entries */
	struct slot *slots; /* open addressing, at most a quarter full */
	size_t slot_count;  /* a power of two */
	unsigned char slot_key[16];
};

/* One value that is compared with others of its kind, and where it stands. */
struct entry {
	const void *key;
	size_t len;
	size_t tenant;
	size_t credential; /* NOT_A_CREDENTIAL for a field of the tenant itself */
};

#define NOT_A_CREDENTIAL SIZE_MAX

struct entries {
	struct entry *v;
	size_t n;
};

struct draft {
	struct registry *registry;
	struct json_faults faults;
	char *registry_path; /* canonical */
	char *state_dir;     /* canonical, or NULL */
	struct entries ids, names, workspaces, places, credential_ids, token_files, digests;
};

/* Compare what was read; reports every clash. */
void draft_compare(struct draft *d);

/* The path of an entry: "tenants[1].name", "tenants[1].credentials[0].id". */
void draft_path(const struct entry *at, const char *field, char *ret, size_t size);

/* The field in which a credential's token is declared. */
static inline const char *secret_field(const struct credential *c)
{
	return c->in_file ? "tokenFile" : "tokenHash";
}

/* Zeroed, or a copy; never NULL: without memory the program ends. */
void *draft_alloc(size_t n, size_t size);
char *draft_copy(const char *text);

/* Build by_id and slots; after a draft without faults. */
void registry_index(struct registry *r);

/* After registry_index(): no two tenants have one id, no two credentials one token. */
bool registry_unique(const struct registry *r);

bool registry_id_reserved(const char *id); /* nil, or the tenant of local mode */

#endif
