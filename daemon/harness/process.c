#include "daemon/harness/process.h"

#include "common/clock.h"
#include "common/utf8.h"
#include "daemon/harness/line.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNREAD_MAX \
	((size_t)1 << 20) /* bytes of output; what a call's credit lets through is less */
#define INPUT_MAX  ((size_t)32 << 20) /* bytes that wait to be read by it: the longest prompt */
#define TAIL_MAX   2000               /* bytes kept of standard error */
#define TAIL_SHOWN 300                /* of them, in an error */

struct process {
	struct stream *stream;
	struct buf unread; /* standard output, of which that many bytes are used */
	size_t used;
	struct line_reader lines;
	struct buf tail; /* of standard error */
	struct message_abilities can;
	bool ended;
};

static void take(void *ctx, int stream, const char *data, size_t len)
{
	struct process *p = ctx;

	if (stream == 1) {
		buf_add(&p->unread, data, len);
		return;
	}
	if (len > TAIL_MAX) {
		data += len - TAIL_MAX;
		len = TAIL_MAX;
	}
	if (p->tail.len + len > TAIL_MAX)
		buf_consume(&p->tail, p->tail.len + len - TAIL_MAX);
	buf_add(&p->tail, data, len);
}

static void refill(struct process *p)
{
	const struct output_sink sink = { take, p };

	buf_release(&p->unread);
	p->used = 0;
	p->ended = !stream_take(p->stream, &sink);
	if (buf_failed(&p->unread)) /* no memory: a line with a hole must not be read */
		stream_kill(p->stream);
}

/* A line from what is there; false when there is none. */
static bool cut_line(struct process *p, enum process_event *ret)
{
	size_t used = 0;

	while (p->used < p->unread.len) {
		switch (line_take(&p->lines, p->unread.data + p->used, p->unread.len - p->used,
		                  &used)) {
		case LINE_WHOLE:
			p->used += used;
			*ret = PROCESS_LINE;
			return true;
		case LINE_TOO_LONG:
			p->used += used;
			*ret = PROCESS_TOO_LONG;
			return true;
		case LINE_NO_MEMORY:
			stream_kill(p->stream);
			p->used = p->unread.len;
			break;
		case LINE_NONE:
			p->used += used;
			break;
		}
	}
	return false;
}

enum process_event process_next(struct process *p, const struct cancel *cancel,
                                uint64_t deadline_ms)
{
	enum process_event event;

	for (bool looked = false;; looked = true) {
		if (cancel && cancel_fired(cancel))
			return PROCESS_CANCELLED;
		if (cut_line(p, &event))
			return event;
		if (p->ended)
			return PROCESS_ENDED;
		if (looked && deadline_ms && !clock_left_ms(deadline_ms))
			return PROCESS_TIMEOUT; /* there is output, but no end of a line in it */
		refill(p);
		if (p->unread.len || p->ended)
			continue;
		if (deadline_ms && !clock_left_ms(deadline_ms))
			return PROCESS_TIMEOUT;
		if (stream_wait(p->stream, cancel, clock_left_ms(deadline_ms)))
			return PROCESS_CANCELLED;
	}
}

const struct buf *process_line(const struct process *p)
{
	return &p->lines.text;
}

uint64_t process_skipped(const struct process *p)
{
	return p->lines.skipped;
}

bool process_takes_op_ids(const struct process *p)
{
	return p->can.op_id;
}

int64_t process_pid(const struct process *p)
{
	return p->can.pid;
}

int process_send(struct process *p, const struct buf *lines, struct err *e)
{
	if (buf_failed(lines))
		return err_set(e, ENOMEM, "no memory for what is sent to the harness");
	if (stream_write(p->stream, lines->data, lines->len, INPUT_MAX, e) == 0)
		return 0;
	e->code = HARNESS_ENDED;
	return -1;
}

void process_forget_stderr(struct process *p)
{
	buf_release(&p->tail);
}

