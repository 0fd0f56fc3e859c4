#include "daemon/tenant/roster.h"

#include "common/fd.h"
#include "daemon/tenant/registry_draft.h"

#include <errno.h>
#include <pthread.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

struct roster {
	pthread_mutex_t lock;   /* guards refs of every registry, and what is in force */
	struct registry *now;   /* one of its refs is ours */
	struct registry *first; /* not ours to free */
	const struct tenant *anyone;
};

int roster_new(struct registry *first, const struct tenant *anyone, struct roster **ret,
               struct err *e)
{
	struct roster *r = calloc(1, sizeof(*r));

	if (!r)
		return err_set(e, ENOMEM, "no memory for the registry");
	pthread_mutex_init(&r->lock, NULL);
	r->first = r->now = first;
	r->anyone = anyone;
	first->refs = 1;
	*ret = r;
	return 0;
}

static struct registry *ref(struct roster *r)
{
	struct registry *now;

	pthread_mutex_lock(&r->lock);
	now = r->now;
	now->refs++;
	pthread_mutex_unlock(&r->lock);
	return now;
}

static void unref(struct roster *r, struct registry *registry)
{
	bool last;

	pthread_mutex_lock(&r->lock);
	last = --registry->refs == 0;
	pthread_mutex_unlock(&r->lock);
	if (last && registry != r->first)
		registry_free(&registry);
}

void roster_free(struct roster **at)
{
	struct roster *r = *at;

	if (!r)
		return;
	unref(r, r->now);
	pthread_mutex_destroy(&r->lock);
	free(r);
	*at = NULL;
}

void roster_replace(struct roster *r, struct registry *next)
{
	struct registry *before;

	next->refs = 1;
	pthread_mutex_lock(&r->lock);
	before = r->now;
	r->now = next;
	pthread_mutex_unlock(&r->lock);
	unref(r, before);
}

static bool admit(const struct roster *r, struct caller *c, const char *token, size_t len)
{
	if (r->anyone) {
		c->anyone = true;
		c->tenant = r->anyone;
		return true;
	}
	if (token_digest(token, len, c->digest))
		c->tenant = registry_match(c->registry, c->digest, NULL);
	return c->tenant != NULL;
}

const struct caller *roster_admit(struct roster *r, const char *token, size_t len)
{
	struct caller *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->registry = ref(r);
	if (admit(r, c, token, len))
		return c;
	roster_leave(r, c);
	return NULL;
}

void roster_leave(struct roster *r, const struct caller *c)
{
	union {
		const struct caller *in;
		struct caller *out;
	} own = { .in = c };

	unref(r, c->registry);
	sodium_memzero(own.out->digest, sizeof(own.out->digest));
	free(own.out);
}

bool roster_still(struct roster *r, const struct caller *c)
{
	struct registry *now;
	const struct tenant *tenant;
	bool still;

	if (c->anyone)
		return true;
	now = ref(r);
	tenant = now == c->registry ? c->tenant : registry_match(now, c->digest, NULL);
	still = tenant && uuid_equal(&tenant->id, &c->tenant->id);
	unref(r, now);
	return still;
}

bool roster_declares(struct roster *r, const struct uuid *tenant)
{
	struct registry *now = ref(r);
	bool declared = registry_find(now, tenant) != NULL;

	unref(r, now);
	return declared;
}

bool roster_allows(struct roster *r, const struct uuid *tenant, const char *model)
{
	struct registry *now = ref(r);
	const struct tenant *t = registry_find(now, tenant);
	bool allowed = !t || registry_model_allowed(t, model);

	unref(r, now);
	return allowed;
}

bool roster_allows_mcp(struct roster *r, const struct uuid *tenant, const char *server)
{
	struct registry *now = ref(r);
	const struct tenant *t = registry_find(now, tenant);
	bool allowed = t && registry_mcp_allowed(t, server);

	unref(r, now);
	return allowed;
}

void roster_each(struct roster *r, void (*fn)(void *ctx, const struct tenant *t), void *ctx)
{
	struct registry *now = ref(r);

	for (size_t i = 0; i < registry_count(now); i++)
		fn(ctx, registry_at(now, i));
	unref(r, now);
}

enum tenant_approvals roster_approvals(struct roster *r, const struct uuid *tenant)
{
	struct registry *now = ref(r);
	const struct tenant *t = registry_find(now, tenant);
	enum tenant_approvals approvals = t ? t->approvals : TENANT_SANDBOX;

	unref(r, now);
	return approvals;
}
