#include "common/test.h"

#include "common/fd.h"
#include "common/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * What another reader (Python's json module) does with the same text is noted
 * where it differs: those are the places at which I-JSON is stricter than JSON.
 */
static const struct {
	const char *text;
	const char *error; /* NULL: accepted */
} cases[] = {
	{ "0", NULL },
	{ "-0", NULL },
	{ "-1.5e+3", NULL },
	{ "1E5", NULL },
	{ "1e-400", NULL }, /* becomes 0 */
	{ " \t\r\n[ ]\n", NULL },
	{ "{ }", NULL },
	{ "[null, true, false, \"\", {\"\": []}]", NULL },
	{ "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0001\\uD83D\\ude00\"", NULL },
	{ "\"\x7f\xc3\xa9\xf0\x9f\x98\x80\xef\xbf\xbf\"", NULL },
	{ "9007199254740991", NULL },
	{ "-9007199254740991", NULL },
	{ "1.7976931348623157e308", NULL },
	{ "{\"a\":{\"a\":1},\"b\":[{\"a\":1},{\"a\":1}]}", NULL },
	{ "{\"a\":1,\"A\":1,\"aa\":1,\"\":1}", NULL },

	{ "", "line 1, column 1: the text ends too early" },
	{ " \n", "line 2, column 1: the text ends too early" },
	{ "[", "line 1, column 2: the text ends too early" },
	{ "{\"a\"", "line 1, column 5: the text ends too early" },
	{ "\"a", "line 1, column 3: the text ends too early" },
	{ "\"a\\", "line 1, column 4: the text ends too early" },
	{ "-", "line 1, column 2: the text ends too early" },
	{ "1.", "line 1, column 3: the text ends too early" },
	{ "1e+", "line 1, column 4: the text ends too early" },
	{ "1 2", "line 1, column 3: more text after the value" },
	{ "{}}", "line 1, column 3: more text after the value" },
	{ "[1,]", "line 1, column 4: expected a value" },
	{ "[,1]", "line 1, column 2: expected a value" },
	{ "[1 2]", "line 1, column 4: expected ',' or ']'" },
	{ "[1}", "line 1, column 3: expected ',' or ']'" },
	{ "{\"a\":1,}", "line 1, column 8: expected a key in double quotes" },
	{ "{a:1}", "line 1, column 2: expected a key in double quotes" },
	{ "{\"a\" 1}", "line 1, column 6: expected ':'" },
	{ "{\"a\":1 \"b\":2}", "line 1, column 8: expected ',' or '}'" },
	{ "{\"a\":}", "line 1, column 6: expected a value" },
	{ "'a'", "line 1, column 1: expected a value" },
	{ "[\n  1, // one\n]", "line 2, column 6: expected a value" },
	{ "nul", "line 1, column 1: expected a value" },
	{ "True", "line 1, column 1: expected a value" },
	{ "truex", "line 1, column 5: more text after the value" },
	{ "01", "line 1, column 2: a number must not start with 0" },
	{ "-01", "line 1, column 3: a number must not start with 0" },
	{ "+1", "line 1, column 1: expected a value" },
	{ ".5", "line 1, column 1: expected a value" },
	{ "1.e5", "line 1, column 3: a number needs a digit here" },
	{ "-a", "line 1, column 2: a number needs a digit here" },
	{ "1ee", "line 1, column 3: a number needs a digit here" },
	{ "0x10", "line 1, column 2: more text after the value" },
	{ "\"a\nb\"", "line 1, column 3: control character in a string" },
	{ "\"\x1f\"", "line 1, column 2: control character in a string" },
	{ "{\"a\x1f\":1}", "line 1, column 4: control character in a string" },
	{ "\"\\x\"", "line 1, column 3: unknown escape" },
	{ "\"\\u12g4\"", "line 1, column 2: \\u without four hex digits" },
	{ "\"\\u12", "line 1, column 2: \\u without four hex digits" },
	{ "\"\xff\"", "line 1, column 2: not UTF-8" },
	{ "\"\xc3\xa9\xc3\"", "line 1, column 3: not UTF-8" },
	{ "\"\xed\xa0\x80\"", "line 1, column 2: not UTF-8" },
	{ "\"\xc0\x80\"", "line 1, column 2: not UTF-8" },
	{ "\xef\xbb\xbf{}", "line 1, column 1: expected a value" },
	{ "\xc2\xa0"
	  "1",
	  "line 1, column 1: expected a value" },

	/* Python accepts all of these. */
	{ "NaN", "line 1, column 1: expected a value" },
	{ "-Infinity", "line 1, column 2: a number needs a digit here" },
	{ "1e400", "line 1, column 1: number too large" },
	{ "[-1e309]", "line 1, column 2: number too large" },
	{ "9007199254740992", "line 1, column 1: integer beyond 9007199254740991" },
	{ "-9007199254740992", "line 1, column 1: integer beyond 9007199254740991" },
	{ "99999999999999999999", "line 1, column 1: integer beyond 9007199254740991" },
	{ "\"\\u0000\"", "line 1, column 2: U+0000 is not allowed" },
	{ "\"\\ud800\"", "line 1, column 2: lone surrogate" },
	{ "\"\\ud800\\u0041\"", "line 1, column 2: lone surrogate" },
	{ "\"\\ud800\\ud800\"", "line 1, column 2: lone surrogate" },
	{ "\"a\\udc00\"", "line 1, column 3: lone surrogate" },
	{ "\"\\ud83d\\ude0\"", "line 1, column 2: lone surrogate" },
	{ "{\"a\":1,\"a\":2}", "line 1, column 8: duplicate key \"a\"" },
	{ "{\"a\":1,\n \"b\":2,\"\\u0061\":3}", "line 2, column 8: duplicate key \"a\"" },
	{ "{\"\":1,\"\":1}", "line 1, column 7: duplicate key \"\"" },
	{ "{\"z\":1,\"z\":1,\"a\":1,\"a\":1}", "line 1, column 8: duplicate key \"z\"" },
	{ "{\"a\":1,\"b\":{\"c\":1},\"a\":2}", "line 1, column 20: duplicate key \"a\"" },
	{ "{\"\\n\":1,\"\\n\":1}", "line 1, column 9: duplicate key \"?\"" },
};

