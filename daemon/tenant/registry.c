#include "daemon/tenant/registry.h"

#include "common/fd.h"
#include "daemon/tenant/registry_draft.h"
#include "daemon/tenant/trusted.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define NIL_UUID "00000000-0000-0000-0000-000000000000"

void *draft_alloc(size_t n, size_t size)
{
	void *memory = calloc(n ? n : 1, size);

	if (!memory)
		abort();
	return memory;
}

char *draft_copy(const char *text)
{
	char *copy = strdup(text);

	if (!copy)
		abort();
	return copy;
}

static bool is_name(const char *name, size_t max)
{
	size_t len = strlen(name);

	return len >= 1 && len <= max && name[0] >= 'a' && name[0] <= 'z' &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == len;
}

bool registry_name_valid(const char *name)
{
	return is_name(name, TENANT_NAME_MAX);
}

bool registry_mcp_valid(const char *id)
{
	return is_name(id, TENANT_MCP_MAX);
}

bool registry_id_reserved(const char *id)
{
	return strcmp(id, NIL_UUID) == 0 || strcmp(id, REGISTRY_LOCAL_ID) == 0;
}

bool registry_model_valid(const char *id)
{
	size_t len = strlen(id);

	return len >= 1 && len <= TENANT_MODEL_MAX &&
	       strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._:/") ==
	               len;
}

static bool lists(const struct model_list *list, const char *id)
{
	for (size_t i = 0; i < list->count; i++)
		if (strcmp(list->ids[i], id) == 0)
			return true;
	return false;
}

bool registry_model_allowed(const struct tenant *t, const char *id)
{
	return !t->models.given || lists(&t->models, id);
}

bool registry_mcp_allowed(const struct tenant *t, const char *id)
{
	return strcmp(t->id.text, REGISTRY_LOCAL_ID) == 0 || lists(&t->mcp, id);
}

/* -- index ----------------------------------------------------------------------------- */

static int compare_ids(const void *x, const void *y)
{
	const struct slot *a = x, *b = y;

	return memcmp(a->tenant->id.text, b->tenant->id.text, UUID_TEXT_LEN);
}

static size_t slot_of(const struct registry *r, const unsigned char digest[32])
{
	unsigned char hash[crypto_shorthash_BYTES];
	uint64_t v;

	crypto_shorthash(hash, digest, 32, r->slot_key);
	memcpy(&v, hash, sizeof(v));
	return (size_t)v & (r->slot_count - 1);
}

static void index_credential(struct registry *r, const struct tenant *t, const struct credential *c)
{
	size_t at = slot_of(r, c->digest);

	while (r->slots[at].tenant)
		at = (at + 1) & (r->slot_count - 1);
	r->slots[at] = (struct slot){ .tenant = t, .credential = c };
}

void registry_index(struct registry *r)
{
	size_t credentials = 0;

	for (size_t i = 0; i < r->count; i++)
		credentials += r->tenants[i].credential_count;
	r->slot_count = 16;
	while (r->slot_count < 4 * credentials)
		r->slot_count *= 2;
	r->by_id = draft_alloc(r->count, sizeof(*r->by_id));
	r->slots = draft_alloc(r->slot_count, sizeof(*r->slots));
	randombytes_buf(r->slot_key, sizeof(r->slot_key));
	for (size_t i = 0; i < r->count; i++) {
		const struct tenant *t = &r->tenants[i];

		r->by_id[i].tenant = t;
		for (size_t k = 0; k < t->credential_count; k++)
			index_credential(r, t, &t->credentials[k]);
	}
	qsort(r->by_id, r->count, sizeof(*r->by_id), compare_ids);
}

/* Equal digests share a place, so each is only compared with what stands behind it there. */
static bool slot_unique(const struct registry *r, size_t at)
{
	const struct credential *c = r->slots[at].credential;

	for (size_t k = (at + 1) & (r->slot_count - 1); r->slots[k].tenant;
	     k = (k + 1) & (r->slot_count - 1))
		if (memcmp(r->slots[k].credential->digest, c->digest, sizeof(c->digest)) == 0)
			return false;
	return true;
}

