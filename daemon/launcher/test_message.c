#include "common/test.h"

#include "daemon/launcher/message.h"

#include "common/fd.h"
#include "common/fdmsg.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define TENANT "01980000-0000-7000-8000-00000000ac3e"

static void make_pair(int ret[2])
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ret), 0);
}

static void close_pair(int pair[2])
{
	fd_close(&pair[0]);
	fd_close(&pair[1]);
}

static struct launcher_message message(uint32_t op)
{
	struct launcher_message m;

	memset(&m, 0, sizeof(m));
	m.op = op;
	m.port = op == LAUNCHER_READY ? 4096 : 0;
	m.processes = op == LAUNCHER_STARTED ? 1 : 0;
	m.generation = 7;
	memcpy(m.tenant.text, TENANT, sizeof(TENANT));
	return m;
}

/* Put bytes and descriptors on the wire as no honest peer would. */
static void send_raw(int sock, const void *data, size_t len, const int *fds, size_t n)
{
	union {
		char room[CMSG_SPACE(8 * sizeof(int))];
		struct cmsghdr align;
	} control = { .room = { 0 } };
	char *bytes = malloc(len + 1);
	struct iovec part = { .iov_base = bytes, .iov_len = len };
	struct msghdr h = { .msg_iov = &part, .msg_iovlen = 1 };

	assert_non_null(bytes);
	memcpy(bytes, data, len);
	if (n > 0) {
		struct cmsghdr *item;

		h.msg_control = control.room;
		h.msg_controllen = CMSG_SPACE(n * sizeof(int));
		item = CMSG_FIRSTHDR(&h);
		if (!item)
			abort();
		item->cmsg_level = SOL_SOCKET;
		item->cmsg_type = SCM_RIGHTS;
		item->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(item), fds, n * sizeof(int));
	}
	assert_int_equal(sendmsg(sock, &h, MSG_NOSIGNAL), (ssize_t)len);
	free(bytes);
}

/* Receive what was sent raw: it must be refused, name the reason and keep no descriptor. */
static void expect_refused(int pair[2], const char *reason)
{
	struct launcher_message got = { .op = 99 };
	int fds[2] = { -1, -1 };
	int before = open_fds();
	struct err e = ERR_INIT;

	assert_int_equal(launcher_receive(pair[1], &got, fds, &e), -1);
	assert_int_equal(e.code, EPROTO);
	assert_non_null(strstr(e.text, reason));
	assert_int_equal(got.op, 99);
	assert_int_equal(fds[0], -1);
	assert_int_equal(fds[1], -1);
	assert_int_equal(open_fds(), before);
}

static void test_every_word_passes(void **state)
{
	static const uint32_t ops[] = { LAUNCHER_READY,  LAUNCHER_START, LAUNCHER_KILL,
		                        LAUNCHER_EXITED, LAUNCHER_DRAIN, LAUNCHER_PURGE,
		                        LAUNCHER_PAUSE,  LAUNCHER_DONE };
	int pair[2];

	(void)state;
	make_pair(pair);
	for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
		struct launcher_message sent = message(ops[i]), got;
		int fds[2] = { 5, 5 };
		struct err e = ERR_INIT;

		sent.status = -1;
		memset(sent.cause, 'c', sizeof(sent.cause) - 1);
		assert_int_equal(launcher_send(pair[0], &sent, NULL, &e), 0);
		assert_int_equal(launcher_receive(pair[1], &got, fds, &e), 1);
		assert_memory_equal(&sent, &got, sizeof(sent));
		assert_int_equal(fds[0], -1);
		assert_int_equal(fds[1], -1);
	}
	close_pair(pair);
}

