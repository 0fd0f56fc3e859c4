/*
 * test_world.h - a launcher among stand-ins, for the tests that include it.
 *
 * Real processes: the launcher is a child of the test, the server a child of the
 * launcher that hands its socket to the test and then does as it is told, and a
 * runner is this program again ("serve"), whose behaviour the tenant's id names.
 * PostgreSQL is played by a process that sleeps; test_cluster.c has the real one.
 */
#ifndef DAEMON_LAUNCHER_TEST_WORLD_H
#define DAEMON_LAUNCHER_TEST_WORLD_H

#include "common/test.h"

#include "daemon/launcher/cluster.h"
#include "daemon/launcher/launcher.h"
#include "daemon/launcher/message.h"
#include "daemon/launcher/runner_log.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define UUID_BEGIN "01980000-0000-7000-8000-00000000000"
#define ECHO       UUID_BEGIN "1"
#define REFUSING   UUID_BEGIN "2"
#define FLOODING   UUID_BEGIN "3"
#define STUBBORN   UUID_BEGIN "4"
#define TELLING    UUID_BEGIN "5"
#define SECOND     UUID_BEGIN "6"
#define LIMITED    UUID_BEGIN "7" /* tells as well, and has limits and egress of its own */
#define UNDECLARED UUID_BEGIN "9"

#define FLOOD_BYTES (100 << 20)

#define CLOSE_AND_STAY 255  /* told to the server in place of an exit status */
#define ENDS_MS        9000 /* less than a launcher waits for a runner that was told to end */
#define HEARS_MS       30000

/* -- the runner's stand-in ------------------------------------------------------------- */

static inline void echo_until_end(void)
{
	char chunk[256];
	ssize_t n;

	while ((n = read(0, chunk, sizeof(chunk))) > 0)
		if (write(1, chunk, (size_t)n) != n)
			_exit(9);
}

static inline int flood(void)
{
	static char line[8192];
	struct err e = ERR_INIT;

	memset(line, 'x', sizeof(line));
	for (size_t i = 99; i < sizeof(line) / 2; i += 100)
		line[i] = '\n';
	for (size_t sent = 0; sent < FLOOD_BYTES; sent += sizeof(line))
		if (fd_write_all(2, line, sizeof(line), &e) < 0)
			return 9;
	(void)!write(2, "\n", 1);
	log_error("the flood is over");
	return 3;
}

/* What a runner was given, one fact a line. */
static inline void tell_all(int argc, char **argv, char **env)
{
	DIR *d = opendir("/proc/self/fd");
	sigset_t blocked;
	int death = 0, fds = 0;
	char cwd[64];

	while (d && readdir(d))
		fds++;
	if (d)
		closedir(d);
	(void)sigprocmask(SIG_SETMASK, NULL, &blocked);
	(void)prctl(PR_GET_PDEATHSIG, &death);
	dprintf(1, "fds %d\n", fds - 3); /* ".", ".." and the directory itself */
	dprintf(1, "environment %s\n", env[0] ? env[0] : "empty");
	dprintf(1, "group %s\n", getpgrp() == getpid() ? "own" : "foreign");
	dprintf(1, "death %d\n", death);
	dprintf(1, "blocked %d\n",
	        sigismember(&blocked, SIGTERM) || sigismember(&blocked, SIGCHLD));
	dprintf(1, "pipe %s\n", signal(SIGPIPE, SIG_DFL) == SIG_DFL ? "default" : "ignored");
	dprintf(1, "cwd %s\n", getcwd(cwd, sizeof(cwd)) ? cwd : "?");
	for (int i = 1; i < argc; i++)
		dprintf(1, "%s%s", argv[i], i + 1 < argc ? " " : "\nend\n");
}

static inline int be_runner(int argc, char **argv, char **env)
{
	const char *tenant = argc > 3 ? argv[3] : "";

	log_setup("runner", LOG_INFO);
	if (strcmp(tenant, REFUSING) == 0) {
		log_info("starting");
		log_error("there is no network today; come back tomorrow");
		return 2;
	}
	if (strcmp(tenant, FLOODING) == 0)
		return flood();
	if (strcmp(tenant, STUBBORN) == 0) {
		(void)signal(SIGTERM, SIG_IGN);
		(void)!write(1, "x", 1);
		for (;;)
			pause();
	}
	if (strcmp(tenant, TELLING) == 0 || strcmp(tenant, LIMITED) == 0)
		tell_all(argc, argv, env);
	echo_until_end();
	return 0;
}

/* -- PostgreSQL's stand-in ------------------------------------------------------------- */

static inline pid_t fork_sleeper(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return pid;
}

