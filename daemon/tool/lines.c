#include "daemon/tool/lines.h"

#include <inttypes.h>
#include <string.h>

void lines_init(struct lines *l, uint64_t first, uint64_t count, const char *contains)
{
	*l = (struct lines){ .first = first, .count = count, .contains = contains };
	l->out = (struct buf)BUF_INIT(LINES_BYTES + 256);
	l->line = (struct buf)BUF_INIT(LINES_BYTES);
}

void lines_release(struct lines *l)
{
	buf_release(&l->out);
	buf_release(&l->line);
}

bool lines_done(const struct lines *l)
{
	return l->full || l->picked >= l->count;
}

static bool wanted(const struct lines *l)
{
	if (lines_done(l))
		return false;
	return l->contains || l->number >= l->first;
}

static bool matches(const struct lines *l)
{
	return !l->contains || memmem(l->line.data ? l->line.data : "", l->line.len, l->contains,
	                              strlen(l->contains));
}

/* Of a text that is searched only the beginning of each line is looked at, and said to be. */
static void pick(struct lines *l, bool ended)
{
	size_t shown = l->line.len, max = l->contains ? LINES_MATCH : LINES_BYTES;
	uint64_t left;

	if (!wanted(l) || !matches(l))
		return;
	shown = shown < max ? shown : max;
	left = l->line_len - shown;
	if (l->out.len && l->out.len + shown + 64 > LINES_BYTES) {
		l->full = true;
		return;
	}
	if (l->contains)
		buf_addf(&l->out, "%" PRIu64 ": ", l->at - l->line_len);
	if (shown > LINES_BYTES - 64 - l->out.len) {
		left += shown - (LINES_BYTES - 64 - l->out.len);
		shown = LINES_BYTES - 64 - l->out.len;
	}
	if (shown)
		buf_add(&l->out, l->line.data, shown);
	if (left)
		buf_addf(&l->out, "[%" PRIu64 " bytes more]", left);
	l->cut = l->cut || left;
	if (ended || l->contains)
		buf_addc(&l->out, '\n');
	l->picked++;
}

static void end_line(struct lines *l, bool ended)
{
	if (l->within)
		pick(l, ended);
	l->within = false;
	l->line_len = 0;
	buf_reset(&l->line);
}

/* Part of one line, without its end. */
static void take_part(struct lines *l, const char *data, size_t len)
{
	size_t room = LINES_BYTES - l->line.len;

	if (!l->within) {
		l->within = true;
		l->number++;
	}
	if (len && room && wanted(l))
		buf_add(&l->line, data, len < room ? len : room);
	l->line_len += len;
	l->at += len;
}

void lines_take(struct lines *l, const char *data, size_t len)
{
	while (len) {
		const char *end = memchr(data, '\n', len);
		size_t n = end ? (size_t)(end - data) : len;

		take_part(l, data, n);
		if (end) {
			end_line(l, true);
			l->at++;
			n++;
		}
		data += n;
		len -= n;
	}
}

void lines_end(struct lines *l, uint64_t skip)
{
	end_line(l, false);
	l->at += skip;
}
