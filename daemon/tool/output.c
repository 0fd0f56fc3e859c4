#include "daemon/tool/output.h"

#include "common/utf8.h"

#include <inttypes.h>
#include <string.h>

void output_init(struct output *o)
{
	o->total = 0;
}

static void take_tail(struct output *o, const char *data, size_t len)
{
	if (len > OUTPUT_HALF) {
		o->total += len - OUTPUT_HALF;
		data += len - OUTPUT_HALF;
		len = OUTPUT_HALF;
	}
	while (len > 0) {
		size_t at = o->total % OUTPUT_HALF;
		size_t n = OUTPUT_HALF - at < len ? OUTPUT_HALF - at : len;

		memcpy(o->tail + at, data, n);
		o->total += n;
		data += n;
		len -= n;
	}
}

void output_take(struct output *o, const char *data, size_t len)
{
	if (o->total < OUTPUT_HALF) {
		size_t room = OUTPUT_HALF - o->total;
		size_t n = room < len ? room : len;

		memcpy(o->head + o->total, data, n);
		o->total += n;
		data += n;
		len -= n;
	}
	take_tail(o, data, len);
}

/* The ring in order, as one buffer of at most OUTPUT_HALF bytes. */
static void unroll_tail(const struct output *o, struct buf *out)
{
	size_t at = o->total % OUTPUT_HALF;

	if (o->total <= OUTPUT_HALF)
		return;
	if (o->total >= 2 * OUTPUT_HALF)
		buf_add(out, o->tail + at, OUTPUT_HALF - at);
	buf_add(out, o->tail, at);
}

static bool continues(char c)
{
	return ((unsigned char)c & 0xc0) == 0x80;
}

bool output_render(const struct output *o, struct buf *out, bool *ret_lossy)
{
	auto_buf struct buf raw = BUF_INIT(2 * OUTPUT_HALF);
	size_t head = o->total < OUTPUT_HALF ? o->total : OUTPUT_HALF, skip = 0;
	bool cut = o->total > 2 * OUTPUT_HALF;

	if (!cut) {
		buf_add(&raw, o->head, head);
		unroll_tail(o, &raw);
		*ret_lossy = utf8_repair(raw.data ? raw.data : "", raw.len, out);
		return false;
	}
	head = utf8_whole(o->head, head);
	*ret_lossy = utf8_repair(o->head, head, out);
	unroll_tail(o, &raw);
	while (skip < 3 && continues(raw.data[skip]))
		skip++; /* the rest of a character whose start was cut */
	buf_addf(out, "\n[%" PRIu64 " bytes cut]\n", o->total - head - (uint64_t)(raw.len - skip));
	if (utf8_repair(raw.data + skip, raw.len - skip, out))
		*ret_lossy = true;
	return true;
}

size_t output_prefix(const char *text, size_t len, size_t max_chars)
{
	size_t at = 0;

	while (at < len) {
		if (!continues(text[at]) && max_chars-- == 0)
			break;
		at++;
	}
	return at;
}
