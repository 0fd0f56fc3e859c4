/*
 * pool.h - database connections, opened when needed, kept per role and database, and
 * capped over all of them.
 *
 * Whoever needs one when all are in use waits at most five seconds.  When the cap is
 * reached, the idle connection that was used least recently gives way.  No role gets
 * more than half of them.  A thread holds at most one at a time, so waiting always
 * ends.
 */
#ifndef DAEMON_STORE_POOL_H
#define DAEMON_STORE_POOL_H

#include "daemon/store/pg.h"

struct pool;
struct lease; /* one connection, in use by one thread */

struct pool_key {
	char user[64];
	char database[64];
};

/* at is borrowed, with what it points to. */
int pool_new(const struct pg_place *at, unsigned int max, struct pool **ret, struct err *e)
	must_check;

/* Before each new connection: -1 with e, and there is none.  To be set before the first one. */
void pool_set_gate(struct pool *pool, int (*gate)(void *ctx, struct err *e), void *ctx);

/* All leases must have been returned. */
void pool_free(struct pool **pool);

int pool_take(struct pool *pool, const struct pool_key *key, struct lease **ret, struct err *e)
	must_check;

struct pg *lease_pg(struct lease *lease);

/* Back to the pool; closed when it is broken or in the middle of something. */
void pool_return(struct pool *pool, struct lease **lease);

struct pool_use {
	size_t busy, idle, max;
};

struct pool_use pool_count(struct pool *pool);

/* Close what is idle of a database. */
void pool_forget(struct pool *pool, const char *database);

/* Back to the pool, closed in any case. */
void pool_discard(struct pool *pool, struct lease **lease);

#endif
