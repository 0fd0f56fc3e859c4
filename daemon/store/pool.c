#include "daemon/store/pool.h"

#include "common/clock.h"
#include "common/fd.h"
#include "daemon/metrics/metrics.h"
#include "daemon/store/store.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WAIT_SECONDS 5

/* A slot of the cap.  FREE: no connection.  BUSY: one thread's.  IDLE: connected, waiting. */
struct lease {
	enum {
		SLOT_FREE,
		SLOT_BUSY,
		SLOT_IDLE
	} state;
	struct pool_key key;
	struct pg *pg;
	uint64_t used; /* tick of the last return */
};

struct pool {
	pthread_mutex_t lock; /* guards everything below but the pg of a busy slot */
	pthread_cond_t freed;
	const struct pg_place *at;
	int (*gate)(void *ctx, struct err *e);
	void *gate_ctx;
	uint64_t tick;
	size_t max;
	struct lease slots[];
};

int pool_new(const struct pg_place *at, unsigned int max, struct pool **ret, struct err *e)
{
	struct pool *p = calloc(1, sizeof(*p) + max * sizeof(p->slots[0]));
	pthread_condattr_t attr;

	if (!p)
		return err_set(e, STORE_UNAVAILABLE, "no memory for %u connections", max);
	p->max = max;
	p->at = at;
	pthread_mutex_init(&p->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&p->freed, &attr);
	pthread_condattr_destroy(&attr);
	*ret = p;
	return 0;
}

void pool_set_gate(struct pool *p, int (*gate)(void *ctx, struct err *e), void *ctx)
{
	p->gate = gate;
	p->gate_ctx = ctx;
}

void pool_free(struct pool **pool)
{
	struct pool *p = *pool;

	if (!p)
		return;
	for (size_t i = 0; i < p->max; i++)
		pg_close(&p->slots[i].pg);
	pthread_cond_destroy(&p->freed);
	pthread_mutex_destroy(&p->lock);
	free(p);
	*pool = NULL;
}

static bool same_key(const struct pool_key *a, const struct pool_key *b)
{
	return strcmp(a->user, b->user) == 0 && strcmp(a->database, b->database) == 0;
}

static size_t share_of(const struct pool *p)
{
	return (p->max + 1) / 2;
}

/*
 * The best slot: an idle connection of this key, else a free slot, else the idle
 * connection that was used least recently.  NULL when none may be taken; then
 * *ret_share tells that there is one, but that the key has its share.
 */
static struct lease *choose(struct pool *p, const struct pool_key *key, bool *ret_share)
{
	struct lease *mine = NULL, *empty = NULL, *oldest = NULL;
	size_t busy = 0;

	for (size_t i = 0; i < p->max; i++) {
		struct lease *s = &p->slots[i];
		bool same = same_key(&s->key, key);

		if (s->state == SLOT_BUSY)
			busy += same;
		else if (s->state == SLOT_FREE)
			empty = s;
		else if (same && (!mine || s->used > mine->used))
			mine = s; /* the warmest, so that the others can age */
		else if (!same && (!oldest || s->used < oldest->used))
			oldest = s;
	}
	if (!mine)
		mine = empty ? empty : oldest;
	*ret_share = mine && busy >= share_of(p);
	return *ret_share ? NULL : mine;
}

static struct lease *wait_for_slot(struct pool *p, const struct pool_key *key, struct err *e)
{
	struct timespec until;
	struct lease *slot;
	bool share;

	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += WAIT_SECONDS;
	while (!(slot = choose(p, key, &share))) {
		if (pthread_cond_timedwait(&p->freed, &p->lock, &until) != ETIMEDOUT)
			continue;
		metric_count(METRIC_DATABASE_WAITS, 0);
		if (share)
			(void)err_set(e, STORE_UNAVAILABLE,
			              "all %zu database connections that %s may have are in use",
			              share_of(p), key->user);
		else
			(void)err_set(e, STORE_UNAVAILABLE,
			              "all %zu database connections are in use", p->max);
		break;
	}
	return slot;
}

/* Make the slot's connection fit for its key: keep, replace or open it. */
static int fit(struct pool *p, struct lease *slot, bool reuse, struct err *e)
{
	if (slot->pg && (!reuse || !pg_alive(slot->pg)))
		pg_close(&slot->pg);
	if (slot->pg)
		return 0;
	if (p->gate && p->gate(p->gate_ctx, e) < 0)
		return -1;
	metric_count(METRIC_DATABASE_CONNECTS, 0);
	if (pg_connect(p->at, slot->key.user, slot->key.database, &slot->pg, e) == 0)
		return 0;
	e->code = STORE_UNAVAILABLE; /* it was fit before */
	return -1;
}

int pool_take(struct pool *p, const struct pool_key *key, struct lease **ret, struct err *e)
{
	bool reuse = false;
	struct lease *slot;
	int rc;

	pthread_mutex_lock(&p->lock);
	slot = wait_for_slot(p, key, e);
	if (slot) {
		reuse = same_key(&slot->key, key);
		slot->state = SLOT_BUSY;
		slot->key = *key;
	}
	pthread_mutex_unlock(&p->lock);
	if (!slot)
		return -1;
	rc = fit(p, slot, reuse, e);
	if (rc < 0)
		pool_discard(p, &slot);
	else
		*ret = slot;
	return rc;
}

struct pg *lease_pg(struct lease *lease)
{
	return lease->pg;
}

static void put_back(struct pool *p, struct lease **lease)
{
	struct lease *slot = *lease;

	*lease = NULL;
	pthread_mutex_lock(&p->lock);
	slot->state = slot->pg ? SLOT_IDLE : SLOT_FREE;
	slot->used = ++p->tick;
	/* All, because who waits for its own share cannot use what another needs. */
	pthread_cond_broadcast(&p->freed);
	pthread_mutex_unlock(&p->lock);
}

void pool_return(struct pool *p, struct lease **lease)
{
	if (!*lease)
		return;
	if (pg_broken((*lease)->pg) || !pg_idle((*lease)->pg))
		pg_close(&(*lease)->pg);
	put_back(p, lease);
}

void pool_discard(struct pool *p, struct lease **lease)
{
	if (!*lease)
		return;
	pg_close(&(*lease)->pg);
	put_back(p, lease);
}

void pool_forget(struct pool *p, const char *database)
{
	pthread_mutex_lock(&p->lock);
	for (size_t i = 0; i < p->max; i++) {
		struct lease *s = &p->slots[i];

		if (s->state != SLOT_IDLE || strcmp(s->key.database, database) != 0)
			continue;
		pg_close(&s->pg);
		s->state = SLOT_FREE;
	}
	pthread_cond_broadcast(&p->freed);
	pthread_mutex_unlock(&p->lock);
}

struct pool_use pool_count(struct pool *p)
{
	struct pool_use use = { .max = p->max };

	pthread_mutex_lock(&p->lock);
	for (size_t i = 0; i < p->max; i++) {
		use.busy += p->slots[i].state == SLOT_BUSY;
		use.idle += p->slots[i].state == SLOT_IDLE;
	}
	pthread_mutex_unlock(&p->lock);
	return use;
}
