#include "common/test.h"

#include "daemon/model/answer.h"
#include "daemon/model/fault.h"

#include <string.h>

#define ORIGIN "0123456789abcdef0123456789abcdef"

static void say(struct answer *a, enum said_kind kind, unsigned int call, const char *words)
{
	const struct said said = {
		.kind = kind, .call = call, .text = words, .len = strlen(words)
	};

	answer_take(a, &said);
}

static void stop(struct answer *a, enum stop why)
{
	const struct said said = { .kind = SAID_STOP, .stop = why };

	answer_take(a, &said);
}

static void an_answer_becomes_items(void **state)
{
	struct item_list list = { NULL, 0 };
	struct err e = ERR_INIT;
	struct answer a;

	(void)state;
	answer_init(&a, 0);
	say(&a, SAID_REASONING, 0, "hm");
	say(&a, SAID_CALL, 0, "shell");
	say(&a, SAID_CALL, 1, "read_file");
	say(&a, SAID_ARGUMENTS, 1, "{\"a\"");
	say(&a, SAID_TEXT, 0, "I ");
	say(&a, SAID_ARGUMENTS, 1, ":1}");
	say(&a, SAID_TEXT, 0, "look");
	stop(&a, STOP_CALLS);
	assert_int_equal(answer_items(&a, ORIGIN, &list, &e), 0);
	assert_int_equal(list.count, 4);
	assert_int_equal(list.items[0].kind, ITEM_REASONING);
	assert_string_equal(list.items[0].body, "hm");
	assert_true(!list.items[0].sealed && !list.items[0].opaque);
	assert_string_equal(list.items[1].tool, "shell");
	assert_string_equal(list.items[1].body, "{}");
	assert_string_equal(list.items[2].body, "{\"a\":1}");
	assert_int_equal(list.items[2].call_state, CALL_PENDING);
	assert_string_not_equal(list.items[1].call_id, list.items[2].call_id);
	assert_int_equal(list.items[3].kind, ITEM_ASSISTANT);
	assert_string_equal(list.items[3].body, "I look");
	item_list_release(&list);
	answer_release(&a);
}

/* Between what it led to, so that it can go back in its place; the last of it led to nothing. */
static void reasoning_keeps_its_place(void **state)
{
	struct item_list list = { NULL, 0 };
	struct err e = ERR_INIT;
	struct answer a;

	(void)state;
	answer_init(&a, 0);
	say(&a, SAID_REASONING_END, 0, "{\"hidden\":1}");
	say(&a, SAID_REASONING, 0, "one");
	say(&a, SAID_REASONING_END, 0, "{\"n\":1}");
	say(&a, SAID_TEXT, 0, "first");
	say(&a, SAID_REASONING, 0, "two");
	say(&a, SAID_REASONING_END, 0, "");
	say(&a, SAID_REASONING, 0, "three");
	say(&a, SAID_TEXT, 0, "second");
	say(&a, SAID_REASONING, 0, "four");
	stop(&a, STOP_END);
	assert_int_equal(answer_items(&a, ORIGIN, &list, &e), 0);
	assert_int_equal(list.count, 6);
	assert_string_equal(list.items[0].body, "");
	assert_string_equal(list.items[0].opaque, "{\"hidden\":1}");
	assert_string_equal(list.items[1].body, "one");
	assert_string_equal(list.items[1].opaque, "{\"n\":1}");
	assert_int_equal(list.items[1].opaque_len, 7);
	assert_string_equal(list.items[1].origin, ORIGIN);
	assert_string_equal(list.items[2].body, "first");
	assert_string_equal(list.items[3].body, "two");
	assert_null(list.items[3].opaque);
	assert_string_equal(list.items[4].body, "three");
	assert_string_equal(list.items[5].body, "second");
	item_list_release(&list);
	answer_release(&a);
}

/* Back and forth for as long as one likes, and then all calls still have their place. */
static void parts_are_bounded(void **state)
{
	struct item_list list = { NULL, 0 };
	struct err e = ERR_INIT;
	struct answer a;

	(void)state;
	answer_init(&a, 0);
	for (int i = 0; i < 1000; i++) {
		say(&a, SAID_REASONING, 0, "r");
		say(&a, SAID_REASONING_END, 0, "{}");
		say(&a, SAID_TEXT, 0, "t");
	}
	for (unsigned int i = 0; i < READER_CALLS_MAX; i++)
		say(&a, SAID_CALL, i, "shell");
	stop(&a, STOP_CALLS);
	assert_true(a.part_count <= ANSWER_PARTS_MAX);
	assert_int_equal(answer_items(&a, ORIGIN, &list, &e), 0);
	assert_int_equal(list.items[list.count - READER_CALLS_MAX].kind, ITEM_TOOL_CALL);
	for (size_t i = 0; i < list.count; i++)
		if (list.items[i].kind == ITEM_REASONING)
			assert_string_equal(list.items[i].opaque, "{}");
	item_list_release(&list);
	answer_release(&a);
}

