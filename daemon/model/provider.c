#include "daemon/model/provider.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/id.h"
#include "common/log.h"
#include "daemon/model/answer.h"
#include "daemon/model/courier_client.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_BODY_MAX ((size_t)65536)
#define BACKOFF_MS     500U
#define BACKOFF_MAX_MS 16000U
#define LAST_WORD_MS   200 /* for the end of a connection that is to be kept */

struct attempt {
	const struct provider *provider;
	const struct declared_model *model;
	const struct model_sink *sink;
	size_t answer_max;
	const char *origin; /* of its reasoning */
	struct courier_wait wait;
	uint64_t end_ms; /* monotonic; of the attempt in all */
	struct reader *reader;
	struct answer answer;
	struct buf error; /* body of an answer that is no stream */
	struct courier_head head;
	bool shown;
	bool over; /* the courier has said its last word */
};

/* -- what is said ------------------------------------------------------------------------------ */

static void put_off(struct attempt *a)
{
	uint64_t idle_ms = clock_mono_ms() + a->model->idle_ms;

	a->wait.deadline_ms = idle_ms < a->end_ms ? idle_ms : a->end_ms;
}

/* Whatever belongs to the answer puts the deadline off; comments and pings do not. */
static void on_said(void *ctx, const struct said *said)
{
	struct attempt *a = ctx;

	put_off(a);
	answer_take(&a->answer, said);
	if (said->kind == SAID_TEXT || said->kind == SAID_REFUSAL) {
		a->shown = true;
		a->sink->text(a->sink->ctx, said->text, said->len);
	} else if (said->kind == SAID_REASONING && a->sink->reasoning) {
		a->shown = true;
		a->sink->reasoning(a->sink->ctx, said->text, said->len);
	}
}

static bool streams(const struct attempt *a)
{
	return a->head.status >= 200 && a->head.status < 300 && a->head.is_stream;
}

static int take_body(struct attempt *a, const struct courier_reply *r, struct err *e)
{
	size_t room = ERROR_BODY_MAX - a->error.len;

	if (streams(a))
		return reader_feed(a->reader, r->body, r->piece.len, e);
	buf_add(&a->error, r->body, r->piece.len < room ? r->piece.len : room);
	return 0;
}

/* What libcurl says names hosts and addresses: that is for the operator. */
static int network_fault(const struct attempt *a, const struct courier_end *end, struct err *e)
{
	log_warn("model %s: %s", a->model->id, end->text);
	switch (end->code) {
	case MODEL_CUT:
		return err_set(e, MODEL_CUT, "the provider's answer ends in the middle");
	case MODEL_MALFORMED:
		return err_set(e, MODEL_MALFORMED, "the provider does not speak HTTP");
	case MODEL_UNREACHABLE:
		return err_set(e, MODEL_UNREACHABLE, "the provider cannot be reached");
	default:
		return err_set(e, MODEL_FAILED,
		               "the provider is not who it should be, or its address is wrong; "
		               "the operator's log names the cause");
	}
}

static int take_end(struct attempt *a, const struct courier_end *end, struct err *e)
{
	a->over = true;
	if (streams(a) && reader_done(a->reader))
		return 0;
	if (end->code)
		return network_fault(a, end, e);
	if (streams(a))
		return reader_end(a->reader, e);
	return fault_read(a->head.status, a->error.data ? a->error.data : "", a->error.len, e);
}

static int take_reply(struct attempt *a, const struct courier_reply *r, struct err *e)
{
	switch (r->piece.kind) {
	case COURIER_HEAD:
		a->head = r->head;
		return 0;
	case COURIER_BODY:
		return take_body(a, r, e);
	default:
		return take_end(a, &r->end, e);
	}
}

/* -- one attempt ------------------------------------------------------------------------------- */

/* The answer is whole; a moment more, and its connection may serve again. */
static void await_end(const struct attempt *a, int fd, struct courier_reply *reply)
{
	const struct courier_wait moment = { a->wait.cancel, clock_mono_ms() + LAST_WORD_MS };
	struct err e = ERR_INIT;

	while (!courier_next(fd, &moment, reply, &e) && reply->piece.kind != COURIER_END)
		;
}

static bool is_late(const struct attempt *a)
{
	return !a->over && !reader_done(a->reader) && clock_left_ms(a->end_ms) == 0;
}

/* Another attempt would, too. */
static int took_too_long(const struct attempt *a, struct err *e)
{
	return err_set(e, MODEL_FAILED, "the answer was not whole after %u s",
	               a->provider->attempt_ms / 1000);
}

/* As long as there is something to read nobody waits, so no wait would see the end. */
static int receive_answer(struct attempt *a, int fd, struct err *e)
{
	struct courier_reply *reply = malloc(sizeof(*reply));
	int rc = 0;

	if (!reply)
		abort();
	while (rc == 0 && !a->over && !reader_done(a->reader)) {
		rc = courier_next(fd, &a->wait, reply, e);
		if (rc == 0)
			rc = take_reply(a, reply, e);
		if (rc == 0)
			rc = answer_check(&a->answer, e);
		if (rc == 0 && is_late(a))
			rc = took_too_long(a, e);
	}
	if (rc == 0 && !a->over)
		await_end(a, fd, reply);
	free(reply);
	return rc;
}

