#include "common/test.h"

#include "common/fd.h"
#include "common/frame.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct {
	enum frame_type type;
	size_t max;
} types[] = {
	{ FRAME_HELLO, FRAME_CONTROL_MAX },
	{ FRAME_START, FRAME_CONTROL_MAX },
	{ FRAME_READY, FRAME_CONTROL_MAX },
	{ FRAME_EXIT, FRAME_CONTROL_MAX },
	{ FRAME_INPUT, FRAME_DATA_MAX },
	{ FRAME_STDOUT, FRAME_DATA_MAX },
	{ FRAME_STDERR, FRAME_DATA_MAX },
	{ FRAME_CREDIT, 4 },
	{ FRAME_END, 0 },
	{ FRAME_CANCEL, 0 },
	{ FRAME_PING, 0 },
	{ FRAME_PONG, 4 },
};

static void test_wire_form(void **state)
{
	static const char want[] = "\0\0\0\3\x03\x01\x02\x03\x04\x05\x06\x07\x08"
				   "a\0b";
	auto_buf struct buf b = BUF_INIT(100);
	struct frame f;
	struct err e = ERR_INIT;
	size_t size;

	(void)state;
	frame_put(&b, FRAME_INPUT, 0x0102030405060708u, "a\0b", 3);
	assert_int_equal(b.len, sizeof(want) - 1);
	assert_memory_equal(b.data, want, b.len);
	assert_int_equal(frame_get(b.data, b.len, &f, &size, &e), 1);
	assert_int_equal(f.type, FRAME_INPUT);
	assert_true(f.call == 0x0102030405060708u);
	assert_int_equal(f.len, 3);
	assert_memory_equal(f.payload, "a\0b", 3);
	assert_int_equal(size, b.len);
}

/* Every type, empty, at its bound and one past it. */
static void test_bounds_of_each_type(void **state)
{
	auto_free char *payload = calloc(1, FRAME_CONTROL_MAX + 1);

	(void)state;
	assert_non_null(payload);
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		auto_buf struct buf b = BUF_INIT(2UL * FRAME_CONTROL_MAX);
		struct frame f;
		struct err e = ERR_INIT;
		size_t size;

		frame_put(&b, types[i].type, 7, payload, types[i].max);
		assert_int_equal(frame_get(b.data, b.len, &f, &size, &e), 1);
		assert_int_equal(f.len, types[i].max);
		assert_int_equal(f.type, types[i].type);
		buf_reset(&b);
		frame_put(&b, types[i].type, 7, payload, types[i].max + 1);
		assert_int_equal(frame_get(b.data, b.len, &f, &size, &e), -1);
		assert_int_equal(e.code, EPROTO);
		/* The header alone decides: nobody waits for the payload of a liar. */
		assert_int_equal(frame_get(b.data, FRAME_HEADER_SIZE, &f, &size, &e), -1);
	}
}

static void test_unknown_types(void **state)
{
	(void)state;
	for (unsigned int type = 0; type < 256; type++) {
		char header[FRAME_HEADER_SIZE] = { 0 };
		bool known = false;
		struct frame f;
		struct err e = ERR_INIT;
		size_t size;

		header[4] = (char)type;
		for (size_t i = 0; i < ARRAY_LEN(types); i++)
			known |= types[i].type == type;
		assert_int_equal(frame_get(header, sizeof(header), &f, &size, &e), known ? 1 : -1);
		assert_int_equal(e.code, known ? 0 : EPROTO);
	}
}

static void test_largest_length(void **state)
{
	char header[FRAME_HEADER_SIZE] = { -1, -1, -1, -1, FRAME_INPUT };
	struct frame f;
	struct err e = ERR_INIT;
	size_t size;

	(void)state;
	assert_int_equal(frame_get(header, sizeof(header), &f, &size, &e), -1);
	assert_non_null(strstr(e.text, "4294967295 bytes"));
}

/* Bytes arrive in any pieces: every shorter prefix asks for more. */
static void test_prefixes(void **state)
{
	auto_buf struct buf b = BUF_INIT(100);
	struct frame f;
	struct err e = ERR_INIT;
	size_t size = 0, whole;

	(void)state;
	frame_put(&b, FRAME_STDOUT, 1, "hello", 5);
	whole = b.len;
	frame_put(&b, FRAME_END, 2, NULL, 0);
	for (size_t n = 0; n < whole; n++)
		assert_int_equal(frame_get(b.data, n, &f, &size, &e), 0);
	for (size_t n = whole; n <= b.len; n++) {
		assert_int_equal(frame_get(b.data, n, &f, &size, &e), 1);
		assert_int_equal(size, whole);
	}
	buf_consume(&b, size);
	assert_int_equal(frame_get(b.data, b.len, &f, &size, &e), 1);
	assert_int_equal(f.type, FRAME_END);
	assert_int_equal(f.len, 0);
}

static void test_ceiling_of_the_queue(void **state)
{
	auto_buf struct buf exact = BUF_INIT(FRAME_HEADER_SIZE + 3);
	auto_buf struct buf small = BUF_INIT(FRAME_HEADER_SIZE + 2);

	(void)state;
	frame_put(&exact, FRAME_INPUT, 1, "abc", 3);
	assert_false(buf_failed(&exact));
	frame_put(&small, FRAME_INPUT, 1, "abc", 3);
	assert_true(buf_failed(&small));
	assert_int_equal(small.len, 0); /* never half a frame */
}

static void test_credit(void **state)
{
	static const uint32_t amounts[] = { 0, 1, 65536, UINT32_MAX };
	struct frame wrong = { .type = FRAME_CREDIT, .payload = "\xff\xff\xff\xff\xff" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(amounts); i++) {
		auto_buf struct buf b = BUF_INIT(100);
		struct frame f;
		struct err e = ERR_INIT;
		size_t size;

		frame_put_credit(&b, 9, amounts[i]);
		assert_int_equal(frame_get(b.data, b.len, &f, &size, &e), 1);
		assert_int_equal(f.type, FRAME_CREDIT);
		assert_true(f.call == 9);
		assert_true(frame_number(&f) == amounts[i]);
	}
	for (wrong.len = 0; wrong.len <= 5; wrong.len++)
		assert_true(frame_number(&wrong) == (wrong.len == 4 ? UINT32_MAX : 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wire_form),     cmocka_unit_test(test_bounds_of_each_type),
		cmocka_unit_test(test_unknown_types), cmocka_unit_test(test_largest_length),
		cmocka_unit_test(test_prefixes),      cmocka_unit_test(test_ceiling_of_the_queue),
		cmocka_unit_test(test_credit),
	};

	return RUN_TESTS(tests);
}
