#include "common/utf8.h"

#include <stdint.h>
#include <string.h>

enum step {
	STEP_CHAR, /* a well-formed character */
	STEP_BAD,  /* a maximal ill-formed part */
	STEP_CUT,  /* the data ends inside a character that is well-formed so far */
};

/* What the first byte promises: how many bytes follow, and the range of the second. */
static bool lead_range(unsigned char lead, size_t *ret_more, unsigned char *ret_low,
                       unsigned char *ret_high)
{
	*ret_low = 0x80;
	*ret_high = 0xbf;
	if (lead < 0xc2 || lead > 0xf4)
		return false;
	*ret_more = lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
	if (lead == 0xe0)
		*ret_low = 0xa0;
	else if (lead == 0xed)
		*ret_high = 0x9f;
	else if (lead == 0xf0)
		*ret_low = 0x90;
	else if (lead == 0xf4)
		*ret_high = 0x8f;
	return true;
}

/* Look at what data (len >= 1) begins with; *ret_n is the number of bytes it takes. */
static enum step step(const char *data, size_t len, size_t *ret_n)
{
	unsigned char low, high;
	size_t more, n = 1;

	*ret_n = 1;
	if ((unsigned char)data[0] < 0x80)
		return data[0] ? STEP_CHAR : STEP_BAD;
	if (!lead_range((unsigned char)data[0], &more, &low, &high))
		return STEP_BAD;
	for (; n <= more; n++) {
		*ret_n = n;
		if (n == len)
			return STEP_CUT;
		if ((unsigned char)data[n] < low || (unsigned char)data[n] > high)
			return STEP_BAD;
		low = 0x80;
		high = 0xbf;
	}
	*ret_n = n;
	return STEP_CHAR;
}

size_t utf8_char(const char *data, size_t len)
{
	size_t n;

	return len && step(data, len, &n) == STEP_CHAR ? n : 0;
}

/* Bytes of the longest well-formed prefix. */
static size_t valid_prefix(const char *data, size_t len)
{
	size_t at = 0, n;

	while (at < len) {
		if ((unsigned char)(data[at] - 1) < 0x7f) { /* 0x01 to 0x7f: nearly everything */
			at++;
			continue;
		}
		n = utf8_char(data + at, len - at);
		if (!n)
			break;
		at += n;
	}
	return at;
}

bool utf8_valid(const char *data, size_t len)
{
	return valid_prefix(data, len) == len;
}

bool utf8_repair(const char *data, size_t len, struct buf *out)
{
	bool replaced = false;

	while (len > 0) {
		size_t good = valid_prefix(data, len), bad;

		buf_add(out, data, good);
		data += good;
		len -= good;
		if (!len)
			break;
		(void)step(data, len, &bad);
		buf_adds(out, "\xef\xbf\xbd");
		replaced = true;
		data += bad;
		len -= bad;
	}
	return replaced;
}

size_t utf8_whole(const char *data, size_t len)
{
	for (size_t back = 1; back <= 3 && back <= len; back++) {
		size_t n;

		if (((unsigned char)data[len - back] & 0xc0) == 0x80)
			continue;
		return step(data + len - back, back, &n) == STEP_CUT ? len - back : len;
	}
	return len;
}
