/* What a connection prepares, by itself and against a real cluster. */
#include "daemon/store/test_fixture.h"

#include "daemon/store/prepared.h"

/* -- the set ------------------------------------------------------------------------- */

static void second_coming_is_noted(void **state)
{
	auto_free struct prepared_set *set = calloc(1, sizeof(*set));
	struct prepared *first = prepared_use(set, "SELECT 1", 0);

	(void)state;
	assert_non_null(first);
	assert_false(first->again);
	assert_ptr_equal(prepared_use(set, "SELECT 1", 0), first);
	assert_true(first->again);
	assert_int_equal(set->n, 1);
	prepared_release(set);
}

/* Texts that are made in a buffer stand where another one stood before. */
static void another_text_in_the_same_place_is_another_statement(void **state)
{
	auto_free struct prepared_set *set = calloc(1, sizeof(*set));
	char text[] = "SELECT 1", elsewhere[] = "SELECT 1";
	struct prepared *first = prepared_use(set, text, 0), *second;

	(void)state;
	text[7] = '2';
	second = prepared_use(set, text, 0);
	assert_ptr_not_equal(first, second);
	assert_false(second->again);
	assert_ptr_equal(prepared_use(set, elsewhere, 0), first);
	prepared_release(set);
}

static void other_types_are_another_statement(void **state)
{
	auto_free struct prepared_set *set = calloc(1, sizeof(*set));
	struct prepared *text = prepared_use(set, "SELECT $1", 0);
	char one[PREPARED_NAME_SIZE], other[PREPARED_NAME_SIZE];

	(void)state;
	prepared_name(set, text, one);
	prepared_name(set, prepared_use(set, "SELECT $1", 1), other);
	assert_string_not_equal(one, other);
	prepared_release(set);
}

static void no_more_than_there_is_room_for(void **state)
{
	auto_free struct prepared_set *set = calloc(1, sizeof(*set));
	char text[32];

	(void)state;
	for (int i = 0; i < PREPARED_MAX; i++) {
		(void)snprintf(text, sizeof(text), "SELECT %d", i);
		assert_non_null(prepared_use(set, text, 0));
	}
	assert_null(prepared_use(set, "SELECT 'one more'", 0));
	assert_true(prepared_use(set, "SELECT 0", 0)->again);
	prepared_release(set);
	assert_non_null(prepared_use(set, "SELECT 'one more'", 0));
	prepared_release(set);
}

/* -- on a connection ---------------------------------------------------------------------- */

static struct lease *lease;
static struct pg *pg;

static void takes_a_connection(void **state)
{
	opens_the_store(state);
	assert_ok(pool_take(store->pool, &control_key, &lease, &e));
	pg = lease_pg(lease);
}

static void gives_it_back(void **state)
{
	pool_return(store->pool, &lease);
	closes_the_store(state);
}

static int64_t ask(const char *sql, const struct pg_param *params, size_t n)
{
	auto_rows struct pg_rows *rows = NULL;

	assert_ok(pg_query(pg, sql, params, n, &rows, &e));
	return pg_get_int(rows, 0, 0);
}

static int64_t prepared_like(const char *text)
{
	return ask("SELECT count(*) FROM pg_catalog.pg_prepared_statements WHERE statement LIKE $1",
	           PG_PARAMS(pg_text(text)));
}

static void what_comes_twice_is_prepared_and_says_the_same(void **state)
{
	static const char sql[] = "SELECT $1::bigint + 40";

	(void)state;
	assert_int_equal(ask(sql, PG_PARAMS(pg_int(2))), 42);
	assert_int_equal(prepared_like("SELECT $1::bigint + 40"), 0);
	assert_int_equal(ask(sql, PG_PARAMS(pg_int(3))), 43);
	assert_int_equal(ask(sql, PG_PARAMS(pg_int(-40))), 0);
	assert_int_equal(prepared_like("SELECT $1::bigint + 40"), 1);
}

static void bytes_and_null_take_turns(void **state)
{
	static const char sql[] = "SELECT coalesce(length($1::bytea), -1)::bigint";

	(void)state;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(ask(sql, PG_PARAMS(pg_bytes("a\0b", 3))), 3);
		assert_int_equal(ask(sql, PG_PARAMS(pg_text(NULL))), -1);
	}
}

static void one_that_fails_fails_each_time_and_breaks_nothing(void **state)
{
	auto_rows struct pg_rows *rows = NULL;

	(void)state;
	for (int i = 0; i < 3; i++)
		assert_code(
			pg_query(pg, "SELECT 1 FROM nothing_of_that_name", PG_NO_PARAMS, &rows, &e),
			STORE_CORRUPT);
	assert_false(pg_broken(pg));
	assert_true(pg_idle(pg));
	for (int i = 0; i < 3; i++)
		assert_code(pg_query(pg, "SELECT 1 / $1::bigint", PG_PARAMS(pg_int(0)), &rows, &e),
		            STORE_CONFLICT);
	assert_int_equal(ask("SELECT 1 / $1::bigint", PG_PARAMS(pg_int(1))), 1);
}

static void a_table_that_was_small_is_not_read_as_a_whole(void **state)
{
	auto_rows struct pg_rows *rows = NULL;

	(void)state;
	assert_ok(pg_query(pg, "SELECT current_setting('enable_seqscan') = 'off'", PG_NO_PARAMS,
	                   &rows, &e));
	assert_true(pg_get_bool(rows, 0, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(second_coming_is_noted),
		cmocka_unit_test(another_text_in_the_same_place_is_another_statement),
		cmocka_unit_test(other_types_are_another_statement),
		cmocka_unit_test(no_more_than_there_is_room_for),
		cmocka_unit_test(takes_a_connection),
		cmocka_unit_test(what_comes_twice_is_prepared_and_says_the_same),
		cmocka_unit_test(bytes_and_null_take_turns),
		cmocka_unit_test(one_that_fails_fails_each_time_and_breaks_nothing),
		cmocka_unit_test(a_table_that_was_small_is_not_read_as_a_whole),
		cmocka_unit_test(gives_it_back),
	};

	fixture_begin();
	return fixture_end(RUN_TESTS(tests));
}
