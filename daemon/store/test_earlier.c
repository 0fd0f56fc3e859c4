/* What a session said before a turn: whole turns, the newest within a bound. */
#include "daemon/store/test_fixture.h"

#include "daemon/store/earlier.h"

static struct uuid put_turn(const struct session *s, const char *input)
{
	struct turn t = { .id = uuid_new(), .session = s->id, .created_ms = clock_wall_ms() };
	bool existing;

	t.input = strdup(input);
	assert_ok(turn_insert(store, &acme, &t, &existing, &e));
	turn_release(&t);
	return t.id;
}

static void end_turn(const struct uuid *id, enum turn_state state)
{
	const struct turn_end end = { .state = state,
		                      .error_code = state == TURN_FAILED ? "model_failed" : NULL,
		                      .now_ms = 5000 };

	assert_ok(turn_finish(store, &acme, id, &end, &e));
}

/* One with an answer; its id. */
static struct uuid said(const struct session *s, const char *input, const char *answer)
{
	struct uuid id = put_turn(s, input);
	struct item item = { .kind = ITEM_ASSISTANT };
	struct turn_step step = { .items = &item, .count = 1 };

	item.body = strdup(answer);
	item.body_len = strlen(answer);
	assert_ok(turn_mark_running(store, &acme, &id, 1000, &e));
	assert_ok(turn_append(store, &acme, &id, &step, &e));
	free(item.body);
	end_turn(&id, TURN_COMPLETED);
	return id;
}

static struct earlier before(const struct uuid *turn, size_t max_bytes)
{
	struct summary covered;
	struct earlier got;

	assert_ok(summary_get(store, &acme, turn, &covered, &e));
	assert_ok(session_earlier(store, &acme,
	                          &(struct earlier_range){ turn, &covered, max_bytes }, &got, &e));
	summary_release(&covered);
	return got;
}

static void all_in_order(void **state)
{
	const struct session s = new_session(&acme), other = new_session(&acme);
	struct earlier got;
	struct uuid id, now;

	(void)state;
	said(&other, "of another", "session");
	said(&s, "one", "two");
	id = put_turn(&s, "three");
	end_turn(&id, TURN_FAILED);
	now = put_turn(&s, "now");
	got = before(&now, 1 << 20);
	assert_int_equal(got.turn_count, 2);
	assert_int_equal(got.items.count, 3);
	assert_string_equal(got.items.items[0].body, "one");
	assert_string_equal(got.items.items[1].body, "two");
	assert_string_equal(got.items.items[2].body, "three");
	assert_int_equal(got.turns[0].state, TURN_COMPLETED);
	assert_int_equal(got.turns[1].state, TURN_FAILED);
	assert_string_equal(got.turns[1].error_code, "model_failed");
	assert_int_equal(got.turns[0].count, 2);
	assert_int_equal(got.turns[1].first, 2);
	assert_false(got.cut);
	earlier_release(&got);
	got = before(&id, 1 << 20); /* the past of an older one ends before it */
	assert_int_equal(got.items.count, 2);
	earlier_release(&got);
}

static void the_first_has_none(void **state)
{
	const struct session s = new_session(&acme);
	struct uuid now = put_turn(&s, "now");
	struct earlier got = before(&now, 1 << 20);

	(void)state;
	assert_int_equal(got.turn_count, 0);
	assert_false(got.cut);
	earlier_release(&got);
}

/* The bound and one byte less, which takes away a whole turn. */
static void the_newest_within_the_bound(void **state)
{
	static const size_t each = 2 * EARLIER_ITEM_BYTES + 6;
	static const struct {
		size_t bytes, turns;
	} cases[] = { { 3 * each, 3 }, { 3 * each - 1, 2 }, { 2 * each, 2 },
		      { each, 1 },     { each - 1, 0 },     { 0, 0 } };
	const struct session s = new_session(&acme);
	struct uuid now;

	(void)state;
	for (int i = 0; i < 3; i++)
		said(&s, "abc", "def");
	now = put_turn(&s, "now");
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct earlier got = before(&now, cases[i].bytes);

		assert_int_equal(got.turn_count, cases[i].turns);
		assert_int_equal(got.items.count, 2 * cases[i].turns);
		assert_int_equal(got.cut, cases[i].turns < 3);
		earlier_release(&got);
	}
}

static void a_fork_has_what_it_copied(void **state)
{
	const struct session s = new_session(&acme);
	const uint32_t through = 1;
	const struct session_fork fork = { .source = s.id, .through = &through };
	struct session copy = { .id = uuid_new(), .created_ms = 9, .updated_ms = 9 };
	struct earlier got;
	struct uuid now;

	(void)state;
	said(&s, "one", "1");
	said(&s, "two", "2");
	said(&s, "three", "3");
	assert_ok(session_fork(store, &acme, &fork, &copy, &e));
	now = put_turn(&copy, "now");
	got = before(&now, 1 << 20);
	assert_int_equal(got.items.count, 4);
	assert_string_equal(got.items.items[3].body, "2");
	earlier_release(&got);
}