static int ask(struct attempt *a, const struct buf *body, struct err *e)
{
	const struct courier_ask question = { .place = (uint32_t)a->provider->index,
		                              .len = (uint32_t)body->len };
	auto_close int fd = -1;

	if (courier_open(a->provider->sock, &question, body->data, &a->wait, &fd, e) < 0)
		return -1;
	return receive_answer(a, fd, e);
}

static void give(struct attempt *a, struct model_answer *ret)
{
	ret->cost_nano = models_cost(a->model, &a->answer.usage);
	ret->input_tokens = a->answer.usage.input;
	ret->output_tokens = a->answer.usage.output;
	ret->cached_tokens = a->answer.usage.cached;
	ret->reasoning_tokens = a->answer.usage.reasoning;
}

static int run_attempt(struct attempt *a, const struct buf *body, struct model_answer *ret,
                       struct err *e)
{
	const struct reader_sink sink = { on_said, a };
	int rc;

	a->reader = reader_new(a->model->dialect, &sink);
	answer_init(&a->answer, a->answer_max);
	a->error = (struct buf)BUF_INIT(ERROR_BODY_MAX);
	a->end_ms = clock_mono_ms() + a->provider->attempt_ms;
	put_off(a);
	rc = ask(a, body, e);
	if (rc < 0 && e->code == MODEL_STALLED && clock_left_ms(a->end_ms) == 0)
		rc = took_too_long(a, e);
	if (rc == 0)
		rc = answer_items(&a->answer, a->origin, &ret->items, e);
	if (rc == 0)
		give(a, ret);
	else
		answer_discard(&a->answer, e->text, &ret->items);
	reader_free(&a->reader);
	answer_release(&a->answer);
	buf_release(&a->error);
	return rc;
}

/* -- attempts ---------------------------------------------------------------------------------- */

static bool again(const struct attempt *a, unsigned int number, bool shown, int code)
{
	unsigned int most = shown ? PROVIDER_ATTEMPTS_SHOWN : PROVIDER_ATTEMPTS;

	return fault_passes(code) && number < most && a->head.retry_after <= PROVIDER_RETRY_AFTER;
}

/* Not all at the same moment: up to a quarter more than what is due. */
static unsigned int delay(unsigned int number, int retry_after)
{
	unsigned int ms = BACKOFF_MS, noise;

	while (--number && ms < BACKOFF_MAX_MS)
		ms *= 2;
	if (retry_after > 0 && (unsigned int)retry_after * 1000 > ms)
		ms = (unsigned int)retry_after * 1000;
	random_bytes(&noise, sizeof(noise));
	return ms + noise % (ms / 4);
}

static int wait_before(unsigned int ms, const struct cancel *cancel, struct err *e)
{
	struct pollfd p = { .fd = cancel->fd, .events = POLLIN };

	return poll(&p, 1, (int)ms) == 0 ? 0 : err_set(e, MODEL_CANCELLED, "cancelled");
}

/* Each attempt begins as the first one. */
static int try_all(const struct attempt *first, const struct buf *body, struct model_answer *ret,
                   struct err *e)
{
	const struct model_sink *sink = first->sink;
	bool shown = false;

	for (unsigned int number = 1;; number++) {
		struct attempt a = *first;

		if (run_attempt(&a, body, ret, e) == 0)
			return 0;
		shown = shown || a.shown;
		if (a.shown && sink->discarded)
			sink->discarded(sink->ctx, e->text);
		if (!again(&a, number, shown, e->code))
			return -1;
		log_warn("model %s: attempt %u: %s", a.model->id, number, e->text);
		if (wait_before(delay(number, a.head.retry_after), a.wait.cancel, e) < 0)
			return -1;
	}
}

int provider_respond(const struct provider *p, const struct model_prompt *prompt,
                     const struct model_sink *sink, struct cancel *cancel, struct model_answer *ret,
                     struct err *e)
{
	const struct declared_model *m = &p->models->v[p->index];
	char origin[MODEL_CREDENTIAL_SIZE];
	const struct prompt_target to = { .dialect = m->dialect,
		                          .model = m->model,
		                          .max_output_tokens = m->max_output_tokens,
		                          .sees_images = m->images,
		                          .reasoning = m->reasoning,
		                          .origin = origin };
	auto_buf struct buf body = BUF_INIT(PROMPT_BYTES_MAX);
	const struct attempt first = { .provider = p,
		                       .model = m,
		                       .sink = sink,
		                       .answer_max = prompt->answer_max,
		                       .origin = origin,
		                       .wait = { .cancel = cancel },
		                       .head = { .retry_after = -1 } };

	*ret = (struct model_answer){ .cost_nano = -1 };
	models_origin(m, origin);
	if (prompt_write(prompt, &to, &body, e) < 0)
		return -1;
	return try_all(&first, &body, ret, e);
}
