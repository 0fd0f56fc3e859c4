#include "common/test.h"

#include "daemon/tool/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct output *take(const char *data, size_t len, size_t piece)
{
	struct output *o = malloc(sizeof(*o));

	assert_non_null(o);
	output_init(o);
	for (size_t at = 0; at < len; at += piece)
		output_take(o, data + at, len - at < piece ? len - at : piece);
	return o;
}

/* Renders len bytes fed in pieces; the caller releases out. */
static bool render(const char *data, size_t len, size_t piece, struct buf *out, bool *lossy)
{
	struct output *o = take(data, len, piece);
	bool cut;

	assert_int_equal(o->total, len);
	*out = (struct buf)BUF_INIT((size_t)1 << 20);
	cut = output_render(o, out, lossy);
	assert_false(buf_failed(out));
	free(o);
	return cut;
}

static char *pattern(size_t len)
{
	char *data = malloc(len);

	assert_non_null(data);
	for (size_t i = 0; i < len; i++)
		data[i] = (char)('a' + i % 23);
	return data;
}

static void small_output_is_kept_whole(void **state)
{
	static const size_t sizes[] = { 0,
		                        1,
		                        OUTPUT_HALF - 1,
		                        OUTPUT_HALF,
		                        OUTPUT_HALF + 1,
		                        2 * OUTPUT_HALF - 1,
		                        2 * OUTPUT_HALF };
	static const size_t pieces[] = { 1, 7, 4096, OUTPUT_HALF, 100000 };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		for (size_t j = 0; j < ARRAY_LEN(pieces); j++) {
			char *data = pattern(sizes[i] + 1);
			struct buf out;
			bool lossy;

			assert_false(render(data, sizes[i], pieces[j], &out, &lossy));
			assert_false(lossy);
			assert_int_equal(out.len, sizes[i]);
			if (sizes[i])
				assert_memory_equal(out.data, data, sizes[i]);
			buf_release(&out);
			free(data);
		}
	}
}

static void head_and_tail_of_large_output_are_kept(void **state)
{
	static const size_t sizes[] = { 2 * OUTPUT_HALF + 1, 3 * OUTPUT_HALF,
		                        5 * OUTPUT_HALF + 77 };
	static const size_t pieces[] = { 1, 1000, 65536, 1000000 };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		for (size_t j = 0; j < ARRAY_LEN(pieces); j++) {
			char *data = pattern(sizes[i]), mark[64];
			struct buf out;
			bool lossy;

			assert_true(render(data, sizes[i], pieces[j], &out, &lossy));
			(void)snprintf(mark, sizeof(mark), "\n[%zu bytes cut]\n",
			               sizes[i] - 2 * OUTPUT_HALF);
			assert_memory_equal(out.data, data, OUTPUT_HALF);
			assert_memory_equal(out.data + OUTPUT_HALF, mark, strlen(mark));
			assert_memory_equal(out.data + out.len - OUTPUT_HALF,
			                    data + sizes[i] - OUTPUT_HALF, OUTPUT_HALF);
			assert_int_equal(out.len, 2 * OUTPUT_HALF + strlen(mark));
			buf_release(&out);
			free(data);
		}
	}
}

static void a_cut_does_not_damage_characters(void **state)
{
	static const char castle[] = { '\xf0', '\x9f', '\x8f', '\xb0' };
	size_t len = 4 * OUTPUT_HALF;
	char *data = malloc(len + 4);
	struct buf out;
	bool lossy;

	(void)state;
	assert_non_null(data);
	for (size_t shift = 0; shift < 4; shift++) { /* every alignment of a 4-byte character */
		memset(data, 'x', shift);
		for (size_t at = shift; at + 4 <= len; at += 4)
			memcpy(data + at, castle, sizeof(castle));
		assert_true(render(data, len - (len - shift) % 4, 999, &out, &lossy));
		assert_false(lossy);
		assert_null(memmem(out.data, out.len, "\xef\xbf\xbd", 3));
		buf_release(&out);
	}
	free(data);
}

static void bad_bytes_and_nul_are_marked(void **state)
{
	struct buf out;
	bool lossy;

	(void)state;
	assert_false(render("a\0b\xff", 4, 2, &out, &lossy));
	assert_true(lossy);
	assert_string_equal(out.data, "a\xef\xbf\xbd"
	                              "b\xef\xbf\xbd");
	buf_release(&out);
}

static void prefixes_count_characters(void **state)
{
	(void)state;
	assert_int_equal(output_prefix("abc", 3, 3), 3);
	assert_int_equal(output_prefix("abcd", 4, 3), 3);
	assert_int_equal(output_prefix("\xc3\xa4\xc3\xb6", 4, 1), 2);
	assert_int_equal(output_prefix("\xc3\xa4", 2, 0), 0);
	assert_int_equal(output_prefix("", 0, 5), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(small_output_is_kept_whole),
		cmocka_unit_test(head_and_tail_of_large_output_are_kept),
		cmocka_unit_test(a_cut_does_not_damage_characters),
		cmocka_unit_test(bad_bytes_and_nul_are_marked),
		cmocka_unit_test(prefixes_count_characters),
	};

	return RUN_TESTS(tests);
}
