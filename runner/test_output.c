#include "common/test.h"

#include "common/fd.h"
#include "runner/output.h"

#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* What the log said while fn ran; standard error is put back. */
static char *capture(struct output *o, void (*fn)(struct output *))
{
	static char text[256 * 1024];
	char name[] = "/tmp/cloister-output-XXXXXX";
	int file = mkstemp(name);
	int saved = dup(STDERR_FILENO);
	ssize_t n;

	assert_true(file >= 0 && saved >= 0);
	assert_true(dup2(file, STDERR_FILENO) >= 0);
	fn(o);
	assert_true(dup2(saved, STDERR_FILENO) >= 0);
	n = pread(file, text, sizeof(text) - 1, 0);
	assert_true(n >= 0);
	text[n] = '\0';
	(void)close(saved);
	(void)close(file);
	(void)unlink(name);
	return text;
}

static int begin(struct output *o, bool live)
{
	int ends[2];

	assert_int_equal(pipe(ends), 0);
	output_init(o, ends[0], "child", live);
	assert_true(fcntl(ends[0], F_GETFL) & O_NONBLOCK);
	return ends[1];
}

static void say(int fd, const char *text)
{
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static void test_live_lines(void **state)
{
	struct output o;
	int fd = begin(&o, true);
	const char *text;

	(void)state;
	say(fd, "one\ntw");
	text = capture(&o, output_read);
	assert_non_null(strstr(text, "child: one\n"));
	assert_null(strstr(text, "tw"));
	say(fd, "o\x1b[2J\n");
	text = capture(&o, output_read);
	assert_non_null(strstr(text, "child: two?[2J\n")); /* no escape reaches a terminal */
	say(fd, "half");
	(void)capture(&o, output_read);
	assert_non_null(strstr(capture(&o, output_log_tail), "child: half\n"));
	(void)close(fd);
	output_read(&o);
	assert_int_equal(o.fd, -1);
}

static void test_live_is_bounded(void **state)
{
	char block[1024];
	struct output o;
	int fd = begin(&o, true);
	size_t logged = 0;
	bool marked = false;

	(void)state;
	memset(block, 'x', sizeof(block));
	block[sizeof(block) - 1] = '\n';
	for (int i = 0; i < 200; i++) {
		const char *text;

		assert_int_equal(write(fd, block, sizeof(block)), sizeof(block));
		text = capture(&o, output_read);
		for (const char *p = text; *p; p++)
			logged += *p == 'x';
		marked |= strstr(text, "the rest is dropped") != NULL;
	}
	assert_true(marked);
	assert_true(logged > OUTPUT_LOG_MAX / 2 && logged <= OUTPUT_LOG_MAX);
	assert_string_equal(capture(&o, output_log_tail), "");
	(void)close(fd);
	output_close(&o);
}

static void test_tail(void **state)
{
	char last[64];
	struct output o;
	int fd = begin(&o, false);
	const char *text;

	(void)state;
	output_last_line(&o, last, sizeof(last));
	assert_string_equal(last, "");
	for (int i = 0; i < 1000; i++) {
		say(fd, "a line of some length\n");
		output_read(&o);
	}
	say(fd, "\nfirst of the last\nthe last\n\n");
	assert_string_equal(capture(&o, output_read), "");
	assert_int_equal(o.tail_len, OUTPUT_TAIL_MAX);
	output_last_line(&o, last, sizeof(last));
	assert_string_equal(last, "the last");
	output_last_line(&o, last, 4);
	assert_string_equal(last, "the");
	text = capture(&o, output_log_tail);
	assert_non_null(strstr(text, "child: first of the last\n"));
	assert_non_null(strstr(text, "child: the last\n"));
	assert_true(strlen(text) < 10000);
	(void)close(fd);
	output_close(&o);
}

/* A sandbox that writes without end does not hold the runner. */
static void test_one_read_is_bounded(void **state)
{
	static char flood[4 * OUTPUT_READ_MAX];
	struct output o;
	int fd = begin(&o, false), left = 0;

	(void)state;
	memset(flood, '\n', sizeof(flood));
	assert_true(fcntl(fd, F_SETPIPE_SZ, (int)sizeof(flood)) >= (int)sizeof(flood));
	assert_int_equal(write(fd, flood, sizeof(flood)), sizeof(flood));
	output_read(&o);
	assert_int_equal(ioctl(o.fd, FIONREAD, &left), 0);
	assert_true(left >= (int)(sizeof(flood) - OUTPUT_READ_MAX));
	assert_true(left < (int)sizeof(flood));
	for (int i = 0; i < 3; i++)
		output_read(&o);
	assert_int_equal(ioctl(o.fd, FIONREAD, &left), 0);
	assert_int_equal(left, 0);
	(void)close(fd);
	output_close(&o);
}

/* Time is the test's: 100 ms rest for each reading, once it was too much. */
static void test_who_floods_rests(void **state)
{
	static char block[OUTPUT_LOG_MAX];
	struct output o;
	uint64_t wake = 0;
	int fd = begin(&o, false), left = 0;

	(void)state;
	assert_int_equal(write(fd, block, sizeof(block)), sizeof(block));
	output_serve(&o, 1000);
	say(fd, "x"); /* the bound, and nothing rests */
	assert_int_equal(output_poll(&o, 1000, &wake), o.fd);
	output_serve(&o, 1000);
	assert_int_equal(wake, 0);
	say(fd, "one more");
	assert_int_equal(output_poll(&o, 1000, &wake), -1);
	assert_int_equal(wake, 1000 + OUTPUT_REST_MS);
	output_serve(&o, 999 + OUTPUT_REST_MS);
	assert_int_equal(ioctl(o.fd, FIONREAD, &left), 0);
	assert_int_equal(left, strlen("one more"));
	wake = 1050; /* whatever comes first */
	assert_int_equal(output_poll(&o, 1001, &wake), -1);
	assert_int_equal(wake, 1050);
	assert_int_equal(output_poll(&o, 1000 + OUTPUT_REST_MS, &wake), o.fd);
	output_serve(&o, 1000 + OUTPUT_REST_MS);
	assert_int_equal(ioctl(o.fd, FIONREAD, &left), 0);
	assert_int_equal(left, 0);
	/* Its last words are read without rest. */
	say(fd, "the end");
	output_read(&o);
	assert_memory_equal(o.tail + o.tail_len - 7, "the end", 7);
	(void)close(fd);
	output_close(&o);
	assert_int_equal(output_poll(&o, 1000, &wake), -1);
	assert_int_equal(wake, 1050);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_read_is_bounded),
		cmocka_unit_test(test_who_floods_rests),
		cmocka_unit_test(test_live_lines),
		cmocka_unit_test(test_live_is_bounded),
		cmocka_unit_test(test_tail),
	};

	return RUN_TESTS(tests);
}
