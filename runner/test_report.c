#include "common/test.h"

#include "common/attr.h"
#include "runner/report.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int ends[2];

static int make_pair(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	return report_pair(ends, &e);
}

static int close_pair(void **state)
{
	(void)state;
	(void)close(ends[0]);
	if (ends[1] >= 0)
		(void)close(ends[1]);
	return 0;
}

static void test_step_and_descriptors(void **state)
{
	int pipe_fds[2];
	struct report sent = { .step = REPORT_ROUTER, .value = 77, .fd_count = 2 };
	struct report got;
	struct err e = ERR_INIT;
	char byte = 0;

	(void)state;
	assert_int_equal(pipe(pipe_fds), 0);
	memcpy(sent.fds, pipe_fds, sizeof(pipe_fds));
	assert_int_equal(report_send(ends[1], &sent, &e), 0);
	assert_int_equal(report_wait(ends[0], REPORT_ROUTER, 2, 1000, &got, &e), 0);
	assert_int_equal(got.value, 77);
	assert_int_equal(write(got.fds[1], "x", 1), 1);
	assert_int_equal(read(pipe_fds[0], &byte, 1), 1);
	for (int i = 0; i < 2; i++) {
		(void)close(got.fds[i]);
		(void)close(pipe_fds[i]);
	}
}

static void test_error_travels(void **state)
{
	struct err why = ERR_INIT;
	struct err e = ERR_INIT;
	struct report got = { .value = 5 };

	(void)state;
	err_set(&why, ENOSPC, "no room");
	report_error(ends[1], REPORT_ROOT, &why);
	assert_int_equal(report_wait(ends[0], REPORT_RUN, 0, 1000, &got, &e), -1);
	assert_int_equal(e.code, ENOSPC);
	assert_string_equal(e.text, "no room");
	assert_int_equal(got.value, 5);
}

/* Descriptors of a record that is refused must not stay open: RUN_TESTS counts them. */
static void test_out_of_order(void **state)
{
	struct report sent = { .step = REPORT_LINKS, .fds = { 0 }, .fd_count = 1 };
	struct report got;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(report_send(ends[1], &sent, &e), 0);
	assert_int_equal(report_wait(ends[0], REPORT_ROOT, 1, 1000, &got, &e), -1);
	assert_int_equal(e.code, EPROTO);
	assert_int_equal(report_send(ends[1], &sent, &e), 0);
	assert_int_equal(report_wait(ends[0], REPORT_LINKS, 0, 1000, &got, &e), -1);
	assert_int_equal(e.code, EPROTO);
	assert_int_equal(send(ends[1], "short", 5, 0), 5);
	assert_int_equal(report_wait(ends[0], REPORT_LINKS, 0, 1000, &got, &e), -1);
	assert_int_equal(e.code, EPROTO);
}

static void test_nothing_comes(void **state)
{
	struct report got;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(report_wait(ends[0], REPORT_GO, 0, 10, &got, &e), -1);
	assert_int_equal(e.code, ETIMEDOUT);
	(void)close(ends[1]);
	ends[1] = -1;
	assert_int_equal(report_wait(ends[0], REPORT_GO, 0, -1, &got, &e), -1);
	assert_int_equal(e.code, EPIPE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_step_and_descriptors, make_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_error_travels, make_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_out_of_order, make_pair, close_pair),
		cmocka_unit_test_setup_teardown(test_nothing_comes, make_pair, close_pair),
	};

	return RUN_TESTS(tests);
}
