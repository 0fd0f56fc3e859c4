/*
 * PID 1's side of an exec: three pipes, a supervisor, a deadline.
 *
 *   running --report ended--> draining --pipes empty--> exited
 *      |                         ^
 *      +--cancel, deadline--> killing (supervisor reports when the tree is gone)
 *
 * A pipe's content at the moment of the end is measured once and sent; what
 * survivors write later goes to the supervisor, which throws it away.
 */
#include "guest/exec.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/utf8.h"
#include "guest/fault.h"
#include "guest/job.h"
#include "guest/pool.h"
#include "guest/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define KILL_MS        2000  /* a tree that lives longer ends the sandbox */
#define PIPE_MAX       65536 /* what a pipe holds when the kernel does not say */
#define NAME_MAX_SHOWN 100   /* bytes of a program's name in a failure */

struct exec;

struct output {
	struct source source;
	struct exec *exec;
	enum frame_type type;
	uint64_t sent;
	size_t left; /* once the process ended: bytes still to be sent */
};

struct exec {
	struct call call;
	struct job_options options;
	struct spool *spool;           /* NULL = nothing is kept, or nothing came yet */
	bool answered;                 /* in the background: its start was */
	struct supervisor *supervisor; /* NULL once it is free again */
	struct source input;
	struct buf pending; /* input that the pipe has not taken */
	struct output outputs[2];
	const char *reason;
	uint64_t deadline_ms; /* 0 = none */
	uint64_t kill_by_ms;  /* 0 = not killing */
	bool ended;
	int status;
	uint32_t survivors;
};

static char chunk[FRAME_DATA_MAX];

static struct exec *exec_of(struct call *c)
{
	return source_owner(c, struct exec, call);
}

static size_t background;

size_t exec_background(void)
{
	return background;
}

/* In the background nobody waits for the output: it is kept, and nothing else. */
static size_t exec_room(const struct exec *x)
{
	return x->options.background ? sizeof(chunk) : call_sendable(&x->call);
}

static void exec_take(struct exec *x, enum frame_type type, size_t n)
{
	if (x->options.keeps && !x->spool) {
		x->spool = spool_new(x, NULL);
		x->options.keeps = x->spool != NULL; /* what began later would lack the beginning */
	}
	if (x->spool)
		spool_add(x->spool, chunk, n);
	if (!x->options.background)
		call_send(&x->call, type, chunk, n);
}

static bool output_wanted(const struct output *o)
{
	return o->source.fd >= 0 && (!o->exec->ended || o->left);
}

/* Move one chunk from the pipe to the daemon; false when there was nothing to move. */
static bool output_move(struct output *o)
{
	size_t room = exec_room(o->exec);
	ssize_t n;

	if (o->exec->ended && o->left < room)
		room = o->left;
	if (!room)
		return false;
	n = read(o->source.fd, chunk, room);
	if (n > 0) {
		exec_take(o->exec, o->type, (size_t)n);
		o->sent += (uint64_t)n;
		o->left -= o->exec->ended ? (size_t)n : 0;
		return true;
	}
	o->left = 0;
	if (n == 0 || (errno != EAGAIN && errno != EINTR))
		source_close(&o->source);
	return false;
}

static void output_ready(struct source *s, uint32_t events)
{
	(void)events;
	(void)output_move(source_owner(s, struct output, source));
}

static void input_flush(struct exec *x)
{
	ssize_t n = 0;

	if (x->input.fd >= 0 && x->pending.len)
		n = write(x->input.fd, x->pending.data, x->pending.len);
	if (n < 0 && errno != EAGAIN && errno != EINTR)
		source_close(&x->input); /* nobody reads any more */
	if (x->input.fd < 0)
		n = (ssize_t)x->pending.len;
	if (n > 0) {
		buf_consume(&x->pending, (size_t)n);
		call_grant(&x->call, (size_t)n);
	}
	if (x->call.input_ended && !x->pending.len)
		source_close(&x->input);
	source_watch(&x->input, x->pending.len ? EPOLLOUT : 0);
}