static void check_both(const char *text, size_t len, const char *error)
{
	auto_json struct json *v = NULL;
	/* An exact copy on the heap, so that reading past the end is seen. */
	auto_free char *copy = malloc(len + !len);
	struct err e = ERR_INIT, again = ERR_INIT;

	assert_non_null(copy);
	memcpy(copy, text, len);
	assert_int_equal(json_check(copy, len, &e), error ? -1 : 0);
	assert_int_equal(json_parse(copy, len, &v, &again), error ? -1 : 0);
	assert_string_equal(e.text, error ? error : "");
	assert_string_equal(again.text, error ? error : "");
	assert_int_equal(e.code, error ? EINVAL : 0);
	assert_true(error ? !v : !!v);
}

static void test_grammar(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		check_both(cases[i].text, strlen(cases[i].text), cases[i].error);
}

static void test_nul_bytes(void **state)
{
	(void)state;
	check_both("\"a\0b\"", 5, "line 1, column 3: U+0000 is not allowed");
	check_both("1\0", 2, "line 1, column 2: more text after the value");
	check_both("[\0]", 3, "line 1, column 2: expected a value");
}

static void test_depth(void **state)
{
	char text[200];
	int n = JSON_MAX_DEPTH;

	(void)state;
	memset(text, '[', (size_t)n);
	memset(text + n, ']', (size_t)n);
	check_both(text, 2 * (size_t)n, NULL);
	memset(text, '[', (size_t)n + 1);
	memset(text + n + 1, ']', (size_t)n + 1);
	check_both(text, 2 * (size_t)n + 2, "line 1, column 65: more than 64 levels");
	/* The depth is that of the open values, not a count of all. */
	check_both("[[],[],[{}]]", 12, NULL);
}

