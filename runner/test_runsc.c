#include "common/test.h"

#include "common/attr.h"
#include "common/fd.h"
#include "runner/probe.h"
#include "runner/runsc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEBIAN "recorded-0.0~20240729.0"
#define NEWER  "documented-2026"

static char *read_data(const char *release, const char *what)
{
	char path[128];
	auto_close int fd = -1;
	struct err e = ERR_INIT;
	char *text = NULL;
	size_t len;

	(void)snprintf(path, sizeof(path), "runner/testdata/%s-%s.txt", release, what);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fd_read_all(fd, 1 << 20, &text, &len, &e) < 0)
		fail_msg("cannot read %s", path);
	return text;
}

static void read_facts(const char *release, struct runsc_facts *ret)
{
	auto_free char *version = read_data(release, "version");
	auto_free char *flags = read_data(release, "flags");
	struct err e = ERR_INIT;

	*ret = (struct runsc_facts){ "" };
	assert_int_equal(runsc_read_version(version, ret, &e), 0);
	assert_int_equal(runsc_read_flags(flags, ret, &e), 0);
}

static bool has(const char *const *argv, const char *word)
{
	while (*argv && strcmp(*argv, word) != 0)
		argv++;
	return *argv != NULL;
}

static bool has_flag(const char *const *argv, const char *name)
{
	size_t len = strlen(name);

	for (; *argv; argv++)
		if (strncmp(*argv, "--", 2) == 0 && strncmp(*argv + 2, name, len) == 0 &&
		    ((*argv)[2 + len] == '=' || (*argv)[2 + len] == '\0'))
			return true;
	return false;
}

static void decide(const char *release, bool network, bool debug, const char **argv)
{
	const struct runsc_wish wish = { .network = network, .debug = debug };
	struct runsc_facts facts;
	struct err e = ERR_INIT;

	read_facts(release, &facts);
	if (runsc_decide(&facts, &wish, argv, &e) < 0)
		fail_msg("%s", e.text);
}

static void assert_boundary(const char *const *argv)
{
	static const char *const words[] = { "--platform=systrap",  "--network=sandbox",
		                             "--net-raw=false",     "--overlay2=none",
		                             "--host-uds=none",     "--host-fifo=none",
		                             "--oci-seccomp=false", "--allow-flag-override=false",
		                             "--rootless=false",    "--reproduce-nat=false" };

	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (!has(argv, words[i]))
			fail_msg("%s is not given", words[i]);
}

static void test_debian(void **state)
{
	const char *argv[RUNSC_ARGS_MAX];
	struct runsc_facts facts;

	(void)state;
	read_facts(DEBIAN, &facts);
	assert_string_equal(facts.version, "0.0~20240729.0");
	assert_string_equal(facts.spec, "1.0.2-dev");
	assert_false(facts.overlay_size);
	decide(DEBIAN, true, false, argv);
	assert_boundary(argv);
	assert_string_equal(argv[0], "/runsc");
	assert_true(has(argv, "--TESTONLY-allow-packet-endpoint-write=false"));
	/* What it does not know would end it. */
	assert_false(has_flag(argv, "allow-suid"));
	assert_false(has_flag(argv, "allow-packet-socket-write"));
	assert_false(has_flag(argv, "host-settings"));
	assert_false(has_flag(argv, "debug"));
	assert_false(has_flag(argv, "debug-log"));
	assert_true(has(argv, "run"));
	assert_true(has(argv, "cell"));
}

/*
 * Of the flags that the recorded release has, those that would take a wall away, or show
 * the operator what is the tenant's, are not left to their defaults.
 */
