/*
 * fake_launcher.h - for the tests of this folder: a launcher whose guests are the real
 * program on this machine, or functions that say what the test wants.
 *
 * Every guest has a thread that runs the fake's behaviour and then sends EXITED.  A START
 * while an earlier generation of the tenant lives is recorded as an overlap.
 */
#ifndef DAEMON_SANDBOX_FAKE_LAUNCHER_H
#define DAEMON_SANDBOX_FAKE_LAUNCHER_H

#include "daemon/launcher/message.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/fd.h"
#include "common/frame.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAKE_GUESTS 64

struct fake;

struct guest {
	struct fake *fake;
	struct uuid tenant;
	uint64_t generation;
	pthread_t thread;
	int in, out; /* the guest's ends */
	int killed;  /* read end of a pipe that closes on KILL */
	int kill_by; /* its write end */
	atomic_int pid;
	atomic_bool over; /* EXITED was sent */
	struct buf got;   /* bytes read, not used yet */
	int32_t status;
	char cause[256];
};

struct fake {
	int sock;       /* the launcher's end */
	int server_end; /* for sandboxes_conf */
	pthread_t thread;
	void (*_Atomic behave)(struct guest *g);
	atomic_uint starts, kills;
	atomic_bool overlap;
	atomic_bool release; /* for behaviours that hold back their end */
	struct guest guests[FAKE_GUESTS];
	atomic_size_t count;
};

static inline void fake_send(struct guest *g, enum launcher_op op, const int fds[2])
{
	struct launcher_message m = { .op = op, .generation = g->generation };
	struct err e = ERR_INIT;

	m.tenant = g->tenant;
	m.processes = 77;
	m.status = g->status;
	memcpy(m.cause, g->cause, sizeof(m.cause));
	if (launcher_send(g->fake->sock, &m, fds, &e) < 0 && e.code != EPIPE)
		abort();
}

static inline void *guest_main(void *arg)
{
	struct guest *g = arg;

	g->fake->behave(g);
	fd_close(&g->in);
	fd_close(&g->out);
	buf_release(&g->got);
	fd_close(&g->killed);
	g->over = true;
	fake_send(g, LAUNCHER_EXITED, NULL);
	return NULL;
}

static inline void fake_start_guest(struct fake *f, const struct launcher_message *m)
{
	size_t n = f->count;
	struct guest *g = &f->guests[n];
	int pair[2];

	if (n == FAKE_GUESTS || pipe2(pair, O_CLOEXEC) < 0)
		abort();
	for (size_t i = 0; i < n; i++)
		if (uuid_equal(&f->guests[i].tenant, &m->tenant) && !f->guests[i].over)
			f->overlap = true;
	*g = (struct guest){ .fake = f, .generation = m->generation, .in = -1, .out = -1 };
	g->tenant = m->tenant;
	g->got.max = 1 << 20;
	g->killed = pair[0];
	g->kill_by = pair[1];
	f->starts++;
	f->count = n + 1;
	if (pthread_create(&g->thread, NULL, guest_main, g))
		abort();
}

static inline void fake_kill_guest(struct fake *f, const struct launcher_message *m)
{
	f->kills++;
	for (size_t i = 0; i < f->count; i++) {
		struct guest *g = &f->guests[i];

		if (g->generation != m->generation)
			continue;
		fd_close(&g->kill_by);
		if (g->pid > 0)
			(void)!kill(g->pid, SIGKILL);
	}
}

static inline void *fake_main(void *arg)
{
	struct fake *f = arg;
	struct launcher_message m;
	struct err e = ERR_INIT;
	int fds[2];

	while (launcher_receive(f->sock, &m, fds, &e) > 0) {
		if (m.op == LAUNCHER_START)
			fake_start_guest(f, &m);
		else if (m.op == LAUNCHER_KILL)
			fake_kill_guest(f, &m);
		else
			abort();
	}
	return NULL;
}

static inline void fake_begin(struct fake *f, void (*behave)(struct guest *g))
{
	int pair[2];

	memset(f, 0, sizeof(*f));
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		abort();
	f->sock = pair[0];
	f->server_end = pair[1];
	f->behave = behave;
	if (pthread_create(&f->thread, NULL, fake_main, f))
		abort();
}

/* How many KILLs came; waits for the expected number, which is on its way when a call returns. */
static inline unsigned int fake_kills(struct fake *f, unsigned int expected)
{
	for (int i = 0; i < 20000 && f->kills < expected; i++)
		(void)usleep(1000);
	return f->kills;
}

/* The launcher's end breaks off, as when the launcher is killed. */
static inline void fake_break(struct fake *f)
{
	(void)shutdown(f->sock, SHUT_RDWR);
}

static inline void fake_end(struct fake *f)
{
	fake_break(f);
	pthread_join(f->thread, NULL);
	f->release = true;
	for (size_t i = 0; i < f->count; i++) {
		fd_close(&f->guests[i].kill_by);
		pthread_join(f->guests[i].thread, NULL);
	}
	fd_close(&f->sock);
	fd_close(&f->server_end);
}