static void input_ready(struct source *s, uint32_t events)
{
	(void)events;
	input_flush(source_owner(s, struct exec, input));
}

static void exec_input(struct call *c, const char *data, size_t len)
{
	struct exec *x = exec_of(c);

	buf_add(&x->pending, data, len);
	if (buf_failed(&x->pending))
		fault_die(GUEST_EXIT_START, "no memory for input");
	input_flush(x);
}

/* That the call has no input is not the end of a background command's, which comes later. */
static void exec_end(struct call *c)
{
	struct exec *x = exec_of(c);

	if (x->options.background)
		c->input_ended = false;
	else
		input_flush(x);
}

static void exec_kill(struct exec *x, const char *reason)
{
	if (x->kill_by_ms)
		return;
	x->reason = reason;
	x->kill_by_ms = clock_mono_ms() + KILL_MS;
	if (x->supervisor)
		pool_order(x->supervisor, ORDER_KILL, NULL, 0);
}

static void exec_cancel(struct call *c)
{
	exec_kill(exec_of(c), "cancelled");
}

/* The end of a background command, which its output tells from now on.  Takes result. */
static void exec_over(struct exec *x, struct json *result)
{
	spool_end(x->spool, result);
	x->spool = NULL;
	x->call.exited = true;
}

static void measure_outputs(struct exec *x)
{
	for (int i = 0; i < 2; i++) {
		struct output *o = &x->outputs[i];
		int held = 0;

		if (o->source.fd < 0)
			continue;
		if (ioctl(o->source.fd, FIONREAD, &held) < 0 || held < 0)
			held = PIPE_MAX;
		o->left = (size_t)held;
	}
}

/* Nothing was run. */
static void exec_fail(struct exec *x, const struct err *e)
{
	struct json *result;

	if (!x->options.background) {
		call_fail(&x->call, e);
		return;
	}
	result = json_new_object();
	json_put_str(result, "reason", fault_word(e->code));
	json_put_str(result, "message", e->text);
	exec_over(x, result);
}

/* As a JSON string, cut between characters; what is no text ends it. */
static void show_program(const struct exec *x, struct buf *out)
{
	const char *name = x->options.name;
	size_t len = strlen(name), shown = 0, n;

	while ((n = utf8_char(name + shown, len - shown)) && shown + n <= NAME_MAX_SHOWN)
		shown += n;
	json_write_string(name, shown, out);
	if (shown < len)
		buf_adds(out, "...");
}

static void exec_failed(struct exec *x, const struct report *r)
{
	auto_buf struct buf program = BUF_INIT(NAME_MAX_SHOWN * 6 + 8);
	struct err e = ERR_INIT;

	(void)err_set(&e, r->code, "%s", strerror(r->code));
	if (r->stage == STAGE_CWD) {
		e.code = FAULT_NO_CWD;
		(void)err_wrap(&e, "working directory");
	} else if (r->stage == STAGE_START) {
		e.code = FAULT_AGAIN;
		(void)err_wrap(&e, "no process for the command");
	} else {
		if (r->code == EACCES || r->code == EPERM || r->code == ENOEXEC)
			e.code = FAULT_NOT_EXECUTABLE;
		show_program(x, &program);
		(void)err_wrap(&e, "program %s", program.data ? program.data : "");
	}
	exec_fail(x, &e);
}

static void on_report(void *owner, const struct report *r)
{
	struct exec *x = owner;

	if (report_is_last(r))
		x->supervisor = NULL;
	if (r->type == REPORT_FAILED) {
		exec_failed(x, r);
	} else if (r->type == REPORT_ENDED) {
		x->ended = true;
		x->status = r->status;
		x->survivors = r->survivors;
		measure_outputs(x);
	}
}

