#include "common/test.h"

#include "daemon/confine/test_attack.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <linux/landlock.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <seccomp.h>
#include <sys/un.h>

/* -- files ----------------------------------------------------------------------------- */

static int open_as(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0600);

	if (fd < 0)
		return errno;
	(void)close(fd);
	return 0;
}

static int read_file(void)
{
	return open_as(world.file, O_RDONLY);
}

static int write_file(void)
{
	return open_as(world.file, O_WRONLY);
}

static int cut_file(void)
{
	return outcome(truncate(world.file, 4));
}

static int create_file(void)
{
	return open_as(world.other, O_WRONLY | O_CREAT | O_EXCL) || unlink(world.other) < 0 ? errno
	                                                                                    : 0;
}

static int open_unnamed(void)
{
	return open_as(world.dir, O_RDWR | O_TMPFILE);
}

static int list_directory(void)
{
	return open_as(world.dir, O_RDONLY | O_DIRECTORY);
}

/* Descriptors from before open no door either. */
static int read_through_descriptor(void)
{
	int fd = openat(world.dir_fd, "file", O_RDONLY | O_CLOEXEC);

	return outcome(fd);
}

static int reopen_descriptor(void)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", world.file_fd);
	return open_as(path, O_RDWR);
}

static int make_directory(void)
{
	return mkdir(world.other, 0700) < 0 || rmdir(world.other) < 0 ? errno : 0;
}

static int make_link(void)
{
	return symlink("/etc", world.other) < 0 || unlink(world.other) < 0 ? errno : 0;
}

static int make_hard_link(void)
{
	return link(world.file, world.other) < 0 || unlink(world.other) < 0 ? errno : 0;
}

static int move_file(void)
{
	return rename(world.file, world.other) < 0 || rename(world.other, world.file) < 0 ? errno
	                                                                                  : 0;
}

static int make_local_socket(void)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	memcpy(at.sun_path, world.other, sizeof(world.other));
	return fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 || unlink(world.other) < 0
	               ? errno
	               : 0;
}

static int remove_file(void)
{
	return open_as(world.other, O_WRONLY | O_CREAT) || unlink(world.other) < 0 ? errno : 0;
}

static int read_passwords(void)
{
	return open_as("/etc/passwd", O_RDONLY);
}

static int read_process(void)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%d/maps", (int)world.victim);
	return open_as(path, O_RDONLY);
}

static int change_mode(void)
{
	return outcome(chmod(world.file, 0600));
}

static int change_open_mode(void)
{
	return outcome(fchmod(world.file_fd, 0600));
}

static int look_at_file(void)
{
	struct stat st;

	return outcome(stat(world.file, &st));
}

static int list_open_directory(void)
{
	char entries[1024];

	return outcome(syscall(SYS_getdents64, world.dir_fd, entries, sizeof(entries)));
}

static int control_device(void)
{
	int value = 0;

	return outcome(ioctl(world.file_fd, 0x541b /* FIONREAD */, &value));
}

static void test_no_file_can_be_opened(void **state)
{
	/* Reading is answered quietly, the rest is not on the list. */
	static const struct attack attacks[] = {
		{ "reading a workspace", read_file, 0, EACCES },
		{ "listing a workspace", list_directory, 0, EACCES },
		{ "reading through a descriptor", read_through_descriptor, 0, EACCES },
		{ "/etc/passwd", read_passwords, 0, EACCES },
		{ "/proc/PID/maps", read_process, 0, EACCES },
		{ "writing", write_file, 0, EPERM },
		{ "reopening a descriptor", reopen_descriptor, 0, EPERM },
		{ "truncating", cut_file, 0, EPERM },
		{ "creating", create_file, 0, EPERM },
		{ "creating without name", open_unnamed, 0, EPERM },
		{ "mkdir", make_directory, 0, EPERM },
		{ "symlink", make_link, 0, EPERM },
		{ "link", make_hard_link, 0, EPERM },
		{ "rename", move_file, 0, EPERM },
		{ "chmod", change_mode, 0, EPERM },
		{ "fchmod", change_open_mode, 0, EPERM },
		{ "getdents64 of a descriptor", list_open_directory, 0,
		  SANITIZED_ADDRESSES ? 0 : EPERM },
		{ "ioctl", control_device, 0, EPERM },
	};

	(void)state;
	expect_all(attacks, ARRAY_LEN(attacks), ALL);
}

static void test_no_file_can_be_looked_at(void **state)
{
	(void)state;
	if (SANITIZED)
		skip();
	expect_outcome("stat", UNCONFINED, look_at_file, 0);
	expect_outcome("stat", ALL, look_at_file, EACCES);
}

