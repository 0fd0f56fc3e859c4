/* In network namespaces of its own, which it makes as root. */
#include "common/test.h"

#include "common/fd.h"
#include "runner/link.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOURCES "/proc/sys/net/ipv4/conf/all/rp_filter"
#define NOBODY  65534

static char value_of_all(void)
{
	auto_close int fd = open(SOURCES, O_RDONLY | O_CLOEXEC);
	char value = '?';

	return read(fd, &value, 1) == 1 ? value : '?';
}

/* What link_judge_sources() says where the host has that value: 0, or the code of its error. */
static int judged(const char *value, bool root, char *ret_left)
{
	auto_close int fd = -1;
	struct err e = ERR_INIT;

	if (unshare(CLONE_NEWNET) < 0)
		return -1;
	fd = open(SOURCES, O_WRONLY | O_CLOEXEC);
	if (write(fd, value, strlen(value)) != (ssize_t)strlen(value) ||
	    (!root && setuid(NOBODY) < 0))
		return -1;
	if (link_judge_sources(&e) < 0)
		return strstr(e.text, "net.ipv4.conf.all.rp_filter") ? e.code : -1;
	*ret_left = value_of_all();
	return 0;
}

/* In a process of its own, which loses what it is. */
static void expect(const char *value, bool root, int code, char left)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		char now = '0';

		_exit(judged(value, root, &now) == code && now == left ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void a_laxer_host_is_put_right(void **state)
{
	(void)state;
	expect("2", true, 0, '0');
	expect("1", true, 0, '0');
	expect("0", true, 0, '0');
}

static void what_cannot_be_put_right_is_refused(void **state)
{
	(void)state;
	expect("2", false, EPERM, '0');
	expect("10", false, EPERM, '0');
	expect("1", false, 0, '1');
	expect("0", false, 0, '0');
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_laxer_host_is_put_right),
		cmocka_unit_test(what_cannot_be_put_right_is_refused),
	};

	return RUN_TESTS(tests);
}
