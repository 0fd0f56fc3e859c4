#include "common/test.h"

#include "common/attr.h"
#include "common/buf.h"
#include "daemon/turn/guard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct item items[64];
static struct item_list list = { items, 0 };

static void begin(void)
{
	items[0] = (struct item){ .kind = ITEM_USER };
	list.count = 1;
}

static char *copy(const char *text)
{
	auto_buf struct buf out = BUF_INIT(strlen(text));

	buf_adds(&out, text);
	return buf_take(&out);
}

static void put(enum item_kind kind, unsigned int call, const char *tool, const char *body)
{
	struct item *item = &items[list.count++];

	*item = (struct item){ .kind = kind, .body_len = strlen(body) };
	item->body = copy(body);
	(void)snprintf(item->call_id, sizeof(item->call_id), "c%u", call);
	(void)snprintf(item->tool, sizeof(item->tool), "%s", tool);
}

static void end(void)
{
	for (size_t i = 0; i < list.count; i++) {
		free(items[i].body);
		free(items[i].details);
	}
	list.count = 0;
}

static void called(unsigned int n, const char *tool, const char *arguments, const char *result)
{
	put(ITEM_TOOL_CALL, n, tool, arguments);
	put(ITEM_TOOL_RESULT, n, tool, result);
}

static void steps_are_answers(void **state)
{
	(void)state;
	begin();
	assert_int_equal(guard_steps(&list), 0);
	put(ITEM_ASSISTANT, 0, "", "text");
	put(ITEM_TOOL_CALL, 1, "a", "{}"); /* of the same answer, and so is the next */
	put(ITEM_TOOL_CALL, 2, "a", "{}");
	assert_int_equal(guard_steps(&list), 1);
	put(ITEM_TOOL_RESULT, 1, "a", "");
	put(ITEM_TOOL_RESULT, 2, "a", "");
	assert_int_equal(guard_steps(&list), 1);
	called(3, "a", "{}", ""); /* an answer without a word counts, too */
	assert_int_equal(guard_steps(&list), 2);
	end();
}

/* Also among calls of one answer, whose results stand behind them all. */
static void the_same_failure_in_a_row(void **state)
{
	(void)state;
	for (int apart = 0; apart <= 1; apart++) {
		begin();
		called(90, "a", "{}", "error: x");
		called(91, "a", "{\"b\":1}", "fine");
		for (unsigned int i = 0; i < GUARD_REPEATS; i++) {
			assert_null(guard_loop(&list));
			if (apart)
				called(i, "a", "{\"b\":1}", "error: x");
			else
				put(ITEM_TOOL_CALL, i, "a", "{\"b\":1}");
		}
		for (unsigned int i = 0; !apart && i < GUARD_REPEATS; i++) {
			assert_null(guard_loop(&list));
			put(ITEM_TOOL_RESULT, i, "a", "error: x");
		}
		assert_non_null(guard_loop(&list));
		assert_string_equal(guard_loop(&list)->tool, "a");
		called(92, "a", "{\"b\":1}", "error: x"); /* one more is the same */
		assert_non_null(guard_loop(&list));
		called(93, "a", "{\"b\":1}", "fine");
		assert_null(guard_loop(&list));
		end();
	}
}

/* One of them is different in one thing. */
static void a_difference_is_progress(void **state)
{
	static const struct {
		const char *tool, *arguments, *result;
	} others[] = { { "b", "{}", "error: x" },
		       { "a", "{ }", "error: x" },
		       { "a", "{}", "error: y" },
		       { "a", "{}", "fine" } };

	(void)state;
	for (size_t k = 0; k < ARRAY_LEN(others); k++) {
		for (unsigned int at = 0; at < GUARD_REPEATS; at++) {
			begin();
			for (unsigned int i = 0; i < GUARD_REPEATS; i++) {
				if (i == at)
					called(i, others[k].tool, others[k].arguments,
					       others[k].result);
				else
					called(i, "a", "{}", "error: x");
			}
			assert_null(guard_loop(&list));
			end();
		}
	}
}

static void what_a_failure_is(void **state)
{
	static const struct {
		const char *result, *details;
		bool fails;
	} cases[] = {
		{ "error: x", NULL, true },
		{ "x\n[exit code 1]", "{\"reason\":\"exited\",\"exitCode\":1,\"signal\":null}",
		  true },
		{ "x", "{\"reason\":\"exited\",\"exitCode\":null,\"signal\":9}", true },
		{ "x", "{\"reason\":\"exited\",\"exitCode\":0,\"signal\":null}", false },
		{ "x", "{\"reason\":\"done\"}", false },
		{ "error", NULL, false },
		{ "", NULL, false },
	};

	(void)state;
	for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
		begin();
		for (unsigned int i = 0; i < GUARD_REPEATS; i++) {
			called(i, "a", "{}", cases[k].result);
			if (cases[k].details)
				items[list.count - 1].details = copy(cases[k].details);
		}
		assert_int_equal(guard_loop(&list) != NULL, cases[k].fails);
		end();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(steps_are_answers),
		cmocka_unit_test(the_same_failure_in_a_row),
		cmocka_unit_test(a_difference_is_progress),
		cmocka_unit_test(what_a_failure_is),
	};

	return RUN_TESTS(tests);
}
