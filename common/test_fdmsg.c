#include "common/test.h"

#include "common/fd.h"
#include "common/fdmsg.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static int pair[2];
static int spare[FDMSG_MAX + 1];

static int set_up(void **state)
{
	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	for (size_t i = 0; i < ARRAY_LEN(spare); i++) {
		spare[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
		assert_true(spare[i] >= 0);
	}
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(spare); i++)
		fd_close(&spare[i]);
	fd_close(&pair[0]);
	fd_close(&pair[1]);
	return 0;
}

static size_t open_count(void)
{
	auto_dir DIR *d = opendir("/proc/self/fd");
	size_t n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	return n;
}

static void test_any_number_that_may_come(void **state)
{
	(void)state;
	for (size_t count = 0; count <= FDMSG_MAX; count++) {
		size_t before = open_count(), got = 99;
		int fds[FDMSG_MAX];
		char text[8];

		assert_int_equal(fdmsg_send(pair[0], "abc", 3, spare, count, 0), 3);
		assert_int_equal(fdmsg_receive(pair[1], text, sizeof(text), fds, &got, 0), 3);
		assert_memory_equal(text, "abc", 3);
		assert_int_equal(got, count);
		for (size_t i = 0; i < FDMSG_MAX; i++) {
			assert_true(i < count ? fds[i] >= 0 : fds[i] == -1);
			if (i < count)
				assert_int_equal(fcntl(fds[i], F_GETFD), FD_CLOEXEC);
			fd_close(&fds[i]);
		}
		assert_int_equal(open_count(), before);
	}
}

static void test_in_their_order(void **state)
{
	int ends[2], fds[FDMSG_MAX];
	size_t got;
	char c;

	(void)state;
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_int_equal(fdmsg_send(pair[0], "x", 1, ends, 2, 0), 1);
	fd_close(&ends[0]);
	fd_close(&ends[1]);
	assert_int_equal(fdmsg_receive(pair[1], &c, 1, fds, &got, 0), 1);
	assert_int_equal(got, 2);
	assert_int_equal(write(fds[1], "y", 1), 1);
	assert_int_equal(read(fds[0], &c, 1), 1);
	assert_int_equal(c, 'y');
	fd_close(&fds[0]);
	fd_close(&fds[1]);
}

static void test_one_too_many_is_not_sent(void **state)
{
	(void)state;
	assert_int_equal(fdmsg_send(pair[0], "x", 1, spare, FDMSG_MAX + 1, 0), -1);
	assert_int_equal(errno, EINVAL);
}

/* By somebody who does not use this module. */
static void send_more(size_t count)
{
	union {
		char room[CMSG_SPACE((FDMSG_MAX + 1) * sizeof(int))];
		struct cmsghdr align;
	} control = { .room = { 0 } };
	struct iovec part = { .iov_base = (char[]){ "x" }, .iov_len = 1 };
	struct msghdr m = { .msg_iov = &part,
		            .msg_iovlen = 1,
		            .msg_control = control.room,
		            .msg_controllen = CMSG_SPACE(count * sizeof(int)) };

	control.align.cmsg_level = SOL_SOCKET;
	control.align.cmsg_type = SCM_RIGHTS;
	control.align.cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(&control.align), spare, count * sizeof(int));
	assert_int_equal(sendmsg(pair[0], &m, MSG_NOSIGNAL), 1);
}

/* Nothing of what is refused stays, and what comes after it is taken. */
static void expect_refused(size_t room)
{
	size_t before = open_count(), got = 99;
	int fds[FDMSG_MAX] = { 5, 5, 5, 5 };
	char text[8];

	assert_int_equal(fdmsg_receive(pair[1], text, room, fds, &got, 0), -1);
	assert_int_equal(errno, EMSGSIZE);
	assert_int_equal(got, 0);
	for (size_t i = 0; i < FDMSG_MAX; i++)
		assert_int_equal(fds[i], -1);
	assert_int_equal(open_count(), before);
	assert_int_equal(fdmsg_send(pair[0], "z", 1, NULL, 0, 0), 1);
	assert_int_equal(fdmsg_receive(pair[1], text, room, fds, &got, 0), 1);
	assert_int_equal(text[0], 'z');
}

