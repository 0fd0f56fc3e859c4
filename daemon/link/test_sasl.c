/* What a server says before a login is over: what passes, what is taken out, what is refused. */
#include "common/test.h"

#include "daemon/link/sasl.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLUS  "SCRAM-SHA-256-PLUS\0"
#define SCRAM "SCRAM-SHA-256\0"
#define AFTER "what follows"

static struct err e;
static enum sasl_login login; /* as far as it has come before what is judged */

/* A message of a type, with a length that may be a lie of so many bytes. */
static size_t put(uint8_t *at, char type, const void *body, size_t len, int lie)
{
	uint32_t n = (uint32_t)((int)len + 4 + lie);
	const uint8_t head[] = { (uint8_t)type, (uint8_t)(n >> 24), (uint8_t)(n >> 16),
		                 (uint8_t)(n >> 8), (uint8_t)n };

	memcpy(at, head, sizeof(head));
	memcpy(at + sizeof(head), body, len);
	return sizeof(head) + len;
}

static size_t put_request(uint8_t *at, uint32_t code, const void *more, size_t len)
{
	uint8_t body[SASL_MESSAGE_MAX + 64] = { (uint8_t)(code >> 24), (uint8_t)(code >> 16),
		                                (uint8_t)(code >> 8), (uint8_t)code };

	memcpy(body + 4, more, len);
	return put(at, 'R', body, len + 4, 0);
}

/*
 * Judged as it comes in, byte by byte, in memory of exactly that size: before the last byte
 * nothing is known.  Then with something behind it, which must still be there.
 */
static enum sasl_verdict judge(const uint8_t *said, size_t len, uint8_t *ret, size_t *ret_message)
{
	enum sasl_verdict verdict = SASL_MORE;
	uint8_t *whole = malloc(len + sizeof(AFTER));
	enum sasl_login before = login, at = login;
	size_t n;

	for (size_t i = 0; i <= len && verdict == SASL_MORE; i++) {
		uint8_t *part = malloc(i + !i);

		memcpy(part, said, i);
		n = i;
		assert_int_equal(at, before);
		verdict = sasl_judge(part, &n, &at, ret_message, &e);
		assert_true(verdict == SASL_REFUSE || verdict == SASL_OVER || i == len || n == i);
		free(part);
	}
	memcpy(whole, said, len);
	memcpy(whole + len, AFTER, sizeof(AFTER));
	n = len + sizeof(AFTER);
	if (verdict == SASL_PASS) {
		assert_int_equal(sasl_judge(whole, &n, &login, ret_message, &e), verdict);
		assert_int_equal(login, at);
		assert_int_equal(n, *ret_message + sizeof(AFTER));
		assert_memory_equal(whole + *ret_message, AFTER, sizeof(AFTER));
		memcpy(ret, whole, *ret_message);
	}
	free(whole);
	login = SASL_BEGUN;
	return verdict;
}

static void expect_offer(const char *names, size_t len, const char *left, size_t left_len)
{
	uint8_t said[SASL_MESSAGE_MAX + 64], wanted[SASL_MESSAGE_MAX + 64], got[SASL_MESSAGE_MAX];
	size_t n = put_request(said, 10, names, len), message = 0;
	size_t wanted_len = put_request(wanted, 10, left, left_len);

	assert_int_equal(judge(said, n, got, &message), SASL_PASS);
	assert_int_equal(message, wanted_len);
	assert_memory_equal(got, wanted, wanted_len);
}

#define OFFER(names, left) expect_offer(names, sizeof(names), left, sizeof(left))

/* The NUL of the literal is the empty name at the end. */
static void one_mechanism_is_taken_out(void **state)
{
	(void)state;
	OFFER(PLUS SCRAM, SCRAM);
	OFFER(SCRAM PLUS, SCRAM);
	OFFER(PLUS PLUS SCRAM PLUS, SCRAM);
	OFFER("X\0" PLUS "Y\0", "X\0Y\0");
	OFFER(PLUS, "");
	OFFER("", "");
	OFFER(SCRAM, SCRAM);
	OFFER("SCRAM-SHA-1-PLUS\0", "SCRAM-SHA-1-PLUS\0");
	OFFER("SCRAM-SHA-256-PLU\0", "SCRAM-SHA-256-PLU\0");
	OFFER("SCRAM-SHA-256-PLUSS\0", "SCRAM-SHA-256-PLUSS\0");
	OFFER("ABCDEFGHIJKLMNOPQRST\0", "ABCDEFGHIJKLMNOPQRST\0");
}

static void expect_malformed(const char *names, size_t len)
{
	uint8_t said[SASL_MESSAGE_MAX + 64], got[SASL_MESSAGE_MAX];
	size_t message;

	assert_int_equal(judge(said, put_request(said, 10, names, len), got, &message),
	                 SASL_REFUSE);
	assert_non_null(strstr(e.text, "malformed"));
}

#define MALFORMED(names) expect_malformed(names, sizeof(names) - 1)

