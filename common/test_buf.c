#include "common/test.h"

#include "common/buf.h"
#include "common/fd.h"

#include <string.h>

static void test_ceiling(void **state)
{
	auto_buf struct buf b = BUF_INIT(4);

	(void)state;
	buf_add(&b, "abcd", 4);
	assert_false(buf_failed(&b));
	assert_string_equal(b.data, "abcd");
	buf_addc(&b, 'e');
	assert_true(buf_failed(&b));
	assert_string_equal(b.data, "abcd");
}

static void test_failure_sticks(void **state)
{
	auto_buf struct buf b = BUF_INIT(4);

	(void)state;
	buf_adds(&b, "ab");
	buf_adds(&b, "cde");
	assert_true(buf_failed(&b));
	buf_addc(&b, 'c'); /* would fit, but the text would have a hole */
	assert_int_equal(b.len, 2);
	assert_string_equal(b.data, "ab");
	buf_reset(&b);
	assert_false(buf_failed(&b));
	assert_string_equal(b.data, "");
	buf_adds(&b, "wxyz");
	assert_string_equal(b.data, "wxyz");
}

static void test_lengths_that_overflow(void **state)
{
	auto_buf struct buf b = BUF_INIT(100);

	(void)state;
	buf_adds(&b, "ab");
	assert_null(buf_extend(&b, SIZE_MAX));
	assert_true(buf_failed(&b));
	buf_reset(&b);
	buf_adds(&b, "ab");
	assert_null(buf_extend(&b, SIZE_MAX - 1));
	assert_int_equal(b.len, 2);
}

static void test_nothing_is_allowed(void **state)
{
	auto_buf struct buf b = BUF_INIT(0);

	(void)state;
	buf_add(&b, NULL, 0);
	assert_false(buf_failed(&b));
	assert_string_equal(b.data, "");
	buf_addc(&b, 'a');
	assert_true(buf_failed(&b));
}

static void test_growth_keeps_the_bytes(void **state)
{
	auto_buf struct buf b = BUF_INIT(100000);

	(void)state;
	for (size_t i = 0; i < 100000; i++) {
		buf_addc(&b, (char)('a' + i % 26));
		assert_int_equal(b.data[b.len], '\0');
	}
	assert_false(buf_failed(&b));
	for (size_t i = 0; i < b.len; i++)
		assert_int_equal(b.data[i], 'a' + i % 26);
	assert_true(b.cap <= 2 * (b.len + 1));
}

static void test_format(void **state)
{
	auto_buf struct buf b = BUF_INIT(8);

	(void)state;
	buf_addf(&b, "%d-%s", 42, "abc");
	assert_string_equal(b.data, "42-abc");
	buf_addf(&b, "%d", 123); /* one past the ceiling */
	assert_true(buf_failed(&b));
	assert_string_equal(b.data, "42-abc");
	buf_reset(&b);
	buf_addf(&b, "%08d", 7);
	assert_false(buf_failed(&b));
	assert_string_equal(b.data, "00000007");
}

static void test_consume(void **state)
{
	auto_buf struct buf b = BUF_INIT(6);

	(void)state;
	buf_consume(&b, 0);
	buf_adds(&b, "abcdef");
	buf_consume(&b, 2);
	assert_string_equal(b.data, "cdef");
	buf_adds(&b, "gh"); /* the room is there again */
	assert_false(buf_failed(&b));
	buf_consume(&b, 6);
	assert_int_equal(b.len, 0);
	assert_string_equal(b.data, "");
}

static void test_take(void **state)
{
	struct buf b = BUF_INIT(10);
	auto_free char *empty = buf_take(&b);
	auto_free char *full = NULL;

	(void)state;
	assert_string_equal(empty, "");
	buf_adds(&b, "abc");
	full = buf_take(&b);
	assert_string_equal(full, "abc");
	assert_null(b.data);
	assert_int_equal(b.len, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ceiling),
		cmocka_unit_test(test_failure_sticks),
		cmocka_unit_test(test_lengths_that_overflow),
		cmocka_unit_test(test_nothing_is_allowed),
		cmocka_unit_test(test_growth_keeps_the_bytes),
		cmocka_unit_test(test_format),
		cmocka_unit_test(test_consume),
		cmocka_unit_test(test_take),
	};

	return RUN_TESTS(tests);
}