/* -- its end ------------------------------------------------------------------------------ */

/* The end of what it wrote to standard error, as one line. */
static void add_tail(const struct process *p, struct buf *out)
{
	size_t n = p->tail.len < TAIL_SHOWN ? p->tail.len : TAIL_SHOWN;
	size_t from;

	if (!n)
		return;
	buf_adds(out, "; its standard error ends with: ");
	from = out->len;
	(void)utf8_repair(p->tail.data + p->tail.len - n, n, out);
	for (size_t i = from; i < out->len; i++)
		if ((unsigned char)out->data[i] < 0x20)
			out->data[i] = ' ';
}

static void add_how(const struct exec_result *r, struct buf *out)
{
	if (r->reason != EXEC_EXITED)
		buf_addf(out, "the harness ended (%s)", exec_reason_name(r->reason));
	else if (r->signal)
		buf_addf(out, "the harness was ended by signal %d", r->signal);
	else
		buf_addf(out, "the harness ended with exit code %d", r->code);
}

int process_why(const struct process *p, struct err *e)
{
	auto_buf struct buf text = BUF_INIT(sizeof(e->text) * 4);
	struct exec_result r;
	struct err why = ERR_INIT;

	if (stream_result(p->stream, &r, &why))
		return err_set(e, HARNESS_ENDED, "the harness was not run: %.300s", why.text);
	add_how(&r, &text);
	add_tail(p, &text);
	return err_set(e, HARNESS_ENDED, "%s", text.data ? text.data : "the harness ended");
}

/* -- the handshake ------------------------------------------------------------------------ */

static int unavailable(struct err *e)
{
	e->code = HARNESS_UNAVAILABLE;
	return -1;
}

/* What is awaited, and for how long. */
struct reply {
	enum message_type type, other;
	unsigned int ms;
};

static const struct reply ready = { MESSAGE_READY, MESSAGE_READY, PROCESS_READY_MS };
static const struct reply hello = { MESSAGE_HELLO, MESSAGE_ERROR, PROCESS_REPLY_MS };
static const struct reply pong = { MESSAGE_PONG, MESSAGE_PONG, PROCESS_REPLY_MS };

/* Anything but a line while an answer is awaited. */
static int no_answer(const struct process *p, enum process_event event, const struct reply *reply,
                     struct err *e)
{
	if (event == PROCESS_CANCELLED)
		return err_set(e, SANDBOX_CANCELLED, "cancelled");
	if (event == PROCESS_ENDED)
		return process_why(p, e);
	return err_set(e, HARNESS_ENDED, "the harness said no \"%s\" within %u s",
	               message_type_name(reply->type), reply->ms / 1000);
}

/* The next line that may be the reply; others are passed over. */
static int await(struct process *p, const struct cancel *cancel, const struct reply *reply,
                 struct message *ret, struct err *e)
{
	uint64_t deadline = clock_mono_ms() + reply->ms;

	for (;;) {
		enum process_event event = clock_left_ms(deadline)
		                                   ? process_next(p, cancel, deadline)
		                                   : PROCESS_TIMEOUT;

		if (event == PROCESS_TOO_LONG)
			continue;
		if (event != PROCESS_LINE)
			return no_answer(p, event, reply, e);
		message_read(p->lines.text.data, p->lines.text.len, ret);
		if (ret->type == reply->type || ret->type == reply->other)
			return 0;
		message_release(ret);
	}
}

static int check_version(int64_t version, struct err *e)
{
	if (version == HARNESS_PROTOCOL)
		return 0;
	return err_set(e, HARNESS_UNAVAILABLE,
	               "the harness speaks version %lld of the protocol, and not %d",
	               (long long)version, HARNESS_PROTOCOL);
}