static void lists_of_mechanisms_that_are_none(void **state)
{
	(void)state;
	MALFORMED("");
	MALFORMED("SCRAM-SHA-256");       /* no end */
	MALFORMED("SCRAM-SHA-256\0");     /* no empty name */
	MALFORMED("SCRAM-SHA-256\0\0X");  /* something after it */
	MALFORMED("SCRAM-SHA-256\0\0\0"); /* likewise */
	MALFORMED("\0\0");
	MALFORMED("scram\0\0");
	MALFORMED("SCRAM SHA\0\0");
	MALFORMED("\xff\0\0");
	MALFORMED("ABCDEFGHIJKLMNOPQRSTU\0\0"); /* 21 bytes */
	MALFORMED(PLUS "x");
}

static enum sasl_verdict ask(uint32_t code, size_t more)
{
	static const uint8_t zeros[SASL_MESSAGE_MAX];
	uint8_t said[SASL_MESSAGE_MAX + 64], got[SASL_MESSAGE_MAX];
	size_t message;

	return judge(said, put_request(said, code, zeros, more), got, &message);
}

static void a_password_is_not_shown(void **state)
{
	(void)state;
	assert_int_equal(ask(3, 0), SASL_REFUSE);
	assert_non_null(strstr(e.text, "cleartext"));
	assert_non_null(strstr(e.text, "scram-sha-256"));
	assert_int_equal(ask(5, 4), SASL_REFUSE);
	assert_non_null(strstr(e.text, "MD5"));
	for (uint32_t code = 1; code < 300; code++)
		if (code < 10 || code > 12)
			assert_int_equal(ask(code, 4), SASL_REFUSE);
	assert_int_equal(ask(UINT32_MAX, 0), SASL_REFUSE);
	assert_int_equal(ask(10 << 24, 0), SASL_REFUSE);
}

static enum sasl_verdict ask_at(enum sasl_login at, uint32_t code, size_t more)
{
	login = at;
	return ask(code, more);
}

/* Whoever could answer at all would be the database. */
static void nothing_is_over_without_a_proof(void **state)
{
	(void)state;
	for (enum sasl_login at = SASL_BEGUN; at < SASL_PROVED; at++) {
		assert_int_equal(ask_at(at, 0, 0), SASL_REFUSE);
		assert_non_null(strstr(e.text, "it lets in whoever comes"));
		assert_non_null(strstr(e.text, "scram-sha-256"));
	}
}

static void each_message_in_its_turn(void **state)
{
	(void)state;
	for (enum sasl_login at = SASL_BEGUN; at <= SASL_PROVED; at++)
		for (uint32_t code = 10; code <= 12; code++) {
			if ((uint32_t)at + 10 == code)
				continue;
			assert_int_equal(ask_at(at, code, 1), SASL_REFUSE);
			assert_non_null(strstr(e.text, "out of turn"));
		}
}

static enum sasl_verdict challenge_of(const char *text, size_t len)
{
	uint8_t said[SASL_MESSAGE_MAX], got[SASL_MESSAGE_MAX];
	size_t message;

	login = SASL_OFFERED;
	return judge(said, put_request(said, 11, text, len), got, &message);
}

static enum sasl_verdict challenge(const char *text)
{
	return challenge_of(text, strlen(text));
}

/* libpq would do them all, and nothing else meanwhile. */
static void rounds_of_hashing(void **state)
{
	const char *const too_many[] = { "100001", "999999999", "1000000000",
		                         "18446744073709551617", "4294971392" };
	char text[100];

	(void)state;
	assert_int_equal(challenge("r=a,s=b,i=1"), SASL_PASS);
	assert_int_equal(challenge("r=a,s=b,i=100000"), SASL_PASS);
	for (size_t i = 0; i < ARRAY_LEN(too_many); i++) {
		(void)snprintf(text, sizeof(text), "r=a,s=b,i=%s", too_many[i]);
		assert_int_equal(challenge(text), SASL_REFUSE);
		assert_non_null(strstr(e.text, "more than 100000 rounds"));
	}
}

static void challenges_that_are_none(void **state)
{
	const char *const texts[] = {
		"",
		"r=a",
		"r=a,s=b",
		"r=a,s=b,i=",
		"r=a,s=b,i=0",
		"r=a,s=b,i=-1",
		"r=a,s=b,i=+1",
		"r=a,s=b,i= 1",
		"r=a,s=b,i=1x",
		"r=a,s=b,i=1,",
		"r=a,s=b,i=1,i=200000",
		"r=a,s=b,x=1,i=1",
		"s=b,r=a,i=1",
		"i=1,r=a,s=b",
		"m=x,r=a,s=b,i=1",
		"e=other-error",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		assert_int_equal(challenge(texts[i]), SASL_REFUSE);
		assert_non_null(strstr(e.text, "malformed"));
	}
	assert_int_equal(challenge_of("r=a,s=b,i=1", 12), SASL_REFUSE); /* with its NUL */
	assert_int_equal(challenge_of("r=a\0,s=b,i=1", 12), SASL_REFUSE);
}

