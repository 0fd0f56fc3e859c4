#include "daemon/harness/line.h"

#include <string.h>

#define KEEP ((size_t)64 << 10) /* bytes of memory that a reader keeps from line to line */

void line_init(struct line_reader *r)
{
	/* One more than a line, for the carriage return of its end. */
	*r = (struct line_reader){ .text = BUF_INIT(HARNESS_LINE_MAX + 1) };
}

void line_release(struct line_reader *r)
{
	buf_release(&r->text);
	line_init(r);
}

static void begin(struct line_reader *r)
{
	if (r->text.cap > KEEP)
		buf_release(&r->text);
	else
		buf_reset(&r->text);
	r->skipped = 0;
	r->given = false;
}

static bool add(struct line_reader *r, const char *data, size_t len)
{
	if (r->skipped || r->text.len + len > HARNESS_LINE_MAX + 1) {
		r->skipped += r->text.len + len;
		buf_release(&r->text);
		return true;
	}
	buf_add(&r->text, data, len);
	return !buf_failed(&r->text);
}

static enum line_result end(struct line_reader *r)
{
	r->given = true;
	if (!r->skipped && r->text.len && r->text.data[r->text.len - 1] == '\r')
		buf_truncate(&r->text, r->text.len - 1);
	if (!r->skipped && r->text.len > HARNESS_LINE_MAX)
		r->skipped = r->text.len;
	return r->skipped ? LINE_TOO_LONG : LINE_WHOLE;
}

enum line_result line_take(struct line_reader *r, const char *data, size_t len, size_t *ret_used)
{
	const char *feed = len ? memchr(data, '\n', len) : NULL;
	size_t n = feed ? (size_t)(feed - data) : len;

	if (r->given)
		begin(r);
	*ret_used = n + (feed != NULL);
	if (!add(r, data, n))
		return LINE_NO_MEMORY;
	return feed ? end(r) : LINE_NONE;
}
