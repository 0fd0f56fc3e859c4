/* test.h - the one header that a unit test includes first. */
#ifndef COMMON_TEST_H
#define COMMON_TEST_H

/* cmocka needs these four before it. */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include <dirent.h>
#include <unistd.h>

static inline int open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

/*
 * Run a group under a wall-clock limit and fail it when it leaves a descriptor
 * behind.  (A failing group teardown does not change cmocka 1.1.5's exit code.)
 */
#define RUN_TESTS(tests) group_result(cmocka_run_group_tests(tests, group_begin, NULL))

static int fds_before;

static inline int group_begin(void **state)
{
	(void)state;
	alarm(300); /* some take seconds, and a machine may be busy */
	fds_before = open_fds();
	return 0;
}

static inline int group_result(int failed)
{
	if (open_fds() != fds_before) {
		print_error("the tests left file descriptors open\n");
		failed++;
	}
	return failed ? 1 : 0;
}

/*
 * What is to happen within a time: a machine that stands still is late, so it is the best of some
 * tries.  None may be too early.
 */
static inline void expect_within(uint64_t (*took_ms)(void), uint64_t min_ms, uint64_t max_ms)
{
	uint64_t took = 0;

	for (int i = 0; i < 5; i++) {
		took = took_ms();
		assert_true(took >= min_ms);
		if (took <= max_ms)
			return;
	}
	fail_msg("took %llu ms, not %llu at most", (unsigned long long)took,
	         (unsigned long long)max_ms);
}

#endif
