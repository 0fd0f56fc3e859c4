/*
 * Makes tenant databases.  The server's owner role creates the database and its
 * schema; the role comes from the one privileged function, which takes only the UUID, and in
 * an external database what proves the role's password.
 * Nobody can connect to the database before PUBLIC has lost the right to.
 */
#include "daemon/store/internal.h"

#include "common/fd.h"
#include "daemon/store/external.h"
#include "daemon/store/migrate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct pool_key control_key = { OWNER_ROLE, CONTROL_DATABASE };

static struct tenant_db *new_entry(const struct uuid *tenant)
{
	struct tenant_db *db = calloc(1, sizeof(*db));
	char hex[33];

	if (!db)
		return NULL;
	db->id = *tenant;
	uuid_hex(tenant, hex);
	(void)snprintf(db->key.database, sizeof(db->key.database), "ct_%s", hex);
	(void)snprintf(db->key.user, sizeof(db->key.user), "cr_%s", hex);
	pthread_mutex_init(&db->lock, NULL);
	pthread_mutex_init(&db->size_lock, NULL);
	return db;
}

struct tenant_db *tenant_db_entry(struct store *s, const struct uuid *tenant)
{
	struct tenant_db **chain, *db;
	unsigned int hash = 5381;

	for (const char *c = tenant->text; *c; c++)
		hash = hash * 33 + (unsigned char)*c;
	chain = &s->tenants[hash % TENANT_BUCKETS];
	pthread_mutex_lock(&s->tenants_lock);
	for (db = *chain; db && !uuid_equal(&db->id, tenant);)
		db = db->next;
	if (!db && (db = new_entry(tenant))) {
		db->next = *chain;
		*chain = db;
	}
	pthread_mutex_unlock(&s->tenants_lock);
	return db;
}

void tenant_db_free_all(struct store *s)
{
	for (size_t i = 0; i < TENANT_BUCKETS; i++) {
		struct tenant_db *db = s->tenants[i], *next;

		for (; db; db = next) {
			next = db->next;
			pthread_mutex_destroy(&db->lock);
			pthread_mutex_destroy(&db->size_lock);
			free(db);
		}
		s->tenants[i] = NULL;
	}
}

static int recorded_version(struct store *s, const struct tenant_db *db, int64_t *ret,
                            struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;
	const struct query q = { "SELECT schema_version FROM control.tenant WHERE id = $1",
		                 PG_PARAMS(pg_uuid(&db->id)) };

	if (db_rows(s->pool, &control_key, &q, &rows, e) < 0)
		return -1;
	*ret = pg_rows_count(rows) ? pg_get_int(rows, 0, 0) : 0;
	return pg_rows_check(rows, "schema version", e);
}

/* Names are made of 32 hex digits, which need no quotes; DDL takes no parameters. */
static int make_database(struct pg *pg, const struct tenant_db *db, const char *template,
                         struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;
	char sql[400];

	if (pg_query(pg, "SELECT FROM pg_catalog.pg_database WHERE datname = $1",
	             PG_PARAMS(pg_text(db->key.database)), &rows, e) < 0)
		return -1;
	(void)snprintf(sql, sizeof(sql), "CREATE DATABASE %s TEMPLATE %s ALLOW_CONNECTIONS false",
	               db->key.database, template);
	if (pg_rows_count(rows) == 0 && pg_script(pg, sql, e) < 0)
		return -1;
	(void)snprintf(sql, sizeof(sql),
	               "REVOKE ALL ON DATABASE %s FROM PUBLIC; GRANT CONNECT ON DATABASE %s TO %s; "
	               "ALTER DATABASE %s ALLOW_CONNECTIONS true",
	               db->key.database, db->key.database, db->key.user, db->key.database);
	return pg_script(pg, sql, e);
}

/* With a password, where there are any: made anew, because the owner's may be another now. */
static int make_role(const struct store *s, struct pg *pg, const struct tenant_db *db,
                     struct err *e)
{
	char password[SECRET_PASSWORD_SIZE];
	auto_free char *verifier = NULL;
	int rc;

	if (!s->secret)
		return pg_exec(pg, "SELECT privileged.make_tenant_role($1)",
		               PG_PARAMS(pg_uuid(&db->id)), e);
	secret_password(s->secret, db->key.user, password);
	rc = pg_verifier(pg, db->key.user, password, &verifier, e);
	secret_wipe(password, sizeof(password));
	if (rc < 0)
		return -1;
	return pg_exec(pg, "SELECT privileged.make_tenant_role($1, $2)",
	               PG_PARAMS(pg_uuid(&db->id), pg_text(verifier)), e);
}

