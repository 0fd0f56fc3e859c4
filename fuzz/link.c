/*
 * What a PostgreSQL says until a login is over.  Whether it comes at once or byte by byte, the
 * same of it passes; and what passes is whole messages, of which none asks for a password or
 * offers what would bind a login to TLS.  A login that proves nothing never succeeds.
 */
#include "fuzz/fuzz.h"

#include "daemon/link/sasl.h"

struct login {
	uint8_t *data; /* of exactly the bytes that came */
	size_t len;
	size_t fit; /* so many of them pass */
	enum sasl_verdict verdict;
	enum sasl_login at;
};

static void hear(struct login *l, const uint8_t *data, size_t size)
{
	uint8_t *more = (uint8_t *)room_for(l->len + size);

	if (l->len)
		memcpy(more, l->data, l->len);
	if (size)
		memcpy(more + l->len, data, size);
	free(l->data);
	l->data = more;
	l->len += size;
}

/* The next message; false when no more can be said, or the login is over. */
static int judge_one(struct login *l)
{
	size_t before = l->len - l->fit, rest = before, message = 0;
	struct err e = ERR_INIT;

	l->verdict = sasl_judge(l->data + l->fit, &rest, &l->at, &message, &e);
	demand((l->verdict == SASL_REFUSE) == (e.code != 0));
	demand(rest == before || (l->verdict == SASL_PASS && rest < before));
	l->len = l->fit + rest;
	demand(l->verdict != SASL_OVER || l->at == SASL_PROVED || l->data[l->fit] == 'E');
	if (l->verdict != SASL_PASS)
		return 0;
	demand(message > 4 && message <= rest && message <= SASL_MESSAGE_MAX);
	l->fit += message;
	return 1;
}

static void judge(struct login *l)
{
	while (judge_one(l))
		;
}

static uint32_t number(const uint8_t *at)
{
	uint32_t n = 0;

	for (int i = 0; i < 4; i++)
		n = n << 8 | at[i];
	return n;
}

static void check_offer(const uint8_t *names, size_t size)
{
	while (size > 1) {
		size_t n = strnlen((const char *)names, size);

		demand(n > 0 && n < size);
		demand(strcmp((const char *)names, "SCRAM-SHA-256-PLUS") != 0);
		names += n + 1;
		size -= n + 1;
	}
	demand(size == 1 && !names[0]);
}

static void check_request(const uint8_t *at, size_t message)
{
	uint32_t code;

	demand(message >= 9);
	code = number(at + 5);
	demand(code >= 10 && code <= 12);
	if (code == 10)
		check_offer(at + 9, message - 9);
}

static void check_messages(const uint8_t *at, size_t len)
{
	while (len > 0) {
		size_t message;

		demand(len >= 5 && memchr("RNv", at[0], 3));
		message = 1 + (size_t)number(at + 1);
		demand(message <= len);
		if (at[0] == 'R')
			check_request(at, message);
		at += message;
		len -= message;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct login whole = { 0 }, pieces = { 0 };

	hear(&whole, data, size);
	judge(&whole);
	check_messages(whole.data, whole.fit);
	for (size_t i = 0; i < size && pieces.verdict == SASL_MORE; i++) {
		hear(&pieces, data + i, 1);
		judge(&pieces);
	}
	demand(pieces.verdict == whole.verdict && pieces.fit == whole.fit);
	demand(!whole.fit || memcmp(pieces.data, whole.data, whole.fit) == 0);
	free(whole.data);
	free(pieces.data);
	return 0;
}
