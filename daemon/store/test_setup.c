/* The repositories that sessions begin with. */
#include "daemon/store/test_fixture.h"

static struct session session_with(const struct uuid *tenant, const struct client_request *key)
{
	struct session s = { .id = uuid_new(),
		             .created_ms = clock_wall_ms(),
		             .model = "demo",
		             .cwd = "/workspace/r",
		             .setup = { .state = SETUP_PENDING,
		                        .url = "https://h/r",
		                        .ref = "main",
		                        .branch = "b",
		                        .private = true } };

	s.updated_ms = s.created_ms;
	assert_ok(session_insert(store, tenant, &s, key, &e));
	return s;
}

static struct setup setup_of(const struct uuid *session)
{
	struct session s;

	assert_ok(session_get(store, &acme, session, &s, &e));
	return s.setup;
}

static void fail_setup(const struct uuid *session)
{
	const struct setup end = { .state = SETUP_FAILED, .code = "clone_failed", .error = "why" };

	assert_ok(setup_finish(store, &acme, session, &end, &e));
}

struct look {
	const struct uuid *wanted;
	bool found;
};

static void look_for(void *ctx, const struct uuid *id)
{
	struct look *l = ctx;

	l->found = l->found || uuid_equal(id, l->wanted);
}

static bool is_unfinished(const struct uuid *session)
{
	struct look l = { session, false };

	assert_ok(setup_each_unfinished(store, &acme, look_for, &l, &e));
	return l.found;
}

static bool is_marked(const struct uuid *tenant)
{
	struct look l = { tenant, false };

	assert_ok(store_each_unfinished(store, look_for, &l, &e));
	return l.found;
}

static void goes_its_way(void **state)
{
	const struct setup ready = { .state = SETUP_READY, .head = "0123" };
	struct session s = session_with(&acme, NULL);
	struct setup now = setup_of(&s.id);

	(void)state;
	assert_int_equal(now.state, SETUP_PENDING);
	assert_string_equal(now.url, "https://h/r");
	assert_string_equal(now.ref, "main");
	assert_string_equal(now.branch, "b");
	assert_true(now.private && is_unfinished(&s.id));
	assert_ok(setup_mark_running(store, &acme, &s.id, &e));
	assert_ok(setup_mark_running(store, &acme, &s.id, &e)); /* after a restart */
	assert_int_equal(setup_of(&s.id).state, SETUP_RUNNING);
	assert_code(setup_retry(store, &acme, &s.id, false, &e), STORE_CONFLICT);
	assert_ok(setup_finish(store, &acme, &s.id, &ready, &e));
	now = setup_of(&s.id);
	assert_int_equal(now.state, SETUP_READY);
	assert_string_equal(now.head, "0123");
	assert_false(is_unfinished(&s.id));
	/* It is over. */
	assert_code(setup_finish(store, &acme, &s.id, &ready, &e), STORE_CONFLICT);
	assert_code(setup_mark_running(store, &acme, &s.id, &e), STORE_CONFLICT);
	assert_code(setup_retry(store, &acme, &s.id, false, &e), STORE_CONFLICT);
}

static void is_tried_again_after_a_failure(void **state)
{
	struct session s = session_with(&acme, NULL);
	struct setup now;

	(void)state;
	fail_setup(&s.id);
	now = setup_of(&s.id);
	assert_int_equal(now.state, SETUP_FAILED);
	assert_string_equal(now.code, "clone_failed");
	assert_string_equal(now.error, "why");
	assert_code(setup_retry(store, &globex, &s.id, false, &e), STORE_CONFLICT);
	assert_ok(setup_retry(store, &acme, &s.id, false, &e));
	now = setup_of(&s.id);
	assert_true(now.state == SETUP_PENDING && !now.private && !now.code[0] && !now.error[0]);
	fail_setup(&s.id);
}

static void keeps_the_longest_error(void **state)
{
	struct session s = session_with(&acme, NULL);
	struct setup end = { .state = SETUP_FAILED, .code = "clone_failed" };

	(void)state;
	memset(end.error, 'x', SETUP_ERROR_MAX);
	assert_ok(setup_finish(store, &acme, &s.id, &end, &e));
	assert_string_equal(setup_of(&s.id).error, end.error);
}

/* Or nobody would look for it after a restart. */
static void keeps_its_tenant_marked(void **state)
{
	struct session s = session_with(&acme, NULL);

	(void)state;
	assert_true(is_marked(&acme));
	assert_ok(store_settle(store, &acme, &e));
	assert_true(is_marked(&acme));
	fail_setup(&s.id);
	assert_ok(store_settle(store, &acme, &e));
	assert_false(is_marked(&acme));
	assert_ok(setup_retry(store, &acme, &s.id, true, &e));
	assert_true(is_marked(&acme));
	fail_setup(&s.id);
}

static void belongs_to_one_session(void **state)
{
	struct session s = session_with(&acme, NULL);
	struct session copy = { .id = uuid_new(), .created_ms = 5, .updated_ms = 5 };
	const struct session_fork fork = { .source = s.id };
	struct session plain = new_session(&acme);

	(void)state;
	assert_int_equal(setup_of(&plain.id).state, SETUP_NONE);
	assert_code(setup_mark_running(store, &acme, &plain.id, &e), STORE_CONFLICT);
	assert_ok(session_fork(store, &acme, &fork, &copy, &e));
	assert_int_equal(copy.setup.state, SETUP_NONE);
	assert_int_equal(setup_of(&copy.id).state, SETUP_NONE);
	assert_ok(session_delete(store, &acme, &s.id, &e));
	assert_false(is_unfinished(&s.id));
	assert_code(setup_mark_running(store, &acme, &s.id, &e), STORE_CONFLICT);
}

static void is_made_once(void **state)
{
	const struct client_request key = { .id = uuid_new(), .digest = { 1 } };
	struct session first = session_with(&acme, &key), second = session_with(&acme, &key);

	(void)state;
	assert_string_equal(first.id.text, second.id.text);
	assert_int_equal(second.setup.state, SETUP_PENDING);
	assert_string_equal(second.setup.url, "https://h/r");
	fail_setup(&first.id);
	second = session_with(&acme, &key);
	assert_int_equal(second.setup.state, SETUP_FAILED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(opens_the_store),
		cmocka_unit_test(goes_its_way),
		cmocka_unit_test(is_tried_again_after_a_failure),
		cmocka_unit_test(keeps_the_longest_error),
		cmocka_unit_test(keeps_its_tenant_marked),
		cmocka_unit_test(belongs_to_one_session),
		cmocka_unit_test(is_made_once),
		cmocka_unit_test(closes_the_store),
	};

	fixture_begin();
	return fixture_end(cmocka_run_group_tests(tests, NULL, NULL));
}
