#include "common/test.h"

#include "common/buf.h"
#include "common/json.h"
#include "daemon/model/model.h"

#include <stdlib.h>
#include <string.h>

static void collect(void *ctx, const char *text, size_t len)
{
	buf_add(ctx, text, len);
}

static char *dup_text(const char *text)
{
	char *copy = strdup(text);

	if (!copy)
		abort();
	return copy;
}

static int respond(const char *input, const char *result, struct buf *text,
                   struct model_answer *ret, struct err *e)
{
	char *in = dup_text(input), *out = dup_text(result ? result : "");
	struct item items[] = {
		{ .kind = ITEM_USER, .body = in, .body_len = strlen(in) },
		{ .kind = ITEM_TOOL_RESULT, .body = out, .body_len = strlen(out) },
	};
	struct item_list transcript = { items, result ? 2 : 1 };
	struct model_prompt prompt = { .transcript = &transcript };
	struct model_sink sink = { collect, text };
	struct cancel cancel;
	int rc;

	assert_int_equal(cancel_init(&cancel, e), 0);
	rc = model_respond(model_find("demo"), &prompt, &sink, &cancel, ret, e);
	cancel_release(&cancel);
	free(in);
	free(out);
	return rc;
}

static void text_is_repeated(void **state)
{
	auto_buf struct buf text = BUF_INIT(1000);
	struct model_answer answer;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(respond("hello\nworld", NULL, &text, &answer, &e), 0);
	assert_int_equal(answer.items.count, 1);
	assert_int_equal(answer.items.items[0].kind, ITEM_ASSISTANT);
	assert_string_equal(answer.items.items[0].body, "hello\nworld");
	assert_string_equal(text.data, "hello\nworld");
	item_list_release(&answer.items);
}

static void lines_become_calls_in_order(void **state)
{
	auto_buf struct buf text = BUF_INIT(1000);
	struct model_answer answer;
	struct err e = ERR_INIT;
	struct item *items;

	(void)state;
	assert_int_equal(respond("$ echo \"a\" | b\n? Go on | yes | no\n@write_file {\"path\": 1}",
	                         NULL, &text, &answer, &e),
	                 0);
	assert_int_equal(answer.items.count, 3);
	items = answer.items.items;
	assert_string_equal(items[0].tool, "shell");
	assert_string_equal(items[0].body, "{\"command\":\"echo \\\"a\\\" | b\"}");
	assert_string_equal(items[1].tool, "ask_user");
	assert_string_equal(items[1].body, "{\"question\":\"Go on\",\"options\":[\"yes\",\"no\"]}");
	assert_string_equal(items[2].tool, "write_file");
	assert_string_equal(items[2].body, "{\"path\": 1}");
	for (int i = 0; i < 3; i++)
		assert_int_equal(items[i].call_state, CALL_PENDING);
	assert_string_not_equal(items[0].call_id, items[1].call_id);
	item_list_release(&answer.items);
}

static void the_last_result_is_the_answer(void **state)
{
	auto_buf struct buf text = BUF_INIT(1000);
	struct model_answer answer;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(respond("$ true", "out", &text, &answer, &e), 0);
	assert_string_equal(answer.items.items[0].body, "out");
	item_list_release(&answer.items);
}

static void calls_are_bounded(void **state)
{
	auto_buf struct buf text = BUF_INIT(1000), input = BUF_INIT(1000);
	struct model_answer answer;
	struct err e = ERR_INIT;

	(void)state;
	for (int i = 0; i < 64; i++)
		buf_adds(&input, "$ a\n");
	assert_int_equal(respond(input.data, NULL, &text, &answer, &e), 0);
	assert_int_equal(answer.items.count, 64);
	item_list_release(&answer.items);
	buf_adds(&input, "$ a\n");
	assert_int_equal(respond(input.data, NULL, &text, &answer, &e), -1);
	assert_int_equal(e.code, MODEL_FAILED);
}

static void a_prefix_alone_is_text(void **state)
{
	static const char *const lines[] = {
		"$", "$ ", "?", "? ", "@", "@Shell {}", "a@b", " $ ls"
	};
	auto_buf struct buf text = BUF_INIT(1000);
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
		struct model_answer answer;

		assert_int_equal(respond(lines[i], NULL, &text, &answer, &e), 0);
		assert_int_equal(answer.items.count, 1);
		assert_string_equal(answer.items.items[0].body, lines[i]);
		item_list_release(&answer.items);
	}
}

/* Colons, commas and brackets are counted, of which three come before the list's second value. */
static void values_of_a_call_are_bounded(void **state)
{
	auto_buf struct buf input = BUF_INIT((size_t)4 * JSON_VALUES_MAX);
	auto_buf struct buf text = BUF_INIT(1000);
	struct model_answer answer;
	struct err e = ERR_INIT;

	(void)state;
	buf_adds(&input, "@write_file {\"a\":[0");
	for (size_t i = 0; i < JSON_VALUES_MAX - 3; i++)
		buf_adds(&input, ",0");
	buf_adds(&input, "]}");
	assert_int_equal(respond(input.data, NULL, &text, &answer, &e), 0);
	item_list_release(&answer.items);
	buf_truncate(&input, input.len - 2);
	buf_adds(&input, ",0]}");
	assert_int_equal(respond(input.data, NULL, &text, &answer, &e), -1);
	assert_int_equal(e.code, MODEL_FAILED);
	assert_non_null(strstr(e.text, "more than 65536 values"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_is_repeated),
		cmocka_unit_test(lines_become_calls_in_order),
		cmocka_unit_test(the_last_result_is_the_answer),
		cmocka_unit_test(calls_are_bounded),
		cmocka_unit_test(values_of_a_call_are_bounded),
		cmocka_unit_test(a_prefix_alone_is_text),
	};

	return RUN_TESTS(tests);
}