static void test_started_carries_descriptors_in_order(void **state)
{
	struct launcher_message sent = message(LAUNCHER_STARTED), got;
	int pair[2], ends[2], fds[2] = { -1, -1 };
	struct stat a, b;
	struct err e = ERR_INIT;
	char byte = 0;

	(void)state;
	make_pair(pair);
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_int_equal(launcher_send(pair[0], &sent, (int[2]){ ends[1], ends[0] }, &e), 0);
	assert_int_equal(launcher_receive(pair[1], &got, fds, &e), 1);
	assert_int_equal(write(fds[0], "x", 1), 1);
	assert_int_equal(read(fds[1], &byte, 1), 1);
	assert_int_equal(byte, 'x');
	assert_int_equal(fcntl(fds[0], F_GETFD), FD_CLOEXEC);
	assert_int_equal(fcntl(fds[1], F_GETFD), FD_CLOEXEC);
	/* The sender keeps its own. */
	assert_int_equal(fstat(ends[0], &a), 0);
	assert_int_equal(fstat(fds[1], &b), 0);
	assert_int_equal(a.st_ino, b.st_ino);
	close_pair(fds);
	close_pair(ends);
	close_pair(pair);
}

static void test_a_registry_carries_one_descriptor(void **state)
{
	static const uint32_t numberless[] = { LAUNCHER_REGISTRY, LAUNCHER_PURGE, LAUNCHER_STATUS,
		                               LAUNCHER_PAUSE, LAUNCHER_DONE };
	struct launcher_message sent = message(LAUNCHER_REGISTRY), got;
	int pair[2], ends[2], fds[2] = { -1, -1 };
	struct err e = ERR_INIT;

	(void)state;
	make_pair(pair);
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_int_equal(launcher_send(pair[0], &sent, (int[2]){ ends[0], -1 }, &e), 0);
	assert_int_equal(launcher_receive(pair[1], &got, fds, &e), 1);
	assert_int_equal(fcntl(fds[0], F_GETFD), FD_CLOEXEC);
	assert_int_equal(fds[1], -1);
	fd_close(&fds[0]);
	send_raw(pair[0], &sent, sizeof(sent), ends, 2);
	expect_refused(pair, "descriptors");
	send_raw(pair[0], &sent, sizeof(sent), NULL, 0);
	expect_refused(pair, "descriptors");
	for (size_t i = 0; i < ARRAY_LEN(numberless); i++) {
		sent = message(numberless[i]);
		sent.generation = 0;
		send_raw(pair[0], &sent, sizeof(sent), ends,
		         numberless[i] == LAUNCHER_REGISTRY || numberless[i] == LAUNCHER_STATUS);
		expect_refused(pair, "is 0");
	}
	close_pair(ends);
	close_pair(pair);
}

static void test_other_sizes_are_refused(void **state)
{
	char room[sizeof(struct launcher_message) + 1];
	struct launcher_message m = message(LAUNCHER_DRAIN);
	int pair[2];

	(void)state;
	memset(room, 0, sizeof(room));
	memcpy(room, &m, sizeof(m));
	make_pair(pair);
	send_raw(pair[0], room, sizeof(m) - 1, NULL, 0);
	expect_refused(pair, "less than");
	send_raw(pair[0], room, sizeof(m) + 1, NULL, 0);
	expect_refused(pair, "more than");
	send_raw(pair[0], room, 1, NULL, 0);
	expect_refused(pair, "less than");
	/* The bad ones took nothing of a good one with them. */
	send_raw(pair[0], room, sizeof(m), NULL, 0);
	assert_int_equal(launcher_receive(pair[1], &m, (int[2]){ -1, -1 }, &(struct err)ERR_INIT),
	                 1);
	close_pair(pair);
}

static void test_unknown_words_are_refused(void **state)
{
	static const uint32_t ops[] = { 0, LAUNCHER_DONE + 1, UINT32_MAX };
	int pair[2];

	(void)state;
	make_pair(pair);
	for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
		struct launcher_message m = message(ops[i]);

		send_raw(pair[0], &m, sizeof(m), NULL, 0);
		expect_refused(pair, "unknown");
	}
	close_pair(pair);
}

