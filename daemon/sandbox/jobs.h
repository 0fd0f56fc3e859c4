/*
 * jobs.h - for the tests of this folder: a pool on a fake launcher, and commands that run
 * in threads of their own.
 */
#ifndef DAEMON_SANDBOX_JOBS_H
#define DAEMON_SANDBOX_JOBS_H

#include "common/test.h"

#include "common/sanitizer.h"
#include "daemon/sandbox/fake_launcher.h"
#include "daemon/sandbox/pool.h"

/* The one pool of a test and the launcher below it. */
static struct fake fake;
static struct sandboxes *boxes;
static atomic_int messages, last_message;
static atomic_bool held;             /* the link thread stays in a message that came */
static unsigned int max_active = 64; /* of the next pool */

static inline void on_message(void *ctx, int op)
{
	assert_ptr_equal(ctx, &fake);
	last_message = op;
	messages++;
	while (held)
		(void)usleep(1000);
}

static inline void begin(void (*behave)(struct guest *g), unsigned int start_ms,
                         unsigned int idle_ms)
{
	struct sandboxes_conf conf;
	struct err e = ERR_INIT;

	fake_begin(&fake, behave);
	messages = 0;
	conf = (struct sandboxes_conf){ .launcher_sock = fake.server_end,
		                        .start_timeout_ms = start_ms,
		                        .idle_ms = idle_ms,
		                        .max_active = max_active,
		                        .launcher_message = on_message,
		                        .ctx = &fake };
	assert_int_equal(sandboxes_start(&conf, &boxes, &e), 0);
}

static inline void end(void)
{
	sandboxes_stop(&boxes);
	assert_null(boxes);
	fake_end(&fake);
	assert_false(fake.overlap);
}

static inline struct uuid tenant(int n)
{
	struct uuid id;

	(void)snprintf(id.text, sizeof(id.text), "0191d2b4-0000-7000-8000-%012d", n);
	return id;
}

/* -- one call -------------------------------------------------------------------------------- */

struct job {
	const char *shell;
	uint64_t timeout_ms;
	struct cancel *cancel;
	int tenant;
	unsigned int sink_delay_ms;
	const char *input;
	/* out */
	atomic_size_t taken;
	size_t head_len;
	uint64_t took_ms;
	pthread_t thread;
	struct exec_result r;
	struct err e;
	int status;
	bool alone;
	char head[200]; /* the first output, NUL-terminated */
};

static inline void take(void *ctx, int stream, const char *data, size_t len)
{
	struct job *j = ctx;
	size_t n = sizeof(j->head) - 1 - j->head_len;

	(void)stream;
	n = n < len ? n : len;
	memcpy(j->head + j->head_len, data, n);
	j->head_len += n;
	j->taken += len;
	if (j->sink_delay_ms)
		(void)usleep(j->sink_delay_ms * 1000);
}

static inline void job_run(struct job *j)
{
	const struct uuid id = tenant(j->tenant);
	const struct sandbox_use use = { boxes, &id, j->cancel, j->alone };
	const struct exec_spec spec = { .shell = j->shell,
		                        .cwd = "/",
		                        .timeout_ms = j->timeout_ms,
		                        .input = j->input,
		                        .input_len = j->input ? strlen(j->input) : 0 };
	const struct output_sink sink = { take, j };
	uint64_t began = clock_mono_ms();

	j->status = sandbox_exec(&use, &spec, &sink, &j->r, &j->e);
	j->took_ms = clock_mono_ms() - began;
}

static inline void *job_main(void *arg)
{
	job_run(arg);
	return NULL;
}

static inline void job_start(struct job *j)
{
	assert_int_equal(pthread_create(&j->thread, NULL, job_main, j), 0);
}

static inline void job_join(struct job *j)
{
	pthread_join(j->thread, NULL);
}

static inline void assert_ok(const struct job *j)
{
	if (j->status < 0)
		print_error("%s: %s\n", j->shell, j->e.text);
	assert_int_equal(j->status, 0);
	assert_int_equal(j->r.reason, EXEC_EXITED);
	assert_int_equal(j->r.code, 0);
}

static inline void assert_reason(const struct job *j, enum exec_reason reason)
{
	assert_int_equal(j->status, 0);
	assert_string_equal(exec_reason_name(j->r.reason), exec_reason_name(reason));
	assert_int_equal(j->r.code, -1);
}

static inline void assert_works(int n)
{
	struct job j = { .tenant = n, .shell = "true" };

	job_run(&j);
	assert_ok(&j);
}

static inline void wait_for(bool (*met)(void))
{
	for (int i = 0; i < 6000 && !met(); i++)
		(void)usleep(10000);
	assert_true(met());
}

static inline bool none_runs(void)
{
	return sandboxes_running(boxes) == 0;
}

/* Nor ends any. */
static inline bool none_is_left(void)
{
	struct sandbox_view one;

	return sandboxes_view(boxes, &one, 1) == 0;
}

static inline bool one_runs(void)
{
	return sandboxes_running(boxes) == 1;
}

static inline bool one_started(void)
{
	return fake.starts == 1;
}

#define START_MS 30000 /* where no start is to fail for want of time */

/* Until its command has said so much. */
static inline void await_output(const struct job *j, size_t len)
{
	for (int i = 0; i < 6000 && j->taken < len; i++)
		(void)usleep(10000);
	assert_true(j->taken >= len);
}

/* Whether the sandbox of the first tenant has so many calls. */
static inline bool has_open(unsigned int wanted)
{
	const struct uuid id = tenant(0);
	const struct sandbox *sb;
	bool has;

	pthread_mutex_lock(&boxes->lock);
	sb = pool_find(boxes, &id);
	has = sb && sb->open == wanted;
	pthread_mutex_unlock(&boxes->lock);
	return has;
}

static inline void await_open(unsigned int wanted)
{
	for (int i = 0; i < 6000 && !has_open(wanted); i++)
		(void)usleep(10000);
	assert_true(has_open(wanted));
}

/* A guest that reads the start of a call and then nothing any more. */
static inline void behave_deaf(struct guest *g)
{
	guest_shake(g);
	(void)guest_next(g);
	guest_wait_killed(g);
}

#endif
