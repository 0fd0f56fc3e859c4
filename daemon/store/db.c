#include "daemon/store/db.h"

#define TRIES 2

int db_rows(struct pool *pool, const struct pool_key *key, const struct query *q,
            struct pg_rows **ret, struct err *e)
{
	struct lease *lease = NULL;
	bool broken = false;
	int rc = -1;

	for (int i = 0; i < TRIES && (i == 0 || broken); i++) {
		if (pool_take(pool, key, &lease, e) < 0)
			return -1;
		rc = pg_query(lease_pg(lease), q->sql, q->params, q->n, ret, e);
		broken = pg_broken(lease_pg(lease));
		pool_return(pool, &lease);
		if (rc == 0)
			break;
	}
	return rc;
}

int db_exec(struct pool *pool, const struct pool_key *key, const struct query *q, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;

	return db_rows(pool, key, q, &rows, e);
}

static int attempt(struct pg *pg, int (*body)(struct pg *pg, void *ctx, struct err *e), void *ctx,
                   bool *ret_committing, struct err *e)
{
	struct err ignored = ERR_INIT;

	if (pg_script(pg, "BEGIN", e) < 0)
		return -1;
	if (body(pg, ctx, e) < 0) {
		/* If this fails too, the pool closes the connection, with the same effect. */
		if (!pg_broken(pg) && pg_script(pg, "ROLLBACK", &ignored) < 0)
			return -1;
		return -1;
	}
	*ret_committing = true;
	return pg_script(pg, "COMMIT", e);
}

int db_transaction(struct pool *pool, const struct pool_key *key,
                   int (*body)(struct pg *pg, void *ctx, struct err *e), void *ctx, struct err *e)
{
	struct lease *lease = NULL;
	bool again = false;
	int rc = -1;

	for (int i = 0; i < TRIES && (i == 0 || again); i++) {
		bool committing = false;

		if (pool_take(pool, key, &lease, e) < 0)
			return -1;
		rc = attempt(lease_pg(lease), body, ctx, &committing, e);
		again = pg_broken(lease_pg(lease)) && !committing;
		pool_return(pool, &lease);
		if (rc == 0)
			break;
	}
	return rc;
}
