#include "common/test.h"

#include "daemon/setup/repository.h"
#include "daemon/setup/said.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#define USER  "robot"
#define FORM  ((size_t)8192)  /* of a credential */
#define SPACE ((size_t)32768) /* of what git says */

static char password[REPOSITORY_PASSWORD_MAX + 1], credential[FORM], header[FORM];

/* Bytes that repeat nowhere, so that a piece of them is known for one. */
static void make_secret(size_t len)
{
	char pair[FORM], number[16];

	memset(password, 0, sizeof(password));
	for (size_t at = 0; at < len; at += 5) {
		(void)snprintf(number, sizeof(number), "%04zx-", at * 7919 % 65536);
		memcpy(password + at, number, len - at < 5 ? len - at : 5);
	}
	(void)snprintf(credential, FORM, "username=" USER "\npassword=%s\n", password);
	(void)snprintf(pair, FORM, USER ":%s", password);
	(void)sodium_bin2base64(header, FORM, (const unsigned char *)pair, strlen(pair),
	                        sodium_base64_VARIANT_ORIGINAL);
}

/* What is told of that; in pieces of so many bytes. */
static void tell(const char *text, size_t piece, char ret[TOLD_MAX + 1])
{
	struct said said = SAID_INIT;
	size_t len = strlen(text);

	for (size_t at = 0; at < len; at += piece)
		said_take(&said, 2, text + at, len - at < piece ? len - at : piece);
	said_complaint(&said, credential, ret);
	said_release(&said);
}

/* How long the longest part of a secret is that stands in it. */
static size_t longest(const char *told, const char *secret)
{
	size_t best = 0, len = strlen(told);

	for (size_t at = 0; at < len; at++)
		while (at + best + 1 <= len && memmem(secret, strlen(secret), told + at, best + 1))
			best++;
	return best;
}

static void assert_hidden(const char *text, size_t piece)
{
	char told[TOLD_MAX + 1];

	tell(text, piece, told);
	if (longest(told, password) >= SAID_PIECE || longest(told, header) >= SAID_PIECE)
		fail_msg("a password of %zu bytes: told %s", strlen(password), told);
}

static void hides_long_secrets(void **state)
{
	static const size_t lengths[] = { 8, 100, 1400, 1500, 1999, 2000, 2001, 3000, 4096 };
	static char text[SPACE];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
		make_secret(lengths[i]);
		for (size_t piece = 1; piece < 9000; piece = piece * 7 + 1) {
			(void)snprintf(text, SPACE, "remote: %s\n", password);
			assert_hidden(text, piece);
			(void)snprintf(text, SPACE, "remote: Basic %s\nfatal: 403\n", header);
			assert_hidden(text, piece);
			(void)snprintf(text, SPACE, "%s%s%s%s", header, password, password, header);
			assert_hidden(text, piece);
		}
	}
}

/* Nothing of it stays, wherever what is kept begins: what follows it is not told. */
static void hides_what_is_cut(const char *secret)
{
	static char text[SPACE];
	char told[TOLD_MAX + 1];
	size_t len = strlen(secret), step = len < 1000 ? 1 : 41;

	for (size_t left = 1; left <= len && left < SAID_MAX; left += step) {
		(void)snprintf(text, SPACE, "%s.%*s", secret, (int)(SAID_MAX - left - 1), "");
		tell(text, SPACE, told);
		if (strspn(told, "*") != (left < TOLD_MAX ? left : TOLD_MAX - 1) ||
		    strcmp(told + strspn(told, "*"), ".") != 0)
			fail_msg("%zu bytes left of %zu: told %s", left, len, told);
	}
}

static void hides_a_secret_cut_at_each_offset(void **state)
{
	static const size_t lengths[] = { 1, 7, 8, 9, 500, 2001, 4096 };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
		make_secret(lengths[i]);
		hides_what_is_cut(password);
		hides_what_is_cut(header);
	}
}

/* As git itself cuts it, which has a bound for its messages. */
static void hides_a_part_of_it(void **state)
{
	static char text[SPACE];

	(void)state;
	make_secret(REPOSITORY_PASSWORD_MAX);
	for (int len = 1; len < 380; len += len < 20 ? 1 : 19) {
		(void)snprintf(text, SPACE, "fatal: %.*s\n", len, password + len);
		assert_hidden(text, SPACE);
		(void)snprintf(text, SPACE, "fatal: %.*s\n", len, header);
		assert_hidden(text, SPACE);
	}
}

static void assert_told(const char *text, const char *wanted)
{
	char told[TOLD_MAX + 1];

	tell(text, SPACE, told);
	assert_string_equal(told, wanted);
}

static void tells_the_rest(void **state)
{
	(void)state;
	(void)snprintf(credential, FORM, "username=\npassword=abc\n");
	assert_told("", "");
	assert_told(" \n", "");
	assert_told("fatal: it says abc, aabc and ab\r\n\n", "fatal: it says ***, a*** and ab");
	assert_told("one\ntwo\x01\x7f\xff", "one two  \xef\xbf\xbd");
	/* Seven bytes in a row are those that another one begins with: no half is left. */
	(void)snprintf(credential, FORM, "username=\npassword=\xc3\xa9%s\n", "1234567");
	assert_told("\xc3\xa9"
	            "1234567 \xc4\xa9"
	            "1234567.",
	            "********* \xef\xbf\xbd********.");
}

static void tells_all_without_a_credential(void **state)
{
	struct said said = SAID_INIT;
	char told[TOLD_MAX + 1], text[SAID_MAX + 1];

	(void)state;
	memset(text, 'x', SAID_MAX);
	text[SAID_MAX] = '\0';
	said_take(&said, 1, "abc", 3);
	said_take(&said, 2, text, SAID_MAX);
	said_take(&said, 1, text, SAID_MAX);
	assert_int_equal(said.out.len, SAID_MAX);
	assert_memory_equal(said.out.data, "abcx", 4);
	said_complaint(&said, NULL, told);
	assert_int_equal(strlen(told), TOLD_MAX);
	assert_int_equal(strspn(told, "x"), TOLD_MAX);
	said_release(&said);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hides_long_secrets),
		cmocka_unit_test(hides_a_secret_cut_at_each_offset),
		cmocka_unit_test(hides_a_part_of_it),
		cmocka_unit_test(tells_the_rest),
		cmocka_unit_test(tells_all_without_a_credential),
	};

	return RUN_TESTS(tests);
}