/* Silence is no refusal: it may be older than the question. */
static int say_hello(struct process *p, const struct cancel *cancel, struct err *e)
{
	auto_buf struct buf line = BUF_INIT(200);
	auto_message struct message m = { .doc = NULL };
	struct message_abilities said;
	char op_id[HARNESS_OP_ID_LEN + 1];
	struct err why = ERR_INIT;

	message_op_id(op_id);
	message_put_hello(&line, op_id);
	if (process_send(p, &line, e))
		return -1;
	if (await(p, cancel, &hello, &m, &why)) {
		if (why.code == HARNESS_ENDED && !p->ended)
			return 0;
		*e = why;
		return -1;
	}
	if (m.type == MESSAGE_ERROR)
		return err_set(e, HARNESS_UNAVAILABLE, "the harness refused \"hello\": %.300s",
		               m.text);
	message_abilities(&m, &said);
	return check_version(said.version, e);
}

static int shake_hands(struct process *p, const struct cancel *cancel, struct err *e)
{
	auto_message struct message m = { .doc = NULL };

	if (await(p, cancel, &ready, &m, e))
		return -1;
	message_abilities(&m, &p->can);
	if (check_version(p->can.version, e))
		return -1;
	return p->can.hello ? say_hello(p, cancel, e) : 0;
}

int process_start(const struct sandbox_use *use, const char *cwd, const char *const *argv,
                  struct process **ret, struct err *e)
{
	const struct exec_spec spec = { .argv = argv, .cwd = cwd };
	struct process *p = calloc(1, sizeof(*p));

	if (!p)
		return err_set(e, ENOMEM, "no memory for a harness");
	p->unread = (struct buf)BUF_INIT(UNREAD_MAX);
	p->tail = (struct buf)BUF_INIT(TAIL_MAX);
	line_init(&p->lines);
	if (stream_open(use, &spec, &p->stream, e)) {
		process_close(&p);
		return -1;
	}
	if (shake_hands(p, use->cancel, e)) {
		process_close(&p);
		return e->code == HARNESS_ENDED ? unavailable(e) : -1;
	}
	*ret = p;
	return 0;
}

int process_ping(struct process *p, struct cancel *cancel, struct err *e)
{
	auto_buf struct buf line = BUF_INIT(200);
	auto_message struct message m = { .doc = NULL };
	char op_id[HARNESS_OP_ID_LEN + 1];

	message_op_id(op_id);
	message_put_ping(&line, p->can.op_id ? op_id : NULL);
	if (process_send(p, &line, e))
		return -1;
	return await(p, cancel, &pong, &m, e);
}

/* -- for whoever watches many ------------------------------------------------------------- */

int process_fd(const struct process *p)
{
	return stream_fd(p->stream);
}

enum process_state process_look(struct process *p)
{
	if (p->ended)
		return PROCESS_OVER;
	switch (stream_look(p->stream)) {
	case STREAM_OVER:
		return PROCESS_OVER;
	case STREAM_OUTPUT:
		return PROCESS_SPEAKS;
	case STREAM_SILENT:
		break;
	}
	return p->used < p->unread.len ? PROCESS_SPEAKS : PROCESS_SILENT;
}

void process_rest(struct process *p, bool rest)
{
	stream_rest(p->stream, rest);
}

void process_shutdown(struct process *p)
{
	auto_buf struct buf line = BUF_INIT(200);
	struct err e = ERR_INIT;

	message_put_shutdown(&line);
	if (process_send(p, &line, &e))
		stream_kill(p->stream);
	stream_end_input(p->stream);
	refill(p); /* sends it */
}

bool process_drain(struct process *p)
{
	if (!p->ended)
		refill(p);
	return !p->ended;
}

void process_kill(struct process *p)
{
	stream_kill(p->stream);
}

void process_close(struct process **pp)
{
	struct process *p = *pp;

	if (!p)
		return;
	stream_close(&p->stream);
	line_release(&p->lines);
	buf_release(&p->unread);
	buf_release(&p->tail);
	free(p);
	*pp = NULL;
}