int cluster_start(struct cluster *c, const char *state_dir, const char *postgres_bin,
                  unsigned int connections, struct err *e)
{
	(void)state_dir;
	(void)connections;
	if (strcmp(postgres_bin, "/missing") == 0)
		return err_set(e, ENOENT, "no PostgreSQL in /missing");
	(void)snprintf(c->socket_dir, sizeof(c->socket_dir), "/socket");
	c->pid = fork_sleeper();
	return c->pid < 0 ? err_errno(e, "fork") : 0;
}

int cluster_stop(struct cluster *c, struct err *e)
{
	(void)kill(c->pid, SIGKILL);
	if (waitpid(c->pid, NULL, 0) != c->pid)
		return err_errno(e, "waitpid");
	log_info("stand-in of PostgreSQL stopped");
	return 0;
}

void cluster_trim_log(const struct cluster *c)
{
	(void)c;
}

/* -- the server's stand-in ------------------------------------------------------------- */

/* Hands its socket over, then ends with the status the test names; without one it stays. */
static inline int play_server(void *ctx, int sock, const char *database_socket_dir)
{
	int control = *(int *)ctx;
	struct launcher_message hello = {
		.op = LAUNCHER_STARTED,
		.processes = 1,
		.generation = (uint64_t)getpid(),
		.tenant.text = ECHO,
	};
	struct err e = ERR_INIT;
	unsigned char status;

	(void)snprintf(hello.cause, sizeof(hello.cause), "%s", database_socket_dir);
	if (launcher_send(control, &hello, (int[2]){ sock, sock }, &e) < 0)
		return 99;
	if (read(control, &status, 1) == 1) {
		if (status != CLOSE_AND_STAY)
			return status;
		close(sock);
		(void)!write(control, "c", 1);
	}
	for (;;)
		pause();
}

/* -- fixture --------------------------------------------------------------------------- */

struct world {
	char dir[64];
	char self[PATH_MAX];
	char state[128];
	char rootfs[128];
	struct registry *registry;
	struct launcher_conf conf;
	int control, control_far; /* to the server's stand-in */
	pid_t launcher, server;
	int sock; /* the server's end of the launcher's socket */
	int out;  /* what the launcher prints */
	int log;  /* what it logs */
};

