#include "daemon/store/internal.h"

#include "common/clock.h"
#include "common/fd.h"
#include "daemon/store/external.h"
#include "daemon/store/migrate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MANAGED_PORT 5432U /* as the launcher writes it */

/* Of a look for readiness: until it is its turn, and in all. */
#define TURN_MS 500
#define LOOK_MS 1000

/* How long the connection of a daemon that was killed may take to disappear. */
#define PREDECESSOR_MS 3000

static void pause_ms(long ms)
{
	(void)nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000 }, NULL);
}

/* -- one daemon per control database -- */

#define TAKE_GUARD "SELECT pg_catalog.pg_try_advisory_lock(7740319, 0)"

static int try_guard(struct pg *pg, bool *ret_held, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;

	if (pg_query(pg, TAKE_GUARD, PG_NO_PARAMS, &rows, e) < 0)
		return -1;
	*ret_held = pg_get_bool(rows, 0, 0);
	return pg_rows_check(rows, "lock", e);
}

static int take_guard(struct pg *pg, struct err *e)
{
	uint64_t deadline = clock_mono_ms() + PREDECESSOR_MS;
	bool held = false;

	for (;;) {
		if (try_guard(pg, &held, e) < 0)
			return -1;
		if (held)
			return 0;
		if (clock_left_ms(deadline) == 0)
			break;
		pause_ms(20);
	}
	return err_set(e, STORE_TAKEN,
	               "another cloisterd uses this database (it holds the advisory lock of the "
	               "control database); stop it first");
}

/* Also lets go of one that was held. */
static int connect_guard(struct store *s, struct err *e)
{
	pg_close(&s->guard);
	if (pg_connect(&s->place, OWNER_ROLE, CONTROL_DATABASE, &s->guard, e) == 0)
		return 0;
	return s->secret ? external_refused(e) : -1;
}

static int open_guard(struct store *s, struct err *e)
{
	if (connect_guard(s, e) < 0)
		return -1;
	if (take_guard(s->guard, e) == 0)
		return 0;
	pg_close(&s->guard);
	return -1;
}

int store_hold(struct store *s, struct err *e)
{
	int rc = 0;

	pthread_mutex_lock(&s->guard_lock);
	if (!s->guard || !pg_alive(s->guard)) {
		rc = open_guard(s, e);
		s->away = rc < 0 ? *e : (struct err)ERR_INIT;
	}
	pthread_mutex_unlock(&s->guard_lock);
	return rc;
}

/* Nobody works on the database who may have lost it to another daemon. */
static int pass_gate(void *ctx, struct err *e)
{
	if (store_hold(ctx, e) == 0)
		return 0;
	e->code = STORE_UNAVAILABLE;
	return -1;
}

/* -- for readiness: bounded, whatever a server that is not ours does -- */

/* An answer that was late says nothing of now. */
static int drop_late(struct pg *pg, uint64_t until, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;

	return pg_asked(pg) ? pg_answer(pg, until, &rows, e) : 1;
}

/* (locked) 1 = the lock is held, and the server has said so; 0 = it has not. */
static int ask_guard(struct pg *pg, uint64_t until, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;
	int rc = drop_late(pg, until, e);

	if (rc < 1)
		return rc;
	if (pg_ask(pg, TAKE_GUARD, e) < 0)
		return -1;
	rc = pg_answer(pg, until, &rows, e);
	if (rc < 1)
		return rc;
	/* Taking a lock that one has already succeeds. */
	if (!pg_get_bool(rows, 0, 0))
		return err_set(e, STORE_TAKEN, "another daemon has the lock");
	return pg_rows_check(rows, "lock", e) < 0 ? -1 : 1;
}

/* (locked) Whoever calls store_hold() connects again to a server that is not ours. */
static int look(struct store *s, uint64_t until, struct err *e)
{
	uint64_t begun = clock_mono_ms();
	int rc = -1;

	if (s->guard && !pg_broken(s->guard))
		rc = ask_guard(s->guard, until, e);
	else if (s->away.code)
		*e = s->away;
	else
		(void)err_set(e, STORE_UNAVAILABLE, "the database connection was lost");
	if (rc == 0)
		return err_set(e, STORE_UNAVAILABLE, "the database has not answered for %llu ms",
		               (unsigned long long)(clock_mono_ms() - begun));
	if (rc > 0)
		return 0;
	if (!s->secret)
		return open_guard(s, e);
	if (e->code == STORE_TAKEN)
		pg_close(&s->guard);
	return -1;
}

