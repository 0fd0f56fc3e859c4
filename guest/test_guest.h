/*
 * test_guest.h - a small daemon for tests: runs the real cloister-guest and talks to it.
 *
 * Include after common/test.h.  Everything here fails the test when it goes wrong.
 */
#ifndef GUEST_TEST_GUEST_H
#define GUEST_TEST_GUEST_H

#include "common/test.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/frame.h"
#include "common/json.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#define HELLO     "{\"version\":1,\"tenant\":\"0190aaaa-0000-7000-8000-000000000001\",\"processes\":%d}"
#define ANSWER_MS 20000

struct guest {
	pid_t pid;
	int in;
	int out;
	struct buf bytes;
	size_t used; /* bytes of the frame handed out last */
	uint64_t next;
};

struct result {
	struct json *exit; /* owned */
	struct buf out[2];
};

static inline void guest_path(char ret_path[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", ret_path, PATH_MAX - 32);
	char *slash;

	assert_true(n > 0);
	ret_path[n] = '\0';
	slash = strrchr(ret_path, '/');
	assert_non_null(slash);
	memcpy(slash, "/../cloister-guest", sizeof("/../cloister-guest"));
}

static inline void guest_run(struct guest *g)
{
	char path[PATH_MAX];
	int to[2], from[2];

	guest_path(path);
	assert_int_equal(pipe2(to, O_CLOEXEC), 0);
	assert_int_equal(pipe2(from, O_CLOEXEC), 0);
	g->pid = fork();
	assert_true(g->pid >= 0);
	if (g->pid == 0) {
		if (dup2(to[0], 0) == 0 && dup2(from[1], 1) == 1)
			execl(path, path, (char *)NULL);
		_exit(99);
	}
	(void)close(to[0]);
	(void)close(from[1]);
	(void)signal(SIGPIPE, SIG_IGN);
	g->in = to[1];
	g->out = from[0];
	g->bytes = (struct buf)BUF_INIT(4U << 20);
	g->used = 0;
	g->next = 1;
}

static inline void guest_raw(const struct guest *g, const void *data, size_t len)
{
	struct err e = ERR_INIT;

	if (fd_write_all(g->in, data, len, &e) < 0)
		assert_int_equal(e.code, EPIPE);
}

static inline void guest_send(const struct guest *g, enum frame_type type, uint64_t call,
                              const void *payload, size_t len)
{
	auto_buf struct buf b = BUF_INIT(1U << 20);

	frame_put(&b, type, call, payload, len);
	assert_false(buf_failed(&b));
	guest_raw(g, b.data, b.len);
}

static inline void guest_credit(const struct guest *g, uint64_t call, uint32_t bytes)
{
	auto_buf struct buf b = BUF_INIT(64);

	frame_put_credit(&b, call, bytes);
	guest_raw(g, b.data, b.len);
}

/* The next frame, valid until the next one; false at the end of what the guest says. */
static inline bool guest_frame(struct guest *g, struct frame *ret)
{
	struct err e = ERR_INIT;
	int got;

	buf_consume(&g->bytes, g->used);
	g->used = 0;
	while ((got = frame_get(g->bytes.data, g->bytes.len, ret, &g->used, &e)) == 0) {
		struct pollfd p = { .fd = g->out, .events = POLLIN };
		char chunk[16384];
		ssize_t n;

		assert_int_equal(poll(&p, 1, ANSWER_MS), 1);
		n = read(g->out, chunk, sizeof(chunk));
		if (n <= 0)
			return false;
		buf_add(&g->bytes, chunk, (size_t)n);
	}
	assert_int_equal(got, 1);
	return true;
}

static inline void guest_begin_with(struct guest *g, int processes)
{
	char hello[200];
	struct frame f;
	int n = snprintf(hello, sizeof(hello), HELLO, processes);

	guest_run(g);
	guest_send(g, FRAME_HELLO, 0, hello, (size_t)n);
	assert_true(guest_frame(g, &f));
	assert_int_equal(f.type, FRAME_READY);
}

static inline void guest_begin(struct guest *g)
{
	guest_begin_with(g, 512);
}

static inline uint64_t guest_start(struct guest *g, const char *request)
{
	guest_send(g, FRAME_START, g->next, request, strlen(request));
	return g->next++;
}

/* Take frames until the EXIT of call, granting credit as data arrives. */
static inline void guest_finish(struct guest *g, uint64_t call, struct result *r)
{
	struct err e = ERR_INIT;
	struct frame f;

	r->exit = NULL;
	r->out[0] = r->out[1] = (struct buf)BUF_INIT(64U << 20);
	while (!r->exit) {
		assert_true(guest_frame(g, &f));
		if (f.call != call)
			continue;
		if (f.type == FRAME_STDOUT || f.type == FRAME_STDERR) {
			buf_add(&r->out[f.type == FRAME_STDERR], f.payload, f.len);
			guest_credit(g, call, (uint32_t)f.len);
		} else if (f.type == FRAME_EXIT) {
			assert_int_equal(json_parse(f.payload, f.len, &r->exit, &e), 0);
		}
	}
}

static inline void guest_call(struct guest *g, const char *request, struct result *r)
{
	guest_finish(g, guest_start(g, request), r);
}

static inline void result_release(struct result *r)
{
	json_free(&r->exit);
	buf_release(&r->out[0]);
	buf_release(&r->out[1]);
}

static inline int64_t result_int(const struct result *r, const char *field)
{
	const struct json *v = json_get(r->exit, field);

	return v && json_type(v) == JSON_INT ? json_int(v) : -1;
}

/* The error code of the call, or the reason of its end, or "". */
static inline const char *result_word(const struct result *r)
{
	const struct json *error = json_get(r->exit, "error");
	const struct json *v = error ? json_get(error, "code") : json_get(r->exit, "reason");

	return v ? json_str(v) : "";
}

static inline const char *result_text(const struct result *r, int i)
{
	return r->out[i].data ? r->out[i].data : "";
}

/* Run a request and compare its error code or reason. */
static inline void expect_word(struct guest *g, const char *request, const char *word)
{
	struct result r;

	guest_call(g, request, &r);
	assert_string_equal(result_word(&r), word);
	result_release(&r);
}

/* What the guest ends with; -signal when one killed it. */
static inline int guest_wait(struct guest *g)
{
	int status;

	assert_int_equal(waitpid(g->pid, &status, 0), g->pid);
	fd_close(&g->in);
	fd_close(&g->out);
	buf_release(&g->bytes);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static inline void guest_end(struct guest *g)
{
	fd_close(&g->in);
	assert_int_equal(guest_wait(g), 0);
}

#endif
