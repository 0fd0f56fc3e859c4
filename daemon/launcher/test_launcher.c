/*
 * Real processes: the launcher is a child of the test, the server a child of the
 * launcher that hands its socket to the test and then does as it is told, and a
 * runner is this program again ("serve"), whose behaviour the tenant's id names.
 * PostgreSQL is played by a process that sleeps; test_cluster.c has the real one.
 */
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
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
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
#define UNDECLARED UUID_BEGIN "9"

#define FLOOD_BYTES (100 << 20)

#define CLOSE_AND_STAY 255 /* told to the server in place of an exit status */

/* -- the runner's stand-in ------------------------------------------------------------- */

static void echo_until_end(void)
{
	char chunk[256];
	ssize_t n;

	while ((n = read(0, chunk, sizeof(chunk))) > 0)
		if (write(1, chunk, (size_t)n) != n)
			_exit(9);
}

static int flood(void)
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
static void tell_all(int argc, char **argv, char **env)
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

static int be_runner(int argc, char **argv, char **env)
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
	if (strcmp(tenant, TELLING) == 0)
		tell_all(argc, argv, env);
	echo_until_end();
	return 0;
}

/* -- PostgreSQL's stand-in ------------------------------------------------------------- */

static pid_t fork_sleeper(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return pid;
}