/* From its beginning to its end; a notice in between changes nothing. */
static void a_whole_login(void **state)
{
	static const struct {
		uint32_t code;
		const char *more;
		size_t len;
		enum sasl_login then;
	} says[] = {
		{ 10, PLUS SCRAM, sizeof(PLUS SCRAM), SASL_OFFERED },
		{ 11, "r=abc,s=QUJD,i=4096", 19, SASL_CHALLENGED },
		{ 12, "v=QUJD", 6, SASL_PROVED },
	};
	enum sasl_login at = SASL_BEGUN;
	uint8_t said[SASL_MESSAGE_MAX];
	size_t n, message;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(says); i++) {
		n = put_request(said, says[i].code, says[i].more, says[i].len);
		assert_int_equal(sasl_judge(said, &n, &at, &message, &e), SASL_PASS);
		assert_int_equal(at, says[i].then);
		n = put(said, 'N', "S", 2, 0);
		assert_int_equal(sasl_judge(said, &n, &at, &message, &e), SASL_PASS);
		assert_int_equal(at, says[i].then);
	}
	n = put_request(said, 0, "", 0);
	assert_int_equal(sasl_judge(said, &n, &at, &message, &e), SASL_OVER);
}

static void what_passes(void **state)
{
	uint8_t said[64], got[SASL_MESSAGE_MAX];
	size_t message;

	(void)state;
	assert_int_equal(challenge("r=abc,s=QUJD,i=4096"), SASL_PASS);
	assert_int_equal(ask_at(SASL_CHALLENGED, 12, 48), SASL_PASS);
	assert_int_equal(ask_at(SASL_PROVED, 0, 0), SASL_OVER);
	assert_int_equal(judge(said, put(said, 'N', "S", 2, 0), got, &message), SASL_PASS);
	assert_int_equal(judge(said, put(said, 'v', "", 0, 0), got, &message), SASL_PASS);
	/* An error of the server is known by its first byte, and may be long. */
	assert_int_equal(judge((const uint8_t *)"E", 1, got, &message), SASL_OVER);
}

/* No type but these begins anything, however much follows. */
static void what_does_not_begin_a_login(void **state)
{
	uint8_t said[64], got[SASL_MESSAGE_MAX];
	size_t message;

	(void)state;
	for (int type = 0; type < 256; type++) {
		if (strchr("RNvE", type) && type)
			continue;
		said[0] = (uint8_t)type;
		assert_int_equal(judge(said, 1, got, &message), SASL_REFUSE);
	}
}

static void lengths_at_their_bounds(void **state)
{
	uint8_t said[SASL_MESSAGE_MAX + 64], got[SASL_MESSAGE_MAX], body[16] = { 0 };
	size_t message;

	(void)state;
	/* type, length and code are 9 of the bytes */
	assert_int_equal(ask_at(SASL_CHALLENGED, 12, SASL_MESSAGE_MAX - 9), SASL_PASS);
	assert_int_equal(ask_at(SASL_CHALLENGED, 12, SASL_MESSAGE_MAX - 8), SASL_REFUSE);
	assert_non_null(strstr(e.text, "length"));
	for (int len = 0; len < 4; len++)
		assert_int_equal(judge(said, put(said, 'R', body, len, 0), got, &message),
		                 SASL_REFUSE);
	for (int lie = -4; lie < 0; lie++)
		assert_int_equal(judge(said, put(said, 'N', "", 0, lie), got, &message),
		                 SASL_REFUSE);
	assert_int_equal(judge(said, put(said, 'N', "", 0, INT32_MAX - 4), got, &message),
	                 SASL_REFUSE);
	assert_int_equal(judge(said, put(said, 'N', "", 0, -5), got, &message), SASL_REFUSE);
	assert_int_equal(judge(said, put(said, 'R', body, 8, 1), got, &message), SASL_MORE);
}

/* As many names as fit, each second one to go. */
static void a_list_that_fills_a_message(void **state)
{
	char names[SASL_MESSAGE_MAX] = "", left[SASL_MESSAGE_MAX] = "";
	size_t n = 0, kept = 0;

	(void)state;
	while (n + sizeof(PLUS) - 1 + sizeof("Z") + 1 <= SASL_MESSAGE_MAX - 9) {
		memcpy(names + n, PLUS "Z", sizeof(PLUS "Z"));
		n += sizeof(PLUS "Z");
		memcpy(left + kept, "Z", 2);
		kept += 2;
	}
	expect_offer(names, n + 1, left, kept + 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_mechanism_is_taken_out),
		cmocka_unit_test(lists_of_mechanisms_that_are_none),
		cmocka_unit_test(a_password_is_not_shown),
		cmocka_unit_test(nothing_is_over_without_a_proof),
		cmocka_unit_test(each_message_in_its_turn),
		cmocka_unit_test(rounds_of_hashing),
		cmocka_unit_test(challenges_that_are_none),
		cmocka_unit_test(a_whole_login),
		cmocka_unit_test(what_passes),
		cmocka_unit_test(what_does_not_begin_a_login),
		cmocka_unit_test(lengths_at_their_bounds),
		cmocka_unit_test(a_list_that_fills_a_message),
	};

	return RUN_TESTS(tests);
}
