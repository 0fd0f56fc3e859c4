/* Calls of one answer that only read run at once; those that write are between them. */
#include "daemon/turn/test_world.h"

#include "daemon/turn/batch.h"

/* Takes every call and ends none. */
static void behave_deaf(struct guest *g)
{
	guest_shake(g);
	(void)guest_next(g);
	guest_wait_killed(g);
}

#define READ "@list_files {}\n"

static void as_many_as_are_allowed(void **state)
{
	const struct uuid tenant = new_tenant();
	struct uuid id;

	(void)state;
	begin(&usual, behave_deaf);
	id = submit(&tenant, READ READ READ READ READ READ);
	wait_started(&tenant, &id, BATCH_MAX);
	assert_int_equal(in_state(&tenant, &id, CALL_PENDING), 2);
	cancel_ok(&tenant, &id);
	end();
}

static void one_that_writes_is_waited_for(void **state)
{
	const struct uuid tenant = new_tenant(), other = new_tenant();
	struct uuid id;

	(void)state;
	begin(&usual, behave_deaf);
	id = submit(&tenant, READ READ "$ true\n" READ READ);
	wait_started(&tenant, &id, 2);
	cancel_ok(&tenant, &id);
	id = submit(&other, "$ true\n" READ READ);
	wait_started(&other, &id, 1);
	cancel_ok(&other, &id);
	end();
}

/* The results are in the order of the calls, whatever was done first. */
static void results_are_in_order(void **state)
{
	static const char *const want[] = { "read_file",  "list_files", "format",   "read_file",
		                            "list_files", "shell",      "read_file" };
	const struct uuid tenant = new_tenant();
	struct item_list list;
	struct uuid id;
	size_t n = 0;

	(void)state;
	begin(&usual, behave_real);
	id = submit(&tenant, "@read_file {\"path\":\"/proc/version\"}\n" READ "@format {}\n"
	                     "@read_file {\"path\":\"/nowhere\"}\n" READ "$ echo x\n"
	                     "@read_file {\"path\":\"/proc/version\"}");
	wait_state(&tenant, &id, TURN_COMPLETED);
	assert_ok(turn_items(store, &tenant, &id, &list, &e));
	for (size_t i = 0; i < list.count; i++) {
		const struct item *item = &list.items[i];

		if (item->kind != ITEM_TOOL_RESULT)
			continue;
		assert_string_equal(item->tool, want[n]);
		assert_string_equal(item->call_id, list.items[1 + n].call_id);
		n++;
	}
	assert_int_equal(n, ARRAY_LEN(want));
	assert_memory_equal(list.items[8].body, "Linux version", 13);
	assert_memory_equal(list.items[11].body, "error: not_found", 16);
	item_list_release(&list);
	end();
}

/* The result of one that ran is kept, though that of one before it cannot be and ends the turn. */
static void what_ran_is_kept(void **state)
{
	const struct uuid tenant = new_tenant();
	struct item_list list;
	struct uuid id;

	(void)state;
	begin(&usual, behave_real);
	id = submit(&tenant, "x");
	wait_state(&tenant, &id, TURN_COMPLETED);
	take_items_only_if(&tenant, "substring(body FROM 1 FOR 16) <> 'error: not_found'::bytea");
	id = submit(&tenant, "@read_file {\"path\":\"/nowhere\"}\n"
	                     "@read_file {\"path\":\"/proc/version\"}");
	wait_failed(&tenant, &id, "internal_error");
	assert_ok(turn_items(store, &tenant, &id, &list, &e));
	assert_int_equal(list.count, 4);
	assert_string_equal(list.items[3].call_id, list.items[2].call_id);
	assert_memory_equal(list.items[3].body, "Linux version", 13);
	assert_int_equal(list.items[1].call_state, CALL_STARTED);
	assert_int_equal(list.items[2].call_state, CALL_DONE);
	item_list_release(&list);
	end();
}

/* All that had begun when the daemon ended are interrupted; the others are run. */
static void a_restart_in_between(void **state)
{
	const struct uuid tenant = new_tenant();
	struct item_list list;
	struct uuid id;

	(void)state;
	begin(&usual, behave_deaf);
	id = submit(&tenant, READ READ READ READ READ);
	wait_started(&tenant, &id, BATCH_MAX);
	end();
	begin(&usual, behave_real);
	wait_state(&tenant, &id, TURN_COMPLETED);
	assert_ok(turn_items(store, &tenant, &id, &list, &e));
	for (size_t i = 6; i < 6 + BATCH_MAX; i++)
		assert_memory_equal(list.items[i].body, "error: interrupted:", 19);
	assert_true(strncmp(list.items[6 + BATCH_MAX].body, "error: ", 7) != 0);
	item_list_release(&list);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(opens_the_store),
		CASE(as_many_as_are_allowed),
		CASE(one_that_writes_is_waited_for),
		CASE(results_are_in_order),
		CASE(what_ran_is_kept),
		CASE(a_restart_in_between),
		cmocka_unit_test(closes_the_store),
	};
	int result;

	fixture_begin();
	result = RUN_TESTS(tests);
	return fixture_end(result);
}
