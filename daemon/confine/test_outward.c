/* The walls of those that connect out: what they need works, the rest does not. */
#include "common/test.h"

#include "daemon/confine/test_attack.h"

#include <arpa/inet.h>
#include <linux/landlock.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/un.h>

static uint16_t open_port, other_port;
static int local_listener = -1; /* that the link would have */

static void expect_of_both(const struct attack *attacks, size_t n)
{
	expect_all(attacks, n, COURIER);
	for (size_t i = 0; i < n; i++)
		expect_outcome(attacks[i].name, LINK, attacks[i].run, attacks[i].confined);
}

static int run_program(void)
{
	char *const argv[] = { (char[]){ "true" }, NULL };
	char *const none[] = { NULL };

	return outcome(execve("/bin/true", argv, none));
}

static int trace_victim(void)
{
	return outcome(syscall(SYS_ptrace, 0x4206 /* PTRACE_SEIZE */, world.victim, 0, 0));
}

static int signal_victim(void)
{
	return outcome(kill(world.victim, SIGCONT));
}

static int open_path(const char *path, int flags)
{
	return outcome(open(path, flags | O_CLOEXEC, 0600));
}

static int read_file(void)
{
	return open_path(world.file, O_RDONLY);
}

static int write_file(void)
{
	return open_path(world.file, O_WRONLY);
}

static int read_passwords(void)
{
	return open_path("/etc/passwd", O_RDONLY);
}

static int read_hosts(void)
{
	return open_path("/etc/hosts", O_RDONLY);
}

static int change_hosts(void)
{
	return open_path("/etc/hosts", O_WRONLY);
}

static int read_memory(void)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%d/mem", (int)world.victim);
	return open_path(path, O_RDONLY);
}

static int connect_to(uint16_t port, int protocol)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
	auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, protocol);

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0)
		return errno;
	return outcome(connect(fd, (const struct sockaddr *)&to, sizeof(to)));
}

static int connect_as_declared(void)
{
	return connect_to(open_port, 0);
}

static int connect_naming_the_protocol(void)
{
	return connect_to(open_port, IPPROTO_TCP);
}

static int connect_elsewhere(void)
{
	return connect_to(other_port, 0);
}

/* -- ways of connecting that are no connect(2), of which Landlock is not asked --------------- */

static struct sockaddr_in elsewhere(void)
{
	return (struct sockaddr_in){ .sin_family = AF_INET,
		                     .sin_port = htons(other_port),
		                     .sin_addr = { htonl(INADDR_LOOPBACK) } };
}

static int connect_by_sending(void)
{
	const struct sockaddr_in to = elsewhere();
	auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return outcome(sendto(fd, "x", 1, MSG_FASTOPEN, (const struct sockaddr *)&to, sizeof(to)));
}

static int connect_by_messages(bool many)
{
	struct sockaddr_in to = elsewhere();
	struct iovec iov = { (char[]){ "x" }, 1 };
	struct mmsghdr m = { .msg_hdr = { .msg_name = &to,
		                          .msg_namelen = sizeof(to),
		                          .msg_iov = &iov,
		                          .msg_iovlen = 1 } };
	auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return outcome(many ? sendmmsg(fd, &m, 1, MSG_FASTOPEN)
	                    : sendmsg(fd, &m.msg_hdr, MSG_FASTOPEN));
}

static int connect_by_message(void)
{
	return connect_by_messages(false);
}

static int connect_by_many(void)
{
	return connect_by_messages(true);
}

static int connect_by_option(void)
{
	const int on = 1;
	auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return outcome(setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &on, sizeof(on)));
}

static int connect_by_multipath(void)
{
	auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_MPTCP);

	return outcome(fd);
}

