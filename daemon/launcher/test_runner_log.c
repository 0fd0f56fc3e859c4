#include "common/test.h"

#include "daemon/launcher/runner_log.h"

#include "common/fd.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define TENANT "01980000-0000-7000-8000-00000000ac3e"

static int saved_stderr = -1;
static int captured = -1;

static int begin(void **state)
{
	static struct runner_log l;
	struct uuid tenant = { .text = TENANT };

	runner_log_init(&l, &tenant, 1000);
	*state = &l;
	saved_stderr = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	captured = open("/tmp", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
	return dup2(captured, STDERR_FILENO) < 0 ? -1 : 0;
}

static int end(void **state)
{
	(void)state;
	(void)dup2(saved_stderr, STDERR_FILENO);
	fd_close(&saved_stderr);
	fd_close(&captured);
	return 0;
}

/* What was logged so far. */
static char *logged(void)
{
	struct err e = ERR_INIT;
	char *text = NULL;
	size_t len;

	assert_int_equal(lseek(captured, 0, SEEK_SET), 0);
	assert_int_equal(fd_read_all(captured, 1 << 20, &text, &len, &e), 0);
	return text;
}

static void expect_logged(const char *part)
{
	auto_free char *text = logged();

	if (!strstr(text, part))
		fail_msg("'%s' is not in:\n%s", part, text);
}

static size_t count(const char *part)
{
	auto_free char *text = logged();
	size_t n = 0;

	for (const char *p = text; (p = strstr(p, part)); p++)
		n++;
	return n;
}

static void feed(struct runner_log *l, const char *text, uint64_t now_ms)
{
	runner_log_feed(l, text, strlen(text), now_ms);
}

static void test_level_and_message_are_kept(void **state)
{
	struct runner_log *l = *state;

	feed(l, "2026-01-31T12:00:00.123Z warn runner: disk: slow\n", 1000);
	expect_logged(" warn cloister: tenant " TENANT ": runner: disk: slow\n");
	assert_string_equal(l->reason, "disk: slow");
	feed(l, "2026-01-31T12:00:00.123Z error runner: no\n", 1000);
	expect_logged(" error cloister: tenant " TENANT ": runner: no\n");
	feed(l, "2026-01-31T12:00:00.123Z debug runner: secret detail\n", 1000);
	assert_int_equal(count("secret detail"), 0);
}

static void test_foreign_lines_pass_as_they_are(void **state)
{
	struct runner_log *l = *state;

	feed(l, "panic: something: else\n", 1000);
	assert_string_equal(l->reason, "panic: something: else");
	expect_logged(" info cloister: tenant " TENANT ": runner: panic: something: else\n");
	feed(l, "2026-01-31T12:00:00.123Z loud runner: what\n", 1000);
	assert_string_equal(l->reason, "2026-01-31T12:00:00.123Z loud runner: what");
	feed(l, "2026-01-31T12:00:00.123Z\n", 1000);
	assert_string_equal(l->reason, "2026-01-31T12:00:00.123Z");
	feed(l, "2026-01-31T12:00:00.123Z error\n", 1000);
	assert_string_equal(l->reason, "2026-01-31T12:00:00.123Z error");
}

static void test_pieces_make_lines(void **state)
{
	struct runner_log *l = *state;

	feed(l, "fir", 1000);
	feed(l, "st\nsec", 1000);
	assert_string_equal(l->reason, "first");
	feed(l, "ond\n\n\n", 1000);
	assert_string_equal(l->reason, "second");
	feed(l, "no newline", 1000);
	assert_string_equal(l->reason, "second");
	runner_log_end(l, 1000);
	assert_string_equal(l->reason, "no newline");
	assert_int_equal(count("runner: "), 3);
}

static void test_long_lines_are_cut_and_say_so(void **state)
{
	struct runner_log *l = *state;
	char line[RUNNER_LOG_LINE + 2];

	memset(line, 'a', sizeof(line));
	runner_log_feed(l, line, RUNNER_LOG_LINE, 1000);
	feed(l, "\n", 1000);
	assert_int_equal(count("[cut]"), 0);
	assert_int_equal(count("runner: aaa"), 1);
	runner_log_feed(l, line, RUNNER_LOG_LINE + 1, 1000);
	feed(l, "\n", 1000);
	assert_int_equal(count("a [cut]\n"), 1);
	/* The mark does not stick. */
	feed(l, "short\n", 1000);
	expect_logged("runner: short\n");
	assert_int_equal(strlen(l->reason), 5);
}

static void test_reason_is_cut_between_characters(void **state)
{
	struct runner_log *l = *state;
	char line[300] = "";

	/* 254 bytes, then a character of two: the second does not fit. */
	memset(line, 'a', 254);
	memcpy(line + 254, "\xc3\xa9\n", 4);
	feed(l, line, 1000);
	assert_int_equal(strlen(l->reason), 254);
	/* One byte less in front, and it does. */
	memset(line, 'b', 253);
	memcpy(line + 253, "\xc3\xa9\n", 4);
	feed(l, line, 1000);
	assert_int_equal(strlen(l->reason), 255);
}

static void test_nothing_can_forge_a_line(void **state)
{
	static const char hostile[] = "a\0b\nred\x1b[31m\rnow\x7f\n";
	struct runner_log *l = *state;

	runner_log_feed(l, hostile, sizeof(hostile) - 1, 1000);
	assert_string_equal(l->reason, "red?[31m?now?");
	expect_logged("runner: a\n");
	expect_logged("runner: red?[31m?now?\n");
	assert_int_equal(count("\n"), 2);
}

static void test_rate_is_bounded_and_told(void **state)
{
	struct runner_log *l = *state;

	for (int i = 0; i < RUNNER_LOG_BURST; i++)
		feed(l, "line\n", 1000);
	assert_int_equal(count("runner: line\n"), RUNNER_LOG_BURST);
	for (int i = 0; i < 1000; i++)
		feed(l, "line\n", 1000);
	feed(l, "last\n", 1000);
	assert_int_equal(count("\n"), RUNNER_LOG_BURST);
	assert_string_equal(l->reason, "last");
	/* After a second there is room for RUNNER_LOG_RATE again. */
	for (int i = 0; i < 100; i++)
		feed(l, "later\n", 2000);
	expect_logged("1001 lines left out here\n");
	assert_int_equal(count("runner: later\n"), RUNNER_LOG_RATE);
	runner_log_end(l, 2000);
	expect_logged(" 95 lines left out here\n");
}

static void test_rate_never_saves_more_than_a_burst(void **state)
{
	struct runner_log *l = *state;

	for (int i = 0; i < RUNNER_LOG_BURST + 150; i++)
		feed(l, "line\n", UINT64_C(1000000000));
	assert_int_equal(count("runner: line\n"), RUNNER_LOG_BURST);
}

/* Lines that trickle in faster than the rate's step still earn their share. */
static void test_rate_counts_fractions(void **state)
{
	struct runner_log *l = *state;

	for (int i = 0; i < RUNNER_LOG_BURST; i++)
		feed(l, "burst\n", 1000);
	for (int i = 1; i <= 100; i++)
		feed(l, "slow\n", 1000 + 20 * (uint64_t)i);
	assert_int_equal(count("runner: slow\n"), 2 * RUNNER_LOG_RATE);
}

/* Whoever ends its sandboxes as fast as it can has no more lines for that. */
static void test_rate_is_the_tenants(void **state)
{
	struct uuid other = { .text = "01980000-0000-7000-8000-00000000ac3f" };
	struct uuid tenant = { .text = TENANT };
	struct runner_log_past *past = NULL;
	struct runner_log *l = *state;

	for (int start = 0; start < 10; start++) {
		runner_log_init(l, &tenant, 1000 + (uint64_t)start);
		runner_log_resume(l, &past, 1000 + (uint64_t)start);
		for (int i = 0; i < RUNNER_LOG_BURST / 4; i++)
			feed(l, "line\n", 1000 + (uint64_t)start);
		runner_log_end(l, 1000 + (uint64_t)start);
		runner_log_keep(l, &past, 1000 + (uint64_t)start);
	}
	assert_int_equal(count("runner: line\n"), RUNNER_LOG_BURST);
	runner_log_init(l, &other, 1100);
	runner_log_resume(l, &past, 1100);
	feed(l, "of another\n", 1100);
	runner_log_keep(l, &past, 1100);
	assert_int_equal(count("runner: of another\n"), 1);
	/* A second later there are as many lines as the rate says, ... */
	runner_log_init(l, &tenant, 2100);
	runner_log_resume(l, &past, 2100);
	for (int i = 0; i < 20; i++)
		feed(l, "later\n", 2100);
	runner_log_keep(l, &past, 2100);
	assert_int_equal(count("runner: later\n"), RUNNER_LOG_RATE);
	/* ... and once there is a burst again nobody is remembered. */
	runner_log_init(l, &tenant, 200000);
	runner_log_resume(l, &past, 200000);
	assert_null(past);
	for (int i = 0; i < 2 * RUNNER_LOG_BURST; i++)
		feed(l, "again\n", 200000);
	assert_int_equal(count("runner: again\n"), RUNNER_LOG_BURST);
	runner_log_keep(l, &past, 200000);
	runner_log_forget(&past);
	assert_null(past);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_level_and_message_are_kept),
		CASE(test_foreign_lines_pass_as_they_are),
		CASE(test_pieces_make_lines),
		CASE(test_long_lines_are_cut_and_say_so),
		CASE(test_reason_is_cut_between_characters),
		CASE(test_nothing_can_forge_a_line),
		CASE(test_rate_is_bounded_and_told),
		CASE(test_rate_never_saves_more_than_a_burst),
		CASE(test_rate_counts_fractions),
		CASE(test_rate_is_the_tenants),
	};

	return RUN_TESTS(tests);
}
