#include "common/test.h"

#include "runner/args.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define UUID "0190a0b0-1111-7222-8333-444455556666"

static const char *const good[] = {
	"cloister-runner", "serve",    "--tenant",      UUID,      "--workspace", "/srv/ws",
	"--workspace-id",  "64769:12", "--state",       "/srv/st", "--state-id",  "0:0",
	"--rootfs",        "/r",       "--guest",       "/g",      "--runsc",     "/usr/bin/runsc",
	"--slirp4netns",   "/s",       "--runtime-dir", "/run/c",  "--boundary",  "development",
};

#define WORDS ARRAY_LEN(good)

static int parse_words(const char *const *from, size_t n, struct runner_args *ret, struct err *e)
{
	static char words[WORDS + 4][8192];
	char *argv[WORDS + 4];

	for (size_t i = 0; i < n; i++) {
		(void)snprintf(words[i], sizeof(words[i]), "%s", from[i]);
		argv[i] = words[i];
	}
	return args_parse((int)n, argv, ret, e);
}

/* The good line with word i replaced, if there is one, and with n extra words at the end. */
static int parse(size_t i, const char *word, const char *const *extra, size_t n,
                 struct runner_args *ret, struct err *e)
{
	const char *words[WORDS + 4];

	for (size_t k = 0; k < WORDS + n; k++)
		words[k] = k == i ? word : k < WORDS ? good[k] : extra[k - WORDS];
	return parse_words(words, WORDS + n, ret, e);
}

static void assert_refused(size_t i, const char *word, const char *reason)
{
	struct runner_args a = { .guest = "untouched" };
	struct err e = ERR_INIT;

	assert_int_equal(parse(i, word, NULL, 0, &a, &e), -1);
	assert_int_equal(e.code, EINVAL);
	assert_non_null(strstr(e.text, reason));
	assert_string_equal(a.guest, "untouched");
}

static void test_good(void **state)
{
	struct runner_args a;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(parse_words(good, WORDS, &a, &e), 0);
	assert_string_equal(a.tenant.text, UUID);
	assert_string_equal(a.workspace, "/srv/ws");
	assert_int_equal(a.workspace_id.device, 64769);
	assert_int_equal(a.workspace_id.inode, 12);
	assert_int_equal(a.state_id.inode, 0);
	assert_string_equal(a.slirp4netns, "/s");
	assert_int_equal(a.boundary, BOUNDARY_DEVELOPMENT);
	assert_null(a.debug_log);
}

static void test_extra_words(void **state)
{
	static const char *const debug[] = { "--debug-log", "/d" };
	static const char *const twice[] = { "--guest", "/other" };
	static const char *const unknown[] = { "--privileged", "yes" };
	static const char *const no_value[] = { "--debug-log" };
	struct runner_args a;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(parse(WORDS, NULL, NULL, 0, &a, &e), 0);
	assert_int_equal(parse(99, NULL, debug, 2, &a, &e), 0);
	assert_int_equal(parse(99, NULL, twice, 2, &a, &e), -1);
	assert_non_null(strstr(e.text, "--guest stands twice"));
	assert_int_equal(parse(99, NULL, unknown, 2, &a, &e), -1);
	assert_non_null(strstr(e.text, "unknown option '--privileged'"));
	assert_int_equal(parse(99, NULL, no_value, 1, &a, &e), -1);
	assert_non_null(strstr(e.text, "--debug-log needs a value"));
}

static void test_each_option_is_needed(void **state)
{
	(void)state;
	for (size_t i = 2; i < WORDS; i += 2) {
		const char *words[WORDS];
		struct runner_args a;
		struct err e = ERR_INIT;
		size_t n = 0;

		for (size_t k = 0; k < WORDS; k++)
			if (k != i && k != i + 1)
				words[n++] = good[k];
		assert_int_equal(parse_words(words, n, &a, &e), -1);
		assert_non_null(strstr(e.text, good[i]));
		assert_non_null(strstr(e.text, "is missing"));
	}
}

static void test_bad_values(void **state)
{
	char longest[4096 + 1];

	(void)state;
	memset(longest, 'a', sizeof(longest));
	longest[0] = '/';
	longest[4096] = '\0';
	assert_refused(1, "run", "serve");
	assert_refused(3, "0190A0B0-1111-7222-8333-444455556666", "canonical UUID");
	assert_refused(3, "../../../../../../../../../../../etc", "canonical UUID");
	assert_refused(5, "srv/ws", "absolute");
	assert_refused(5, "", "absolute");
	assert_refused(5, longest, "absolute");
	assert_refused(5, "/srv/\nws", "control character");
	assert_refused(23, "none", "neither");
	longest[4095] = '\0';
	{
		struct runner_args a;
		struct err e = ERR_INIT;

		assert_int_equal(parse(5, longest, NULL, 0, &a, &e), 0);
	}
}

static void test_place_id(void **state)
{
	static const char *const bad[] = { "",      ":",    "1",
		                           "1:",    ":1",   "1:2:3",
		                           "01:2",  "1:02", "+1:2",
		                           "-1:2",  " 1:2", "1:2 ",
		                           "0x1:2", "1,2",  "1:18446744073709551616" };
	struct place_id id = { 7, 7 };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_false(args_place_id(bad[i], &id));
	assert_int_equal(id.device, 7);
	assert_true(args_place_id("1:18446744073709551615", &id));
	assert_int_equal(id.inode, UINT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_extra_words),
		cmocka_unit_test(test_each_option_is_needed),
		cmocka_unit_test(test_bad_values),
		cmocka_unit_test(test_place_id),
	};

	return RUN_TESTS(tests);
}
