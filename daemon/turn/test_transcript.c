#include "common/test.h"

#include "daemon/turn/transcript.h"

#include <stdlib.h>
#include <string.h>

static struct item text_item(uint32_t seq, const char *text)
{
	return (struct item){
		.seq = seq, .kind = ITEM_ASSISTANT, .body = strdup(text), .body_len = strlen(text)
	};
}

/* One that was read, with its input. */
static struct transcript begun(void)
{
	struct transcript t = { .known = true };

	t.list.items = calloc(1, sizeof(*t.list.items));
	assert_non_null(t.list.items);
	t.list.count = t.room = 1;
	return t;
}

static void what_is_added_follows(void **state)
{
	struct transcript t = begun();

	(void)state;
	for (uint32_t i = 1; i <= 300; i++) {
		struct item items[] = { text_item(i * 2 - 1, "ab"), text_item(i * 2, "cde") };

		items[0].opaque = strdup("opaque");
		items[0].opaque_len = 6;
		transcript_add(&t, items, 2);
		assert_null(items[0].body); /* taken */
		assert_null(items[0].opaque);
		assert_null(items[1].body);
	}
	assert_true(t.known);
	assert_int_equal(t.list.count, 601);
	assert_int_equal(t.bytes, 300 * 11);
	for (uint32_t i = 0; i < t.list.count; i++)
		assert_int_equal(t.list.items[i].seq, i);
	assert_string_equal(t.list.items[600].body, "cde");
	transcript_forget(&t);
	assert_int_equal(t.bytes, 0);
	assert_null(t.list.items);
}

static void what_does_not_follow_is_asked_for_again(void **state)
{
	static const uint32_t wrong[] = { 0, 2, 7 };

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct transcript t = begun();
		struct item item = text_item(wrong[i], "x");

		transcript_add(&t, &item, 1);
		assert_false(t.known);
		assert_int_equal(t.list.count, 0);
		assert_non_null(item.body);   /* still the caller's */
		transcript_add(&t, &item, 1); /* and nothing is added to what is not known */
		assert_false(t.known);
		free(item.body);
	}
}

static void states_of_calls_are_kept(void **state)
{
	struct transcript t = begun();
	struct item call = text_item(1, "{}");

	(void)state;
	call.kind = ITEM_TOOL_CALL;
	call.call_state = CALL_PENDING;
	transcript_add(&t, &call, 1);
	transcript_mark(&t, 1, CALL_STARTED);
	assert_int_equal(t.list.items[1].call_state, CALL_STARTED);
	transcript_mark(&t, 2, CALL_DONE); /* beyond the end: nothing */
	transcript_forget(&t);
	transcript_mark(&t, 1, CALL_DONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_added_follows),
		cmocka_unit_test(what_does_not_follow_is_asked_for_again),
		cmocka_unit_test(states_of_calls_are_kept),
	};

	return RUN_TESTS(tests);
}