static void test_landlock_alone_guards_files(void **state)
{
	static const struct attack attacks[] = {
		{ "reading a workspace", read_file, 0, EACCES },
		{ "listing a workspace", list_directory, 0, EACCES },
		{ "reading through a descriptor", read_through_descriptor, 0, EACCES },
		{ "/etc/passwd", read_passwords, 0, EACCES },
		{ "/proc/PID/maps", read_process, 0, EACCES },
		{ "writing", write_file, 0, EACCES },
		{ "reopening a descriptor", reopen_descriptor, 0, EACCES },
		{ "creating", create_file, 0, EACCES },
		{ "creating without name", open_unnamed, 0, EACCES },
		{ "removing", remove_file, 0, EACCES },
		{ "mkdir", make_directory, 0, EACCES },
		{ "symlink", make_link, 0, EACCES },
		{ "link", make_hard_link, 0, EACCES },
		{ "rename", move_file, 0, EACCES },
		{ "a socket's name", make_local_socket, 0, EACCES },
	};

	(void)state;
	expect_all(attacks, ARRAY_LEN(attacks), FILES);
	expect_outcome("a socket's name", ALL, make_local_socket, EACCES);
}

static int use_open_file(void)
{
	char text[5] = "";

	return pread(world.file_fd, text, 4, 0) == 4 && memcmp(text, "text", 4) == 0 ? 0 : EIO;
}

static int use_open_file_by_read(void)
{
	char text[4];

	return outcome(read(world.file_fd, text, sizeof(text)));
}

static void test_what_is_open_stays_usable(void **state)
{
	(void)state;
	expect_outcome("pread", FILES, use_open_file, 0);
	expect_outcome("read", ALL, use_open_file_by_read, 0);
}

/* -- sockets --------------------------------------------------------------------------- */

static int open_socket(unsigned long family, int type, int protocol)
{
	long fd = syscall(SYS_socket, family, type, protocol);

	if (fd < 0)
		return errno;
	(void)close((int)fd);
	return 0;
}

static int packet_socket(void)
{
	return open_socket(AF_PACKET, SOCK_RAW, 0);
}

static int netlink_socket(void)
{
	return open_socket(AF_NETLINK, SOCK_RAW, 0);
}

static int datagram_socket(void)
{
	return open_socket(AF_INET, SOCK_DGRAM, 0);
}

static int datagram6_socket(void)
{
	return open_socket(AF_INET6, SOCK_DGRAM, 0);
}

static int raw_socket(void)
{
	return open_socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
}

static int local_datagram_socket(void)
{
	return open_socket(AF_UNIX, SOCK_DGRAM, 0);
}

static int stream_socket(void)
{
	return open_socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static int stream6_socket(void)
{
	return open_socket(AF_INET6, SOCK_STREAM, 0);
}

static int local_stream_socket(void)
{
	return open_socket(AF_UNIX, SOCK_STREAM, 0);
}

/* The kernel looks at 32 bits of it. */
static int disguised_family(void)
{
	return open_socket(1UL << 32 | AF_PACKET, SOCK_RAW, 0);
}

static int multipath_socket(void)
{
	return open_socket(AF_INET, SOCK_STREAM, 262 /* IPPROTO_MPTCP */);
}

static void test_only_stream_sockets(void **state)
{
	static const struct attack attacks[] = {
		{ "AF_PACKET", packet_socket, 0, DIES },
		{ "AF_NETLINK", netlink_socket, 0, DIES },
		{ "AF_PACKET, disguised", disguised_family, 0, DIES },
		{ "UDP", datagram_socket, 0, EPERM },
		{ "UDP over IPv6", datagram6_socket, 0, EPERM },
		{ "raw IP", raw_socket, 0, EPERM },
		{ "local datagrams", local_datagram_socket, 0, EPERM },
		{ "TCP", stream_socket, 0, 0 },
		{ "TCP over IPv6", stream6_socket, 0, 0 },
		{ "local streams", local_stream_socket, 0, 0 },
	};

	(void)state;
	expect_all(attacks, ARRAY_LEN(attacks), ALL);
	expect_outcome("MPTCP", ALL, multipath_socket, EPERM); /* not in every kernel */
}

static int family;

static int socket_of_family(void)
{
	return open_socket((unsigned long)family, SOCK_STREAM, 0);
}

static void test_every_other_family_kills(void **state)
{
	(void)state;
	for (family = 0; family < 64; family++) {
		bool known = family == AF_UNIX || family == AF_INET || family == AF_INET6;

		expect_outcome("family", ALL, socket_of_family, known ? 0 : DIES);
	}
}

static int attach_filter(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	return outcome(setsockopt(fd, SOL_SOCKET, SO_LOCK_FILTER, &on, sizeof(on)));
}

static int needed_option(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	return outcome(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)));
}

static void test_socket_options_are_listed(void **state)
{
	(void)state;
	expect_outcome("SO_LOCK_FILTER", UNCONFINED, attach_filter, 0);
	expect_outcome("SO_LOCK_FILTER", ALL, attach_filter, EPERM);
	expect_outcome("TCP_NODELAY", ALL, needed_option, 0);
}