static inline void write_text(const char *dir, const char *name, const char *text)
{
	char path[192];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static inline void make_dir(const char *dir, const char *name)
{
	char path[192];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	assert_int_equal(mkdir(path, 0700), 0);
}

static inline void print_fault(void *ctx, const char *line)
{
	(void)ctx;
	print_error("%s\n", line);
}

static inline void load_registry(struct world *w)
{
	static const char policy[] =
		",\"limits\":{\"cpus\":0.5,\"memoryMiB\":512,\"processes\":64},\"egress\":{\"mode\":"
		"\"allow\",\"allow\":[{\"cidr\":\"192.0.2.0/24\"},{\"cidr\":\"198.51.100.7/32\","
		"\"ports\":[443,\"80-81\"]}],\"dns\":[\"9.9.9.9\",\"1.1.1.1\"]}";
	static const char ids[] = "1234567";
	char text[4096], name[32], path[128];
	struct err e = ERR_INIT;
	int len = snprintf(text, sizeof(text), "{\"version\":1,\"tenants\":[");

	for (const char *id = ids; *id; id++) {
		(void)snprintf(name, sizeof(name), "work%c", *id);
		make_dir(w->dir, name);
		(void)snprintf(name, sizeof(name), "token%c", *id);
		(void)snprintf(path, sizeof(path), "8d2b7c0f4e6a91536c9e1f7a3b5d048%c", *id);
		write_text(w->dir, name, path);
		len += snprintf(text + len, sizeof(text) - (size_t)len,
		                "%s{\"id\":\"" UUID_BEGIN "%c\",\"name\":\"t%c\","
		                "\"workspaceRoot\":\"%s/work%c\",\"credentials\":[{\"id\":\""
		                "01980000-0000-7000-8000-0000000000c%c\",\"tokenFile\":"
		                "\"%s/token%c\"}]%s}",
		                id > ids ? "," : "", *id, *id, w->dir, *id, *id, w->dir, *id,
		                *id == '7' ? policy : "");
	}
	(void)snprintf(text + len, sizeof(text) - (size_t)len, "]}");
	write_text(w->dir, "tenants.json", text);
	(void)snprintf(path, sizeof(path), "%s/tenants.json", w->dir);
	if (registry_load(path, w->state, &w->registry, print_fault, NULL, &e) < 0)
		fail_msg("%s", e.text);
}

/* WORLD_DISK: the world stands on a tmpfs with these options, which nobody else sees. */
#ifdef WORLD_DISK
static inline void mount_world(const char *dir)
{
	assert_int_equal(unshare(CLONE_NEWNS), 0);
	assert_int_equal(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	assert_int_equal(mount("tmpfs", dir, "tmpfs", 0, WORLD_DISK), 0);
}
#else
#define mount_world(dir) ((void)(dir))
#endif

static inline int set_up(void **state)
{
	static struct world w;
	ssize_t n = readlink("/proc/self/exe", w.self, sizeof(w.self) - 1);

	assert_true(n > 0);
	w.self[n] = '\0';
	(void)snprintf(w.dir, sizeof(w.dir), "/tmp/test-launcher-XXXXXX");
	assert_non_null(mkdtemp(w.dir));
	mount_world(w.dir);
	(void)snprintf(w.state, sizeof(w.state), "%s/state", w.dir);
	(void)snprintf(w.rootfs, sizeof(w.rootfs), "%s/rootfs", w.dir);
	make_dir(w.dir, "rootfs");
	make_dir(w.rootfs, "usr");
	load_registry(&w);
	w.conf = (struct launcher_conf){
		.state_dir = w.state,
		.runner = w.self,
		.guest = w.self,
		.rootfs = w.rootfs,
		.runsc = w.self,
		.slirp4netns = w.self,
		.postgres_bin = "/postgres",
		.boundary = "development",
		.host = "127.0.0.1",
		.drain_seconds = 5,
		.registry = w.registry,
		.server = play_server,
		.ctx = &w.control_far,
	};
	w.control = w.control_far = w.sock = w.out = w.log = -1;
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	*state = &w;
	return 0;
}

static inline int tear_down(void **state)
{
	struct world *w = *state;
	pid_t pid = fork();

	registry_free(&w->registry);
	if (pid == 0) {
		(void)umount2(w->dir, MNT_DETACH); /* if it is one */
		execlp("rm", "rm", "-rf", "--", w->dir, NULL);
		_exit(127);
	}
	return waitpid(pid, NULL, 0) == pid ? 0 : -1;
}

/* 0: none. */
static inline pid_t oldest_child(pid_t parent)
{
	char path[64], text[64] = "";
	auto_file FILE *f = NULL;

	(void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)parent, (int)parent);
	f = fopen(path, "re");
	if (!f || !fgets(text, sizeof(text), f))
		return 0;
	return (pid_t)strtol(text, NULL, 10);
}

/* After a test, also one that failed halfway. */
static inline int clean_up(void **state)
{
	struct world *w = *state;
	pid_t left;

	if (w->launcher > 0)
		(void)kill(w->launcher, SIGKILL);
	w->launcher = 0;
	fd_close(&w->sock);
	fd_close(&w->control);
	fd_close(&w->control_far);
	fd_close(&w->out);
	fd_close(&w->log);
	/* Orphans are ours; those that outlived the launcher would wait for ever. */
	while ((left = oldest_child(getpid())) > 0) {
		(void)kill(left, SIGKILL);
		(void)waitpid(left, NULL, 0);
	}
	w->conf.runner = w->conf.runsc = w->self;
	w->conf.postgres_bin = "/postgres";
	w->conf.boundary = "development";
	w->conf.host = "127.0.0.1";
	w->conf.drain_seconds = 5;
	return 0;
}

static inline void be_launcher(struct world *w, int out, int log)
{
	struct err e = ERR_INIT;
	int status;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)dup2(out, 1);
	(void)dup2(log, 2);
	fd_close(&w->control);
	log_setup("cloisterd", LOG_INFO);
	status = launcher_run(&w->conf, &e);
	if (status < 0) {
		dprintf(2, "%s\n", e.text);
		status = 100;
	}
	_exit(status);
}

