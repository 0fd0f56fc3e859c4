/* Opening, provisioning and connections, against a real cluster. */
#include "daemon/store/test_fixture.h"

#include "daemon/metrics/metrics.h"

#include <pthread.h>
#include <signal.h>

/* -- opening -- */

static void second_store_is_refused(void **state)
{
	const struct store_conf conf = { cluster.socket_dir, MAX_CONNECTIONS };
	struct store *other = NULL;

	(void)state;
	assert_code(store_open(&conf, &other, &e), STORE_TAKEN);
	assert_non_null(strstr(e.text, "another cloisterd uses this database"));
	assert_null(other);
	assert_ok(store_ping(store, &e));
}

/* Asked on another connection, as a second daemon would. */
static void assert_lock_is_held(void)
{
	auto_rows struct pg_rows *rows = NULL;
	const struct query q = { "SELECT pg_catalog.pg_try_advisory_lock(7740319, 0)",
		                 PG_NO_PARAMS };

	assert_ok(db_rows(store->pool, &control_key, &q, &rows, &e));
	assert_false(pg_get_bool(rows, 0, 0));
	assert_ok(pg_rows_check(rows, "lock", &e));
}

static void too_few_connections_are_refused(void **state)
{
	const struct store_conf conf = { cluster.socket_dir, 3 };
	struct store *other = NULL;

	(void)state;
	assert_code(store_open(&conf, &other, &e), STORE_UNFIT);
	assert_non_null(strstr(e.text, "at least 4"));
}

static void generation_grows_and_data_stays(void **state)
{
	struct session s = new_session(&acme), found;
	uint64_t before = store_generation(store), another;

	(void)state;
	assert_true(before >= 1);
	store_close(&store);
	opens_the_store(NULL);
	assert_int_equal(store_generation(store), before + 1);
	assert_ok(store_next_generation(store, &another, &e));
	assert_int_equal(another, before + 2);
	assert_int_equal(store_generation(store), before + 1);
	store_close(&store);
	opens_the_store(NULL);
	assert_int_equal(store_generation(store), before + 3);
	assert_ok(session_get(store, &acme, &s.id, &found, &e));
}

static void ping_takes_the_lock_again(void **state)
{
	(void)state;
	pg_close(&store->guard);
	assert_ok(store_ping(store, &e));
	assert_lock_is_held();
}

struct beginning {
	uint64_t generation;
	struct err e;
	int rc;
};

static void *begin_generation(void *ctx)
{
	struct beginning *b = ctx;

	b->rc = store_next_generation(store, &b->generation, &b->e);
	return NULL;
}

/* A mutex that is handed to who waits for it, and not to who comes first. */
static void hand_guard_on(void)
{
	pthread_mutexattr_t attr;

	assert_int_equal(pthread_mutex_destroy(&store->guard_lock), 0);
	assert_int_equal(pthread_mutexattr_init(&attr), 0);
	assert_int_equal(pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT), 0);
	assert_int_equal(pthread_mutex_init(&store->guard_lock, &attr), 0);
	assert_int_equal(pthread_mutexattr_destroy(&attr), 0);
}

/* Somebody else loses the connection as soon as it is there, which takes a while. */
static void a_generation_without_a_connection(void **state)
{
	struct beginning b = { .rc = 0 };
	pthread_t thread;

	(void)state;
	hand_guard_on();
	while (b.rc == 0) { /* until we have waited for it in time */
		pthread_mutex_lock(&store->guard_lock);
		pg_close(&store->guard);
		assert_int_equal(pthread_create(&thread, NULL, begin_generation, &b), 0);
		(void)usleep(10000);
		pthread_mutex_unlock(&store->guard_lock);
		pthread_mutex_lock(&store->guard_lock);
		pg_close(&store->guard);
		pthread_mutex_unlock(&store->guard_lock);
		assert_int_equal(pthread_join(thread, NULL), 0);
	}
	assert_int_equal(b.e.code, STORE_UNAVAILABLE);
	assert_string_equal(b.e.text, "the database connection was lost");
	assert_ok(store_next_generation(store, &b.generation, &e));
	assert_lock_is_held();
}

