#include "common/test.h"

#include "common/utf8.h"

#include <string.h>

#define FFFD "\xef\xbf\xbd"

static const struct {
	const char *in;
	const char *repaired; /* NULL: well-formed as it is */
} cases[] = {
	{ "", NULL },
	{ "plain", NULL },
	{ "\x01\x7f", NULL },
	{ "\xc2\x80", NULL },      /* U+0080, the first of two bytes */
	{ "\xc1\xbf", FFFD FFFD }, /* one before it: overlong */
	{ "\xdf\xbf", NULL },      /* U+07FF */
	{ "\xe0\xa0\x80", NULL },  /* U+0800 */
	{ "\xe0\x9f\xbf", FFFD FFFD FFFD },
	{ "\xed\x9f\xbf", NULL },           /* U+D7FF */
	{ "\xed\xa0\x80", FFFD FFFD FFFD }, /* a surrogate */
	{ "\xee\x80\x80", NULL },           /* U+E000 */
	{ "\xef\xbf\xbf", NULL },           /* U+FFFF */
	{ "\xf0\x90\x80\x80", NULL },       /* U+10000 */
	{ "\xf0\x8f\xbf\xbf", FFFD FFFD FFFD FFFD },
	{ "\xf4\x8f\xbf\xbf", NULL }, /* U+10FFFF */
	{ "\xf4\x90\x80\x80", FFFD FFFD FFFD FFFD },
	{ "\xf5\x80", FFFD FFFD },
	{ "\xff", FFFD },
	{ "\x80", FFFD },
	{ "a\xe2\x82z", "a" FFFD "z" }, /* a cut character is one part */
	{ "a\xf0\x9f\x98z", "a" FFFD "z" },
	{ "\xf0\x9f\x98", FFFD }, /* also at the end */
	{ "\xc3", FFFD },
	{ "\xe2\x82\xe2\x82\xac", FFFD "\xe2\x82\xac" },
	/* The example of table 3-8 of the Unicode standard. */
	{ "a\xf1\x80\x80\xe1\x80\xc2"
	  "b\x80"
	  "c\x80\xbf"
	  "d",
	  "a" FFFD FFFD FFFD "b" FFFD "c" FFFD FFFD "d" },
};

static void test_cases(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const char *want = cases[i].repaired ? cases[i].repaired : cases[i].in;
		size_t len = strlen(cases[i].in);
		auto_buf struct buf out = BUF_INIT(100);

		assert_int_equal(utf8_valid(cases[i].in, len), !cases[i].repaired);
		assert_int_equal(utf8_repair(cases[i].in, len, &out), cases[i].repaired != NULL);
		assert_int_equal(out.len, strlen(want));
		assert_memory_equal(out.len ? out.data : "", want, out.len);
	}
}

static void test_nul(void **state)
{
	auto_buf struct buf out = BUF_INIT(100);

	(void)state;
	assert_false(utf8_valid("a\0b", 3));
	assert_true(utf8_repair("\0a\0", 3, &out));
	assert_string_equal(out.data, FFFD "a" FFFD);
}

static void test_repair_never_fails_to_repair(void **state)
{
	unsigned char bytes[64];
	unsigned int seed = 12345;

	(void)state;
	for (int round = 0; round < 20000; round++) {
		auto_buf struct buf out = BUF_INIT(3 * sizeof(bytes));
		bool valid;

		for (size_t i = 0; i < sizeof(bytes); i++) {
			seed = seed * 1103515245u + 12345u;
			bytes[i] = (unsigned char)(seed >> (16 + (round & 1)));
			if (round % 3)
				bytes[i] |= 0x80;
		}
		valid = utf8_valid((char *)bytes, sizeof(bytes));
		assert_int_equal(utf8_repair((char *)bytes, sizeof(bytes), &out), !valid);
		assert_false(buf_failed(&out));
		assert_true(utf8_valid(out.data, out.len));
	}
}

static void test_ceiling(void **state)
{
	auto_buf struct buf exact = BUF_INIT(4), small = BUF_INIT(3);

	(void)state;
	utf8_repair("a\xff", 2, &exact);
	assert_false(buf_failed(&exact));
	utf8_repair("a\xff", 2, &small);
	assert_true(buf_failed(&small));
}

static void test_char(void **state)
{
	(void)state;
	assert_int_equal(utf8_char("", 0), 0);
	assert_int_equal(utf8_char("\0", 1), 0);
	assert_int_equal(utf8_char("ab", 2), 1);
	assert_int_equal(utf8_char("\xc3\xa9", 2), 2);
	assert_int_equal(utf8_char("\xc3\xa9", 1), 0);
	assert_int_equal(utf8_char("\xe2\x82\xac", 3), 3);
	assert_int_equal(utf8_char("\xf0\x9f\x98\x80", 4), 4);
	assert_int_equal(utf8_char("\xf0\x9f\x98\x80", 3), 0);
	assert_int_equal(utf8_char("\x80", 1), 0);
}

static void test_whole(void **state)
{
	static const struct {
		const char *text;
		size_t whole;
	} pieces[] = {
		{ "", 0 },
		{ "abc", 3 },
		{ "a\xc3", 1 },
		{ "a\xc3\xa9", 3 },
		{ "a\xe2\x82", 1 },
		{ "a\xe2\x82\xac", 4 },
		{ "a\xf0", 1 },
		{ "a\xf0\x9f\x98", 1 },
		{ "a\xf0\x9f\x98\x80", 5 },
		{ "\xf0\x9f\x98", 0 },
		/* What no later byte can heal is not held back. */
		{ "a\xff", 2 },
		{ "a\x80\x80\x80", 4 },
		{ "a\xed\xa0", 3 },
		{ "a\xc3\xa9\x80", 4 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(pieces); i++)
		assert_int_equal(utf8_whole(pieces[i].text, strlen(pieces[i].text)),
		                 pieces[i].whole);
}

/* Cut anywhere, repaired singly, a text reads as if it had been repaired at once. */
static void test_pieces_equal_the_whole(void **state)
{
	static const char text[] = "a\xc3\xa9\xf0\x9f\x98\x80\xff\xe2\x82\xac\xed\xa0\x80\xf0\x9f.";
	size_t len = sizeof(text) - 1;
	auto_buf struct buf want = BUF_INIT(200);

	(void)state;
	utf8_repair(text, len, &want);
	for (size_t cut = 0; cut <= len; cut++) {
		auto_buf struct buf got = BUF_INIT(200);
		size_t whole = utf8_whole(text, cut);

		assert_true(cut - whole <= 3);
		utf8_repair(text, whole, &got);
		utf8_repair(text + whole, len - whole, &got);
		assert_string_equal(got.data, want.data);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cases),
		cmocka_unit_test(test_nul),
		cmocka_unit_test(test_repair_never_fails_to_repair),
		cmocka_unit_test(test_ceiling),
		cmocka_unit_test(test_char),
		cmocka_unit_test(test_whole),
		cmocka_unit_test(test_pieces_equal_the_whole),
	};

	return RUN_TESTS(tests);
}