static void test_depth_costs_no_stack(void **state)
{
	size_t n = 16u << 20;
	auto_free char *text = malloc(n);
	struct err e = ERR_INIT;

	(void)state;
	assert_non_null(text);
	memset(text, '[', n);
	assert_int_equal(json_check(text, n, &e), -1);
	assert_string_equal(e.text, "line 1, column 65: more than 64 levels");
}

static void test_long_number(void **state)
{
	char text[600];

	(void)state;
	memset(text, '0', sizeof(text));
	text[0] = '1';
	text[1] = '.';
	check_both(text, 512, NULL);
	check_both(text, 513, "line 1, column 1: number of more than 512 characters");
}

static void test_long_duplicate_is_cut(void **state)
{
	auto_buf struct buf b = BUF_INIT(2000);
	struct err e = ERR_INIT;

	(void)state;
	buf_addc(&b, '{');
	for (int twice = 0; twice < 2; twice++) {
		buf_adds(&b, twice ? ",\"x" : "\"x");
		for (int i = 0; i < 40; i++)
			buf_adds(&b, "\xc3\xa9");
		buf_adds(&b, "\":1");
	}
	buf_addc(&b, '}');
	assert_int_equal(json_check(b.data, b.len, &e), -1);
	assert_non_null(strstr(e.text, "\xc3\xa9...\""));
}

/* Each of these would take minutes if keys were compared in pairs. */
static void test_many_keys(void **state)
{
	size_t max = 16u << 20;
	auto_buf struct buf b = BUF_INIT(max);
	struct err e = ERR_INIT;
	size_t good;

	(void)state;
	buf_addc(&b, '{');
	for (unsigned int i = 0; i < 1000000; i++)
		buf_addf(&b, "%s\"%x\":0", i ? "," : "", i);
	good = b.len;
	buf_addc(&b, '}');
	assert_false(buf_failed(&b));
	assert_int_equal(json_check(b.data, b.len, &e), 0);
	b.len = good;
	buf_adds(&b, ",\"7\":0}");
	assert_int_equal(json_check(b.data, b.len, &e), -1);
	assert_non_null(strstr(e.text, "duplicate key \"7\""));
}

static struct json *parse(const char *text)
{
	struct json *v = NULL;
	struct err e = ERR_INIT;

	assert_int_equal(json_parse(text, strlen(text), &v, &e), 0);
	return v;
}

static void test_reading(void **state)
{
	auto_json struct json *v = parse(
		"{\"s\":\"h\\u00e9\",\"i\":-7,\"d\":2.5,\"t\":true,\"n\":null,\"a\":[1,null]}");

	(void)state;
	assert_int_equal(json_type(v), JSON_OBJECT);
	assert_string_equal(json_str(json_get(v, "s")), "h\xc3\xa9");
	assert_int_equal(json_str_len(json_get(v, "s")), 3);
	assert_int_equal(json_int(json_get(v, "i")), -7);
	assert_true(json_double(json_get(v, "d")) == 2.5);
	assert_true(json_double(json_get(v, "i")) == -7);
	assert_true(json_bool(json_get(v, "t")));
	assert_int_equal(json_len(json_get(v, "a")), 2);
	assert_int_equal(json_int(json_at(json_get(v, "a"), 0)), 1);
	/* null is a value, absent is none. */
	assert_non_null(json_get(v, "n"));
	assert_int_equal(json_type(json_get(v, "n")), JSON_NULL);
	assert_non_null(json_at(json_get(v, "a"), 1));
	assert_null(json_at(json_get(v, "a"), 2));
	assert_null(json_get(v, "absent"));
}

static void test_wrong_types_are_harmless(void **state)
{
	auto_json struct json *v = parse("{\"s\":\"x\",\"n\":null,\"i\":1}");
	const struct json *s = json_get(v, "s"), *none = json_get(v, "absent");

	(void)state;
	assert_null(json_str(json_get(v, "i")));
	assert_null(json_str(none));
	assert_null(json_str(json_get(v, "n")));
	assert_int_equal(json_str_len(none), 0);
	assert_int_equal(json_int(s), 0);
	assert_int_equal(json_int(none), 0);
	assert_true(json_double(s) == 0);
	assert_false(json_bool(s));
	assert_int_equal(json_len(v), 0);
	assert_null(json_at(s, 0));
	assert_null(json_get(s, "x"));
	assert_null(json_get(none, "x"));
	assert_int_equal(json_type(none), JSON_NULL);
}