/* The launcher's process, without waiting for its server. */
static inline void fork_launcher(struct world *w)
{
	int pair[2], out[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	w->control = pair[0];
	w->control_far = pair[1];
	w->out = out[0];
	w->log = open("/tmp", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
	assert_true(w->log >= 0);
	w->launcher = fork();
	assert_true(w->launcher >= 0);
	if (w->launcher == 0)
		be_launcher(w, out[1], w->log);
	close(out[1]);
	fd_close(&w->control_far);
}

static inline void take_hello(struct world *w)
{
	struct launcher_message hello;
	int fds[2] = { -1, -1 };
	struct err e = ERR_INIT;

	assert_int_equal(launcher_receive(w->control, &hello, fds, &e), 1);
	assert_string_equal(hello.cause, "/socket");
	w->server = (pid_t)hello.generation;
	w->sock = fds[0];
	fd_close(&fds[1]);
}

static inline void begin(struct world *w)
{
	fork_launcher(w);
	take_hello(w);
}

/* The launcher's end, awaited; then nothing of it may be left. */
static inline int end_status(struct world *w, uint64_t within_ms)
{
	uint64_t deadline = clock_mono_ms() + within_ms;
	int status = -1, other;
	pid_t pid = 0;

	while (pid != w->launcher && clock_mono_ms() < deadline) {
		pid = waitpid(w->launcher, &status, WNOHANG);
		(void)usleep(1000);
	}
	assert_int_equal(pid, w->launcher);
	w->launcher = 0;
	deadline = clock_mono_ms() + ENDS_MS;
	while ((pid = waitpid(-1, &other, WNOHANG)) >= 0 && clock_mono_ms() < deadline)
		(void)usleep(1000);
	assert_int_equal(pid, -1);
	assert_int_equal(errno, ECHILD);
	fd_close(&w->sock);
	fd_close(&w->control);
	fd_close(&w->out);
	return status;
}

static char *log_text(struct world *w)
{
	struct err e = ERR_INIT;
	char *text = NULL;
	size_t len;

	assert_int_equal(lseek(w->log, 0, SEEK_SET), 0);
	assert_int_equal(fd_read_all(w->log, 1 << 20, &text, &len, &e), 0);
	return text;
}

static inline void expect_log(struct world *w, const char *part)
{
	auto_free char *text = log_text(w);

	if (!strstr(text, part))
		fail_msg("'%s' is not in the log:\n%s", part, text);
	fd_close(&w->log);
}

static inline void expect_exit(struct world *w, int code, const char *logged)
{
	int status = end_status(w, ENDS_MS);

	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), code);
	expect_log(w, logged);
}

static inline void say(struct world *w, uint32_t op, const char *tenant, uint64_t generation)
{
	struct launcher_message m = { .op = op, .generation = generation, .port = 4096 };
	struct err e = ERR_INIT;

	memcpy(m.tenant.text, tenant, sizeof(m.tenant.text));
	assert_int_equal(launcher_send(w->sock, &m, NULL, &e), 0);
}

static inline struct launcher_message hear(struct world *w, uint32_t op, int ret_fds[2])
{
	struct pollfd p = { .fd = w->sock, .events = POLLIN };
	struct launcher_message m = { 0 };
	int fds[2] = { -1, -1 };
	struct err e = ERR_INIT;

	assert_int_equal(poll(&p, 1, HEARS_MS), 1);
	if (launcher_receive(w->sock, &m, fds, &e) != 1)
		fail_msg("nothing received: %s", e.text);
	assert_int_equal(m.op, op);
	if (ret_fds) {
		ret_fds[0] = fds[0];
		ret_fds[1] = fds[1];
	}
	return m;
}

static inline void expect_silence(struct world *w)
{
	struct pollfd p = { .fd = w->sock, .events = POLLIN };

	assert_int_equal(poll(&p, 1, 150), 0);
}

static inline void start_runner(struct world *w, const char *tenant, uint64_t generation,
                                int ret_fds[2])
{
	struct launcher_message m;

	say(w, LAUNCHER_START, tenant, generation);
	m = hear(w, LAUNCHER_STARTED, ret_fds);
	assert_string_equal(m.tenant.text, tenant);
	assert_int_equal(m.generation, generation);
	assert_int_equal(m.processes, strcmp(tenant, LIMITED) == 0 ? 64 : 512);
	assert_true(ret_fds[0] >= 0 && ret_fds[1] >= 0);
}

static inline void close_both(int fds[2])
{
	fd_close(&fds[0]);
	fd_close(&fds[1]);
}

static inline void end_server(struct world *w, unsigned char status)
{
	assert_int_equal(write(w->control, &status, 1), 1);
}

/* An orderly end, as every test that looked at something else has it. */
static inline void stop(struct world *w)
{
	assert_int_equal(kill(w->launcher, SIGTERM), 0);
	(void)hear(w, LAUNCHER_DRAIN, NULL);
	end_server(w, 0);
	expect_exit(w, 0, "stand-in of PostgreSQL stopped");
}

static inline void read_until(int fd, const char *end, char *ret, size_t size)
{
	size_t len = 0;

	ret[0] = '\0';
	while (!strstr(ret, end)) {
		ssize_t n = read(fd, ret + len, size - 1 - len);

		assert_true(n > 0);
		len += (size_t)n;
		ret[len] = '\0';
	}
}

#define CASE(test) cmocka_unit_test_teardown(test, clean_up)

/* The body of main(): the tests, or the runner that one of them started. */
#define RUN_WORLD(tests)                           \
	(argc > 1 && strcmp(argv[1], "serve") == 0 \
	         ? be_runner(argc, argv, env)      \
	         : (alarm(300), cmocka_run_group_tests(tests, set_up, tear_down) ? 1 : 0))

#endif