static void test_one_too_many_is_refused(void **state)
{
	(void)state;
	send_more(FDMSG_MAX + 1);
	expect_refused(1);
}

static void test_too_long_is_refused(void **state)
{
	(void)state;
	assert_int_equal(fdmsg_send(pair[0], "12345", 5, spare, 2, 0), 5);
	expect_refused(4);
}

/* One room short of what came: the bytes are known, and nothing else is out of step. */
static ssize_t receive_in_need(size_t free, char *text, size_t room, size_t *ret_count)
{
	struct rlimit old, tight;
	int fds[FDMSG_MAX] = { 5, 5, 5, 5 };
	int lowest = dup(0), fault;
	ssize_t n;

	close(lowest);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	tight = old;
	tight.rlim_cur = (rlim_t)lowest + free;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
	n = fdmsg_receive(pair[1], text, room, fds, ret_count, 0);
	fault = errno;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	for (size_t i = 0; i < FDMSG_MAX; i++)
		assert_int_equal(fds[i], -1);
	errno = fault;
	return n;
}

static void test_no_room_for_descriptors(void **state)
{
	(void)state;
	for (size_t free = 0; free < FDMSG_MAX; free++) {
		size_t before = open_count(), got = 99;
		char text[4] = "";

		assert_int_equal(fdmsg_send(pair[0], "abc", 3, spare, FDMSG_MAX, 0), 3);
		assert_int_equal(fdmsg_send(pair[0], "def", 3, NULL, 0, 0), 3);
		assert_int_equal(receive_in_need(free, text, 3, &got), -1);
		assert_int_equal(errno, EMFILE);
		assert_string_equal(text, "abc");
		assert_int_equal(got, 0);
		assert_int_equal(open_count(), before);
		assert_int_equal(receive_in_need(0, text, 3, &got), 3);
		assert_string_equal(text, "def");
	}
}

/* What is malformed is not taken for a shortage, and neither is a row that is too long. */
static void test_no_room_is_no_excuse(void **state)
{
	char text[8];
	size_t got;

	(void)state;
	assert_int_equal(fdmsg_send(pair[0], "abc", 3, spare, 1, 0), 3);
	assert_int_equal(receive_in_need(0, text, 4, &got), -1);
	assert_int_equal(errno, EMSGSIZE);
	assert_int_equal(fdmsg_send(pair[0], "abc", 3, spare, 1, 0), 3);
	assert_int_equal(receive_in_need(0, text, 2, &got), -1);
	assert_int_equal(errno, EMSGSIZE);
	send_more(FDMSG_MAX + 1);
	assert_int_equal(receive_in_need(FDMSG_MAX, text, 1, &got), -1);
	assert_int_equal(errno, EMSGSIZE);
}

static void test_the_end_and_nothing(void **state)
{
	int fds[FDMSG_MAX];
	size_t got = 99;
	char c;

	(void)state;
	assert_int_equal(fdmsg_receive(pair[1], &c, 1, fds, &got, MSG_DONTWAIT), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(got, 0);
	assert_int_equal(fds[0], -1);
	fd_close(&pair[0]);
	assert_int_equal(fdmsg_receive(pair[1], &c, 1, fds, &got, 0), 0);
	assert_int_equal(got, 0);
	assert_int_equal(fdmsg_send(pair[1], &c, 1, NULL, 0, 0), -1);
	assert_int_equal(errno, EPIPE);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_any_number_that_may_come), CASE(test_in_their_order),
		CASE(test_one_too_many_is_not_sent), CASE(test_one_too_many_is_refused),
		CASE(test_too_long_is_refused),      CASE(test_no_room_for_descriptors),
		CASE(test_no_room_is_no_excuse),     CASE(test_the_end_and_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