static int look_in_time(struct store *s, struct err *e)
{
	uint64_t begun = clock_mono_ms();
	int rc;

	/* Looked for in steps: ThreadSanitizer does not know pthread_mutex_clocklock(). */
	while (pthread_mutex_trylock(&s->guard_lock) != 0) {
		if (clock_left_ms(begun + TURN_MS) == 0)
			return err_set(e, STORE_UNAVAILABLE,
			               "the database is being asked or connected to for more than "
			               "%d ms",
			               TURN_MS);
		pause_ms(2);
	}
	rc = look(s, begun + LOOK_MS, e);
	pthread_mutex_unlock(&s->guard_lock);
	return rc;
}

int store_ping(struct store *s, struct err *e)
{
	bool first = !atomic_exchange(&s->looking, true);
	int rc;

	/* As long as it is away, no more than one thread waits for it here. */
	if (!first && atomic_load(&s->found_away))
		return err_set(e, STORE_UNAVAILABLE,
		               "the database was away a moment ago, and is being looked at");
	rc = look_in_time(s, e);
	if (first) {
		atomic_store(&s->found_away, rc < 0);
		atomic_store(&s->looking, false);
	}
	if (rc < 0)
		e->code = STORE_UNAVAILABLE; /* it was fit before */
	return rc;
}

/* -- opening -- */

static int next_generation(struct store *s, uint64_t *ret, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;

	if (pg_query(s->guard,
	             "UPDATE control.start SET generation = generation + 1 RETURNING generation",
	             PG_NO_PARAMS, &rows, e) < 0)
		return -1;
	if (pg_rows_count(rows) != 1)
		return err_set(e, STORE_CORRUPT, "control.start has lost its row");
	*ret = (uint64_t)pg_get_int(rows, 0, 0);
	return pg_rows_check(rows, "generation", e);
}

static int set_place(struct store *s, const struct store_conf *conf, struct err *e)
{
	const struct store_external *external = conf->external;

	s->socket_dir = strdup(conf->socket_dir);
	if (!s->socket_dir)
		return err_set(e, STORE_UNAVAILABLE, "no memory for the store");
	(void)snprintf(s->port, sizeof(s->port), "%u", external ? external->port : MANAGED_PORT);
	if (external && secret_new(external->password, &s->secret, e) < 0)
		return -1;
	s->place = (struct pg_place){ s->socket_dir, s->port, s->secret };
	return 0;
}

static int open_steps(struct store *s, const struct store_conf *conf, struct err *e)
{
	if (conf->max_connections < 4)
		return err_set(e, STORE_UNFIT, "max_connections is %u, at least 4 are needed",
		               conf->max_connections);
	s->max_tenant_bytes = conf->max_tenant_bytes;
	/* The guard is one of them. */
	if (set_place(s, conf, e) < 0 ||
	    pool_new(&s->place, conf->max_connections - 1, &s->pool, e) < 0 ||
	    connect_guard(s, e) < 0 || (s->secret && external_verify(s->guard, e) < 0) ||
	    take_guard(s->guard, e) < 0 || migrate(s->guard, "control", sql_control(), e) < 0 ||
	    next_generation(s, &s->generation, e) < 0)
		return -1;
	pool_set_gate(s->pool, pass_gate, s);
	if (s->secret)
		external_warn(s->guard);
	return 0;
}

static struct store *store_new(struct err *e)
{
	struct store *s = calloc(1, sizeof(*s));

	if (!s) {
		(void)err_set(e, STORE_UNAVAILABLE, "no memory for the store");
		return NULL;
	}
	pthread_mutex_init(&s->guard_lock, NULL);
	pthread_mutex_init(&s->tenants_lock, NULL);
	return s;
}

int store_open(const struct store_conf *conf, struct store **ret, struct err *e)
{
	struct store *s = store_new(e);

	if (!s)
		return -1;
	if (open_steps(s, conf, e) < 0) {
		store_close(&s);
		return err_wrap(e, "cannot open the database");
	}
	*ret = s;
	return 0;
}

