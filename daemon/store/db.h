/*
 * db.h - one statement or one transaction on a connection of the pool.
 *
 * When the connection breaks before anything can have been committed, the work is
 * done once more on a fresh one, so a body must be able to run twice.
 */
#ifndef DAEMON_STORE_DB_H
#define DAEMON_STORE_DB_H

#include "daemon/store/pool.h"

struct query {
	const char *sql;
	const struct pg_param *params;
	size_t n;
};

/* A statement that only reads.  The rows are owned by the caller. */
int db_rows(struct pool *pool, const struct pool_key *key, const struct query *q,
            struct pg_rows **ret, struct err *e) must_check;

/* A statement that may be done twice without harm. */
int db_exec(struct pool *pool, const struct pool_key *key, const struct query *q, struct err *e)
	must_check;

/* BEGIN, body, COMMIT; ROLLBACK when body fails. */
int db_transaction(struct pool *pool, const struct pool_key *key,
                   int (*body)(struct pg *pg, void *ctx, struct err *e), void *ctx, struct err *e)
	must_check;

#endif
