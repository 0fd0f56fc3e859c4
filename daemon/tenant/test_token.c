/* What may be a token, in a file or as a hash; what is refused, and by which name. */
#include "common/test.h"

#include "daemon/tenant/token.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GOOD "cloister_5dJt2n0hV-Zq8xWm4uKpR7aEyTsL1cBgOiNf3vXkQ6w"
#define HEX  "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
#define HASH_RULE                                                                            \
	"must be the SHA-256 of a token: 64 hex digits in lower case, as \"cloisterd token " \
	"new\" prints them"

static void expect(const char *text, const char *fault)
{
	unsigned char digest[TOKEN_DIGEST], wanted[TOKEN_DIGEST];
	struct err e = ERR_INIT;

	if (token_read(text, strlen(text), digest, &e) < 0) {
		assert_string_equal(e.text, fault);
		return;
	}
	assert_string_equal("", fault);
	crypto_hash_sha256(wanted, (const unsigned char *)text, strlen(text));
	assert_memory_equal(digest, wanted, sizeof(wanted));
}

static void what_people_draw_is_taken(void **state)
{
	(void)state;
	expect(GOOD, "");
	expect(HEX, "");
	expect("K7gNU3sdo+OL0wNhqoVWhr3g6s1xYv72ol/pe/Unols=", "");
	expect("3f2504e0-4f89-41d3-9a0c-0305e82c3301", "");
	expect("token-a-0123456789abcdef01234567", "");
}

static void what_stands_in_examples_is_named(void **state)
{
#define LOOKS "the token looks like a placeholder: "
	static const struct {
		const char *token, *fault;
	} rows[] = {
		{ "changeme", "the token is shorter than 32 bytes" },
		{ "", "the token is empty" },
		{ "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", LOOKS "it is one character, repeated" },
		{ "0000000000000000000000000000000000000000",
		  LOOKS "it is one character, repeated" },
		{ "4f9a4f9a4f9a4f9a4f9a4f9a4f9a4f9a", LOOKS "it repeats its first 4 characters" },
		{ "kD83nf0aLq2XvT51kD83nf0aLq2XvT51", LOOKS "it repeats its first 16 characters" },
		{ "kD83nf0aLq2XvT51kD83nf0aLq2XvT51kD8",
		  LOOKS "it repeats its first 16 characters" },
		{ "abacabadabacabcaabacdcbabbacabab", LOOKS "it has only 4 different characters" },
		{ "ChangeMe-ChangeMe-ChangeMe-Change", LOOKS "it has \"changeme\" in it" },
		{ "9ux2-CHANGE_ME-vkq81mz0w2lrp6nt5hs", LOOKS "it has \"change_me\" in it" },
		{ "my-very-long-PASSWORD-for-acme-42x", LOOKS "it has \"password\" in it" },
		{ "tenant-acme.example.com-bearer-91x", LOOKS "it has \"example\" in it" },
		{ "your_token_goes_here_0123456789abc", LOOKS "it has \"your_token\" in it" },
		{ "aReplaceThisWithSomethingLong12345", LOOKS "it has \"replacethis\" in it" },
		{ "abcdefghijklmnopqrstuvwxyz0123456789", LOOKS "its characters count up or down" },
		{ "zyxwvutsrqponmlkjihgfedcba9876543210", LOOKS "its characters count up or down" },
		{ "0123456789abcdef0123456789abcdef", LOOKS "it repeats its first 16 characters" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		expect(rows[i].token, rows[i].fault);
}

static void seven_kinds_of_characters_are_too_few(void **state)
{
	(void)state;
	expect("abcdefgacegbdfadgcfbeaebfcgdgfab", LOOKS "it has only 7 different characters");
	expect("abcdefgacegbdfadgcfbeaebfcgdgfah", "");
}

/* -- hashes ------------------------------------------------------------------------------ */

static void expect_hash(const char *text, const char *fault)
{
	unsigned char digest[TOKEN_DIGEST] = { 0 }, wanted[TOKEN_DIGEST] = { 0 };
	struct err e = ERR_INIT;
	int rc = token_read_hash(text, digest, &e);

	assert_string_equal(e.text, fault);
	assert_int_equal(rc, *fault ? -1 : 0);
	if (rc == 0)
		assert_int_equal(sodium_hex2bin(wanted, sizeof(wanted), text, 64, NULL, NULL, NULL),
		                 0);
	assert_memory_equal(digest, wanted, sizeof(wanted));
}

static void a_hash_is_64_digits(void **state)
{
	(void)state;
	expect_hash("5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5", "");
	expect_hash("5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc", HASH_RULE);
	expect_hash("5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc55", HASH_RULE);
	expect_hash("5994471ABB01112AFCC18159F6CC74B4F511B99806DA59B3CAF5A9C173CACFC5", HASH_RULE);
	expect_hash("sha256:5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cac",
	            HASH_RULE);
	expect_hash("", HASH_RULE);
	expect_hash("0000000000000000000000000000000000000000000000000000000000000000",
	            "is no hash of anything: it has too few different digits");
	expect_hash("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
	            "is the hash of nothing");
	expect_hash("01ba4719c80b6fe911b091a7c05124b64eeece964e09c058ef8f9805daca546b",
	            "is the hash of nothing"); /* echo | sha256sum */
	expect_hash("057ba03d6c44104863dc7361fe4578965d1887360f90a0895882e58a6248fc86",
	            "is the hash of a placeholder, \"changeme\"");
}

static void a_file_may_hold_a_hash(void **state)
{
	static const char text[] =
		"\n sha256:"
		"5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5\n";
	unsigned char digest[TOKEN_DIGEST], wanted[TOKEN_DIGEST];
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(token_read(text, strlen(text), digest, &e), 0);
	assert_int_equal(token_read_hash(text + 9, wanted, &e), -1);
	expect("sha256:5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc",
	       "what is behind \"sha256:\": " HASH_RULE);
	expect("SHA256:5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfg5",
	       "what is behind \"sha256:\": " HASH_RULE);
	expect("sha256: 5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5",
	       "what is behind \"sha256:\": " HASH_RULE);
	expect("sha256:", "what is behind \"sha256:\": " HASH_RULE);
}

/* -- new ones ---------------------------------------------------------------------------- */

static void new_ones_are_good_and_differ(void **state)
{
	struct token_text text, last = { "", "" };
	char marked[80];
	unsigned char digest[TOKEN_DIGEST], again[TOKEN_DIGEST];
	struct err e = ERR_INIT;

	(void)state;
	for (int i = 0; i < 1000; i++) {
		token_draw(&text);
		assert_int_equal(strlen(text.token),
		                 strlen("cloister_") + 43); /* 256 bits, base64 */
		if (token_read(text.token, strlen(text.token), digest, &e) < 0)
			fail_msg("%s: %s", text.token, e.text);
		(void)snprintf(marked, sizeof(marked), "sha256:%s", text.hash);
		assert_int_equal(token_read(marked, strlen(marked), again, &e), 0);
		assert_memory_equal(digest, again, sizeof(digest));
		assert_string_not_equal(text.token, last.token);
		last = text;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_people_draw_is_taken),
		cmocka_unit_test(what_stands_in_examples_is_named),
		cmocka_unit_test(seven_kinds_of_characters_are_too_few),
		cmocka_unit_test(a_hash_is_64_digits),
		cmocka_unit_test(a_file_may_hold_a_hash),
		cmocka_unit_test(new_ones_are_good_and_differ),
	};

	if (sodium_init() < 0)
		return 1;
	return RUN_TESTS(tests);
}