static pid_t backend_of(struct pg *pg)
{
	auto_rows struct pg_rows *rows = NULL;

	assert_ok(pg_query(pg, "SELECT pg_catalog.pg_backend_pid()", PG_NO_PARAMS, &rows, &e));
	return (pid_t)pg_get_int(rows, 0, 0);
}

static void ping_does_not_wait_for_who_does_not_answer(void **state)
{
	pid_t silent = backend_of(store->guard);
	struct err errors[3] = { ERR_INIT, ERR_INIT, ERR_INIT };
	uint64_t begun = clock_mono_ms(), took;
	int rc[3];

	(void)state;
	assert_int_equal(kill(silent, SIGSTOP), 0);
	for (int i = 0; i < 3; i++)
		rc[i] = store_ping(store, &errors[i]);
	took = clock_mono_ms() - begun;
	assert_int_equal(kill(silent, SIGCONT), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(rc[i], -1);
		assert_int_equal(errors[i].code, STORE_UNAVAILABLE);
		assert_non_null(strstr(errors[i].text, "has not answered for "));
	}
	assert_true(took < 20000);
	while (store_ping(store, &e) < 0)
		assert_true(clock_mono_ms() - begun < 100000);
	assert_int_equal(backend_of(store->guard), silent); /* which has held the lock */
	assert_lock_is_held();
}

#define HOLD "SELECT pg_catalog.pg_advisory_lock(42)"

static void what_was_asked_may_be_answered_late(void **state)
{
	auto_rows struct pg_rows *rows = NULL;
	const struct pg_place at = { cluster.socket_dir, "5432", NULL };
	struct pg *holder = NULL, *pg = NULL;
	uint64_t begun = clock_mono_ms();
	pid_t backend;

	(void)state;
	assert_ok(pg_connect(&at, OWNER_ROLE, CONTROL_DATABASE, &holder, &e));
	assert_ok(pg_connect(&at, OWNER_ROLE, CONTROL_DATABASE, &pg, &e));
	backend = backend_of(pg);
	assert_ok(pg_exec(holder, HOLD, PG_NO_PARAMS, &e));
	assert_ok(pg_ask(pg, HOLD, &e));
	for (uint64_t wait = 0; wait < 40; wait += 20) {
		assert_int_equal(pg_answer(pg, clock_mono_ms() + wait, &rows, &e), 0);
		assert_true(pg_asked(pg) && pg_alive(pg));
	}
	assert_ok(pg_exec(holder, "SELECT pg_catalog.pg_advisory_unlock(42)", PG_NO_PARAMS, &e));
	/* Another statement waits for it, and gets its own answer. */
	assert_int_equal(backend_of(pg), backend);
	assert_false(pg_asked(pg));
	assert_ok(pg_ask(pg, "SELECT 1/0", &e));
	assert_code(pg_answer(pg, begun + 60000, &rows, &e), STORE_CONFLICT);
	assert_true(pg_alive(pg));
	/* And that it is the end of the connection is seen without one. */
	assert_ok(pg_exec(holder, "SELECT pg_catalog.pg_advisory_lock(43)", PG_NO_PARAMS, &e));
	assert_ok(pg_ask(pg, "SELECT pg_catalog.pg_advisory_lock(43)", &e));
	assert_int_equal(kill(backend, SIGTERM), 0);
	while (pg_alive(pg))
		assert_true(clock_mono_ms() - begun < 60000);
	pg_close(&pg);
	pg_close(&holder);
}

static void bad_tenant_id_is_refused(void **state)
{
	struct uuid bad = { "x'; DROP DATABASE cloister; --" };
	struct session found;

	(void)state;
	assert_code(session_get(store, &bad, &acme, &found, &e), STORE_NOT_FOUND);
}

static void *use_fresh_tenant(void *arg)
{
	const struct uuid *tenant = arg;
	struct err err = ERR_INIT;
	struct session found;

	if (session_get(store, tenant, tenant, &found, &err) == 0)
		return NULL;
	return err.code == STORE_NOT_FOUND ? arg : NULL;
}

