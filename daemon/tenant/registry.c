#include "daemon/tenant/registry.h"

#include "common/fd.h"
#include "daemon/tenant/registry_draft.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

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

void registry_free(struct registry **r)
{
	if (!*r)
		return;
	for (size_t i = 0; i < (*r)->count; i++) {
		free((*r)->tenants[i].workspace);
		free((*r)->tenants[i].credentials);
		egress_release(&(*r)->tenants[i].egress);
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

/*
 * 65,536 digests are too many to compare with each on every request, so a hash
 * table finds the few candidates.  What its timing shows is useless to a guesser:
 * the place that is looked at depends on SipHash of SHA-256 of the token under a
 * key that is drawn at start and never leaves the process, so nobody can choose
 * tokens that share a place with, or a prefix of, a stored digest.  The candidates
 * themselves are compared in constant time, and a match does not end the search.
 */
const struct tenant *registry_authenticate(const struct registry *r, const char *token, size_t len,
                                           const char **ret_credential_id)
{
	unsigned char digest[32];
	const struct slot *match = NULL;
	size_t at;

	if (len < TOKEN_MIN || len > TOKEN_FILE_MAX)
		return NULL;
	crypto_hash_sha256(digest, (const unsigned char *)token, len);
	for (at = slot_of(r, digest); r->slots[at].tenant; at = (at + 1) & (r->slot_count - 1))
		if (sodium_memcmp(r->slots[at].credential->digest, digest, sizeof(digest)) == 0)
			match = &r->slots[at];
	sodium_memzero(digest, sizeof(digest));
	if (match && ret_credential_id)
		*ret_credential_id = match->credential->id.text;
	return match ? match->tenant : NULL;
}
