/*
 * The end of a tenant's data.  Each step may be repeated, so one that was interrupted is
 * finished by the next try: the database first, because the role cannot go before it, and
 * the entry last, which says that there is something.
 */
#include "daemon/store/internal.h"

#include <stdio.h>

static int drop(struct store *s, struct tenant_db *db, struct err *e)
{
	char sql[128];
	const struct query database = { sql, PG_NO_PARAMS };
	const struct query role = { "SELECT privileged.drop_tenant_role($1)",
		                    PG_PARAMS(pg_uuid(&db->id)) };
	const struct query entry = { "DELETE FROM control.tenant WHERE id = $1",
		                     PG_PARAMS(pg_uuid(&db->id)) };

	/* The name is made of 32 hex digits, which need no quotes; DDL takes no parameters. */
	(void)snprintf(sql, sizeof(sql), "DROP DATABASE IF EXISTS %s", db->key.database);
	pool_forget(s->pool, db->key.database);
	if (db_exec(s->pool, &control_key, &database, e) < 0 ||
	    db_exec(s->pool, &control_key, &role, e) < 0)
		return -1;
	return db_exec(s->pool, &control_key, &entry, e);
}

int store_purge(struct store *s, const struct uuid *tenant, struct err *e)
{
	struct tenant_db *db = tenant_db_entry(s, tenant);
	int rc;

	if (!db)
		return err_set(e, STORE_UNAVAILABLE, "no memory for a tenant");
	pthread_mutex_lock(&db->lock);
	/* Also when it fails: the next use looks at what there is. */
	db->ready = db->marked = false;
	atomic_store(&db->purged, true);
	rc = drop(s, db, e);
	pthread_mutex_unlock(&db->lock);
	return rc < 0 ? err_wrap(e, "drop the database of tenant %s", tenant->text) : 0;
}

void store_readmit(struct store *s, bool (*declared)(void *ctx, const struct uuid *tenant),
                   void *ctx)
{
	pthread_mutex_lock(&s->tenants_lock);
	for (size_t i = 0; i < TENANT_BUCKETS; i++)
		for (struct tenant_db *db = s->tenants[i]; db; db = db->next)
			if (declared(ctx, &db->id))
				atomic_store(&db->purged, false);
	pthread_mutex_unlock(&s->tenants_lock);
}