int store_examine(const struct store_conf *conf, char *ret_text, size_t size, struct err *e)
{
	struct store *s = store_new(e);
	int rc = s ? set_place(s, conf, e) : -1;

	if (rc == 0)
		rc = connect_guard(s, e);
	if (rc == 0)
		rc = external_verify(s->guard, e);
	if (rc == 0)
		rc = external_describe(s->guard, ret_text, size, e);
	store_close(&s);
	return rc;
}

void store_close(struct store **store)
{
	struct store *s = *store;

	if (!s)
		return;
	pool_free(&s->pool);
	pg_close(&s->guard);
	tenant_db_free_all(s);
	pthread_mutex_destroy(&s->guard_lock);
	pthread_mutex_destroy(&s->tenants_lock);
	secret_free(&s->secret);
	free(s->socket_dir);
	free(s);
	*store = NULL;
}

uint64_t store_generation(const struct store *s)
{
	return s->generation;
}

int store_next_generation(struct store *s, uint64_t *ret, struct err *e)
{
	int rc = -1;

	if (pass_gate(s, e) < 0)
		return -1;
	pthread_mutex_lock(&s->guard_lock);
	if (s->guard) /* which somebody else may have lost meanwhile */
		rc = next_generation(s, ret, e);
	else
		(void)err_set(e, STORE_UNAVAILABLE, "the database connection was lost");
	pthread_mutex_unlock(&s->guard_lock);
	return rc;
}

/* -- unfinished work -- */

static int set_mark(struct store *s, const struct tenant_db *db, bool mark, struct err *e)
{
	const struct query q = { "UPDATE control.tenant SET unfinished = $2 WHERE id = $1",
		                 PG_PARAMS(pg_uuid(&db->id), pg_bool(mark)) };

	return db_exec(s->pool, &control_key, &q, e);
}

int mark_begin(struct store *s, const struct uuid *tenant, struct tenant_db **ret, struct err *e)
{
	struct tenant_db *db = NULL;
	int rc = 0;

	if (tenant_db_get(s, tenant, &db, e) < 0)
		return -1;
	pthread_mutex_lock(&db->lock);
	if (!db->marked)
		rc = set_mark(s, db, true, e);
	if (rc == 0) {
		db->marked = true;
		db->inserting++;
		*ret = db;
	}
	pthread_mutex_unlock(&db->lock);
	return rc;
}

void mark_end(struct tenant_db *db)
{
	pthread_mutex_lock(&db->lock);
	db->inserting--;
	pthread_mutex_unlock(&db->lock);
}

/* Under the tenant's lock, so that no turn can be inserted between the look and the change. */
static int settle_locked(struct store *s, struct tenant_db *db, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;
	const struct query q = { "(SELECT FROM app.turn WHERE " TURN_UNFINISHED " LIMIT 1) "
		                 "UNION ALL (SELECT FROM app.setup WHERE " SETUP_UNFINISHED
		                 " LIMIT 1)",
		                 PG_NO_PARAMS };

	if (db_rows(s->pool, &db->key, &q, &rows, e) < 0)
		return -1;
	if (pg_rows_count(rows) > 0)
		return 0;
	db->marked = false; /* also when the change fails: then it may or may not have happened */
	return set_mark(s, db, false, e);
}

int store_settle(struct store *s, const struct uuid *tenant, struct err *e)
{
	struct tenant_db *db = NULL;
	int rc = 0;

	if (tenant_db_get(s, tenant, &db, e) < 0)
		return -1;
	pthread_mutex_lock(&db->lock);
	if (db->inserting == 0)
		rc = settle_locked(s, db, e);
	pthread_mutex_unlock(&db->lock);
	return rc;
}

int store_each_unfinished(struct store *s, void (*fn)(void *ctx, const struct uuid *tenant),
                          void *ctx, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;
	const struct query q = { "SELECT id FROM control.tenant WHERE unfinished ORDER BY id",
		                 PG_NO_PARAMS };

	if (db_rows(s->pool, &control_key, &q, &rows, e) < 0)
		return -1;
	for (int i = 0; i < pg_rows_count(rows); i++) {
		struct uuid tenant = pg_get_uuid(rows, i, 0);

		if (pg_rows_check(rows, "tenant", e) < 0)
			return -1;
		fn(ctx, &tenant);
	}
	return 0;
}

struct store_use store_connections(const struct store *s)
{
	struct pool_use use = pool_count(s->pool);

	return (struct store_use){ (unsigned int)use.busy, (unsigned int)use.idle,
		                   (unsigned int)use.max };
}