static void what_was_shown_is_kept(void **state)
{
	struct item_list list = { NULL, 0 };
	struct answer a;

	(void)state;
	answer_init(&a, 0);
	say(&a, SAID_REASONING, 0, "hm");
	say(&a, SAID_CALL, 0, "shell");
	answer_discard(&a, "why", &list);
	assert_int_equal(list.count, 0); /* not a word was */
	say(&a, SAID_TEXT, 0, "I ");
	say(&a, SAID_REASONING, 0, "hm");
	say(&a, SAID_TEXT, 0, "look");
	answer_discard(&a, "it \"fell\"", &list);
	assert_int_equal(list.count, 1);
	assert_int_equal(list.items[0].kind, ITEM_DISCARDED);
	assert_string_equal(list.items[0].body, "I look");
	assert_string_equal(list.items[0].details, "{\"reason\":\"it \\\"fell\\\"\"}");
	assert_false(list.items[0].truncated);
	item_list_release(&list);
	answer_release(&a);
}

/* One byte more than is kept, which ends in the middle of a character. */
static void what_is_kept_is_bounded(void **state)
{
	static char text[ANSWER_KEPT_MAX + 2];

	(void)state;
	for (size_t more = 0; more < 2; more++) {
		struct item_list list = { NULL, 0 };
		struct answer a;

		memset(text, 'x', sizeof(text) - 1);
		text[ANSWER_KEPT_MAX + more] = '\0';
		memcpy(text + ANSWER_KEPT_MAX + more - 2, "\xc3\xa9", 2);
		answer_init(&a, 0);
		say(&a, SAID_TEXT, 0, text);
		answer_discard(&a, "why", &list);
		assert_int_equal(list.items[0].body_len, ANSWER_KEPT_MAX - more);
		assert_int_equal(list.items[0].truncated, more);
		item_list_release(&list);
		answer_release(&a);
	}
}

static void no_answer(enum stop why, bool call, const char *words, int code)
{
	struct item_list list = { NULL, 0 };
	struct err e = ERR_INIT;
	struct answer a;

	answer_init(&a, 0);
	if (call)
		say(&a, SAID_CALL, 0, "shell");
	if (*words)
		say(&a, SAID_TEXT, 0, words);
	stop(&a, why);
	assert_int_equal(answer_items(&a, ORIGIN, &list, &e), code ? -1 : 0);
	assert_int_equal(e.code, code);
	assert_int_equal(list.count, code ? 0 : 1);
	item_list_release(&list);
	answer_release(&a);
}

static void what_is_no_answer(void **state)
{
	(void)state;
	no_answer(STOP_END, false, "", MODEL_EMPTY);
	no_answer(STOP_CALLS, false, "", MODEL_EMPTY);
	no_answer(STOP_REFUSAL, false, "", MODEL_FAILED);
	no_answer(STOP_LENGTH, false, "", MODEL_FAILED);
	no_answer(STOP_LENGTH, true, "", MODEL_FAILED);
	no_answer(STOP_LENGTH, true, "well", MODEL_FAILED);
	no_answer(STOP_LENGTH, false, "well", 0);
	no_answer(STOP_REFUSAL, false, "no", 0);
	no_answer(STOP_END, true, "", 0);
}

/* An item's text, arguments, and what goes back of reasoning. */
static void an_item_is_bounded(void **state)
{
	static const enum said_kind kinds[] = { SAID_TEXT, SAID_REASONING, SAID_REASONING_END,
		                                SAID_ARGUMENTS };
	static char block[ANSWER_ITEM_MAX + 2];

	(void)state;
	memset(block, 'x', ANSWER_ITEM_MAX);
	for (size_t i = 0; i < 2 * ARRAY_LEN(kinds); i++) {
		struct item_list list = { NULL, 0 };
		struct err e = ERR_INIT;
		struct answer a;
		bool more = i % 2;

		block[ANSWER_ITEM_MAX] = more ? 'x' : '\0';
		answer_init(&a, 0);
		say(&a, SAID_CALL, 0, "shell");
		say(&a, kinds[i / 2], 0, block);
		stop(&a, STOP_CALLS);
		assert_int_equal(answer_items(&a, ORIGIN, &list, &e), more ? -1 : 0);
		assert_int_equal(e.code, more ? MODEL_FAILED : 0);
		assert_int_equal(list.count > 0, !more);
		item_list_release(&list);
		answer_release(&a);
	}
}

/* Everything that is stored counts, also what nobody reads. */
static void all_of_it_counts(void **state)
{
	static const enum said_kind kinds[] = { SAID_TEXT, SAID_REASONING, SAID_REASONING_END,
		                                SAID_ARGUMENTS };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		struct err e = ERR_INIT;
		struct answer a;

		answer_init(&a, 4);
		say(&a, SAID_CALL, 0, "shell");
		say(&a, kinds[i], 0, "1234");
		assert_int_equal(answer_check(&a, &e), 0);
		say(&a, kinds[i] == SAID_REASONING_END ? SAID_TEXT : kinds[i], 0, "5");
		assert_int_equal(answer_check(&a, &e), -1);
		assert_int_equal(e.code, MODEL_TOO_LONG);
		answer_release(&a);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_answer_becomes_items),
		cmocka_unit_test(reasoning_keeps_its_place),
		cmocka_unit_test(parts_are_bounded),
		cmocka_unit_test(what_was_shown_is_kept),
		cmocka_unit_test(what_is_kept_is_bounded),
		cmocka_unit_test(what_is_no_answer),
		cmocka_unit_test(an_item_is_bounded),
		cmocka_unit_test(all_of_it_counts),
	};

	return RUN_TESTS(tests);
}