static int make_role_and_database(const struct store *s, struct pg *pg, const struct tenant_db *db,
                                  struct err *e)
{
	if (pg_exec(pg, "INSERT INTO control.tenant (id) VALUES ($1) ON CONFLICT DO NOTHING",
	            PG_PARAMS(pg_uuid(&db->id)), e) < 0 ||
	    make_role(s, pg, db, e) < 0)
		return -1;
	return make_database(pg, db, s->secret ? EXTERNAL_TEMPLATE : "template1", e);
}

static int make_schema(struct pg *pg, const struct tenant_db *db, struct err *e)
{
	(void)db;
	if (pg_script(pg, "CREATE SCHEMA IF NOT EXISTS app", e) < 0)
		return -1;
	return migrate(pg, "app", sql_tenant(), e);
}

static int verify(struct pg *pg, const struct tenant_db *db, struct err *e)
{
	(void)db;
	return external_verify_tenant(pg, e);
}

/* Run make on a connection of the owner to the control database. */
static int in_control(struct store *s, const struct tenant_db *db,
                      int (*make)(const struct store *s, struct pg *pg, const struct tenant_db *db,
                                  struct err *e),
                      struct err *e)
{
	struct lease *lease = NULL;
	int rc;

	if (pool_take(s->pool, &control_key, &lease, e) < 0)
		return -1;
	rc = make(s, lease_pg(lease), db, e);
	pool_return(s->pool, &lease);
	return rc < 0 ? -1 : 0;
}

/* On one that is closed afterwards. */
int tenant_db_as_owner(struct store *s, const struct tenant_db *db,
                       int (*fn)(struct pg *pg, const struct tenant_db *db, struct err *e),
                       struct err *e)
{
	struct pool_key key = { .user = OWNER_ROLE };
	struct lease *lease = NULL;
	int rc;

	memcpy(key.database, db->key.database, sizeof(key.database));
	if (pool_take(s->pool, &key, &lease, e) < 0)
		return -1;
	rc = fn(lease_pg(lease), db, e);
	pool_discard(s->pool, &lease);
	return rc;
}

static int make(struct store *s, struct tenant_db *db, int64_t have, struct err *e)
{
	int64_t latest = (int64_t)sql_tenant().count;
	const struct query record = {
		"UPDATE control.tenant SET schema_version = $2 WHERE id = $1",
		PG_PARAMS(pg_uuid(&db->id), pg_int(latest)),
	};

	/* Ahead, after a rollback: the schema itself says whether that will do. */
	if (have != latest) {
		if (in_control(s, db, make_role_and_database, e) < 0)
			return -1;
	} else if (s->secret && in_control(s, db, make_role, e) < 0) {
		return -1;
	}
	if ((s->secret && tenant_db_as_owner(s, db, verify, e) < 0) ||
	    (have != latest && tenant_db_as_owner(s, db, make_schema, e) < 0))
		return -1;
	return have < latest ? db_exec(s->pool, &control_key, &record, e) : 0;
}

/* Every step may be repeated, so a start that was killed in the middle goes on here. */
static int provision(struct store *s, struct tenant_db *db, struct err *e)
{
	int64_t have;

	if (recorded_version(s, db, &have, e) < 0)
		return -1;
	if (make(s, db, have, e) < 0) {
		if (e->code == STORE_UNFIT)
			e->code = STORE_UNAVAILABLE;
		return err_wrap(e, "cannot make the database of tenant %s", db->id.text);
	}
	db->ready = true;
	return 0;
}

int tenant_db_get(struct store *s, const struct uuid *tenant, struct tenant_db **ret, struct err *e)
{
	struct tenant_db *db;
	int rc = 0;

	if (!uuid_valid(tenant->text, strnlen(tenant->text, sizeof(tenant->text))))
		return err_set(e, STORE_NOT_FOUND, "the tenant id is not a UUID");
	db = tenant_db_entry(s, tenant);
	if (!db)
		return err_set(e, STORE_UNAVAILABLE, "no memory for a tenant");
	pthread_mutex_lock(&db->lock);
	if (atomic_load(&db->purged))
		rc = err_set(e, STORE_NOT_FOUND, "tenant %s is purged", db->id.text);
	else if (!db->ready)
		rc = provision(s, db, e);
	pthread_mutex_unlock(&db->lock);
	if (rc == 0)
		*ret = db;
	return rc;
}

int tenant_rows(struct store *s, const struct uuid *tenant, const struct query *q,
                struct pg_rows **ret, struct err *e)
{
	struct tenant_db *db = NULL;

	if (tenant_db_get(s, tenant, &db, e) < 0)
		return -1;
	return db_rows(s->pool, &db->key, q, ret, e);
}

int tenant_transaction(struct store *s, const struct uuid *tenant,
                       int (*body)(struct pg *pg, void *ctx, struct err *e), void *ctx,
                       struct err *e)
{
	struct tenant_db *db = NULL;

	if (tenant_db_get(s, tenant, &db, e) < 0)
		return -1;
	return db_transaction(s->pool, &db->key, body, ctx, e);
}
