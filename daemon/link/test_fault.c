/* How libpq is told, to the byte, and how often people are. */
#include "common/test.h"

#include "common/err.h"
#include "common/fd.h"
#include "common/log.h"
#include "daemon/link/fault.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

static void expect_told(const char *text, size_t len)
{
	char got[2000], wanted[2000] = "E\0\0\0\0SFATAL\0VFATAL\0C08001\0M";
	const size_t head = 5 + 7 + 7 + 7 + 1;
	int ends[2];

	wanted[3] = (char)((head + len + 2 - 1) >> 8);
	wanted[4] = (char)(head + len + 2 - 1);
	memcpy(wanted + head, text, len);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	fault_tell(ends[0], "08001", text);
	fd_close(&ends[0]);
	assert_int_equal(recv(ends[1], got, sizeof(got), MSG_WAITALL), head + len + 2);
	assert_memory_equal(got, wanted, head + len + 2);
	fd_close(&ends[1]);
}

/* As long as an error can be, and one byte more, which is cut. */
static void an_error_response(void **state)
{
	char text[sizeof(((struct err *)NULL)->text) + 1];

	(void)state;
	expect_told("", 0);
	expect_told("name not found", 14);
	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 2] = '\0';
	expect_told(text, sizeof(text) - 2);
	text[sizeof(text) - 2] = 'x';
	text[sizeof(text) - 1] = '\0';
	expect_told(text, sizeof(text) - 2);
}

/* Nobody reads, or nobody is there: it neither waits nor dies. */
static void nobody_listens(void **state)
{
	int ends[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	for (int i = 0; i < 10000; i++)
		fault_tell(ends[0], "08001", "much of it");
	fd_close(&ends[1]);
	fault_tell(ends[0], "08001", "and gone");
	fd_close(&ends[0]);
}

static int lines_of(int fd)
{
	static char text[1 << 16];
	ssize_t n = pread(fd, text, sizeof(text), 0);
	int lines = 0;

	for (ssize_t i = 0; i < n; i++)
		lines += text[i] == '\n';
	return lines;
}

static void one_line_for_each(void **state)
{
	auto_close int log = memfd_create("log", MFD_CLOEXEC);
	auto_close int old = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	char text[FAULT_KINDS][24];
	int lines, again;

	(void)state;
	assert_true(log >= 0 && old >= 0);
	assert_int_equal(dup2(log, STDERR_FILENO), STDERR_FILENO);
	for (int n = 0; n < 1000; n++)
		for (int i = 0; i < FAULT_KINDS; i++) {
			(void)snprintf(text[i], sizeof(text[i]), "fault %d", i);
			fault_log(text[i]);
		}
	lines = lines_of(log);
	/* One more kind takes the place of the oldest, and of no other. */
	fault_log("one too many");
	for (int i = 1; i < FAULT_KINDS; i++)
		fault_log(text[i]);
	again = lines_of(log);
	assert_int_equal(dup2(old, STDERR_FILENO), STDERR_FILENO);
	assert_int_equal(lines, FAULT_KINDS);
	assert_int_equal(again, FAULT_KINDS + 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_error_response),
		cmocka_unit_test(nobody_listens),
		cmocka_unit_test(one_line_for_each),
	};

	log_setup("test", LOG_WARN);
	return RUN_TESTS(tests);
}
