/* Bytes of processes made fit for JSON and the database, and cut to what is kept of them. */
#include "fuzz/fuzz.h"

#include "common/utf8.h"
#include "daemon/tool/output.h"

#include <string.h>

static void check_repair(const char *data, size_t size)
{
	auto_buf struct buf out = BUF_INIT(3 * size + 1);
	size_t whole = utf8_whole(data, size);
	bool valid = utf8_valid(data, size), replaced = utf8_repair(data, size, &out);

	demand(!buf_failed(&out) && replaced == !valid);
	demand(out.len == 0 || utf8_valid(out.data, out.len));
	demand(replaced || (out.len == size && (!size || memcmp(out.data, data, size) == 0)));
	demand(whole <= size && size - whole <= 3);
	demand(!valid || whole == size);
}

/* Cut into pieces where whole characters end, it is repaired to the same. */
static void check_pieces(const char *data, size_t size, size_t piece)
{
	auto_buf struct buf all = BUF_INIT(3 * size + 1), pieces = BUF_INIT(3 * size + 1);

	(void)utf8_repair(data, size, &all);
	while (size > 0) {
		size_t n = size < piece ? size : utf8_whole(data, piece);

		if (n == 0)
			n = size < piece ? size : piece;
		(void)utf8_repair(data, n, &pieces);
		data += n;
		size -= n;
	}
	demand(all.len == pieces.len && (!all.len || memcmp(all.data, pieces.data, all.len) == 0));
}

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
	const char *text = (const char *)data + 2;
	size_t piece, repeat;

	if (size < 2)
		return 0;
	piece = data[0] % 61 * 16 + 4U;
	repeat = data[1] & 1 ? 1 : ((size_t)3 * OUTPUT_HALF) / size + 1;
	check_repair(text, size - 2);
	check_pieces(text, size - 2, piece);
	check_output(text, size - 2, repeat, piece);
	return 0;
}