/* Leave what still lives to its supervisor, and the pipes with it. */
static void leave_survivors(struct exec *x)
{
	int fds[2], open[2];
	size_t n = 0;

	if (!x->supervisor)
		return;
	for (int i = 0; i < 2; i++) {
		fds[i] = source_take(&x->outputs[i].source);
		if (fds[i] >= 0)
			open[n++] = fds[i];
	}
	if (n)
		pool_order(x->supervisor, ORDER_DISCARD, open, n);
	x->supervisor->owner = NULL;
	x->supervisor->on_report = NULL;
	x->supervisor = NULL;
	for (int i = 0; i < 2; i++)
		fd_close(&fds[i]);
}

static void exec_exit(struct exec *x)
{
	struct json *result = json_new_object();

	json_put_str(result, "reason", x->reason);
	if (WIFEXITED(x->status))
		json_put_int(result, "code", WEXITSTATUS(x->status));
	if (WIFSIGNALED(x->status))
		json_put_int(result, "signal", WTERMSIG(x->status));
	json_put_int(result, "stdoutBytes", (int64_t)x->outputs[0].sent);
	json_put_int(result, "stderrBytes", (int64_t)x->outputs[1].sent);
	if (!x->kill_by_ms)
		json_put_int(result, "survivors", x->survivors);
	leave_survivors(x);
	if (x->options.background) {
		exec_over(x, result);
		return;
	}
	if (x->spool && x->spool->total > x->options.keep) {
		json_put_str(result, "output", x->spool->id);
		spool_end(x->spool, NULL);
		x->spool = NULL;
	}
	call_exit(&x->call, result);
}

/* Later than the START, so that what is sent about it has its id. */
static void answer_start(struct exec *x)
{
	struct json *result = json_new_object();

	json_put_str(result, "output", x->spool->id);
	call_detach(&x->call, result);
	x->answered = true;
}

/* A cancelled call is over when its tree is gone, an ended one when its pipes are empty. */
static bool exec_is_over(struct exec *x)
{
	if (!x->ended || (x->kill_by_ms && x->supervisor))
		return false;
	for (int i = 0; i < 2; i++)
		while (output_wanted(&x->outputs[i]) && output_move(&x->outputs[i]))
			;
	return !output_wanted(&x->outputs[0]) && !output_wanted(&x->outputs[1]);
}

static void exec_step(struct call *c, struct turn *t)
{
	struct exec *x = exec_of(c);
	bool sendable;

	if (x->options.background && !x->answered)
		answer_start(x);
	if (!x->ended && x->deadline_ms && t->now_ms >= x->deadline_ms)
		exec_kill(x, "timeout");
	if (x->kill_by_ms && x->supervisor && t->now_ms >= x->kill_by_ms)
		fault_die(GUEST_EXIT_TREE, "processes of a command outlived SIGKILL by %d ms",
		          KILL_MS);
	if (exec_is_over(x)) {
		exec_exit(x);
		return;
	}
	sendable = exec_room(x) > 0;
	for (int i = 0; i < 2; i++)
		source_watch(&x->outputs[i].source,
		             sendable && output_wanted(&x->outputs[i]) ? EPOLLIN : 0);
	if (!x->ended && !x->kill_by_ms)
		turn_wake(t, x->deadline_ms);
	if (x->supervisor)
		turn_wake(t, x->kill_by_ms);
}

static void exec_release(struct call *c)
{
	struct exec *x = exec_of(c);

	background -= x->options.background;
	spool_drop(&x->spool);
	if (x->supervisor) {
		x->supervisor->owner = NULL;
		x->supervisor->on_report = NULL;
	}
	source_close(&x->input);
	source_close(&x->outputs[0].source);
	source_close(&x->outputs[1].source);
	buf_release(&x->pending);
	free(x);
}

static const struct call_kind exec_kind = {
	.input = exec_input,
	.end = exec_end,
	.cancel = exec_cancel,
	.step = exec_step,
	.release = exec_release,
};

static struct exec *exec_new(void)
{
	struct exec *x = calloc(1, sizeof(*x));

