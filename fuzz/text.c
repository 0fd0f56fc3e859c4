/* Bytes of processes made fit for JSON and the database. */
#include "fuzz/fuzz.h"

#include "common/utf8.h"

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data + 1;

	if (size < 1)
		return 0;
	check_repair(text, size - 1);
	check_pieces(text, size - 1, data[0] % 61 * 16 + 4U);
	return 0;
}
