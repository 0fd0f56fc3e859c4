#include "common/test.h"

#include "common/attr.h"
#include "daemon/http/target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void assert_path(const char *text, const char *want)
{
	char *path = strdup(text);
	const char *fault = target_path(path);

	if (want) {
		assert_null(fault);
		assert_string_equal(path, want);
	} else {
		if (!fault)
			print_error("taken: %s\n", text);
		assert_non_null(fault);
	}
	free(path);
}

static void decodes_paths_once(void **state)
{
	(void)state;
	assert_path("/", "/");
	assert_path("/a/b", "/a/b");
	assert_path("/%41%2d%2D", "/A--");
	assert_path("/%2525", "/%25");
	assert_path("/a+b", "/a+b");
	assert_path("/%C3%A9", "/\xc3\xa9");
	assert_path("/...", "/...");
	assert_path("/.a/..b", "/.a/..b");
	assert_path("/%3f%23", "/?#");
	assert_path("/%20", "/ ");
}

static void refuses_paths(void **state)
{
	static const char *const paths[] = {
		"",
		"a",
		"*",
		"http://a/",
		"//",
		"/a//b",
		"/a/",
		"/.",
		"/..",
		"/./a",
		"/a/.",
		"/%2e",
		"/%2E%2e",
		"/.%2e/a",
		"/a%2fb",
		"/a%2Fb",
		"/a%5c",
		"/a\\b",
		"/%00",
		"/%0a",
		"/%1f",
		"/%7f",
		"/%",
		"/%4",
		"/%4g",
		"/%g4",
		"/%%",
		"/a b",
		"/a\"",
		"/a#",
		"/<",
		"/\x7f",
		"/\xe9",
		"/%ff",
		"/%c0%af",
		"/%ed%a0%80",
		"/%f4%90%80%80",
		"/%c3",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(paths); i++)
		assert_path(paths[i], NULL);
}

static void splits_at_the_first_question_mark(void **state)
{
	char plain[] = "/a", empty[] = "/a?", twice[] = "/a?b?c";

	(void)state;
	assert_null(target_split(plain));
	assert_string_equal(plain, "/a");
	assert_string_equal(target_split(empty), "");
	assert_string_equal(empty, "/a");
	assert_string_equal(target_split(twice), "b?c");
	assert_string_equal(twice, "/a");
}

static void reads_queries(void **state)
{
	char text[] = "a=%26x+y%2B&&b&c=d=e&f=/?%C3%A9&%3d=";
	struct target_query q;

	(void)state;
	assert_null(target_query(text, &q));
	assert_int_equal(q.count, 5);
	assert_string_equal(target_value(&q, "a"), "&x y+");
	assert_string_equal(target_value(&q, "b"), "");
	assert_string_equal(target_value(&q, "c"), "d=e");
	assert_string_equal(target_value(&q, "f"), "/?\xc3\xa9");
	assert_string_equal(target_value(&q, "="), "");
	assert_null(target_value(&q, "A"));
	assert_null(target_query(NULL, &q));
	assert_int_equal(q.count, 0);
}

static void refuses_queries(void **state)
{
	static const char *const queries[] = {
		"a=%00",   "a=%zz",     "a=%f", "a=%", "a=%ff",  "=b",         "=",
		"a=1&a=2", "a=1&%61=2", "a=#",  "a= ", "a=\x7f", "a=\xc3\xa9", "a=%c3&b=%a9",
	};
	struct target_query q;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(queries); i++) {
		char *text = strdup(queries[i]);

		assert_non_null(target_query(text, &q));
		free(text);
	}
}

static void bounds_parameters(void **state)
{
	for (int over = 0; over < 2; over++) {
		char text[8 * HTTP_QUERY_MAX] = "";
		struct target_query q;
		const char *fault;
		size_t at = 0;

		(void)state;
		for (int i = 0; i < HTTP_QUERY_MAX + over; i++)
			at += (size_t)snprintf(text + at, sizeof(text) - at, "p%d=%d&", i, i);
		fault = target_query(text, &q);
		assert_int_equal(q.count, HTTP_QUERY_MAX);
		assert_int_equal(fault != NULL, over);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(decodes_paths_once),
		cmocka_unit_test(refuses_paths),
		cmocka_unit_test(splits_at_the_first_question_mark),
		cmocka_unit_test(reads_queries),
		cmocka_unit_test(refuses_queries),
		cmocka_unit_test(bounds_parameters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
