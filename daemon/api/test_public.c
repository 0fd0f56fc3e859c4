/* The public form of items: every bound, and one past it. */
#include "common/test.h"

#include "daemon/api/public.h"

#include <stdlib.h>
#include <string.h>

static struct item text_item(char *body)
{
	return (struct item){ .kind = ITEM_ASSISTANT, .body = body, .body_len = strlen(body) };
}

/* n times the character é, owned by the caller. */
static char *repeat(size_t n)
{
	char *text = calloc(n + 1, 2);

	assert_non_null(text);
	for (size_t i = 0; i < 2 * n; i++)
		text[i] = i % 2 ? '\xa9' : '\xc3';
	return text;
}

static void a_text_is_cut_past_its_bound(void **state)
{
	static const char ellipsis[] = "\xe2\x80\xa6";

	(void)state;
	for (size_t n = PUBLIC_CHARS; n <= PUBLIC_CHARS + 1; n++) {
		struct public_budget budget = PUBLIC_BUDGET;
		char *body = repeat(n);
		struct item item = text_item(body);
		struct json *o = public_item(&item, &budget);
		const char *text = json_str(json_get(o, "text"));
		bool cut = n > PUBLIC_CHARS;

		assert_int_equal(strlen(text), (size_t)2 * PUBLIC_CHARS + (cut ? 3 : 0));
		assert_int_equal(json_bool(json_get(o, "textTruncated")), cut);
		assert_int_equal(budget.exceeded, cut);
		assert_int_equal(budget.chars, PUBLIC_TURN_CHARS - PUBLIC_CHARS);
		if (cut)
			assert_string_equal(text + (size_t)2 * PUBLIC_CHARS, ellipsis);
		json_free(&o);
		free(body);
	}
}

static void a_beginning_is_marked_though_it_fits(void **state)
{
	struct public_budget budget = PUBLIC_BUDGET;
	char body[] = "begins";
	struct item item = text_item(body);
	struct json *o;

	(void)state;
	item.beginning = true;
	o = public_item(&item, &budget);
	assert_true(json_bool(json_get(o, "textTruncated")));
	assert_true(budget.exceeded);
	json_free(&o);
}

static void characters_of_a_turn_run_out(void **state)
{
	struct public_budget budget = PUBLIC_BUDGET;
	char *body = repeat(PUBLIC_CHARS);
	struct item item = text_item(body);
	size_t total = 0;

	(void)state;
	for (int i = 0; i < 8; i++) {
		struct json *o = public_item(&item, &budget);

		assert_non_null(o);
		assert_int_equal(json_bool(json_get(o, "textTruncated")), i >= 4);
		total += strlen(json_str(json_get(o, "text")));
		json_free(&o);
	}
	assert_int_equal(budget.chars, 0);
	assert_true(budget.exceeded);
	assert_int_equal(total, 2 * PUBLIC_TURN_CHARS + 4 * 3);
	free(body);
}

/* An item of text is five values: itself, seq, kind, text and its mark. */
static void values_of_a_turn_run_out(void **state)
{
	struct public_budget budget = PUBLIC_BUDGET;
	char body[] = "x";
	struct item item = text_item(body);
	size_t given = 0;

	(void)state;
	for (int i = 0; i < 1000; i++) {
		struct json *o = public_item(&item, &budget);

		given += o != NULL;
		json_free(&o);
	}
	assert_int_equal(given, PUBLIC_TURN_NODES / 5);
	assert_true(budget.exceeded);
}

static void details_count_as_values(void **state)
{
	struct public_budget budget = PUBLIC_BUDGET;
	char body[] = "x", details[] = "{\"reason\":\"done\",\"list\":[1,2]}";
	struct item item = { .kind = ITEM_TOOL_RESULT, .body = body, .body_len = 1 };
	struct json *o;

	(void)state;
	item.details = details;
	o = public_item(&item, &budget);
	assert_int_equal(budget.nodes, PUBLIC_TURN_NODES - 9 - 5);
	assert_string_equal(json_str(json_get(json_get(o, "details"), "reason")), "done");
	json_free(&o);
	item.details = NULL;
	o = public_item(&item, &budget);
	assert_int_equal(json_type(json_get(o, "details")), JSON_NULL);
	json_free(&o);
}

static void bytes_that_are_no_text_are_repaired(void **state)
{
	struct public_budget budget = PUBLIC_BUDGET;
	char body[] = "a\xff\0b";
	struct item item = {
		.kind = ITEM_TOOL_CALL, .call_state = CALL_DONE, .body = body, .body_len = 4
	};
	struct json *o = public_item(&item, &budget);

	(void)state;
	assert_string_equal(json_str(json_get(o, "arguments")), "a\xef\xbf\xbd\xef\xbf\xbd"
	                                                        "b");
	assert_false(json_bool(json_get(o, "argumentsRedacted")));
	json_free(&o);
}

static void assert_arguments(const char *arguments, const char *shown)
{
	struct json *o = json_new_object();
	struct item item = { .kind = ITEM_TOOL_CALL, .body = strdup(arguments) };

	item.body_len = strlen(arguments);
	public_put_arguments(o, "a", &item, 200);
	assert_string_equal(json_str(json_get(o, "a")), shown);
	json_free(&o);
	free(item.body);
}

static void only_secrets_are_redacted(void **state)
{
	(void)state;
	assert_arguments("{ \"a\":1 }", "{ \"a\":1 }");
	assert_arguments("{\"encrypted_content\":\"x\",\"b\":[1]}",
	                 "{\"encrypted_content\":\"[redacted]\",\"b\":[1]}");
	assert_arguments("[[{\"EncryptedFunction_Args\":{\"k\":1}}]]",
	                 "[[{\"EncryptedFunction_Args\":\"[redacted]\"}]]");
	assert_arguments("{\"encrypted_content_\":0, \"x\":1}",
	                 "{\"encrypted_content_\":\"[redacted]\",\"x\":1}");
	assert_arguments("{\"encrypted_contents\": 1}", "{\"encrypted_contents\": 1}");
	assert_arguments("{\"a_very_long_name_that_is_none_of_them\": 1}",
	                 "{\"a_very_long_name_that_is_none_of_them\": 1}");
	assert_arguments("{\"encrypted_content\": \"not JSON", "[redacted]");
	assert_arguments("{\"content\": \"not JSON", "{\"content\": \"not JSON");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_text_is_cut_past_its_bound),
		cmocka_unit_test(a_beginning_is_marked_though_it_fits),
		cmocka_unit_test(characters_of_a_turn_run_out),
		cmocka_unit_test(values_of_a_turn_run_out),
		cmocka_unit_test(details_count_as_values),
		cmocka_unit_test(bytes_that_are_no_text_are_repaired),
		cmocka_unit_test(only_secrets_are_redacted),
	};

	return RUN_TESTS(tests);
}
