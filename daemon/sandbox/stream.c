#include "daemon/sandbox/stream.h"

#include "daemon/sandbox/exec.h"

#include "common/clock.h"
#include "common/fd.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>

struct stream {
	struct call call;
	struct call_plan plan;
	struct exec_output output;
	struct exec_result result;
	struct buf batch;
	struct buf input; /* what was not sent yet */
	bool lied;
	bool ended;
	int rc; /* ended: of exec_end() */
	struct err e;
};

static struct stream *stream_new(void)
{
	struct stream *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->call = (struct call)CALL_INIT;
	s->batch = (struct buf)BUF_INIT(s->call.queue.max);
	s->input = (struct buf)BUF_INIT(SIZE_MAX / 4);
	s->result = (struct exec_result){ .reason = EXEC_LOST, .code = -1 };
	s->output.result = &s->result;
	s->plan = (struct call_plan){ .streams = 3,
		                      .has_input = true,
		                      .more_input = true,
		                      .take = exec_take,
		                      .ctx = &s->output };
	return s;
}

static void stream_free(struct stream *s)
{
	call_finish(&s->call);
	buf_release(&s->batch);
	buf_release(&s->input);
	free(s);
}

int stream_open(const struct sandbox_use *use, const struct exec_spec *spec, struct stream **ret,
                struct err *e)
{
	auto_json struct json *start = json_new_object();
	struct stream *s = stream_new();

	if (!s)
		return err_set(e, ENOMEM, "no memory for a command");
	s->plan.start = start;
	s->plan.cancel = use->cancel;
	s->plan.begun = clock_mono_ms();
	if (exec_put_start(start, spec, e) < 0 || call_open(&s->call, use, &s->plan, e) < 0) {
		stream_free(s);
		return -1;
	}
	s->plan.start = NULL;
	s->plan.cancel = NULL;
	*ret = s;
	return 0;
}

static void forget_sent(struct stream *s)
{
	if (s->call.sent)
		buf_consume(&s->input, s->call.sent);
	if (!s->input.len)
		buf_release(&s->input);
	s->call.sent = 0;
}

static void finish(struct stream *s)
{
	if (s->lied) { /* whatever its EXIT says */
		s->call.state = CALL_LOST;
		s->call.loss = EXEC_LOST;
	}
	s->rc = exec_end(&s->call, &s->plan, &s->result, &s->e);
	s->ended = true;
}

bool stream_take(struct stream *s, const struct output_sink *sink)
{
	enum call_state state;

	if (s->ended)
		return false;
	if (s->call.deadline && !clock_left_ms(s->call.deadline))
		call_give_up(&s->call, "a killed command did not end");
	s->output.sink = sink;
	s->plan.input = s->input.data;
	s->plan.input_len = s->input.len;
	state = call_exchange(&s->call, &s->plan, &s->batch);
	forget_sent(s);
	call_deliver(&s->call, &s->plan, &s->batch, &s->lied);
	buf_release(&s->batch);
	if (state != CALL_OPEN && state != CALL_DOOMED)
		finish(s);
	return !s->ended;
}

static int min_wait(int a, int b)
{
	return a < 0 || (b >= 0 && b < a) ? b : a;
}

bool stream_wait(const struct stream *s, const struct cancel *cancel, int timeout_ms)
{
	if (s->ended)
		return false;
	return call_sleep(&s->call, cancel, min_wait(timeout_ms, clock_left_ms(s->call.deadline)));
}

int stream_fd(const struct stream *s)
{
	return s->call.event;
}

enum stream_state stream_look(const struct stream *s)
{
	const struct call *c = &s->call;
	enum stream_state state = STREAM_OVER;
	eventfd_t count;

	(void)eventfd_read(c->event, &count);
	pthread_mutex_lock(&c->pool->lock);
	if (c->state == CALL_OPEN)
		state = c->queue.len ? STREAM_OUTPUT : STREAM_SILENT;
	pthread_mutex_unlock(&c->pool->lock);
	return state;
}

int stream_write(struct stream *s, const char *data, size_t len, size_t max, struct err *e)
{
	if (len > max || s->input.len > max - len)
		return err_set(e, ENOBUFS, "the command does not read its input");
	buf_add(&s->input, data, len);
	return buf_failed(&s->input) ? err_set(e, ENOMEM, "no memory for input") : 0;
}

void stream_end_input(struct stream *s)
{
	s->plan.more_input = false;
}

void stream_kill(struct stream *s)
{
	if (!s->ended && !s->plan.cancelled)
		call_send_cancel(&s->call, &s->plan);
}

void stream_rest(struct stream *s, bool rest)
{
	struct call *c = &s->call;
	struct sandbox *sb = c->sb;

	pthread_mutex_lock(&c->pool->lock);
	if (c->state == CALL_OPEN && c->resting != rest) {
		c->resting = rest;
		sb->resting += rest ? 1 : -1U;
		if (!sandbox_has_work(sb))
			sb->idle_since = clock_mono_ms();
		sandbox_admit(sb); /* one that wants to be alone may have waited for this */
	}
	pthread_mutex_unlock(&c->pool->lock);
}

int stream_result(const struct stream *s, struct exec_result *ret, struct err *e)
{
	*ret = s->result;
	if (!s->ended)
		return err_set(e, EBUSY, "the command has not ended");
	if (s->rc)
		*e = s->e;
	return s->rc;
}

void stream_close(struct stream **sp)
{
	struct stream *s = *sp;

	if (!s)
		return;
	stream_kill(s);
	while (stream_take(s, NULL))
		(void)stream_wait(s, NULL, -1);
	stream_free(s);
	*sp = NULL;
}