static void gather(void *ctx, const char *key, const struct json *value)
{
	assert_non_null(value);
	buf_addf(ctx, "%s=%d ", key, (int)json_type(value));
}

static void test_each_keeps_order(void **state)
{
	auto_json struct json *v = parse("{\"z\":1,\"a\":null,\"m\":\"\",\"b\":[]}");
	auto_buf struct buf seen = BUF_INIT(100);

	(void)state;
	json_each(v, gather, &seen);
	assert_string_equal(seen.data, "z=2 a=0 m=4 b=5 ");
}

static const struct json_field fields[] = {
	{ "id", JSON_STRING, .required = true },
	{ "size", JSON_INT },
	{ "ratio", JSON_DOUBLE, .nullable = true },
	{ "extra", JSON_ANY },
};

static void note(void *ctx, const char *path, const char *text)
{
	buf_addf(ctx, "%s: %s\n", path, text);
}

static const struct {
	const char *text;
	const char *path;
	const char *faults;
} tables[] = {
	{ "{\"id\":\"a\"}", "", "" },
	{ "{\"id\":\"a\",\"size\":1,\"ratio\":1,\"extra\":{}}", "", "" },
	{ "{\"id\":\"a\",\"ratio\":null}", "", "" },
	{ "{\"ratio\":1.5}", "", "id: required field is missing\n" },
	{ "{\"id\":null}", "x", "x.id: expected a string, found null\n" },
	{ "{\"id\":\"a\",\"size\":null}", "", "size: expected an integer, found null\n" },
	{ "{\"id\":\"a\",\"size\":1.0}", "", "size: expected an integer, found a number\n" },
	{ "{\"id\":\"a\",\"extra\":null}", "",
	  "extra: expected a value other than null, found null\n" },
	{ "[]", "x[1]", "x[1]: expected an object, found an array\n" },
	{ "{\"y\":1,\"size\":\"1\",\"Id\":2,\"ratio\":true}", "t[0]",
	  "t[0].y: unknown field\nt[0].Id: unknown field\n"
	  "t[0].id: required field is missing\n"
	  "t[0].size: expected an integer, found a string\n"
	  "t[0].ratio: expected a number, found a boolean\n" },
	{ "{\"id\":\"\",\"a\\nb\\u007f\":1}", "", "a?b?: unknown field\n" },
};

static void test_fields(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
		auto_json struct json *v = parse(tables[i].text);
		auto_buf struct buf seen = BUF_INIT(1000);
		struct json_faults f = { .report = note, .ctx = &seen };
		const struct json *found[ARRAY_LEN(fields)];
		bool good;

		buf_adds(&seen, "");
		good = json_fields(v, tables[i].path, fields, ARRAY_LEN(fields), found, &f);
		assert_string_equal(seen.data, tables[i].faults);
		assert_int_equal(good, !*tables[i].faults);
		if (good) {
			assert_ptr_equal(found[0], json_get(v, "id"));
			assert_true(json_type(found[2]) != JSON_NULL || !found[2]);
		}
	}
}

static void test_first_fault_is_kept(void **state)
{
	struct json_faults f = { .report = NULL };

	(void)state;
	json_fault(&f, "", "one %d", 1);
	json_fault(&f, "b", "two");
	assert_int_equal(f.count, 2);
	assert_string_equal(f.first.text, "one 1");
	f = (struct json_faults){ .count = 0 };
	json_fault(&f, "a[0].b", "two");
	assert_string_equal(f.first.text, "a[0].b: two");
	assert_int_equal(f.first.code, EINVAL);
}

