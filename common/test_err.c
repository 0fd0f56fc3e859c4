#include "common/test.h"

#include "common/err.h"
#include "common/utf8.h"

#include <errno.h>
#include <string.h>

#define E_ACUTE "\xc3\xa9"

static void fill(char *text, size_t size, size_t offset)
{
	memset(text, 'x', offset);
	for (size_t at = offset; at + 2 < size; at += 2)
		memcpy(text + at, E_ACUTE, 3);
}

/* Whatever is cut, and wherever: an error is told in JSON. */
static void test_cut_between_characters(void **state)
{
	(void)state;
	for (size_t offset = 0; offset < 2; offset++) {
		struct err e = ERR_INIT;
		char text[900];

		fill(text, sizeof(text), offset);
		assert_int_equal(err_set(&e, EINVAL, "%s", text), -1);
		assert_true(utf8_valid(e.text, strlen(e.text)));
		assert_true(strlen(e.text) >= sizeof(e.text) - 2);
		assert_int_equal(err_set(&e, EINVAL, "it says: %.40s", text), -1);
		assert_true(utf8_valid(e.text, strlen(e.text)));
		assert_int_equal(err_set(&e, EINVAL, "why"), -1);
		assert_int_equal(err_wrap(&e, "%s", text), -1);
		assert_true(utf8_valid(e.text, strlen(e.text)));
		assert_int_equal(e.code, EINVAL);
		errno = ENOENT;
		assert_int_equal(err_errno(&e, "%s", text), -1);
		assert_true(utf8_valid(e.text, strlen(e.text)));
		assert_int_equal(e.code, ENOENT);
	}
}

static void test_whole_texts_stay(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(err_set(&e, EINVAL, "%s", "caf" E_ACUTE), -1);
	assert_string_equal(e.text, "caf" E_ACUTE);
	assert_int_equal(err_wrap(&e, "%s", E_ACUTE), -1);
	assert_string_equal(e.text, E_ACUTE ": caf" E_ACUTE);
}

static void test_what_is_short(void **state)
{
	static const int codes[] = { EMFILE, ENFILE, ENOBUFS, ENOMEM };
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
		errno = codes[i];
		assert_int_equal(err_shortage(&e, "open %s", "it"), -1);
		assert_int_equal(e.code, ERR_SHORTAGE);
		assert_int_equal(strncmp(e.text, "open it: ", 9), 0);
		assert_string_equal(e.text + 9, strerror(codes[i]));
	}
	errno = EACCES;
	assert_int_equal(err_shortage(&e, "open it"), -1);
	assert_int_equal(e.code, EACCES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cut_between_characters),
		cmocka_unit_test(test_whole_texts_stay),
		cmocka_unit_test(test_what_is_short),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