	if (!x)
		return NULL;
	(void)call_init(&x->call, &exec_kind);
	x->reason = "exited";
	x->pending = (struct buf)BUF_INIT(FRAME_WINDOW);
	source_init(&x->input, -1, input_ready);
	for (int i = 0; i < 2; i++) {
		source_init(&x->outputs[i].source, -1, output_ready);
		x->outputs[i].exec = x;
		x->outputs[i].type = i ? FRAME_STDERR : FRAME_STDOUT;
	}
	return x;
}

/* One pipe whose end of the guest does not block. */
static int open_pipe(int *guest_end, int *process_end, bool guest_reads, struct err *e)
{
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		return err_set(e, FAULT_AGAIN, "no pipe for a command: %s", strerror(errno));
	*guest_end = guest_reads ? p[0] : p[1];
	*process_end = guest_reads ? p[1] : p[0];
	return fd_set_nonblocking(*guest_end, e);
}

static int write_flat(const struct buf *flat, struct err *e)
{
	auto_close int fd = memfd_create("job", MFD_CLOEXEC);

	if (fd < 0 || pwrite(fd, flat->data, flat->len, 0) != (ssize_t)flat->len)
		return err_set(e, FAULT_AGAIN, "no memory for a command: %s", strerror(errno));
	return fd_take(&fd);
}

static int hand_over(struct exec *x, const struct buf *flat, struct err *e)
{
	auto_close int job = write_flat(flat, e);
	auto_close int in = -1;
	auto_close int out = -1;
	auto_close int err = -1;

	if (job < 0 || open_pipe(&x->input.fd, &in, false, e) < 0 ||
	    open_pipe(&x->outputs[0].source.fd, &out, true, e) < 0 ||
	    open_pipe(&x->outputs[1].source.fd, &err, true, e) < 0)
		return -1;
	x->supervisor = pool_run((int[4]){ job, in, out, err }, x, on_report, e);
	return x->supervisor ? 0 : -1;
}

/* NULL with e. */
static struct exec *exec_prepare(const struct job_options *options, struct err *e)
{
	struct exec *x;

	if (options->background && background >= EXEC_BACKGROUND_MAX) {
		(void)err_set(e, FAULT_BUSY, "%d commands run in the background; stop one first",
		              EXEC_BACKGROUND_MAX);
		return NULL;
	}
	x = exec_new();
	if (x && options->background)
		x->spool = spool_new(x, options->name);
	if (x && options->background && !x->spool) {
		free(x);
		x = NULL;
	}
	if (!x) {
		(void)err_set(e, FAULT_AGAIN, "no memory for a command");
		return NULL;
	}
	x->options = *options;
	background += options->background;
	return x;
}

struct call *exec_start(const struct json *request, struct err *e)
{
	auto_buf struct buf flat = BUF_INIT(JOB_FLAT_MAX);
	struct job_options options;
	struct exec *x;

	if (job_from_request(request, &flat, &options, e) < 0)
		return NULL;
	x = exec_prepare(&options, e);
	if (!x)
		return NULL;
	if (hand_over(x, &flat, e) < 0) {
		exec_release(&x->call);
		return NULL;
	}
	x->deadline_ms = options.timeout_ms ? clock_mono_ms() + options.timeout_ms : 0;
	return &x->call;
}

int exec_write(struct exec *x, const char *data, size_t len, bool end, struct err *e)
{
	if (x->call.input_ended || x->input.fd < 0)
		return err_set(e, FAULT_INVALID, "its standard input has ended");
	if (len > FRAME_WINDOW - x->pending.len)
		return err_set(e, FAULT_BUSY, "it has not read %zu bytes of its input yet",
		               x->pending.len);
	buf_add(&x->pending, data, len);
	if (buf_failed(&x->pending))
		fault_die(GUEST_EXIT_START, "no memory for input");
	x->call.input_ended = end;
	input_flush(x);
	return 0;
}

void exec_stop(struct exec *x)
{
	exec_kill(x, "stopped");
}