static void concurrent_first_use_makes_one_database(void **state)
{
	struct uuid tenant = uuid_new();
	pthread_t threads[8];
	void *ok;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, use_fresh_tenant, &tenant), 0);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
		pthread_join(threads[i], &ok);
		assert_non_null(ok);
	}
}

static void half_made_tenant_is_completed(void **state)
{
	struct uuid tenant = uuid_new();
	const struct query record = { "INSERT INTO control.tenant (id) VALUES ($1)",
		                      PG_PARAMS(pg_uuid(&tenant)) };
	const struct query role = { "SELECT privileged.make_tenant_role($1)",
		                    PG_PARAMS(pg_uuid(&tenant)) };
	char sql[100], hex[33];
	const struct query create = { sql, PG_NO_PARAMS };

	(void)state;
	uuid_hex(&tenant, hex);
	(void)snprintf(sql, sizeof(sql), "CREATE DATABASE ct_%s ALLOW_CONNECTIONS false", hex);
	assert_ok(db_exec(store->pool, &control_key, &record, &e));
	assert_ok(db_exec(store->pool, &control_key, &role, &e));
	assert_ok(db_exec(store->pool, &control_key, &create, &e));
	new_session(&tenant);
}

/* -- connections -- */

static struct tenant_db *db_of(const struct uuid *tenant)
{
	struct tenant_db *db = NULL;

	assert_ok(tenant_db_get(store, tenant, &db, &e));
	return db;
}

/* What is counted without a label; -1 = it is not told of. */
static double counted(const char *name)
{
	auto_buf struct buf out = BUF_INIT(1 << 20);
	char line[96];
	const char *at;

	buf_addc(&out, '\n');
	metrics_write(&out);
	(void)snprintf(line, sizeof(line), "\n%s ", name);
	assert_false(buf_failed(&out));
	at = strstr(out.data, line);
	return at ? strtod(at + strlen(line), NULL) : -1;
}

static uint64_t ask_for_one_too_many(void)
{
	static const char waits[] = "cloister_database_wait_timeouts_total";
	const struct pool_key *key = &db_of(&acme)->key;
	struct lease *leases[MAX_CONNECTIONS - 1] = { NULL }, *more = NULL;
	struct pool_key keys[3] = { *key, control_key, db_of(&globex)->key };
	double before = counted(waits);
	uint64_t begin, took;
	size_t n = 0;

	for (size_t i = 0; n < ARRAY_LEN(leases); i++)
		assert_ok(pool_take(store->pool, &keys[i / 3], &leases[n++], &e));
	assert_true(before >= 0 && counted(waits) == before);
	begin = clock_mono_ms();
	assert_code(pool_take(store->pool, &keys[2], &more, &e), STORE_UNAVAILABLE);
	took = clock_mono_ms() - begin;
	assert_string_equal(e.text, "all 7 database connections are in use");
	assert_true(counted(waits) == before + 1);
	for (size_t i = 0; i < n; i++)
		pool_return(store->pool, &leases[i]);
	assert_ok(pool_take(store->pool, &keys[2], &more, &e));
	pool_return(store->pool, &more);
	return took;
}

static void pool_is_bounded_and_says_so(void **state)
{
	(void)state;
	expect_within(ask_for_one_too_many, 4900, 6000);
}

static void one_tenant_gets_half(void **state)
{
	const struct pool_key *key = &db_of(&acme)->key;
	struct lease *leases[MAX_CONNECTIONS / 2], *more = NULL;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(leases); i++)
		assert_ok(pool_take(store->pool, key, &leases[i], &e));
	assert_code(pool_take(store->pool, key, &more, &e), STORE_UNAVAILABLE);
	assert_non_null(strstr(e.text, key->user));
	new_session(&globex);
	for (size_t i = 0; i < ARRAY_LEN(leases); i++)
		pool_return(store->pool, &leases[i]);
}

