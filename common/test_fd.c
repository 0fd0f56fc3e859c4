#include "common/test.h"

#include "common/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

static void test_close(void **state)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC), copy = fd;

	(void)state;
	errno = EXDEV;
	fd_close(&fd);
	assert_int_equal(fd, -1);
	assert_int_equal(errno, EXDEV);
	assert_false(is_open(copy));
	errno = EXDEV;
	fd_close(&fd);
	assert_int_equal(errno, EXDEV);
}

static int keep(void)
{
	auto_close int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	return fd_take(&fd);
}

static int drop(void)
{
	auto_close int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	return fd;
}

static void test_scope_owns(void **state)
{
	auto_close int kept = keep();
	auto_free char *memory = malloc(1);
	char *taken = mem_take(&memory);

	(void)state;
	assert_true(is_open(kept));
	assert_false(is_open(drop()));
	assert_null(memory);
	assert_non_null(taken);
	free(taken);
}

static int file_of(const char *data, size_t len)
{
	int fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	struct err e = ERR_INIT;

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, data, len, &e), 0);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	return fd;
}

static void read_with_bound(const char *data, size_t len, size_t max)
{
	auto_close int fd = file_of(data, len);
	auto_free char *got = NULL;
	size_t got_len = 99;
	struct err e = ERR_INIT;
	int r = fd_read_all(fd, max, &got, &got_len, &e);

	if (len > max) {
		assert_int_equal(r, -1);
		assert_int_equal(e.code, EFBIG);
		assert_null(got);
		assert_int_equal(got_len, 99);
		return;
	}
	assert_int_equal(r, 0);
	assert_int_equal(got_len, len);
	assert_memory_equal(got, data, len);
	assert_int_equal(got[len], '\0');
}

static void test_read_bounds(void **state)
{
	(void)state;
	read_with_bound("", 0, 0);
	read_with_bound("a", 1, 0);
	read_with_bound("a\0bc", 4, 4);
	read_with_bound("a\0bc", 4, 3);
	read_with_bound("a\0bc", 4, 5);
}

static void test_read_fault(void **state)
{
	auto_close int fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_free char *got = NULL;
	size_t len;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(fd_read_all(fd, 10, &got, &len, &e), -1);
	assert_int_equal(e.code, EISDIR);
	assert_int_equal(fd_read_all(-1, 10, &got, &len, &e), -1);
	assert_int_equal(e.code, EBADF);
}

static void *feed_slowly(void *arg)
{
	int fd = *(int *)arg;

	for (int i = 0; i < 5; i++) {
		(void)!write(fd, "xy", 2);
		usleep(1000);
	}
	close(fd);
	return NULL;
}

static void test_read_short_pieces(void **state)
{
	int ends[2];
	auto_free char *got = NULL;
	size_t len;
	pthread_t feeder;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_int_equal(pthread_create(&feeder, NULL, feed_slowly, &ends[1]), 0);
	assert_int_equal(fd_read_all(ends[0], 10, &got, &len, &e), 0);
	assert_string_equal(got, "xyxyxyxyxy");
	pthread_join(feeder, NULL);
	close(ends[0]);
}

static void on_alarm(int number)
{
	(void)number;
}

struct drain {
	int fd;
	size_t total;
};

static void *drain_late(void *arg)
{
	static char sink[1 << 16];
	struct drain *d = arg;
	ssize_t n;

	usleep(20000);
	while ((n = read(d->fd, sink, sizeof(sink))) > 0)
		d->total += (size_t)n;
	return NULL;
}

/* More than a pipe holds, and a signal while the writer waits. */
static void test_write_all_goes_on(void **state)
{
	struct sigaction act = { .sa_handler = on_alarm }, old;
	size_t len = 1 << 20;
	auto_free char *data = calloc(1, len);
	int ends[2];
	pthread_t reader, self = pthread_self();
	struct drain d = { .total = 0 };
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(sigaction(SIGUSR1, &act, &old), 0);
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	d.fd = ends[0];
	assert_int_equal(pthread_create(&reader, NULL, drain_late, &d), 0);
	pthread_kill(self, SIGUSR1);
	assert_int_equal(fd_write_all(ends[1], data, len, &e), 0);
	close(ends[1]);
	pthread_join(reader, NULL);
	assert_int_equal(d.total, len);
	close(ends[0]);
	assert_int_equal(sigaction(SIGUSR1, &old, NULL), 0);
}

static void test_write_fault(void **state)
{
	auto_close int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(fd_write_all(full, "x", 1, &e), -1);
	assert_int_equal(e.code, ENOSPC);
	assert_int_equal(fd_write_all(full, "", 0, &e), 0);
}

static void test_nonblocking(void **state)
{
	int ends[2];
	char c;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_int_equal(fd_set_nonblocking(ends[0], &e), 0);
	assert_int_equal(read(ends[0], &c, 1), -1);
	assert_int_equal(errno, EAGAIN);
	close(ends[0]);
	close(ends[1]);
	assert_int_equal(fd_set_nonblocking(ends[0], &e), -1);
	assert_int_equal(e.code, EBADF);
}

/* In a child: which of the descriptors 20 to 25 are left, as bits. */
static int left_after(int first, const int *keeping, size_t n)
{
	int status;
	pid_t child = fork();

	assert_true(child >= 0);
	if (child == 0) {
		int left = 0;

		for (int fd = 20; fd <= 25; fd++)
			if (dup2(STDIN_FILENO, fd) < 0)
				_exit(255);
		fd_close_from(first, keeping, n);
		for (int fd = 20; fd <= 25; fd++)
			left |= is_open(fd) << (fd - 20);
		_exit(left);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void test_close_from(void **state)
{
	(void)state;
	assert_int_equal(left_after(20, NULL, 0), 0);
	assert_int_equal(left_after(22, NULL, 0), 0x03);
	assert_int_equal(left_after(26, NULL, 0), 0x3f);
	assert_int_equal(left_after(20, (int[]){ 20 }, 1), 0x01);
	assert_int_equal(left_after(20, (int[]){ 25 }, 1), 0x20);
	assert_int_equal(left_after(20, (int[]){ 21, 22, 24 }, 3), 0x16);
	/* What lies below the start, and -1 for "not open", do not matter. */
	assert_int_equal(left_after(22, (int[]){ -1, 20, 23 }, 3), 0x0b);
	assert_int_equal(left_after(20, (int[]){ 21, 21 }, 2), 0x02);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_close),
		cmocka_unit_test(test_scope_owns),
		cmocka_unit_test(test_read_bounds),
		cmocka_unit_test(test_read_fault),
		cmocka_unit_test(test_read_short_pieces),
		cmocka_unit_test(test_write_all_goes_on),
		cmocka_unit_test(test_write_fault),
		cmocka_unit_test(test_nonblocking),
		cmocka_unit_test(test_close_from),
	};

	return RUN_TESTS(tests);
}
