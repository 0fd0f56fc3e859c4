#include "daemon/setup/said.h"

#include "common/utf8.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void said_take(void *ctx, int stream, const char *data, size_t len)
{
	struct said *said = ctx;
	struct buf *b = stream == 2 ? &said->err : &said->out;

	if (stream != 2 && len > SAID_MAX - b->len)
		len = SAID_MAX - b->len;
	if (len > SAID_MAX) {
		data += len - SAID_MAX;
		len = SAID_MAX;
	}
	if (b->len + len > SAID_MAX)
		buf_consume(b, b->len + len - SAID_MAX);
	buf_add(b, data, len);
}

void said_release(struct said *said)
{
	buf_release(&said->out);
	buf_release(&said->err);
}

/* -- what may not be told ------------------------------------------------------------------ */

struct secret {
	const char *text;
	size_t len;
};

/* A piece of it, or all of a shorter one, stands there; its length. */
static size_t piece_at(const char *at, size_t left, const struct secret *s)
{
	size_t len = s->len < SAID_PIECE ? s->len : SAID_PIECE;

	return len && len <= left && memmem(s->text, s->len, at, len) ? len : 0;
}

/* What was kept may begin in the middle of it; how much of its end stands there. */
static size_t end_at(const char *at, size_t left, const struct secret *s)
{
	size_t len = s->len < left ? s->len : left;

	while (len && memcmp(at, s->text + s->len - len, len) != 0)
		len--;
	return len;
}

/* Both at once: where the forms overlap, hiding the one would break up the other. */
static void hide(struct buf *said, const struct secret *forms, size_t count)
{
	size_t until = 0;

	for (size_t i = 0; i < count && said->len == SAID_MAX; i++) {
		size_t len = end_at(said->data, said->len, &forms[i]);

		until = len > until ? len : until;
	}
	for (size_t at = 0; at < said->len; at++) {
		for (size_t i = 0; i < count; i++) {
			size_t len = piece_at(said->data + at, said->len - at, &forms[i]);

			until = at + len > until ? at + len : until;
		}
		if (at < until)
			said->data[at] = '*';
	}
}

/* user:password, which is in the credential as username=user\npassword=password\n */
static void write_pair(const char *credential, char *ret, const char **ret_password)
{
	const char *user = credential + strlen("username="), *end = strchr(user, '\n');
	size_t len = (size_t)(end - user), rest = strlen(end + 1 + strlen("password=")) - 1;

	memcpy(ret, user, len);
	ret[len] = ':';
	memcpy(ret + len + 1, end + 1 + strlen("password="), rest);
	ret[len + 1 + rest] = '\0';
	*ret_password = ret + len + 1;
}

/* False: no memory for it. */
static bool hide_credential(struct buf *said, const char *credential)
{
	size_t size = strlen(credential);
	size_t header_size = sodium_base64_encoded_len(size, sodium_base64_VARIANT_ORIGINAL);
	char *pair = malloc(size), *header = malloc(header_size);
	bool done = pair && header;

	if (done) {
		const char *password;

		write_pair(credential, pair, &password);
		(void)sodium_bin2base64(header, header_size, (const unsigned char *)pair,
		                        strlen(pair), sodium_base64_VARIANT_ORIGINAL);
		hide(said,
		     (const struct secret[]){ { password, strlen(password) },
		                              { header, strlen(header) } },
		     2);
		sodium_memzero(pair, size);
		sodium_memzero(header, header_size);
	}
	free(pair);
	free(header);
	return done;
}

/* -- what is told -------------------------------------------------------------------------- */

void said_complaint(struct said *said, const char *credential, char ret[TOLD_MAX + 1])
{
	auto_buf struct buf text = BUF_INIT(SAID_MAX * 3);
	size_t at = 0;

	ret[0] = '\0';
	if (!said->err.len || (credential && !hide_credential(&said->err, credential)))
		return;
	/* After the hiding, which may leave a part of a character. */
	utf8_repair(said->err.data, said->err.len, &text);
	if (buf_failed(&text))
		return;
	while (text.len > 0 && (unsigned char)text.data[text.len - 1] <= ' ')
		buf_truncate(&text, text.len - 1);
	if (text.len > TOLD_MAX)
		for (at = text.len - TOLD_MAX; (text.data[at] & 0xc0) == 0x80; at++)
			continue;
	for (char *p = text.data; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = ' ';
	(void)snprintf(ret, TOLD_MAX + 1, "%s", text.data + at);
}