static void test_nothing_is_left_to_defaults(void **state)
{
	static const char *const names[] = {
		"EXPERIMENTAL-xdp",
		"TESTONLY-afs-syscall-panic",
		"TESTONLY-allow-packet-endpoint-write",
		"TESTONLY-unsafe-nonroot",
		"allow-flag-override",
		"cgroupfs",
		"directfs",
		"fdlimit",
		"file-access",
		"file-access-mounts",
		"fsgofer-host-uds",
		"host-fifo",
		"host-uds",
		"ignore-cgroups",
		"iouring",
		"log-packets",
		"net-raw",
		"network",
		"nvproxy",
		"nvproxy-docker",
		"oci-seccomp",
		"overlay2",
		"platform",
		"profile",
		"reproduce-nat",
		"reproduce-nftables",
		"root",
		"rootless",
		"strace",
		"systemd-cgroup",
		"tpuproxy",
		"watchdog-action",
	};
	const char *argv[RUNSC_ARGS_MAX];
	auto_free char *flags = read_data(DEBIAN, "flags");

	(void)state;
	decide(DEBIAN, true, false, argv);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		char line[80];

		(void)snprintf(line, sizeof(line), "  -%s", names[i]);
		if (!flags || !strstr(flags, line))
			fail_msg("%s is not a flag of this release", names[i]);
		if (!has_flag(argv, names[i]))
			fail_msg("--%s is left to its default", names[i]);
	}
}

static void test_newer(void **state)
{
	const char *argv[RUNSC_ARGS_MAX];
	struct runsc_facts facts;

	(void)state;
	read_facts(NEWER, &facts);
	assert_string_equal(facts.version, "release-20260907.0");
	assert_true(facts.overlay_size);
	decide(NEWER, true, false, argv);
	assert_boundary(argv);
	assert_true(has(argv, "--allow-suid=false"));
	assert_true(has(argv, "--allow-packet-socket-write=false"));
	assert_true(has(argv, "--character-device-policy=emulated-only"));
	assert_false(has_flag(argv, "TESTONLY-allow-packet-endpoint-write"));
}

static void test_wishes(void **state)
{
	const char *argv[RUNSC_ARGS_MAX];

	(void)state;
	decide(DEBIAN, false, true, argv);
	assert_true(has(argv, "--network=none"));
	assert_false(has(argv, "--network=sandbox"));
	assert_true(has(argv, "--debug=true"));
	assert_true(has_flag(argv, "debug-log"));
}

/* Each needed flag taken away: refused by its name.  Each other: simply not given. */
static void test_missing_flags(void **state)
{
	const struct runsc_wish wish = { .network = true };
	const char *argv[RUNSC_ARGS_MAX];
	struct runsc_facts facts;
	const char *name;

	(void)state;
	for (size_t i = 0; (name = runsc_flag_name(i)); i++) {
		struct err e = ERR_INIT;
		int got;

		read_facts(NEWER, &facts);
		facts.knows[i] = false;
		got = runsc_decide(&facts, &wish, argv, &e);
		assert_int_equal(got, runsc_flag_needed(i) ? -1 : 0);
		if (got == 0)
			assert_false(has_flag(argv, name));
		else
			assert_non_null(strstr(e.text, name));
	}
	assert_in_range((unsigned long)RUNSC_FLAGS_MAX, 30, 100);
}

static void test_other_words(void **state)
{
	static const char *const versions[] = { "", "runc version 1.1\nspec: 1.0\n",
		                                "runsc version 1", "spec: 1\n",
		                                "runsc version \nspec: 1\n" };
	static const char *const flags[] = { "", "usage: true\n", "  -rooty string\n  -platform\n",
		                             " -root string\n -platform string\n" };
	struct runsc_facts facts;
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(versions); i++)
		assert_int_equal(runsc_read_version(versions[i], &facts, &e), -1);
	for (size_t i = 0; i < ARRAY_LEN(flags); i++)
		assert_int_equal(runsc_read_flags(flags[i], &facts, &e), -1);
}

/* -- asking ---------------------------------------------------------------------- */

static char place[64];
static char program[96];
static char asked[96];

