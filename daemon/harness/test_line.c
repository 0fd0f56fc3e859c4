#include "common/test.h"

#include "daemon/harness/line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *big; /* HARNESS_LINE_MAX + 16 bytes of "x" */

/* All lines of a text that comes in pieces of that size, each in <> and too long ones in (). */
static void cut(const char *data, size_t len, size_t piece, struct buf *out)
{
	struct line_reader r;
	size_t used;

	line_init(&r);
	for (size_t at = 0; at < len; at += used) {
		size_t n = len - at < piece ? len - at : piece;

		switch (line_take(&r, data + at, n, &used)) {
		case LINE_WHOLE:
			buf_addf(out, "<%.*s>", (int)(r.text.len < 20 ? r.text.len : 20),
			         r.text.data ? r.text.data : "");
			if (r.text.len >= 20)
				buf_addf(out, "%zu", r.text.len);
			break;
		case LINE_TOO_LONG:
			buf_addf(out, "(%llu)", (unsigned long long)r.skipped);
			break;
		case LINE_NONE:
			break;
		case LINE_NO_MEMORY:
			fail();
		}
		assert_in_range(used, 1, n);
	}
	line_release(&r);
}

static void assert_cut(const char *text, size_t piece, const char *want)
{
	auto_buf struct buf out = BUF_INIT(1000);

	cut(text, strlen(text), piece, &out);
	assert_string_equal(out.data ? out.data : "", want);
}

static void test_split_at_every_byte(void **state)
{
	static const char text[] = "one\r\n\ntwo\rx\n\r\nthree\nfour";

	(void)state;
	for (size_t piece = 1; piece <= sizeof(text); piece++)
		assert_cut(text, piece, "<one><><two\rx><><three>");
}

static void test_split_in_two(void **state)
{
	static const char text[] = "a\r\nbc\n\n";
	auto_buf struct buf out = BUF_INIT(1000);
	struct line_reader r;
	size_t used;

	(void)state;
	for (size_t first = 0; first <= strlen(text); first++) {
		size_t at = 0, lines = 0;

		line_init(&r);
		while (at < strlen(text)) {
			size_t end = at < first ? first : strlen(text);

			lines += line_take(&r, text + at, end - at, &used) == LINE_WHOLE;
			at += used;
		}
		line_release(&r);
		assert_int_equal(lines, 3);
	}
}

/* NUL is a byte like any other here; what is JSON is decided elsewhere. */
static void test_any_bytes(void **state)
{
	struct line_reader r;
	size_t used;

	(void)state;
	line_init(&r);
	assert_int_equal(line_take(&r, "a\0\xff\nb", 5, &used), LINE_WHOLE);
	assert_int_equal(used, 4);
	assert_int_equal(r.text.len, 3);
	assert_memory_equal(r.text.data, "a\0\xff", 3);
	assert_int_equal(line_take(&r, NULL, 0, &used), LINE_NONE);
	assert_int_equal(used, 0);
	line_release(&r);
}

static void assert_long(size_t len, const char *end, size_t piece, const char *want)
{
	auto_buf struct buf text = BUF_INIT(HARNESS_LINE_MAX + 100), out = BUF_INIT(1000);

	buf_add(&text, big, len);
	buf_adds(&text, end);
	buf_adds(&text, "next\n");
	assert_false(buf_failed(&text));
	cut(text.data, text.len, piece, &out);
	assert_string_equal(out.data, want);
}

static void test_bound(void **state)
{
	static const size_t pieces[] = { 1000, 65536, HARNESS_LINE_MAX, SIZE_MAX };
	char whole[100], one_past[100], two_past[100];

	(void)state;
	(void)snprintf(whole, sizeof(whole), "<xxxxxxxxxxxxxxxxxxxx>%zu<next>", HARNESS_LINE_MAX);
	(void)snprintf(one_past, sizeof(one_past), "(%zu)<next>", HARNESS_LINE_MAX + 1);
	(void)snprintf(two_past, sizeof(two_past), "(%zu)<next>", HARNESS_LINE_MAX + 2);
	for (size_t i = 0; i < sizeof(pieces) / sizeof(*pieces); i++) {
		assert_long(HARNESS_LINE_MAX, "\n", pieces[i], whole);
		assert_long(HARNESS_LINE_MAX, "\r\n", pieces[i], whole);
		assert_long(HARNESS_LINE_MAX + 1, "\n", pieces[i], one_past);
		assert_long(HARNESS_LINE_MAX + 2, "\n", pieces[i], two_past);
	}
}

/* A line without an end must not cost more memory than one of the greatest length. */
static void test_no_end(void **state)
{
	struct line_reader r;
	size_t used;

	(void)state;
	line_init(&r);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(line_take(&r, big, HARNESS_LINE_MAX, &used), LINE_NONE);
		assert_true(r.text.cap <= 2 * HARNESS_LINE_MAX);
	}
	assert_int_equal(line_take(&r, "\n", 1, &used), LINE_TOO_LONG);
	assert_int_equal(r.skipped, 100 * HARNESS_LINE_MAX);
	assert_int_equal(line_take(&r, "{}\n", 3, &used), LINE_WHOLE);
	assert_string_equal(r.text.data, "{}");
	line_release(&r);
}

/* After a long line its memory is given back. */
static void test_memory_goes_back(void **state)
{
	struct line_reader r;
	size_t used;

	(void)state;
	line_init(&r);
	assert_int_equal(line_take(&r, big, HARNESS_LINE_MAX, &used), LINE_NONE);
	assert_int_equal(line_take(&r, "\n", 1, &used), LINE_WHOLE);
	assert_int_equal(line_take(&r, "x", 1, &used), LINE_NONE);
	assert_true(r.text.cap <= 65536);
	line_release(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_split_at_every_byte),
		cmocka_unit_test(test_split_in_two),
		cmocka_unit_test(test_any_bytes),
		cmocka_unit_test(test_bound),
		cmocka_unit_test(test_no_end),
		cmocka_unit_test(test_memory_goes_back),
	};
	int failed;

	big = malloc(HARNESS_LINE_MAX + 16);
	if (!big)
		return 1;
	memset(big, 'x', HARNESS_LINE_MAX + 16);
	failed = RUN_TESTS(tests);
	free(big);
	return failed;
}
