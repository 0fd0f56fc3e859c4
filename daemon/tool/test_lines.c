#include "common/test.h"

#include "daemon/tool/lines.h"

#include <string.h>

/* Whatever the pieces are, the same is picked. */
static void expect(const char *text, uint64_t first, uint64_t count, const char *contains,
                   const char *want)
{
	for (size_t piece = 1; piece <= strlen(text) + 1; piece++) {
		struct lines l;

		lines_init(&l, first, count, contains);
		for (size_t at = 0; at < strlen(text); at += piece) {
			size_t left = strlen(text) - at;

			lines_take(&l, text + at, left < piece ? left : piece);
		}
		lines_end(&l, 0);
		assert_string_equal(l.out.data ? l.out.data : "", want);
		lines_release(&l);
	}
}

static void lines_by_number(void **state)
{
	(void)state;
	expect("a\nb\nc\n", 1, 2, NULL, "a\nb\n");
	expect("a\nb\nc\n", 2, 1, NULL, "b\n");
	expect("a\nb\nc", 3, 9, NULL, "c");
	expect("a\nb\nc\n", 4, 9, NULL, "");
	expect("\n\nx\n", 1, 2, NULL, "\n\n");
	expect("", 1, 1, NULL, "");
}

static void lines_that_contain(void **state)
{
	(void)state;
	expect("one\ntwo\nthree\n", 1, 9, "t", "4: two\n8: three\n");
	expect("one\ntwo\nthree", 1, 1, "e", "0: one\n");
	expect("one\ntwo", 1, 9, "wo", "4: two\n");
	expect("one\ntwo\n", 1, 9, "ne\nt", "");
}

static void a_gap(void **state)
{
	struct lines l;

	(void)state;
	lines_init(&l, 1, 9, "x");
	lines_take(&l, "ax", 2);
	lines_end(&l, 1000);
	lines_take(&l, "bx\n", 3);
	lines_end(&l, 0);
	assert_string_equal(l.out.data, "0: ax\n1002: bx\n");
	lines_release(&l);
}

static void long_lines_and_many(void **state)
{
	static char line[LINES_BYTES + 1000];
	struct lines l;

	(void)state;
	memset(line, 'x', sizeof(line));
	lines_init(&l, 1, 1, NULL);
	lines_take(&l, line, sizeof(line));
	lines_take(&l, "\nnext\n", 6);
	assert_true(l.cut);
	assert_in_range(l.out.len, LINES_BYTES - 64, LINES_BYTES + 256);
	assert_string_equal(l.out.data + l.out.len - 13, " bytes more]\n");
	assert_int_equal(l.number, 2);
	lines_release(&l);

	lines_init(&l, 1, UINT64_MAX, NULL);
	for (int i = 0; i < 1000; i++) {
		lines_take(&l, line, 999);
		lines_take(&l, "\n", 1);
	}
	assert_true(l.full);
	assert_true(lines_done(&l));
	assert_int_equal(l.out.len, 1000 * l.picked);
	assert_in_range(l.out.len, LINES_BYTES - 1100, LINES_BYTES);
	lines_release(&l);

	lines_init(&l, 1, UINT64_MAX, "x");
	lines_take(&l, line, LINES_MATCH + 1);
	lines_end(&l, 0);
	assert_non_null(strstr(l.out.data, "x[1 bytes more]\n"));
	lines_release(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_by_number),
		cmocka_unit_test(lines_that_contain),
		cmocka_unit_test(a_gap),
		cmocka_unit_test(long_lines_and_many),
	};

	return RUN_TESTS(tests);
}
