#include "common/test.h"

#include "daemon/launcher/outbox.h"

#include "common/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

static struct launcher_message message(uint64_t generation)
{
	return (struct launcher_message){
		.op = LAUNCHER_EXITED,
		.generation = generation,
		.tenant.text = "01980000-0000-7000-8000-00000000ac3e",
	};
}

static void put(struct outbox *o, uint64_t generation)
{
	struct launcher_message m = message(generation);
	struct err e = ERR_INIT;

	assert_int_equal(outbox_put(o, &m, NULL, &e), 0);
}

static void test_limit(void **state)
{
	struct launcher_message m = message(4);
	struct outbox o;
	struct err e = ERR_INIT;
	int fds[2];

	(void)state;
	outbox_init(&o, 3);
	for (uint64_t i = 1; i <= 3; i++)
		put(&o, i);
	/* One past it is refused, and its descriptors do not leak. */
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	assert_int_equal(outbox_put(&o, &m, fds, &e), -1);
	assert_int_equal(e.code, ENOBUFS);
	assert_int_equal(fds[0], -1);
	assert_int_equal(fds[1], -1);
	outbox_release(&o);
	assert_true(outbox_empty(&o));
}

static void test_order_over_a_full_socket(void **state)
{
	struct launcher_message m;
	struct outbox o;
	int pair[2], fds[2] = { -1, -1 };
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(fd_set_nonblocking(pair[0], &e), 0);
	outbox_init(&o, 2000);
	for (uint64_t i = 1; i <= 2000; i++)
		put(&o, i);
	assert_int_equal(outbox_flush(&o, pair[0], &e), 0);
	assert_false(outbox_empty(&o)); /* or the socket holds more than this test thinks */
	for (uint64_t i = 1; i <= 2000; i++) {
		assert_int_equal(launcher_receive(pair[1], &m, fds, &e), 1);
		assert_int_equal(m.generation, i);
		assert_int_equal(outbox_flush(&o, pair[0], &e), 0);
	}
	assert_true(outbox_empty(&o));
	fd_close(&pair[0]);
	fd_close(&pair[1]);
	outbox_release(&o);
}

static void test_descriptors_travel_and_are_closed(void **state)
{
	struct launcher_message m = message(1);
	int pair[2], fds[2], got[2] = { -1, -1 };
	struct outbox o;
	struct err e = ERR_INIT;

	(void)state;
	m.op = LAUNCHER_STARTED;
	m.processes = 1;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	outbox_init(&o, 3);
	assert_int_equal(outbox_put(&o, &m, fds, &e), 0);
	assert_int_equal(fds[0], -1);
	assert_int_equal(outbox_flush(&o, pair[0], &e), 0);
	assert_int_equal(launcher_receive(pair[1], &m, got, &e), 1);
	/* got[0] is the only read end now: closing it breaks the pipe. */
	fd_close(&got[0]);
	assert_int_equal(fcntl(got[1], F_GETFD), FD_CLOEXEC);
	fd_close(&got[1]);
	/* Those that are never sent go with the box (the count of descriptors shows it). */
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	assert_int_equal(outbox_put(&o, &m, fds, &e), 0);
	outbox_release(&o);
	fd_close(&pair[0]);
	fd_close(&pair[1]);
}

static void test_peer_gone(void **state)
{
	struct outbox o;
	int pair[2];
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	outbox_init(&o, 3);
	put(&o, 1);
	fd_close(&pair[1]);
	assert_int_equal(outbox_flush(&o, pair[0], &e), -1);
	assert_int_equal(e.code, EPIPE);
	fd_close(&pair[0]);
	outbox_release(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_order_over_a_full_socket),
		cmocka_unit_test(test_descriptors_travel_and_are_closed),
		cmocka_unit_test(test_peer_gone),
	};

	return RUN_TESTS(tests);
}
