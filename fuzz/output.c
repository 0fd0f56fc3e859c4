/*
 * What is kept of a command's output.  The first byte says in which pieces it comes, the second
 * how often: more than is kept comes of an eighth of the inputs.
 */
#include "fuzz/fuzz.h"

#include "common/utf8.h"
#include "daemon/tool/output.h"

#include <string.h>

/* As one piece or many, the same is kept. */
static void check_output(const char *data, size_t size, size_t repeat, size_t piece)
{
	static struct output whole, cut;
	auto_buf struct buf a = BUF_INIT(8 * OUTPUT_HALF), b = BUF_INIT(8 * OUTPUT_HALF);
	bool lossy_a, lossy_b, cut_a, cut_b;

	output_init(&whole);
	output_init(&cut);
	for (size_t i = 0; i < repeat; i++) {
		output_take(&whole, data, size);
		for (size_t at = 0; at < size; at += piece)
			output_take(&cut, data + at, size - at < piece ? size - at : piece);
	}
	cut_a = output_render(&whole, &a, &lossy_a);
	cut_b = output_render(&cut, &b, &lossy_b);
	demand(cut_a == cut_b && lossy_a == lossy_b && a.len == b.len);
	demand(!buf_failed(&a) && (!a.len || memcmp(a.data, b.data, a.len) == 0));
	demand(!a.len || utf8_valid(a.data, a.len));
	demand(cut_a == (size * repeat > (size_t)2 * OUTPUT_HALF));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t len = size - 2, repeat;

	if (size < 3)
		return 0;
	repeat = data[1] % 8 ? 1 : (2 * OUTPUT_HALF + 1000) / len + 1;
	check_output((const char *)data + 2, len, repeat, data[0] % 61 * 256 + 4U);
	return 0;
}