static inline struct guest *fake_last(struct fake *f)
{
	return &f->guests[f->count - 1];
}

/* -- parts of behaviours --------------------------------------------------------------------- */

static inline void guest_wait_killed(struct guest *g)
{
	struct pollfd p = { .fd = g->killed, .events = POLLIN };

	while (poll(&p, 1, -1) < 0)
		;
}

/* Make the two pipes and send STARTED.  g->in and g->out are the guest's ends. */
static inline void guest_connect(struct guest *g)
{
	int to[2], from[2];

	if (pipe2(to, O_CLOEXEC) < 0 || pipe2(from, O_CLOEXEC) < 0)
		abort();
	g->in = to[0];
	g->out = from[1];
	fake_send(g, LAUNCHER_STARTED, (int[2]){ to[1], from[0] });
	fd_close(&to[1]);
	fd_close(&from[0]);
}

/* The next frame of the daemon; false at the end of input.  Valid until the next call. */
static inline bool guest_hear(struct guest *g, struct frame *f)
{
	static _Thread_local size_t used;
	struct err e = ERR_INIT;
	char part[65536];
	ssize_t n;

	buf_consume(&g->got, used);
	used = 0;
	for (;;) {
		int got = frame_get(g->got.data, g->got.len, f, &used, &e);

		if (got < 0)
			abort(); /* the daemon must never send such a thing */
		if (got > 0)
			return true;
		n = read(g->in, part, sizeof(part));
		if (n <= 0)
			return false;
		buf_add(&g->got, part, (size_t)n);
	}
}

static inline void guest_raw(struct guest *g, const void *data, size_t len)
{
	const char *at = data;

	while (len) {
		ssize_t n = write(g->out, at, len);

		if (n < 0)
			return; /* the daemon has closed it */
		at += n;
		len -= (size_t)n;
	}
}

static inline void guest_say(struct guest *g, int type, uint64_t call, const void *data, size_t len)
{
	struct buf b = BUF_INIT(2 << 20);

	frame_put(&b, (enum frame_type)type, call, data, len);
	if (buf_failed(&b))
		abort();
	guest_raw(g, b.data, b.len);
	buf_release(&b);
}

static inline void guest_text(struct guest *g, int type, uint64_t call, const char *text)
{
	guest_say(g, type, call, text, strlen(text));
}

static inline void guest_shake(struct guest *g)
{
	struct frame f;

	guest_connect(g);
	if (guest_hear(g, &f) && f.type != FRAME_HELLO)
		abort();
	guest_text(g, FRAME_READY, 0, "{\"version\":1,\"pid\":1}");
}

/* The id of the next call; 0 at the end of input. */
static inline uint64_t guest_next(struct guest *g)
{
	struct frame f;

	while (guest_hear(g, &f))
		if (f.type == FRAME_START)
			return f.call;
		else if (f.type == FRAME_PING)
			guest_say(g, FRAME_PONG, 0, "\0\0\0\0", 4);
	return 0;
}

static inline void guest_drain(struct guest *g)
{
	struct frame f;

	while (guest_hear(g, &f))
		;
}

/* -- whole behaviours ------------------------------------------------------------------------ */

#define EXIT_OK "{\"reason\":\"exited\",\"code\":0,\"stdoutBytes\":3,\"stderrBytes\":0}"

/* Answers every command with "hi" and success. */
static inline void behave_honest(struct guest *g)
{
	uint64_t call;

	guest_shake(g);
	while ((call = guest_next(g))) {
		guest_text(g, FRAME_STDOUT, call, "hi\n");
		guest_text(g, FRAME_EXIT, call, EXIT_OK);
	}
}

/* The guest program beside the tests: three folders up from this one. */
static inline void guest_program(char *ret_path, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", ret_path, size - 32);

	if (n < 0)
		abort();
	ret_path[n] = '\0';
	for (int up = 0; up < 3; up++) {
		char *end = strrchr(ret_path, '/');

		if (!end)
			abort();
		*end = '\0';
	}
	(void)snprintf(ret_path + strlen(ret_path), 32, "/cloister-guest");
}

/* The real guest, as a plain child of this process. */
static inline void behave_real(struct guest *g)
{
	char path[4096], *args[2] = { path, NULL };
	posix_spawn_file_actions_t files;
	pid_t pid = -1;
	int status = 0, failed;

	guest_program(path, sizeof(path));
	guest_connect(g);
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_adddup2(&files, g->in, 0);
	posix_spawn_file_actions_adddup2(&files, g->out, 1);
	failed = posix_spawn(&pid, path, &files, NULL, args, environ);
	posix_spawn_file_actions_destroy(&files);
	fd_close(&g->in);
	fd_close(&g->out);
	if (failed) {
		(void)snprintf(g->cause, sizeof(g->cause), "%.200s: error %d", path, failed);
		return;
	}
	g->pid = pid;
	while (waitpid(pid, &status, 0) < 0)
		;
	g->pid = 0;
	g->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#endif
