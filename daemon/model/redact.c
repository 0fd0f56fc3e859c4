/*
 * A unit is a byte, or what JSON may write for one: "\/" and "\u00xx", as many encoders do for
 * some bytes that keys have.  Whoever reads the JSON then has the key as it is.
 */
#include "daemon/model/redact.h"

#include <string.h>

void redact_init(struct redact *r, const char *secret)
{
	*r = (struct redact){ .secret = secret, .len = strlen(secret) };
}

/* After a mismatch: the longest end of what is held that is a beginning of the secret. */
static void fall_back(struct redact *r, struct buf *out)
{
	size_t keep = r->held - 1, bytes = 0;

	while (keep && memcmp(r->secret, r->secret + r->held - keep, keep) != 0)
		keep--;
	for (size_t i = 0; i < r->held - keep; i++)
		bytes += r->widths[i];
	buf_add(out, r->raw, bytes);
	r->raw_len -= bytes;
	memmove(r->raw, r->raw + bytes, r->raw_len);
	memmove(r->widths, r->widths + r->held - keep, keep);
	r->held = keep;
}

static void take_unit(struct redact *r, char unit, const char *raw, size_t len, struct buf *out)
{
	while (r->held && r->secret[r->held] != unit)
		fall_back(r, out);
	if (r->secret[r->held] != unit) {
		buf_add(out, raw, len);
		return;
	}
	memcpy(r->raw + r->raw_len, raw, len);
	r->raw_len += len;
	r->widths[r->held++] = (unsigned char)len;
	if (r->held == r->len) {
		buf_adds(out, REDACTED);
		r->held = r->raw_len = 0;
	}
}

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Whether the escape that has begun may go on with the byte. */
static bool goes_on(const struct redact *r, char byte)
{
	switch (r->escape_len) {
	case 0:
		return byte == '\\';
	case 1:
		return byte == '/' || byte == 'u';
	case 2:
	case 3:
		return byte == '0';
	default:
		return hex(byte) >= 0;
	}
}

/* It was none: each byte stands for itself. */
static void end_escape(struct redact *r, struct buf *out)
{
	for (size_t i = 0; i < r->escape_len; i++)
		take_unit(r, r->escape[i], &r->escape[i], 1, out);
	r->escape_len = 0;
}

static void take_byte(struct redact *r, char byte, struct buf *out)
{
	char unit;

	if (r->escape_len && !goes_on(r, byte))
		end_escape(r, out);
	if (!goes_on(r, byte)) {
		take_unit(r, byte, &byte, 1, out);
		return;
	}
	r->escape[r->escape_len++] = byte;
	if (r->escape_len != REDACT_ESCAPE && !(r->escape_len == 2 && byte == '/'))
		return;
	unit = byte == '/' ? byte : (char)(hex(r->escape[4]) * 16 + hex(r->escape[5]));
	take_unit(r, unit, r->escape, r->escape_len, out);
	r->escape_len = 0;
}

void redact_take(struct redact *r, const char *data, size_t len, struct buf *out)
{
	if (!r->len) {
		buf_add(out, data, len);
		return;
	}
	for (size_t i = 0; i < len; i++)
		take_byte(r, data[i], out);
}

void redact_end(struct redact *r, struct buf *out)
{
	end_escape(r, out);
	buf_add(out, r->raw, r->raw_len);
	r->held = r->raw_len = 0;
}