/* A program that says what was recorded, and notes each time that it was asked. */
static int make_program(void **state)
{
	char text[512];
	auto_close int fd = -1;
	struct err e = ERR_INIT;

	(void)state;
	(void)snprintf(place, sizeof(place), "/tmp/test_runsc-XXXXXX");
	if (!mkdtemp(place))
		return -1;
	(void)snprintf(program, sizeof(program), "%s/runsc", place);
	(void)snprintf(asked, sizeof(asked), "%s/asked", place);
	(void)snprintf(text, sizeof(text),
	               "#!/bin/sh\necho >>%s\n[ \"$1\" = flags ] || exec /bin/cat "
	               "$PWD/runner/testdata/" DEBIAN "-version.txt\n"
	               "exec /bin/cat runner/testdata/" DEBIAN "-flags.txt >&2\n",
	               asked);
	fd = open(program, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
	return fd < 0 ? -1 : fd_write_all(fd, text, strlen(text), &e);
}

static int remove_program(void **state)
{
	char path[128];

	(void)state;
	(void)snprintf(path, sizeof(path), "%s/runsc-facts", place);
	(void)unlink(path);
	(void)unlink(asked);
	(void)unlink(program);
	return rmdir(place);
}

static off_t times_asked(void)
{
	struct stat st;

	return stat(asked, &st) < 0 ? 0 : st.st_size;
}

static void assert_facts(void)
{
	struct runsc_facts wanted;
	struct runsc_facts facts;
	struct err e = ERR_INIT;

	read_facts(DEBIAN, &wanted);
	if (probe_facts(program, place, &facts, &e) < 0)
		fail_msg("%s", e.text);
	assert_memory_equal(&facts, &wanted, sizeof(facts));
}

static void test_asked_once(void **state)
{
	char path[128];

	(void)state;
	assert_facts();
	assert_int_equal(times_asked(), 2);
	assert_facts();
	assert_int_equal(times_asked(), 2);
	/* Another file, though it looks the same. */
	assert_int_equal(chmod(program, 0755), 0);
	assert_facts();
	assert_int_equal(times_asked(), 4);
	/* An answer that was cut is no answer. */
	(void)snprintf(path, sizeof(path), "%s/runsc-facts", place);
	assert_int_equal(truncate(path, 60), 0);
	assert_facts();
	assert_int_equal(times_asked(), 6);
	assert_facts();
	assert_int_equal(times_asked(), 6);
}

static void write_program(const char *text)
{
	auto_close int fd = open(program, O_WRONLY | O_TRUNC | O_CLOEXEC);
	struct err e = ERR_INIT;

	assert_int_equal(fd_write_all(fd, text, strlen(text), &e), 0);
}

static void assert_no_facts(const char *reason)
{
	struct runsc_facts facts;
	struct err e = ERR_INIT;

	assert_int_equal(probe_facts(program, place, &facts, &e), -1);
	if (!strstr(e.text, reason))
		fail_msg("'%s' does not say '%s'", e.text, reason);
}

static void test_bad_programs(void **state)
{
	(void)state;
	write_program("#!/bin/sh\necho runc version 1\n");
	assert_no_facts("does not say its version as gVisor does");
	write_program("#!/bin/sh\nexec /bin/cat /dev/zero\n");
	assert_no_facts("its answer is too long");
	write_program("#!/nonexistent\n");
	assert_no_facts("could not be executed");
	assert_int_equal(unlink(program), 0);
	assert_no_facts("No such file");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_debian),
		cmocka_unit_test(test_nothing_is_left_to_defaults),
		cmocka_unit_test(test_newer),
		cmocka_unit_test(test_wishes),
		cmocka_unit_test(test_missing_flags),
		cmocka_unit_test(test_other_words),
		cmocka_unit_test_setup_teardown(test_asked_once, make_program, remove_program),
		cmocka_unit_test_setup_teardown(test_bad_programs, make_program, remove_program),
	};

	return RUN_TESTS(tests);
}
