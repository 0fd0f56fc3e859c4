#include "common/test.h"

#include "common/fd.h"
#include "guest/tree.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static void note(void *ctx, pid_t pid)
{
	char *at = ctx;

	(void)snprintf(at + strlen(at), 16, "%d,", pid);
}

static void assert_pids(const char *text, const char *wanted)
{
	auto_close int fd = memfd_create("children", MFD_CLOEXEC);
	char got[200] = "";
	struct err e = ERR_INIT;

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, strlen(text), &e), 0);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	tree_each_pid(fd, note, got);
	assert_string_equal(got, wanted);
}

static void pids_of_children(void **state)
{
	(void)state;
	assert_pids("", "");
	assert_pids("12 345 6 ", "12,345,6,");
	assert_pids("0 1 2 3", "2,");
	assert_pids("2147483647 2147483648 3 ", "2147483647,3,");
	/* More than 2^32 and 2^64 by a pid that somebody may have. */
	assert_pids("4294967298 18446744073709551618 4 ", "4,");
}

/* It is read in pieces of 4,096 bytes. */
static void pids_over_the_end_of_a_piece(void **state)
{
	char text[4106];

	(void)state;
	memset(text, ' ', sizeof(text));
	(void)snprintf(text + 4094, sizeof(text) - 4094, "12345 67 ");
	assert_pids(text, "12345,67,");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pids_of_children),
		cmocka_unit_test(pids_over_the_end_of_a_piece),
	};

	return RUN_TESTS(tests);
}
