#include "daemon/model/redact.h"

#include <string.h>

void redact_init(struct redact *r, const char *secret)
{
	*r = (struct redact){ .secret = secret, .len = strlen(secret) };
}

/* After a mismatch: the longest end of what is held that is a beginning of the secret. */
static void fall_back(struct redact *r, struct buf *out)
{
	size_t keep = r->held - 1;

	while (keep && memcmp(r->secret, r->secret + r->held - keep, keep) != 0)
		keep--;
	buf_add(out, r->secret, r->held - keep);
	r->held = keep;
}

void redact_take(struct redact *r, const char *data, size_t len, struct buf *out)
{
	if (!r->len) {
		buf_add(out, data, len);
		return;
	}
	for (size_t i = 0; i < len; i++) {
		while (r->held && r->secret[r->held] != data[i])
			fall_back(r, out);
		if (r->secret[r->held] != data[i]) {
			buf_addc(out, data[i]);
		} else if (++r->held == r->len) {
			buf_adds(out, REDACTED);
			r->held = 0;
		}
	}
}

void redact_end(struct redact *r, struct buf *out)
{
	buf_add(out, r->secret, r->held);
	r->held = 0;
}