int cluster_start(struct cluster *c, const char *state_dir, const char *postgres_bin, struct err *e)
{
	(void)state_dir;
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
static int play_server(void *ctx, int sock, const char *database_socket_dir)
{
	int control = *(int *)ctx;
	struct launcher_message hello = {
		.op = LAUNCHER_STARTED,
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

static void write_text(const char *dir, const char *name, const char *text)
{
	char path[192];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static void make_dir(const char *dir, const char *name)
{
	char path[192];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	assert_int_equal(mkdir(path, 0700), 0);
}

static void print_fault(void *ctx, const char *line)
{
	(void)ctx;
	print_error("%s\n", line);
}

static void load_registry(struct world *w)
{
	static const char ids[] = "123456";
	char text[4096], name[32], path[128];
	struct err e = ERR_INIT;
	int len = snprintf(text, sizeof(text), "{\"version\":1,\"tenants\":[");

	for (const char *id = ids; *id; id++) {
		(void)snprintf(name, sizeof(name), "work%c", *id);
		make_dir(w->dir, name);
		(void)snprintf(name, sizeof(name), "token%c", *id);
		(void)snprintf(path, sizeof(path), "0123456789abcdef0123456789abcde%c", *id);
		write_text(w->dir, name, path);
		len += snprintf(text + len, sizeof(text) - (size_t)len,
		                "%s{\"id\":\"" UUID_BEGIN "%c\",\"name\":\"t%c\","
		                "\"workspaceRoot\":\"%s/work%c\",\"credentials\":[{\"id\":\""
		                "01980000-0000-7000-8000-0000000000c%c\",\"tokenFile\":"
		                "\"%s/token%c\"}]}",
		                id > ids ? "," : "", *id, *id, w->dir, *id, *id, w->dir, *id);
	}
	(void)snprintf(text + len, sizeof(text) - (size_t)len, "]}");
	write_text(w->dir, "tenants.json", text);
	(void)snprintf(path, sizeof(path), "%s/tenants.json", w->dir);
	if (registry_load(path, w->state, &w->registry, print_fault, NULL, &e) < 0)
		fail_msg("%s", e.text);
}

static int set_up(void **state)
{
	static struct world w;
	ssize_t n = readlink("/proc/self/exe", w.self, sizeof(w.self) - 1);

	assert_true(n > 0);
	w.self[n] = '\0';
	(void)snprintf(w.dir, sizeof(w.dir), "/tmp/test-launcher-XXXXXX");
	assert_non_null(mkdtemp(w.dir));
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

static int tear_down(void **state)
{
	struct world *w = *state;
	pid_t pid = fork();

	registry_free(&w->registry);
	if (pid == 0) {
		execlp("rm", "rm", "-rf", "--", w->dir, NULL);
		_exit(127);
	}
	return waitpid(pid, NULL, 0) == pid ? 0 : -1;
}

/* After a test, also one that failed halfway. */
static int clean_up(void **state)
{
	struct world *w = *state;

	if (w->launcher > 0)
		(void)kill(w->launcher, SIGKILL);
	w->launcher = 0;
	fd_close(&w->sock);
	fd_close(&w->control);
	fd_close(&w->control_far);
	fd_close(&w->out);
	fd_close(&w->log);
	while (waitpid(-1, NULL, 0) > 0)
		continue;
	w->conf.runner = w->conf.runsc = w->self;
	w->conf.postgres_bin = "/postgres";
	w->conf.host = "127.0.0.1";
	w->conf.drain_seconds = 5;
	return 0;
}

static void be_launcher(struct world *w, int out, int log)
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
static void fork_launcher(struct world *w)
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

static void take_hello(struct world *w)
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

static void begin(struct world *w)
{
	fork_launcher(w);
	take_hello(w);
}

/* The launcher's end, awaited; then nothing of it may be left within a second. */
static int end_status(struct world *w, uint64_t within_ms)
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
	deadline = clock_mono_ms() + 1000;
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

static void expect_log(struct world *w, const char *part)
{
	auto_free char *text = log_text(w);

	if (!strstr(text, part))
		fail_msg("'%s' is not in the log:\n%s", part, text);
	fd_close(&w->log);
}

static void expect_exit(struct world *w, int code, const char *logged)
{
	int status = end_status(w, 5000);

	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), code);
	expect_log(w, logged);
}

static void say(struct world *w, uint32_t op, const char *tenant, uint64_t generation)
{
	struct launcher_message m = { .op = op, .generation = generation, .port = 4096 };
	struct err e = ERR_INIT;

	memcpy(m.tenant.text, tenant, sizeof(m.tenant.text));
	assert_int_equal(launcher_send(w->sock, &m, NULL, &e), 0);
}

static struct launcher_message hear(struct world *w, uint32_t op, int ret_fds[2])
{
	struct pollfd p = { .fd = w->sock, .events = POLLIN };
	struct launcher_message m = { 0 };
	int fds[2] = { -1, -1 };
	struct err e = ERR_INIT;

	assert_int_equal(poll(&p, 1, 15000), 1);
	if (launcher_receive(w->sock, &m, fds, &e) != 1)
		fail_msg("nothing received: %s", e.text);
	assert_int_equal(m.op, op);
	if (ret_fds) {
		ret_fds[0] = fds[0];
		ret_fds[1] = fds[1];
	}
	return m;
}

static void expect_silence(struct world *w)
{
	struct pollfd p = { .fd = w->sock, .events = POLLIN };

	assert_int_equal(poll(&p, 1, 150), 0);
}

static void start_runner(struct world *w, const char *tenant, uint64_t generation, int ret_fds[2])
{
	struct launcher_message m;

	say(w, LAUNCHER_START, tenant, generation);
	m = hear(w, LAUNCHER_STARTED, ret_fds);
	assert_string_equal(m.tenant.text, tenant);
	assert_int_equal(m.generation, generation);
	assert_true(ret_fds[0] >= 0 && ret_fds[1] >= 0);
}

static void close_both(int fds[2])
{
	fd_close(&fds[0]);
	fd_close(&fds[1]);
}

static void end_server(struct world *w, unsigned char status)
{
	assert_int_equal(write(w->control, &status, 1), 1);
}

/* An orderly end, as every test that looked at something else has it. */
static void stop(struct world *w)
{
	assert_int_equal(kill(w->launcher, SIGTERM), 0);
	(void)hear(w, LAUNCHER_DRAIN, NULL);
	end_server(w, 0);
	expect_exit(w, 0, "stand-in of PostgreSQL stopped");
}

static void read_until(int fd, const char *end, char *ret, size_t size)
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

/* -- runners --------------------------------------------------------------------------- */

static void test_runner_starts_and_ends(void **state)
{
	struct world *w = *state;
	struct launcher_message m;
	char text[16];
	int fds[2];

	begin(w);
	start_runner(w, ECHO, 7, fds);
	assert_int_equal(write(fds[0], "hello\n", 6), 6);
	read_until(fds[1], "\n", text, sizeof(text));
	assert_string_equal(text, "hello\n");
	close_both(fds);
	m = hear(w, LAUNCHER_EXITED, NULL);
	assert_string_equal(m.tenant.text, ECHO);
	assert_int_equal(m.generation, 7);
	assert_int_equal(m.status, 0);
	assert_string_equal(m.cause, "");
	/* And again, for the same tenant. */
	start_runner(w, ECHO, 8, fds);
	close_both(fds);
	assert_int_equal(hear(w, LAUNCHER_EXITED, NULL).generation, 8);
	stop(w);
}

static void expect_fact(const char *report, const char *fact)
{
	if (!strstr(report, fact))
		fail_msg("'%s' is not in:\n%s", fact, report);
}

static void test_what_a_runner_is_given(void **state)
{
	struct world *w = *state;
	char report[8192], fact[512];
	struct stat work, own;
	int fds[2];

	assert_int_equal(setenv("SECRET", "of the daemon", 1), 0);
	begin(w);
	start_runner(w, TELLING, 1, fds);
	read_until(fds[1], "end\n", report, sizeof(report));
	close_both(fds);
	(void)hear(w, LAUNCHER_EXITED, NULL);
	expect_fact(report, "fds 3\n");
	expect_fact(report, "environment empty\n");
	expect_fact(report, "group own\n");
	expect_fact(report, "death 9\n");
	expect_fact(report, "blocked 0\n");
	expect_fact(report, "pipe default\n");
	expect_fact(report, "cwd /\n");
	(void)snprintf(fact, sizeof(fact), "%s/work5", w->dir);
	assert_int_equal(stat(fact, &work), 0);
	(void)snprintf(fact, sizeof(fact), "%s/tenants/%s/state", w->state, TELLING);
	assert_int_equal(lstat(fact, &own), 0);
	assert_int_equal(own.st_mode & 07777, 0700);
	(void)snprintf(fact, sizeof(fact),
	               "serve --tenant %s --workspace %s/work5 --workspace-id %lu:%lu --state "
	               "%s/tenants/%s/state --state-id %lu:%lu --rootfs %s --guest ",
	               TELLING, w->dir, work.st_dev, work.st_ino, w->state, TELLING, own.st_dev,
	               own.st_ino, w->rootfs);
	expect_fact(report, fact);
	(void)snprintf(fact, sizeof(fact), "--runtime-dir %s/tenants/%s/run --boundary development",
	               w->state, TELLING);
	expect_fact(report, fact);
	stop(w);
}

static void test_failed_start_tells_the_reason(void **state)
{
	struct world *w = *state;
	struct launcher_message m;
	int fds[2];

	begin(w);
	start_runner(w, REFUSING, 3, fds);
	close_both(fds);
	m = hear(w, LAUNCHER_EXITED, NULL);
	assert_int_equal(m.status, 2);
	assert_string_equal(m.cause, "there is no network today; come back tomorrow");
	assert_int_equal(kill(w->launcher, SIGTERM), 0);
	(void)hear(w, LAUNCHER_DRAIN, NULL);
	end_server(w, 0);
	expect_exit(w, 0, "error cloisterd: tenant " REFUSING ": runner: there is no network");
}

static void test_runner_that_cannot_be_executed(void **state)
{
	struct world *w = *state;
	char text[] = "not a program";
	char path[128];
	struct launcher_message m;
	int fds[2];

	write_text(w->dir, "broken", text);
	(void)snprintf(path, sizeof(path), "%s/broken", w->dir);
	assert_int_equal(chmod(path, 0700), 0);
	w->conf.runner = path;
	begin(w);
	start_runner(w, ECHO, 3, fds);
	close_both(fds);
	m = hear(w, LAUNCHER_EXITED, NULL);
	assert_int_equal(m.status, 127);
	assert_non_null(strstr(m.cause, "cannot execute"));
	assert_non_null(strstr(m.cause, "Exec format error"));
	stop(w);
}

static void test_kill_needs_the_right_generation(void **state)
{
	struct world *w = *state;
	struct launcher_message m;
	int fds[2], other[2];

	begin(w);
	start_runner(w, ECHO, 7, fds);
	start_runner(w, SECOND, 7, other);
	say(w, LAUNCHER_KILL, ECHO, 6);
	say(w, LAUNCHER_KILL, ECHO, 8);
	say(w, LAUNCHER_KILL, UNDECLARED, 7);
	expect_silence(w);
	say(w, LAUNCHER_KILL, ECHO, 7);
	m = hear(w, LAUNCHER_EXITED, NULL);
	assert_string_equal(m.tenant.text, ECHO);
	assert_int_equal(m.status, 128 + SIGKILL);
	assert_non_null(strstr(m.cause, "signal 9"));
	/* Late word about one that is gone. */
	say(w, LAUNCHER_KILL, ECHO, 7);
	expect_silence(w);
	close_both(fds);
	close_both(other);
	m = hear(w, LAUNCHER_EXITED, NULL);
	assert_string_equal(m.tenant.text, SECOND);
	assert_int_equal(m.status, 0);
	stop(w);
}

static void test_second_start_is_refused(void **state)
{
	struct world *w = *state;
	struct launcher_message m;
	int fds[2];

	begin(w);
	start_runner(w, ECHO, 7, fds);
	say(w, LAUNCHER_START, ECHO, 8);
	m = hear(w, LAUNCHER_EXITED, NULL);
	assert_int_equal(m.generation, 8);
	assert_int_equal(m.status, -1);
	assert_non_null(strstr(m.cause, "has not ended"));
	/* The first lives on. */
	assert_int_equal(write(fds[0], "x", 1), 1);
	assert_int_equal(read(fds[1], &(char){ 0 }, 1), 1);
	close_both(fds);
	assert_int_equal(hear(w, LAUNCHER_EXITED, NULL).generation, 7);
	stop(w);
}

static void test_undeclared_tenant_is_refused(void **state)
{
	struct world *w = *state;
	struct launcher_message m;
	char path[192];

	begin(w);
	say(w, LAUNCHER_START, UNDECLARED, 1);
	m = hear(w, LAUNCHER_EXITED, NULL);
	assert_int_equal(m.status, -1);
	assert_non_null(strstr(m.cause, "not declared"));
	(void)snprintf(path, sizeof(path), "%s/tenants/%s", w->state, UNDECLARED);
	assert_int_equal(access(path, F_OK), -1);
	stop(w);
}

/* A link in the place of a state directory leads nowhere. */
static void test_planted_link_is_not_followed(void **state)
{
	struct world *w = *state;
	struct launcher_message m;
	char own[192], elsewhere[192];
	int fds[2];

	begin(w);
	start_runner(w, SECOND, 1, fds);
	close_both(fds);
	(void)hear(w, LAUNCHER_EXITED, NULL);
	(void)snprintf(own, sizeof(own), "%s/tenants/%s/state", w->state, SECOND);
	(void)snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", w->dir);
	assert_int_equal(rename(own, elsewhere), 0);
	assert_int_equal(symlink(elsewhere, own), 0);
	say(w, LAUNCHER_START, SECOND, 2);
	m = hear(w, LAUNCHER_EXITED, NULL);
	assert_int_equal(m.status, -1);
	assert_non_null(strstr(m.cause, "open state"));
	assert_int_equal(unlink(own), 0);
	stop(w);
}

static size_t peak_kib(pid_t pid)
{
	char path[64];
	auto_free char *text = NULL;
	auto_close int fd = -1;
	struct err e = ERR_INIT;
	size_t len;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fd_read_all(fd, 65536, &text, &len, &e), 0);
	return strtoul(strstr(text, "VmHWM:") + 6, NULL, 10);
}

static void test_flood_of_log_is_bounded(void **state)
{
	struct world *w = *state;
	auto_free char *text = NULL;
	struct launcher_message m;
	size_t before, lines = 0;
	int fds[2];

	begin(w);
	before = peak_kib(w->launcher);
	start_runner(w, FLOODING, 1, fds);
	m = hear(w, LAUNCHER_EXITED, NULL);
	assert_int_equal(m.status, 3);
	assert_string_equal(m.cause, "the flood is over");
	assert_true(peak_kib(w->launcher) < before + 1024);
	close_both(fds);
	text = log_text(w);
	for (const char *p = text; (p = strstr(p, "runner: ")); p++)
		lines++;
	assert_true(lines >= RUNNER_LOG_BURST);
	assert_true(lines < 200);
	assert_true(strlen(text) < 262144);
	assert_non_null(strstr(text, "lines left out here"));
	stop(w);
}

/* -- the end of everything ------------------------------------------------------------- */

static void test_ready_is_printed(void **state)
{
	struct world *w = *state;
	char text[64];

	w->conf.host = "::1";
	begin(w);
	say(w, LAUNCHER_READY, ECHO, 1);
	read_until(w->out, "\n", text, sizeof(text));
	assert_string_equal(text, "cloisterd: ready on http://[::1]:4096\n");
	stop(w);
}

static void test_drain_waits_for_the_server(void **state)
{
	struct world *w = *state;
	struct launcher_message m;
	int fds[2], late[2];

	begin(w);
	say(w, LAUNCHER_READY, ECHO, 1);
	start_runner(w, ECHO, 7, fds);
	assert_int_equal(kill(w->launcher, SIGINT), 0);
	(void)hear(w, LAUNCHER_DRAIN, NULL);
	/* What runs goes on, and may still need a sandbox. */
	expect_silence(w);
	assert_int_equal(write(fds[0], "x", 1), 1);
	assert_int_equal(read(fds[1], &(char){ 0 }, 1), 1);
	start_runner(w, SECOND, 7, late);
	close_both(late);
	m = hear(w, LAUNCHER_EXITED, NULL);
	assert_string_equal(m.tenant.text, SECOND);
	end_server(w, 0);
	/* The echo still has its input: it ends by TERM. */
	expect_exit(w, 0, "signal 15");
	close_both(fds);
}

static void test_server_that_fails_to_drain(void **state)
{
	struct world *w = *state;

	begin(w);
	assert_int_equal(kill(w->launcher, SIGTERM), 0);
	(void)hear(w, LAUNCHER_DRAIN, NULL);
	end_server(w, 4);
	expect_exit(w, 1, "did not end in order: exit status 4");
}

static void test_drain_has_a_deadline(void **state)
{
	struct world *w = *state;
	uint64_t begun;
	int status;

	w->conf.drain_seconds = 0;
	begin(w);
	begun = clock_mono_ms();
	assert_int_equal(kill(w->launcher, SIGTERM), 0);
	(void)hear(w, LAUNCHER_DRAIN, NULL);
	status = end_status(w, 15000);
	assert_in_range(clock_mono_ms() - begun, 9900, 13000);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	expect_log(w, "did not end in time");
}

static void test_second_signal_hastens(void **state)
{
	struct world *w = *state;
	int fds[2];

	begin(w);
	start_runner(w, STUBBORN, 1, fds);
	assert_int_equal(read(fds[1], &(char){ 0 }, 1), 1);
	assert_int_equal(kill(w->launcher, SIGTERM), 0);
	(void)hear(w, LAUNCHER_DRAIN, NULL);
	assert_int_equal(kill(w->launcher, SIGTERM), 0);
	/* The server has gone; the third ends the runner that ignores TERM. */
	(void)usleep(300000);
	assert_int_equal(kill(w->server, 0), -1);
	assert_int_equal(kill(w->launcher, 0), 0);
	assert_int_equal(kill(w->launcher, SIGINT), 0);
	expect_exit(w, 0, "asked again");
	close_both(fds);
}

static void test_launcher_killed_takes_all_with_it(void **state)
{
	struct world *w = *state;
	int fds[2], status;

	begin(w);
	start_runner(w, STUBBORN, 1, fds);
	assert_int_equal(read(fds[1], &(char){ 0 }, 1), 1);
	assert_int_equal(kill(w->launcher, SIGKILL), 0);
	status = end_status(w, 1000); /* asserts that nobody is left after a second */
	assert_true(WIFSIGNALED(status));
	fd_close(&w->log);
	close_both(fds);
}

static void test_server_killed(void **state)
{
	struct world *w = *state;
	int fds[2];

	begin(w);
	say(w, LAUNCHER_READY, ECHO, 1);
	start_runner(w, ECHO, 1, fds);
	assert_int_equal(kill(w->server, SIGKILL), 0);
	expect_exit(w, 1, "the server ended by itself: signal 9");
	close_both(fds);
}

/* Even with status 0: nobody asked it to. */
static void test_server_leaves_unasked(void **state)
{
	struct world *w = *state;

	begin(w);
	say(w, LAUNCHER_READY, ECHO, 1);
	assert_int_equal(read(w->out, &(char){ 0 }, 1), 1);
	end_server(w, 0);
	expect_exit(w, 1, "the server ended by itself: exit status 0");
}

static void test_server_fails_to_start(void **state)
{
	struct world *w = *state;

	begin(w);
	end_server(w, 2);
	expect_exit(w, 2, "before it was ready: exit status 2");
}

static void test_server_closes_its_socket_and_stays(void **state)
{
	struct world *w = *state;

	begin(w);
	end_server(w, CLOSE_AND_STAY);
	assert_int_equal(read(w->control, &(char){ 0 }, 1), 1);
	fd_close(&w->sock);
	(void)usleep(4000000);
	expect_exit(w, 1, "closed its socket and lives on");
}

static pid_t find_database(struct world *w)
{
	char path[64], text[64] = "";
	auto_file FILE *f = NULL;

	(void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)w->launcher,
	               (int)w->launcher);
	f = fopen(path, "re");
	assert_non_null(f);
	assert_non_null(fgets(text, sizeof(text), f));
	return (pid_t)strtol(text, NULL, 10); /* the oldest child */
}

static void test_database_killed(void **state)
{
	struct world *w = *state;
	int fds[2];

	begin(w);
	start_runner(w, ECHO, 1, fds);
	assert_int_equal(kill(find_database(w), SIGKILL), 0);
	expect_exit(w, 1, "PostgreSQL ended by itself: signal 9");
	close_both(fds);
}

static void test_database_does_not_start(void **state)
{
	struct world *w = *state;

	w->conf.postgres_bin = "/missing";
	fork_launcher(w);
	expect_exit(w, 100, "database: no PostgreSQL in /missing");
}

static void test_missing_part_refuses_the_start(void **state)
{
	struct world *w = *state;

	w->conf.runsc = "/missing/runsc";
	fork_launcher(w);
	expect_exit(w, 100, "--runsc /missing/runsc: No such file or directory; install gVisor");
}

static void test_second_launcher_is_refused(void **state)
{
	struct world *w = *state;
	struct world second = *w;

	begin(w);
	fork_launcher(&second);
	/* Not end_status(): the first one's processes live. */
	assert_int_equal(waitpid(second.launcher, NULL, 0), second.launcher);
	fd_close(&second.control);
	fd_close(&second.out);
	expect_log(&second, "another cloisterd uses it");
	stop(w);
}

static void test_server_holds_nothing_of_the_launcher(void **state)
{
	struct world *w = *state;
	char path[64], target[128];
	struct dirent *entry;
	auto_dir DIR *d = NULL;

	begin(w);
	(void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)w->server);
	d = opendir(path);
	assert_non_null(d);
	while ((entry = readdir(d))) {
		ssize_t n = readlinkat(dirfd(d), entry->d_name, target, sizeof(target) - 1);

		if (n < 0)
			continue;
		target[n] = '\0';
		assert_null(strstr(target, "anon_inode"));
		assert_null(strstr(target, w->state));
	}
	stop(w);
}