/* More tenants than connections: the oldest idle ones give way. */
static void many_tenants_share_few_connections(void **state)
{
	static const char connects[] = "cloister_database_connects_total";
	struct uuid tenants[MAX_CONNECTIONS + 2];
	double before = counted(connects);

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(tenants); i++)
		tenants[i] = uuid_new();
	for (size_t round = 0; round < 2; round++)
		for (size_t i = 0; i < ARRAY_LEN(tenants); i++)
			new_session(&tenants[i]);
	assert_true(before > 0 && counted(connects) >= before + MAX_CONNECTIONS + 2);
}

/* Of all but this one, and only once they are gone: one that lives on may still answer. */
static void terminate_backends(void)
{
	static const char terminate[] =
		"SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity "
		"WHERE usename = 'cloister_owner' AND pid <> pg_catalog.pg_backend_pid()";
	const struct pg_place at = { cluster.socket_dir, "5432", NULL };
	struct pg *pg = NULL;
	int left = 1;

	assert_ok(pg_connect(&at, OWNER_ROLE, CONTROL_DATABASE, &pg, &e));
	for (int i = 0; i < 3000 && left; i++) {
		auto_rows struct pg_rows *rows = NULL;

		assert_ok(pg_query(pg, terminate, PG_NO_PARAMS, &rows, &e));
		left = pg_rows_count(rows);
		(void)usleep(10000);
	}
	assert_int_equal(left, 0);
	pg_close(&pg);
}

static void lost_connections_are_replaced(void **state)
{
	const struct query q = { "SELECT 1", PG_NO_PARAMS };
	struct lease *a = NULL, *b = NULL;

	(void)state;
	assert_ok(pool_take(store->pool, &control_key, &a, &e));
	assert_ok(pool_take(store->pool, &control_key, &b, &e));
	pool_return(store->pool, &a);
	pool_return(store->pool, &b);
	terminate_backends(); /* the guard is among them */
	for (int i = 0; i < 4; i++)
		assert_ok(db_exec(store->pool, &control_key, &q, &e));
	assert_ok(store_ping(store, &e));
	assert_lock_is_held();
}

struct dying {
	int runs;
	bool always;
};

static int die_in_transaction(struct pg *pg, void *ctx, struct err *err)
{
	struct dying *d = ctx;

	if (++d->runs > 1 && !d->always)
		return 0;
	return pg_exec(pg, "SELECT pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid())",
	               PG_NO_PARAMS, err) < 0
	               ? -1
	               : 0;
}

static void uncommitted_work_is_done_once_more(void **state)
{
	struct dying once = { 0, false }, always = { 0, true };

	(void)state;
	assert_ok(tenant_transaction(store, &acme, die_in_transaction, &once, &e));
	assert_int_equal(once.runs, 2);
	assert_code(tenant_transaction(store, &acme, die_in_transaction, &always, &e),
	            STORE_UNAVAILABLE);
	assert_int_equal(always.runs, 2);
	new_session(&acme);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(opens_the_store),
		cmocka_unit_test(second_store_is_refused),
		cmocka_unit_test(too_few_connections_are_refused),
		cmocka_unit_test(generation_grows_and_data_stays),
		cmocka_unit_test(ping_takes_the_lock_again),
		cmocka_unit_test(a_generation_without_a_connection),
		cmocka_unit_test(ping_does_not_wait_for_who_does_not_answer),
		cmocka_unit_test(what_was_asked_may_be_answered_late),
		cmocka_unit_test(bad_tenant_id_is_refused),
		cmocka_unit_test(concurrent_first_use_makes_one_database),
		cmocka_unit_test(half_made_tenant_is_completed),
		cmocka_unit_test(pool_is_bounded_and_says_so),
		cmocka_unit_test(one_tenant_gets_half),
		cmocka_unit_test(many_tenants_share_few_connections),
		cmocka_unit_test(lost_connections_are_replaced),
		cmocka_unit_test(uncommitted_work_is_done_once_more),
		cmocka_unit_test(closes_the_store),
	};

	fixture_begin();
	return fixture_end(RUN_TESTS(tests));
}
