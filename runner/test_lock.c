#include "common/test.h"

#include "common/fd.h"
#include "runner/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct uuid tenant = { "0190a0b0-1111-7222-8333-444455556666" };
static char base[64];

static const char *at(const char *name)
{
	static char path[256];

	(void)snprintf(path, sizeof(path), "%s/%s%s", base, tenant.text, name);
	return path;
}

static int make_base(void **state)
{
	(void)state;
	(void)snprintf(base, sizeof(base), "/tmp/cloister-lock-XXXXXX");
	return mkdtemp(base) ? 0 : -1;
}

static int remove_base(void **state)
{
	(void)state;
	(void)unlink(at("/lock"));
	(void)unlink(at("/processes"));
	(void)rmdir(at("/root"));
	(void)unlink(at(""));
	(void)rmdir(at(""));
	return rmdir(base);
}

static pid_t sleeper(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		(void)sleep(60);
		_exit(0);
	}
	assert_true(pid > 0);
	return pid;
}

/* A runner that was killed: the lock is free, the record stays. */
static void abandon(struct lock *l)
{
	fd_close(&l->file);
	fd_close(&l->dir);
}

static void test_second_is_refused(void **state)
{
	struct lock first = LOCK_INIT;
	struct lock second = LOCK_INIT;
	struct err e = ERR_INIT;
	struct stat st;

	(void)state;
	assert_int_equal(lock_take(base, &tenant, &first, &e), 0);
	assert_string_equal(first.mount_point, at("/root"));
	assert_int_equal(stat(at(""), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_int_equal(lock_take(base, &tenant, &second, &e), -1);
	assert_int_equal(e.code, EBUSY);
	assert_non_null(strstr(e.text, "another runner"));
	assert_int_equal(second.file, -1);
	lock_release(&first);
	assert_int_equal(lock_take(base, &tenant, &second, &e), 0);
	lock_release(&second);
	assert_int_equal(access(at("/root"), F_OK), -1);
}

static void test_successor_ends_what_is_left(void **state)
{
	struct lock l = LOCK_INIT;
	struct err e = ERR_INIT;
	pid_t pid = sleeper();
	int status;

	(void)state;
	assert_int_equal(lock_take(base, &tenant, &l, &e), 0);
	assert_int_equal(lock_record(&l, pid, &e), 0);
	abandon(&l);
	assert_int_equal(lock_take(base, &tenant, &l, &e), 0);
	assert_int_equal(waitpid(pid, &status, WNOHANG), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_int_equal(access(at("/processes"), F_OK), -1);
	lock_release(&l);
}

/* A process that only has the number of a recorded one is left alone. */
static void test_recycled_number_is_spared(void **state)
{
	struct lock l = LOCK_INIT;
	struct err e = ERR_INIT;
	pid_t pid = sleeper();
	char line[64];
	int fd;

	(void)state;
	assert_int_equal(lock_take(base, &tenant, &l, &e), 0);
	fd = open(at("/processes"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	(void)snprintf(line, sizeof(line), "%d 1\njunk\n-1 1\n%d\n0 0\n", pid, pid);
	assert_int_equal(write(fd, line, strlen(line)), strlen(line));
	(void)close(fd);
	abandon(&l);
	assert_int_equal(lock_take(base, &tenant, &l, &e), 0);
	assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
	(void)kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	lock_release(&l);
}

/* At the bound it is read; past it nobody is ended by half of it, and the sandbox does not start.
 */
static void record_of(size_t len)
{
	int fd = open(at("/processes"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	while (len-- > 0)
		assert_int_equal(write(fd, "\n", 1), 1);
	(void)close(fd);
}

static void test_long_record_is_refused(void **state)
{
	struct lock l = LOCK_INIT;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(lock_take(base, &tenant, &l, &e), 0);
	abandon(&l);
	record_of(4096);
	assert_int_equal(lock_take(base, &tenant, &l, &e), 0);
	abandon(&l);
	record_of(4097);
	assert_int_equal(lock_take(base, &tenant, &l, &e), -1);
	assert_non_null(strstr(e.text, "read the record of the previous runner"));
	assert_int_equal(access(at("/processes"), F_OK), 0);
}

static void test_places_of_others(void **state)
{
	struct lock l = LOCK_INIT;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(symlink("/tmp", at("")), 0);
	assert_int_equal(lock_take(base, &tenant, &l, &e), -1);
	assert_int_equal(unlink(at("")), 0);
	assert_int_equal(mkdir(at(""), 0755), 0);
	assert_int_equal(lock_take(base, &tenant, &l, &e), -1);
	assert_non_null(strstr(e.text, "service user alone"));
	assert_int_equal(rmdir(at("")), 0);
	assert_int_equal(chmod(base, 0777), 0);
	assert_int_equal(lock_take(base, &tenant, &l, &e), -1);
	assert_non_null(strstr(e.text, "service user alone"));
	assert_int_equal(chmod(base, 0700), 0);
	assert_int_equal(lock_take("/nonexistent", &tenant, &l, &e), -1);
	assert_int_equal(e.code, ENOENT);
}

static void test_start_time(void **state)
{
	unsigned long long start = 9;

	(void)state;
	assert_true(lock_parse_start("1 (x) S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 "
	                             "4242 23\n",
	                             &start));
	assert_int_equal(start, 4242);
	assert_true(lock_parse_start("1 (a) b) S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 "
	                             "21 77 0",
	                             &start));
	assert_int_equal(start, 77);
	assert_false(lock_parse_start("", &start));
	assert_false(lock_parse_start("1 (x) S 2 3", &start));
	assert_false(lock_parse_start("1 (x) S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 "
	                              "-5 23",
	                              &start));
	assert_int_equal(start, 77);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_second_is_refused, make_base, remove_base),
		cmocka_unit_test_setup_teardown(test_successor_ends_what_is_left, make_base,
		                                remove_base),
		cmocka_unit_test_setup_teardown(test_recycled_number_is_spared, make_base,
		                                remove_base),
		cmocka_unit_test_setup_teardown(test_long_record_is_refused, make_base,
		                                remove_base),
		cmocka_unit_test_setup_teardown(test_places_of_others, make_base, remove_base),
		cmocka_unit_test(test_start_time),
	};

	return RUN_TESTS(tests);
}