bool registry_unique(const struct registry *r)
{
	for (size_t i = 1; i < r->count; i++)
		if (compare_ids(&r->by_id[i - 1], &r->by_id[i]) == 0)
			return false;
	for (size_t i = 0; i < r->slot_count; i++)
		if (r->slots[i].tenant && !slot_unique(r, i))
			return false;
	return true;
}

static const char *const approvals_names[TENANT_APPROVALS] = { "sandbox", "ask", "plan" };

const char *registry_approvals_name(enum tenant_approvals approvals)
{
	return approvals_names[approvals];
}

bool registry_approvals(const char *name, enum tenant_approvals *ret)
{
	for (size_t i = 0; i < TENANT_APPROVALS; i++) {
		if (strcmp(approvals_names[i], name) == 0) {
			*ret = (enum tenant_approvals)i;
			return true;
		}
	}
	return false;
}

void registry_free(struct registry **r)
{
	if (!*r)
		return;
	for (size_t i = 0; i < (*r)->count; i++) {
		free((*r)->tenants[i].workspace);
		for (size_t k = 0; k < (*r)->tenants[i].part_count; k++)
			free((*r)->tenants[i].parts[k].path);
		free((*r)->tenants[i].parts);
		free((*r)->tenants[i].credentials);
		egress_release(&(*r)->tenants[i].egress);
		free((*r)->tenants[i].models.ids);
		free((*r)->tenants[i].mcp.ids);
	}
	free((*r)->tenants);
	free((*r)->by_id);
	free((*r)->slots);
	free(*r);
	*r = NULL;
}

/* -- reading --------------------------------------------------------------------------- */

size_t registry_count(const struct registry *r)
{
	return r->count;
}

const struct tenant *registry_at(const struct registry *r, size_t index)
{
	return index < r->count ? &r->tenants[index] : NULL;
}

const struct tenant *registry_find(const struct registry *r, const struct uuid *id)
{
	const struct tenant wanted = { .id = *id };
	const struct slot key = { .tenant = &wanted };
	const struct slot *found =
		bsearch(&key, r->by_id, r->count, sizeof(*r->by_id), compare_ids);

	return found ? found->tenant : NULL;
}

static const char *find_shown(const struct tenant *t, const char *path)
{
	if (trusted_path_inside(path, t->workspace))
		return t->workspace;
	for (size_t i = 0; i < t->part_count; i++)
		if (trusted_path_inside(path, t->parts[i].path))
			return t->parts[i].path;
	return NULL;
}

const struct tenant *registry_shows(const struct registry *r, const char *path,
                                    const char **ret_dir)
{
	*ret_dir = NULL;
	for (size_t i = 0; r && i < r->count; i++)
		if ((*ret_dir = find_shown(&r->tenants[i], path)))
			return &r->tenants[i];
	return NULL;
}

/*
 * 65,536 digests are too many to compare with each on every request, so a hash
 * table finds the few candidates.  What its timing shows is useless to a guesser:
 * the place that is looked at depends on SipHash of SHA-256 of the token under a
 * key that is drawn at start and never leaves the process, so nobody can choose
 * tokens that share a place with, or a prefix of, a stored digest.  The candidates
 * themselves are compared in constant time, and a match does not end the search.
 */
const struct tenant *registry_match(const struct registry *r,
                                    const unsigned char digest[TOKEN_DIGEST],
                                    const struct credential **ret)
{
	const struct slot *match = NULL;
	size_t at;

	for (at = slot_of(r, digest); r->slots[at].tenant; at = (at + 1) & (r->slot_count - 1))
		if (sodium_memcmp(r->slots[at].credential->digest, digest, TOKEN_DIGEST) == 0)
			match = &r->slots[at];
	if (match && ret)
		*ret = match->credential;
	return match ? match->tenant : NULL;
}

const struct tenant *registry_authenticate(const struct registry *r, const char *token, size_t len,
                                           const char **ret_credential_id)
{
	unsigned char digest[TOKEN_DIGEST];
	const struct credential *credential = NULL;
	const struct tenant *match;

	if (!token_digest(token, len, digest))
		return NULL;
	match = registry_match(r, digest, &credential);
	sodium_memzero(digest, sizeof(digest));
	if (match && ret_credential_id)
		*ret_credential_id = credential->id.text;
	return match;
}
