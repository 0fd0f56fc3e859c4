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
	static char words[WORDS + 6][8192];
	char *argv[WORDS + 6];

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
	const char *words[WORDS + 6];

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
	assert_null(a.cgroup);
	assert_int_equal(a.limits.cpus, 200);
	assert_int_equal(a.limits.memory, 2147483648);
	assert_int_equal(a.limits.processes, 512);
	assert_int_equal(a.egress.mode, EGRESS_PUBLIC);
	assert_int_equal(a.egress.dns, DNS_OFF);
	assert_int_equal(a.confine, CONFINE_ENFORCE);
}

static void test_limits(void **state)
{
	static const struct {
		const char *name, *least, *most;
		const char *wrong[3];
	} rows[] = {
		{ "--cpus", "10", "6400", { "9", "6401", "1.5" } },
		{ "--memory",
		  "268435456",
		  "1099511627776",
		  { "268435455", "1099511627777", "2G" } },
		{ "--processes", "16", "32768", { "15", "32769", "-1" } },
	};
	struct runner_args a;
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const char *words[] = { rows[i].name, rows[i].least };

		assert_int_equal(parse(99, NULL, words, 2, &a, &e), 0);
		words[1] = rows[i].most;
		assert_int_equal(parse(99, NULL, words, 2, &a, &e), 0);
		for (size_t k = 0; k < ARRAY_LEN(rows[i].wrong); k++) {
			words[1] = rows[i].wrong[k];
			assert_int_equal(parse(99, NULL, words, 2, &a, &e), -1);
			assert_non_null(strstr(e.text, rows[i].name));
		}
	}
	assert_int_equal(a.limits.processes, 32768);
}

static void test_boundaries(void **state)
{
	static const char *const cgroup[] = { "--cgroup", "/sys/fs/cgroup/x" };
	static const char *const confine[] = { "--confine", "kill" };
	static const char *const confine_not[] = { "--confine", "no" };
	struct runner_args a;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(parse(23, "service", cgroup, 2, &a, &e), 0);
	assert_int_equal(a.boundary, BOUNDARY_SERVICE);
	assert_string_equal(a.cgroup, "/sys/fs/cgroup/x");
	assert_int_equal(parse(23, "service", NULL, 0, &a, &e), -1);
	assert_non_null(strstr(e.text, "needs --cgroup"));
	assert_int_equal(parse(99, NULL, cgroup, 2, &a, &e), -1);
	assert_non_null(strstr(e.text, "--boundary service only"));
	assert_int_equal(parse(99, NULL, confine, 2, &a, &e), 0);
	assert_int_equal(a.confine, CONFINE_KILL);
	assert_int_equal(parse(99, NULL, confine_not, 2, &a, &e), -1);
}

static void test_egress(void **state)
{
	static const char *const listed[] = { "--egress",       "allow",
		                              "--egress-allow", "198.51.100.0/24:443",
		                              "--egress-allow", "0.0.0.0/0" };
	static const char *const unasked[] = { "--egress-allow", "0.0.0.0/0" };
	static const char *const none[] = { "--egress", "none", "--dns", "1.1.1.1" };
	static const char *const wrong[] = { "--dns", "resolver" };
	struct runner_args a;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(parse(99, NULL, listed, 6, &a, &e), 0);
	assert_int_equal(a.egress.mode, EGRESS_ALLOW);
	assert_int_equal(a.egress.dns, DNS_OFF);
	assert_int_equal(a.egress.n_allow, 2);
	assert_int_equal(parse(99, NULL, unasked, 2, &a, &e), -1);
	assert_int_equal(parse(99, NULL, none, 4, &a, &e), -1);
	assert_int_equal(parse(99, NULL, wrong, 2, &a, &e), -1);
	assert_non_null(strstr(e.text, "--dns: "));
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
		cmocka_unit_test(test_good),        cmocka_unit_test(test_limits),
		cmocka_unit_test(test_boundaries),  cmocka_unit_test(test_egress),
		cmocka_unit_test(test_extra_words), cmocka_unit_test(test_each_option_is_needed),
		cmocka_unit_test(test_bad_values),  cmocka_unit_test(test_place_id),
	};

	return RUN_TESTS(tests);
}