/* -- words that a server does not say -------------------------------------------------- */

static void test_unknown_word_ends_everything(void **state)
{
	struct world *w = *state;
	struct launcher_message m = { .op = 77, .generation = 1 };
	struct err e = ERR_INIT;
	int fds[2];

	begin(w);
	start_runner(w, STUBBORN, 1, fds);
	assert_int_equal(read(fds[1], &(char){ 0 }, 1), 1);
	assert_int_equal(launcher_send(w->sock, &m, NULL, &e), 0);
	(void)usleep(200000);
	assert_int_equal(kill(w->server, 0), -1);
	assert_int_equal(kill(w->launcher, SIGTERM), 0);
	expect_exit(w, 1, "unknown message 77");
	close_both(fds);
}

static void test_words_of_the_launcher_are_not_the_servers(void **state)
{
	static const uint32_t ops[] = { LAUNCHER_EXITED, LAUNCHER_DRAIN };
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
		begin(w);
		say(w, ops[i], ECHO, 1);
		expect_exit(w, 1, "not its to send");
	}
}

static void test_descriptors_from_the_server(void **state)
{
	struct world *w = *state;
	struct launcher_message m = { .op = LAUNCHER_STARTED, .generation = 1 };
	struct err e = ERR_INIT;

	memcpy(m.tenant.text, ECHO, sizeof(m.tenant.text));
	begin(w);
	assert_int_equal(launcher_send(w->sock, &m, (int[2]){ 0, 1 }, &e), 0);
	expect_exit(w, 1, "the server sent descriptors");
}