static void test_paths(void **state)
{
	char path[16];

	(void)state;
	json_path_field(path, sizeof(path), "", "a");
	assert_string_equal(path, "a");
	json_path_field(path, sizeof(path), "a", "b");
	assert_string_equal(path, "a.b");
	json_path_index(path, sizeof(path), "a", 12);
	assert_string_equal(path, "a[12]");
	json_path_field(path, sizeof(path), "a", "0123456789abc");
	assert_string_equal(path, "a.0123456789abc");
	/* One more does not fit, and no character is cut in two. */
	json_path_field(path, sizeof(path), "a", "0123456789abcd");
	assert_string_equal(path, "a.0123456789abc");
	json_path_field(path, sizeof(path), "a", "0123456789ab\xc3\xa9");
	assert_string_equal(path, "a.0123456789ab");
}

static void test_building(void **state)
{
	auto_json struct json *v = json_new_object();
	auto_json struct json *copy = NULL;
	struct json *list = json_new_array();
	auto_buf struct buf b = BUF_INIT(1000), again = BUF_INIT(1000);

	(void)state;
	json_put_str(v, "s", "a/\"\\\n\x01\x7f\xc3\xa9");
	json_put_str(v, "none", NULL);
	json_put_strn(v, "part", "abcdef", 3);
	json_put_int(v, "min", INT64_MIN);
	json_put_double(v, "tenth", 0.1);
	json_put_double(v, "third", 1.0 / 3);
	json_put_double(v, "inf", 1e308 * 10);
	json_put_bool(v, "b", false);
	json_put_null(v, "n");
	json_push_str(list, "x");
	json_push(list, json_new_object());
	json_push(list, json_new_array());
	json_put(v, "list", list);
	json_put_int(v, "b", 2); /* replaces, in place */
	json_write(v, &b);
	assert_string_equal(b.data, "{\"s\":\"a/\\\"\\\\\\n\\u0001\x7f\xc3\xa9\",\"none\":null,"
	                            "\"part\":\"abc\",\"min\":-9223372036854775808,\"tenth\":0.1,"
	                            "\"third\":0.3333333333333333,\"inf\":null,\"b\":2,\"n\":null,"
	                            "\"list\":[\"x\",{},[]]}");
	copy = json_copy(v);
	json_put_int(v, "b", 3);
	json_write(copy, &again);
	assert_string_equal(again.data, b.data);
}

static void test_what_is_read_is_written(void **state)
{
	static const char *const texts[] = {
		"null", "true",     "12",           "1.50",
		"1e5",  "\"\\\"\"", "[null,[],{}]", "{\"\":{\"a\":[1]}}",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		auto_json struct json *v = parse(texts[i]);
		auto_json struct json *copy = json_copy(v);
		auto_buf struct buf b = BUF_INIT(100);

		json_write(copy, &b);
		assert_string_equal(b.data, texts[i]);
	}
}

static void test_write_respects_the_ceiling(void **state)
{
	auto_json struct json *v = parse("[\"abc\"]");
	auto_buf struct buf exact = BUF_INIT(7), small = BUF_INIT(6);

	(void)state;
	json_write(v, &exact);
	assert_false(buf_failed(&exact));
	json_write(v, &small);
	assert_true(buf_failed(&small));
}

static void test_write_string(void **state)
{
	auto_buf struct buf b = BUF_INIT(100);

	(void)state;
	json_write_string("", 0, &b);
	json_write_string("\b\f\n\r\t\0", 6, &b);
	json_write_string("a\x1f/", 3, &b);
	assert_string_equal(b.data, "\"\"\"\\b\\f\\n\\r\\t\\u0000\"\"a\\u001f/\"");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_grammar),
		cmocka_unit_test(test_nul_bytes),
		cmocka_unit_test(test_depth),
		cmocka_unit_test(test_depth_costs_no_stack),
		cmocka_unit_test(test_long_number),
		cmocka_unit_test(test_long_duplicate_is_cut),
		cmocka_unit_test(test_many_keys),
		cmocka_unit_test(test_reading),
		cmocka_unit_test(test_wrong_types_are_harmless),
		cmocka_unit_test(test_each_keeps_order),
		cmocka_unit_test(test_fields),
		cmocka_unit_test(test_first_fault_is_kept),
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_building),
		cmocka_unit_test(test_what_is_read_is_written),
		cmocka_unit_test(test_write_respects_the_ceiling),
		cmocka_unit_test(test_write_string),
	};

	return RUN_TESTS(tests);
}
