/* Migrations forwards, and what a release does with a schema that a later one has changed. */
#include "daemon/store/test_fixture.h"

#include "daemon/store/migrate.h"

static const struct sql_file files[] = {
	{ "0001_first", "CREATE TABLE ahead.first (n integer)" },
	{ "0002_second", "ALTER TABLE ahead.first ADD COLUMN more text NOT NULL DEFAULT ''" },
	{ "0003_third", "UPDATE ahead.migration SET oldest = 3; DROP TABLE ahead.first" },
	{ "0004_broken", "CREATE TABLE ahead.fourth (n integer); SELECT 1 / 0" },
};

static struct tenant_db *db;

static size_t wanted;

static int bring_up(struct pg *pg, const struct tenant_db *unused, struct err *err)
{
	(void)unused;
	if (pg_script(pg, "CREATE SCHEMA IF NOT EXISTS ahead", err) < 0)
		return -1;
	return migrate(pg, "ahead", (struct sql_list){ files, wanted }, err);
}

/* By a release that has that many files. */
static void migrates(size_t count, int code, const char *said)
{
	wanted = count;
	if (code == 0) {
		assert_ok(tenant_db_as_owner(store, db, bring_up, &e));
		return;
	}
	assert_code(tenant_db_as_owner(store, db, bring_up, &e), code);
	if (!strstr(e.text, said))
		fail_msg("%s", e.text);
}

static int look(struct pg *pg, const struct tenant_db *unused, struct err *err)
{
	auto_rows struct pg_rows *rows = NULL;

	(void)unused;
	if (pg_query(pg, "SELECT count(*) FROM ahead.migration", PG_NO_PARAMS, &rows, err) < 0)
		return -1;
	wanted = (size_t)pg_get_int(rows, 0, 0);
	return pg_rows_check(rows, "count", err);
}

static void applied(size_t count)
{
	assert_ok(tenant_db_as_owner(store, db, look, &e));
	assert_int_equal(wanted, count);
}

static void a_release_works_with_what_the_next_one_added(void **state)
{
	(void)state;
	assert_ok(tenant_db_get(store, &acme, &db, &e));
	migrates(1, 0, NULL);
	migrates(2, 0, NULL);
	migrates(1, 0, NULL);
	applied(2);
	migrates(2, 0, NULL);
	applied(2);
}

static void a_release_keeps_off_what_it_would_misread(void **state)
{
	(void)state;
	migrates(3, 0, NULL);
	migrates(2, STORE_UNAVAILABLE,
	         "schema ahead was changed by a later release, and only one with migration 3 can "
	         "work with it (this one ends with 2); install that again");
	migrates(3, 0, NULL);
	applied(3);
}

static void a_migration_is_applied_whole_or_not_at_all(void **state)
{
	(void)state;
	migrates(4, STORE_CONFLICT, "migration 0004_broken of schema ahead");
	applied(3);
	migrates(3, 0, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(opens_the_store),
		cmocka_unit_test(a_release_works_with_what_the_next_one_added),
		cmocka_unit_test(a_release_keeps_off_what_it_would_misread),
		cmocka_unit_test(a_migration_is_applied_whole_or_not_at_all),
		cmocka_unit_test(closes_the_store),
	};

	fixture_begin();
	return fixture_end(cmocka_run_group_tests(tests, NULL, NULL));
}