static void what_landlock_is_not_asked_about(void **state)
{
	static const struct attack attacks[] = {
		{ "sendto", connect_by_sending, 0, EPERM },
		{ "sendmsg", connect_by_message, 0, EPERM },
		{ "sendmmsg", connect_by_many, 0, EPERM },
		{ "TCP_FASTOPEN_CONNECT", connect_by_option, 0, EPERM },
	};

	(void)state;
	expect_of_both(attacks, ARRAY_LEN(attacks));
	expect_outcome("TCP_FASTOPEN_CONNECT", ALL, connect_by_option, EPERM);
	expect_outcome("MPTCP", COURIER, connect_by_multipath, EPERM);
	expect_outcome("MPTCP", LINK, connect_by_multipath, EPERM);
}

/* -- local sockets, of which PostgreSQL's is one ----------------------------------------------- */

static struct sockaddr_un local_address(const char *name)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };

	(void)snprintf(at.sun_path, sizeof(at.sun_path), "%s/%s", world.dir, name);
	return at;
}

static int connect_locally(void)
{
	const struct sockaddr_un to = local_address("stream");
	auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return errno;
	return outcome(connect(fd, (const struct sockaddr *)&to, sizeof(to)));
}

/* A pair for datagrams may be sent from to any address. */
static int send_locally(void)
{
	const struct sockaddr_un to = local_address("datagrams");
	int pair[2];
	int result;

	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) < 0)
		return errno;
	result = outcome(sendto(pair[0], "x", 1, 0, (const struct sockaddr *)&to, sizeof(to)));
	fd_close(&pair[0]);
	fd_close(&pair[1]);
	return result;
}

static int stream_pair(void)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return errno;
	fd_close(&pair[0]);
	fd_close(&pair[1]);
	return 0;
}

static int bind_locally(const char *name, int type)
{
	const struct sockaddr_un at = local_address(name);
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
	return fd;
}

static void no_local_socket_is_reached(void **state)
{
	static const struct attack attacks[] = {
		{ "a stream", connect_locally, 0, EACCES },
		{ "a datagram", send_locally, 0, EPERM },
	};
	auto_close int stream = bind_locally("stream", SOCK_STREAM);
	auto_close int datagrams = bind_locally("datagrams", SOCK_DGRAM);

	(void)state;
	assert_int_equal(listen(stream, 64), 0);
	expect_of_both(attacks, ARRAY_LEN(attacks));
	expect_outcome("the server's way to PostgreSQL", ALL, connect_locally, 0);
	(void)unlink(local_address("stream").sun_path);
	(void)unlink(local_address("datagrams").sun_path);
}

/* -- the rest ------------------------------------------------------------------------------------
 */

static int listen_somewhere(void)
{
	auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return fd < 0 ? errno : outcome(listen(fd, 1));
}

static int packet_socket(void)
{
	return outcome(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
}

static int raw_socket(void)
{
	return outcome(socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP));
}

static int look_up(void)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found = NULL;
	int rc = getaddrinfo("localhost", "80", &hints, &found);

	if (found)
		freeaddrinfo(found);
	return rc ? EPERM : 0;
}

static int make_executable_memory(void)
{
	const void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
	                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? errno : 0;
}

static int make_memory_executable(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? errno : outcome(mprotect(p, 4096, PROT_READ | PROT_EXEC));
}

static int new_namespace(void)
{
	return outcome(unshare(CLONE_NEWNET));
}

static void what_it_may_not(void **state)
{
	static const struct attack attacks[] = {
		{ "execve", run_program, 0, DIES },
		{ "ptrace", trace_victim, 0, DIES },
		{ "a signal", signal_victim, 0, EPERM },
		{ "a namespace", new_namespace, 0, DIES },
		{ "a file", read_file, 0, EACCES },
		{ "writing a file", write_file, 0, EPERM },
		{ "/etc/passwd", read_passwords, 0, EACCES },
		{ "writing /etc/hosts", change_hosts, 0, EPERM },
		{ "memory of another", read_memory, 0, EACCES },
		{ "listening", listen_somewhere, 0, EPERM },
		{ "packets", packet_socket, 0, EPERM },
		{ "raw datagrams", raw_socket, 0, EPERM },
		{ "executable memory", make_executable_memory, 0, EPERM },
		{ "memory made executable", make_memory_executable, 0, EPERM },
	};

	(void)state;
	expect_of_both(attacks, ARRAY_LEN(attacks));
}