static void test_texts_without_end_are_refused(void **state)
{
	struct launcher_message m = message(LAUNCHER_EXITED);
	int pair[2];

	(void)state;
	make_pair(pair);
	memset(m.cause, 'c', sizeof(m.cause));
	send_raw(pair[0], &m, sizeof(m), NULL, 0);
	expect_refused(pair, "cause has no end");
	m = message(LAUNCHER_START);
	memset(m.tenant.text, 'a', sizeof(m.tenant.text));
	send_raw(pair[0], &m, sizeof(m), NULL, 0);
	expect_refused(pair, "id has no end");
	close_pair(pair);
}

static void test_fields_are_checked(void **state)
{
	struct launcher_message m = message(LAUNCHER_START);
	int pair[2];

	(void)state;
	make_pair(pair);
	m.generation = 0;
	send_raw(pair[0], &m, sizeof(m), NULL, 0);
	expect_refused(pair, "generation");
	m = message(LAUNCHER_KILL);
	m.tenant.text[0] = 'A';
	send_raw(pair[0], &m, sizeof(m), NULL, 0);
	expect_refused(pair, "not a UUID");
	m = message(LAUNCHER_START);
	memcpy(m.tenant.text, "../../etc", sizeof("../../etc"));
	send_raw(pair[0], &m, sizeof(m), NULL, 0);
	expect_refused(pair, "not a UUID");
	m = message(LAUNCHER_READY);
	m.port = 0;
	send_raw(pair[0], &m, sizeof(m), NULL, 0);
	expect_refused(pair, "port 0");
	m.port = 65536;
	send_raw(pair[0], &m, sizeof(m), NULL, 0);
	expect_refused(pair, "port 65536");
	close_pair(pair);
}

static void test_descriptors_are_counted(void **state)
{
	struct launcher_message start = message(LAUNCHER_START);
	struct launcher_message started = message(LAUNCHER_STARTED);
	int pair[2];
	int fds[FDMSG_MAX + 1];

	(void)state;
	make_pair(pair);
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		fds[i] = pair[0];
	send_raw(pair[0], &start, sizeof(start), fds, 1);
	expect_refused(pair, "1 descriptors");
	send_raw(pair[0], &start, sizeof(start), fds, 2);
	expect_refused(pair, "2 descriptors");
	send_raw(pair[0], &started, sizeof(started), fds, 0);
	expect_refused(pair, "0 descriptors");
	send_raw(pair[0], &started, sizeof(started), fds, 1);
	expect_refused(pair, "1 descriptors");
	send_raw(pair[0], &started, sizeof(started), fds, 3);
	expect_refused(pair, "3 descriptors");
	send_raw(pair[0], &started, sizeof(started), fds, FDMSG_MAX + 1);
	expect_refused(pair, "more than");
	started.processes = 0;
	send_raw(pair[0], &started, sizeof(started), fds, 2);
	expect_refused(pair, "no process is allowed");
	/* A short message must not leave its descriptors behind either. */
	send_raw(pair[0], &start, 1, fds, 2);
	expect_refused(pair, "less than");
	send_raw(pair[0], &start, 0, fds, 1);
	expect_refused(pair, "less than");
	close_pair(pair);
}

static void test_peer_gone(void **state)
{
	struct launcher_message m = message(LAUNCHER_DRAIN);
	int pair[2], fds[2] = { -1, -1 };
	struct err e = ERR_INIT;

	(void)state;
	make_pair(pair);
	assert_int_equal(launcher_send(pair[0], &m, NULL, &e), 0);
	fd_close(&pair[0]);
	/* What was sent before still arrives. */
	assert_int_equal(launcher_receive(pair[1], &m, fds, &e), 1);
	assert_int_equal(launcher_receive(pair[1], &m, fds, &e), 0);
	/* And sending there fails without a signal. */
	assert_int_equal(launcher_send(pair[1], &m, NULL, &e), -1);
	assert_int_equal(e.code, EPIPE);
	close_pair(pair);
}

static void test_peer_gone_with_unread_messages(void **state)
{
	struct launcher_message m = message(LAUNCHER_DRAIN);
	int pair[2], fds[2] = { -1, -1 };
	struct err e = ERR_INIT;

	(void)state;
	make_pair(pair);
	assert_int_equal(launcher_send(pair[1], &m, NULL, &e), 0);
	fd_close(&pair[0]);
	assert_int_equal(launcher_receive(pair[1], &m, fds, &e), 0);
	close_pair(pair);
}