/* -- TCP: from version 4 of Landlock on ------------------------------------------------- */

static int listener = -1;
static struct sockaddr_in listening = { .sin_family = AF_INET };

static int connect_tcp(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return outcome(connect(fd, (struct sockaddr *)&listening, sizeof(listening)));
}

static int connect_by_sending(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return outcome(
		sendto(fd, "x", 1, MSG_FASTOPEN, (struct sockaddr *)&listening, sizeof(listening)));
}

static int connect_by_message(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct iovec iov = { (char[]){ "x" }, 1 };
	struct msghdr m = { .msg_name = &listening,
		            .msg_namelen = sizeof(listening),
		            .msg_iov = &iov,
		            .msg_iovlen = 1 };

	return outcome(sendmsg(fd, &m, MSG_FASTOPEN));
}

static int bind_port(uint16_t port)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
		                  .sin_port = htons(port),
		                  .sin_addr = { htonl(INADDR_LOOPBACK) } };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return outcome(bind(fd, (struct sockaddr *)&at, sizeof(at)));
}

static int bind_own_port(void)
{
	return bind_port(world.port);
}

static int bind_next_port(void)
{
	return bind_port((uint16_t)(world.port + 1));
}

static void open_listener(void)
{
	socklen_t len = sizeof(listening);

	listening.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&listening, len), 0);
	assert_int_equal(listen(listener, 16), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&listening, &len), 0);
}

static void test_tcp_goes_nowhere(void **state)
{
	static const struct attack attacks[] = {
		{ "connect", connect_tcp, 0, EACCES },
		{ "fast open by sendto", connect_by_sending, 0, EPERM },
		{ "fast open by sendmsg", connect_by_message, 0, EPERM },
	};
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

	(void)state;
	if (abi < 4)
		skip();
	open_listener();
	expect_all(attacks, ARRAY_LEN(attacks), ALL);
	fd_close(&listener);
	/* Two that no kernel gives away by itself, and no other run of this program has. */
	world.port = (uint16_t)(20000 + getpid() % 6000 * 2);
	expect_outcome("its port", ALL, bind_own_port, 0);
	expect_outcome("the next port", UNCONFINED, bind_next_port, 0);
	expect_outcome("the next port", ALL, bind_next_port, EACCES);
	world.port = 0;
	expect_outcome("any port", ALL, bind_own_port, 0);
	expect_outcome("a certain port", ALL, bind_next_port, EACCES);
}

static int signal_victim(void)
{
	return outcome(kill(world.victim, SIGCONT));
}

static void test_landlock_alone_holds_signals(void **state)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

	(void)state;
	if (abi < 6)
		skip();
	expect_outcome("kill", UNCONFINED, signal_victim, 0);
	expect_outcome("kill", FILES, signal_victim, EPERM);
}

/* -- a kernel without Landlock ----------------------------------------------------------- */

static int hide_landlock(void)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	int rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(landlock_create_ruleset),
	                          0);

	if (rc == 0)
		rc = seccomp_load(filter);
	seccomp_release(filter);
	return rc;
}

static int confine_with_landlock_hidden(bool need)
{
	const struct confine_conf conf = { .mode = CONFINE_ENFORCE, .need_landlock = need };
	struct err e = ERR_INIT;

	if (hide_landlock() != 0)
		return BROKEN;
	if (confine_self(&conf, &e) < 0)
		return strstr(e.text, "lsm=") ? e.code : BROKEN;
	return 0;
}

static int confine_with_need(void)
{
	return confine_with_landlock_hidden(true);
}

static int confine_without_need(void)
{
	int rc = confine_with_landlock_hidden(false);

	return rc == 0 ? write_file() : BROKEN;
}

static void test_landlock_is_demanded_or_missed(void **state)
{
	(void)state;
	expect_outcome("needed", UNCONFINED, confine_with_need, ENOTSUP);
	expect_outcome("not needed", UNCONFINED, confine_without_need, EPERM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_file_can_be_opened),
		cmocka_unit_test(test_no_file_can_be_looked_at),
		cmocka_unit_test(test_landlock_alone_guards_files),
		cmocka_unit_test(test_what_is_open_stays_usable),
		cmocka_unit_test(test_only_stream_sockets),
		cmocka_unit_test(test_every_other_family_kills),
		cmocka_unit_test(test_socket_options_are_listed),
		cmocka_unit_test(test_tcp_goes_nowhere),
		cmocka_unit_test(test_landlock_alone_holds_signals),
		cmocka_unit_test(test_landlock_is_demanded_or_missed),
	};
	int failed;

	failed = world_make(NULL);
	failed += RUN_TESTS(tests);
	return failed + world_remove(NULL) ? 1 : 0;
}