static void tcp_goes_to_its_ports_alone(void **state)
{
	static const struct attack attack = { "another port", connect_elsewhere, 0, EACCES };
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

	(void)state;
	if (abi < 4)
		skip();
	expect_of_both(&attack, 1);
}

static void what_it_needs(void **state)
{
	static const struct attack needs[] = {
		{ "the declared port", connect_as_declared, 0, 0 },
		{ "/etc/hosts", read_hosts, 0, 0 },
		{ "name service", look_up, 0, 0 },
	};

	(void)state;
	expect_of_both(needs, ARRAY_LEN(needs));
}

static int take_connection(void)
{
	auto_close int fd = accept4(local_listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	return fd < 0 && errno != EAGAIN ? errno : 0;
}

/* It would be the end of it for whoever else has that socket. */
static int end_listener(void)
{
	return outcome(shutdown(local_listener, SHUT_RDWR));
}

/* Each has what the other does not need. */
static void what_one_of_them_needs(void **state)
{
	auto_close int local = bind_locally("stream", SOCK_STREAM | SOCK_NONBLOCK);

	(void)state;
	assert_int_equal(listen(local, 64), 0);
	local_listener = local;
	expect_outcome("the protocol by name", COURIER, connect_naming_the_protocol, 0);
	expect_outcome("the protocol by name", LINK, connect_naming_the_protocol, EPERM);
	expect_outcome("a pair of sockets", COURIER, stream_pair, 0);
	expect_outcome("a pair of sockets", LINK, stream_pair, EPERM);
	expect_outcome("taking a connection", LINK, take_connection, 0);
	expect_outcome("taking a connection", COURIER, take_connection, EPERM);
	expect_outcome("ending the listener", LINK, end_listener, EPERM);
	expect_outcome("taking a connection after that", LINK, take_connection, 0);
	expect_outcome("ending a socket", COURIER, end_listener, 0);
	(void)unlink(local_address("stream").sun_path);
}

static int open_listener(uint16_t *ret_port)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(fd, 64), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	*ret_port = ntohs(at.sin_port);
	return fd;
}

/* Once, as itself, and never in a build for use. */
static void a_sanitizer_is_said(void **state)
{
	static const char *const who[] = { "courier, sanitizer build, not for use: ",
		                           "link, sanitizer build, not for use: " };
	static const enum walls walls[] = { COURIER, LINK };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(who); i++) {
		auto_free char *text = NULL;
		int times = 0;
		struct err e = ERR_INIT;
		int ends[2];
		size_t len;
		pid_t pid;

		assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			log_setup("test", LOG_INFO);
			_exit(dup2(ends[1], STDERR_FILENO) < 0 ||
			      prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
			      confine_as(walls[i]) < 0);
		}
		fd_close(&ends[1]);
		assert_int_equal(fd_read_all(ends[0], 4096, &text, &len, &e), 0);
		fd_close(&ends[0]);
		assert_int_equal(child_outcome(pid), 0);
		assert_non_null(strstr(text, " confined: seccomp"));
		for (const char *p = text; (p = strstr(p, who[i])); p++)
			times++;
		assert_int_equal(times, SANITIZED ? 1 : 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_it_may_not),
		cmocka_unit_test(tcp_goes_to_its_ports_alone),
		cmocka_unit_test(what_landlock_is_not_asked_about),
		cmocka_unit_test(no_local_socket_is_reached),
		cmocka_unit_test(what_it_needs),
		cmocka_unit_test(what_one_of_them_needs),
		cmocka_unit_test(a_sanitizer_is_said),
	};
	int failed = world_make(NULL);
	auto_close int model = open_listener(&open_port);
	auto_close int other = open_listener(&other_port);

	world.port = open_port;
	failed += RUN_TESTS(tests);
	fd_close(&model);
	fd_close(&other);
	return failed + world_remove(NULL) ? 1 : 0;
}
