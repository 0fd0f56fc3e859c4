#include "common/test.h"

#include "daemon/launcher/child.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the child of a launcher that holds SIGHUP back ends with. */
static int fate_of(void (*fn)(pid_t launcher))
{
	pid_t launcher = getpid(), pid;
	sigset_t hangup, before;
	int status = 0;

	sigemptyset(&hangup);
	sigaddset(&hangup, SIGHUP);
	assert_int_equal(sigprocmask(SIG_BLOCK, &hangup, &before), 0);
	pid = fork();
	if (pid == 0) {
		fn(launcher);
		_exit(1);
	}
	assert_true(pid > 0);
	assert_int_equal(sigprocmask(SIG_SETMASK, &before, NULL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

/* One that came between the fork and the child's first act waits for the mask to go. */
static void hung_up_on(pid_t launcher)
{
	(void)raise(SIGHUP);
	child_begin(launcher);
	(void)raise(SIGHUP);
	_exit(7);
}

static void execute(pid_t launcher)
{
	child_begin(launcher);
	(void)execl("/bin/sh", "sh", "-c", "kill -HUP $$; exit 7", (char *)NULL);
}

static void test_a_hangup_ends_no_child(void **state)
{
	int status;

	(void)state;
	status = fate_of(hung_up_on);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 7);
	status = fate_of(execute);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 7);
}

static void terminate(pid_t launcher)
{
	child_begin(launcher);
	(void)raise(SIGTERM);
}

static void test_other_signals_do_what_they_do(void **state)
{
	int status;

	(void)state;
	status = fate_of(terminate);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGTERM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_hangup_ends_no_child),
		cmocka_unit_test(test_other_signals_do_what_they_do),
	};

	return RUN_TESTS(tests);
}
