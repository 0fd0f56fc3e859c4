#include "daemon/model/sse.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char byte_order_mark[] = "\xef\xbb\xbf";

void sse_init(struct sse *s)
{
	*s = (struct sse){ .line = BUF_INIT(SSE_EVENT_MAX), .data = BUF_INIT(SSE_EVENT_MAX) };
}

void sse_release(struct sse *s)
{
	buf_release(&s->line);
	buf_release(&s->data);
}

static int too_long(struct err *e)
{
	return err_set(e, EMSGSIZE, "an event is longer than %zu bytes", SSE_EVENT_MAX);
}

static int dispatch(struct sse *s, const struct sse_receiver *to, struct err *e)
{
	int rc = 0;

	if (buf_failed(&s->data))
		return too_long(e);
	if (s->data.len)
		rc = to->event(to->ctx, s->type, s->data.data, s->data.len, e);
	buf_reset(&s->data);
	s->type[0] = '\0';
	s->has_data = false;
	return rc;
}

static void take_field(struct sse *s, const char *name, size_t len, const char *value)
{
	if (len == 4 && memcmp(name, "data", 4) == 0) {
		if (s->has_data)
			buf_addc(&s->data, '\n');
		buf_adds(&s->data, value);
		s->has_data = true;
	} else if (len == 5 && memcmp(name, "event", 5) == 0) {
		(void)snprintf(s->type, sizeof(s->type), "%s", value);
	}
}

/* A NUL inside ends a line for us: no field of these streams may hold one. */
static int end_line(struct sse *s, const struct sse_receiver *to, struct err *e)
{
	const char *line = s->line.data ? s->line.data : "";
	const char *colon = strchr(line, ':');
	size_t name = colon ? (size_t)(colon - line) : strlen(line);
	const char *value = colon ? colon + 1 : line + name;
	int rc = 0;

	if (buf_failed(&s->line))
		return too_long(e);
	if (!s->line.len)
		rc = dispatch(s, to, e);
	else
		take_field(s, line, name, value + (*value == ' '));
	buf_reset(&s->line);
	return rc;
}

/* True when c is one of the bytes of a byte order mark at the very beginning. */
static bool skip_mark(struct sse *s, char c)
{
	if (s->mark >= 3)
		return false;
	if (c == byte_order_mark[s->mark]) {
		s->mark++;
		return true;
	}
	buf_add(&s->line, byte_order_mark, s->mark); /* it was none */
	s->mark = 3;
	return false;
}

static int take_byte(struct sse *s, char c, const struct sse_receiver *to, struct err *e)
{
	bool of_last = s->after_cr && c == '\n';

	s->after_cr = c == '\r';
	if (of_last || skip_mark(s, c))
		return 0;
	if (c == '\r' || c == '\n')
		return end_line(s, to, e);
	buf_addc(&s->line, c);
	return buf_failed(&s->line) ? too_long(e) : 0;
}

static size_t plain(const char *data, size_t len)
{
	size_t n = 0;

	while (n < len && data[n] != '\r' && data[n] != '\n')
		n++;
	return n;
}

int sse_feed(struct sse *s, const char *data, size_t len, const struct sse_receiver *to,
             struct err *e)
{
	while (len > 0) {
		size_t n = s->mark < 3 || s->after_cr ? 0 : plain(data, len);

		buf_add(&s->line, data, n);
		if (n == 0) {
			if (take_byte(s, *data, to, e) < 0)
				return -1;
			n = 1;
		}
		if (buf_failed(&s->line))
			return too_long(e);
		data += n;
		len -= n;
	}
	return 0;
}