static void summarise(const struct uuid *now, const struct uuid *turn, uint32_t through,
                      const char *text)
{
	const struct turn_step usage = { .input_tokens = 7 };
	struct summary s = {
		.turn = *turn, .through = through, .len = strlen(text), .created_ms = 1000
	};

	s.text = strdup(text);
	assert_ok(summary_add(store, &acme, now, &s, &usage, &e));
	assert_ok(summary_add(store, &acme, now, &s, &usage, &e)); /* unheard of, say */
	summary_release(&s);
}

static void assert_summary(const struct uuid *now, const char *want)
{
	struct summary got;

	assert_ok(summary_get(store, &acme, now, &got, &e));
	if (want)
		assert_string_equal(got.text, want);
	else
		assert_null(got.text);
	summary_release(&got);
}

static void what_is_covered_is_not_read(void **state)
{
	const struct session s = new_session(&acme), other = new_session(&acme);
	struct session after;
	struct uuid first, second, now, elsewhere;
	struct earlier got;

	(void)state;
	first = said(&s, "one", "1");
	second = said(&s, "two", "2");
	(void)said(&s, "three", "3");
	now = put_turn(&s, "now");
	elsewhere = put_turn(&other, "elsewhere");
	assert_ok(turn_mark_running(store, &acme, &now, 1000, &e));
	assert_summary(&now, NULL);
	summarise(&now, &first, 1, "first");
	got = before(&now, 1 << 20); /* all of a turn */
	assert_int_equal(got.turn_count, 2);
	assert_int_equal(got.items.count, 4);
	assert_string_equal(got.items.items[0].body, "two");
	assert_int_equal(got.turns[1].first, 2);
	assert_false(got.cut);
	earlier_release(&got);
	summarise(&now, &second, 0, "second");
	got = before(&now, 1 << 20); /* a part of one, whose input stays */
	assert_int_equal(got.items.count, 4);
	assert_string_equal(got.items.items[0].body, "two");
	assert_string_equal(got.items.items[1].body, "2");
	earlier_release(&got);
	assert_summary(&now, "second");
	assert_summary(&first, "first"); /* nothing of what came later */
	assert_summary(&elsewhere, NULL);
	summarise(&now, &now, 0, "now");
	got = before(&now, 1 << 20);
	assert_int_equal(got.turn_count, 0);
	assert_false(got.cut);
	earlier_release(&got);
	assert_ok(session_get(store, &acme, &s.id, &after, &e));
	assert_int_equal(after.input_tokens, 21); /* each once */
	end_turn(&now, TURN_COMPLETED);
	end_turn(&elsewhere, TURN_COMPLETED);
	assert_ok(session_delete(store, &acme, &s.id, &e));
}

static void summaries_are_bounded(void **state)
{
	const struct turn_step usage = { .input_tokens = 1 };
	const struct session session = new_session(&acme);
	struct uuid now = put_turn(&session, "now");
	struct summary s = { .turn = now, .len = SUMMARY_MAX + 1, .created_ms = 1000 }, got;

	(void)state;
	s.text = calloc(1, SUMMARY_MAX + 1);
	assert_non_null(s.text);
	memset(s.text, 's', SUMMARY_MAX + 1);
	assert_ok(turn_mark_running(store, &acme, &now, 1000, &e));
	assert_code(summary_add(store, &acme, &now, &s, &usage, &e), STORE_CONFLICT);
	s.len = SUMMARY_MAX;
	assert_ok(summary_add(store, &acme, &now, &s, &usage, &e));
	summary_release(&s);
	assert_ok(summary_get(store, &acme, &now, &got, &e));
	assert_int_equal(got.len, SUMMARY_MAX);
	summary_release(&got);
	end_turn(&now, TURN_COMPLETED);
}

static void a_fork_has_the_summaries_of_what_it_copied(void **state)
{
	const struct session s = new_session(&acme);
	uint32_t through = 0;
	const struct session_fork fork = { .source = s.id, .through = &through };
	struct uuid first, second, now;

	(void)state;
	first = said(&s, "one", "1");
	second = said(&s, "two", "2");
	now = put_turn(&s, "now");
	assert_ok(turn_mark_running(store, &acme, &now, 1000, &e));
	summarise(&now, &first, 1, "first");
	summarise(&now, &second, 1, "second");
	end_turn(&now, TURN_COMPLETED);
	for (; through < 2; through++) {
		struct session copy = { .id = uuid_new(), .created_ms = 9, .updated_ms = 9 };

		assert_ok(session_fork(store, &acme, &fork, &copy, &e));
		now = put_turn(&copy, "now");
		assert_summary(&now, through ? "second" : "first");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(opens_the_store),
		cmocka_unit_test(all_in_order),
		cmocka_unit_test(the_first_has_none),
		cmocka_unit_test(the_newest_within_the_bound),
		cmocka_unit_test(a_fork_has_what_it_copied),
		cmocka_unit_test(what_is_covered_is_not_read),
		cmocka_unit_test(summaries_are_bounded),
		cmocka_unit_test(a_fork_has_the_summaries_of_what_it_copied),
		cmocka_unit_test(closes_the_store),
	};

	fixture_begin();
	return fixture_end(RUN_TESTS(tests));
}