static void test_nothing_there(void **state)
{
	struct launcher_message m;
	int pair[2], fds[2] = { -1, -1 };
	struct err e = ERR_INIT;

	(void)state;
	make_pair(pair);
	assert_int_equal(fd_set_nonblocking(pair[1], &e), 0);
	assert_int_equal(launcher_receive(pair[1], &m, fds, &e), -1);
	assert_int_equal(e.code, EAGAIN);
	close_pair(pair);
}

/* With room for one descriptor. */
static int receive_in_need(int sock, struct launcher_message *ret, int ret_fds[2], struct err *e)
{
	struct rlimit old, tight;
	int lowest, got;

	lowest = dup(0);
	close(lowest);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	tight = old;
	tight.rlim_cur = (rlim_t)lowest + 1;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
	got = launcher_receive(sock, ret, ret_fds, e);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	return got;
}

/* Without room for them the kernel drops descriptors: the message counts, and comes without. */
static void test_no_room_for_descriptors(void **state)
{
	struct launcher_message sent = message(LAUNCHER_STARTED), next = message(LAUNCHER_DRAIN), m;
	int pair[2], fds[2] = { 5, 5 };
	int before;
	struct err e = ERR_INIT;

	(void)state;
	make_pair(pair);
	before = open_fds();
	assert_int_equal(launcher_send(pair[0], &sent, pair, &e), 0);
	assert_int_equal(launcher_send(pair[0], &next, NULL, &e), 0);
	assert_int_equal(receive_in_need(pair[1], &m, fds, &e), 1);
	assert_memory_equal(&m, &sent, sizeof(m));
	assert_int_equal(fds[0], -1);
	assert_int_equal(fds[1], -1);
	assert_int_equal(open_fds(), before);
	assert_int_equal(receive_in_need(pair[1], &m, fds, &e), 1);
	assert_int_equal(m.op, LAUNCHER_DRAIN);
	close_pair(pair);
}

/* A peer that breaks the rules is found out, however little room there is. */
static void test_no_room_is_no_excuse(void **state)
{
	struct launcher_message good = message(LAUNCHER_READY), bad = message(LAUNCHER_STARTED), m;
	int pair[2], fds[2] = { -1, -1 };
	int both[2];
	struct err e = ERR_INIT;

	(void)state;
	make_pair(pair);
	memcpy(both, pair, sizeof(both));
	send_raw(pair[0], &good, sizeof(good), both, 2);
	assert_int_equal(receive_in_need(pair[1], &m, fds, &e), -1);
	assert_int_equal(e.code, EPROTO);
	bad.generation = 0;
	send_raw(pair[0], &bad, sizeof(bad), both, 2);
	assert_int_equal(receive_in_need(pair[1], &m, fds, &e), -1);
	assert_int_equal(e.code, EPROTO);
	send_raw(pair[0], &bad, sizeof(bad) - 1, both, 2);
	assert_int_equal(receive_in_need(pair[1], &m, fds, &e), -1);
	assert_int_equal(e.code, EPROTO);
	assert_int_equal(fds[0], -1);
	close_pair(pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_word_passes),
		cmocka_unit_test(test_started_carries_descriptors_in_order),
		cmocka_unit_test(test_a_registry_carries_one_descriptor),
		cmocka_unit_test(test_other_sizes_are_refused),
		cmocka_unit_test(test_unknown_words_are_refused),
		cmocka_unit_test(test_texts_without_end_are_refused),
		cmocka_unit_test(test_fields_are_checked),
		cmocka_unit_test(test_descriptors_are_counted),
		cmocka_unit_test(test_peer_gone),
		cmocka_unit_test(test_peer_gone_with_unread_messages),
		cmocka_unit_test(test_nothing_there),
		cmocka_unit_test(test_no_room_for_descriptors),
		cmocka_unit_test(test_no_room_is_no_excuse),
	};

	return RUN_TESTS(tests);
}