static void test_ready_twice(void **state)
{
	struct world *w = *state;

	begin(w);
	say(w, LAUNCHER_READY, ECHO, 1);
	say(w, LAUNCHER_READY, ECHO, 1);
	expect_exit(w, 1, "became ready twice");
}

static void test_short_message(void **state)
{
	struct world *w = *state;

	begin(w);
	assert_int_equal(write(w->sock, "hi", 2), 2);
	expect_exit(w, 1, "less than");
}

/* Answers wait in the launcher, up to a bound, and then it is over. */
static void test_server_that_does_not_read(void **state)
{
	struct world *w = *state;
	struct launcher_message m = { .op = LAUNCHER_START, .generation = 1 };
	struct err e = ERR_INIT;
	int sent = 0;

	memcpy(m.tenant.text, UNDECLARED, sizeof(m.tenant.text));
	begin(w);
	while (sent < 100000 && launcher_send(w->sock, &m, NULL, &e) == 0)
		sent++;
	assert_true(sent < 100000);
	expect_exit(w, 1, "messages unread");
}

/* An honest burst is answered whole, in order. */
static void test_burst_is_answered(void **state)
{
	struct world *w = *state;

	begin(w);
	for (unsigned int i = 1; i <= 30; i++)
		say(w, LAUNCHER_START, UNDECLARED, i);
	for (unsigned int i = 1; i <= 30; i++)
		assert_int_equal(hear(w, LAUNCHER_EXITED, NULL).generation, i);
	stop(w);
}

#define CASE(test) cmocka_unit_test_teardown(test, clean_up)

int main(int argc, char **argv, char **env)
{
	const struct CMUnitTest tests[] = {
		CASE(test_runner_starts_and_ends),
		CASE(test_what_a_runner_is_given),
		CASE(test_failed_start_tells_the_reason),
		CASE(test_runner_that_cannot_be_executed),
		CASE(test_kill_needs_the_right_generation),
		CASE(test_second_start_is_refused),
		CASE(test_undeclared_tenant_is_refused),
		CASE(test_planted_link_is_not_followed),
		CASE(test_flood_of_log_is_bounded),
		CASE(test_ready_is_printed),
		CASE(test_drain_waits_for_the_server),
		CASE(test_server_that_fails_to_drain),
		CASE(test_drain_has_a_deadline),
		CASE(test_second_signal_hastens),
		CASE(test_launcher_killed_takes_all_with_it),
		CASE(test_server_killed),
		CASE(test_server_leaves_unasked),
		CASE(test_server_fails_to_start),
		CASE(test_server_closes_its_socket_and_stays),
		CASE(test_database_killed),
		CASE(test_database_does_not_start),
		CASE(test_missing_part_refuses_the_start),
		CASE(test_second_launcher_is_refused),
		CASE(test_server_holds_nothing_of_the_launcher),
		CASE(test_unknown_word_ends_everything),
		CASE(test_words_of_the_launcher_are_not_the_servers),
		CASE(test_descriptors_from_the_server),
		CASE(test_ready_twice),
		CASE(test_short_message),
		CASE(test_server_that_does_not_read),
		CASE(test_burst_is_answered),
	};

	if (argc > 1 && strcmp(argv[1], "serve") == 0)
		return be_runner(argc, argv, env);
	alarm(60);
	return cmocka_run_group_tests(tests, set_up, tear_down) ? 1 : 0;
}
