/*
 * Questions of a harness become durable requests to people, one after another; meanwhile its
 * run waits in the sandbox and the turn has no thread.  What cannot be shown to a person as
 * it is, is answered as the protocol's own side answers what nobody did.
 */
#include "common/clock.h"
#include "common/fd.h"
#include "daemon/turn/harness_run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUEST_MAX ((size_t)65536) /* bytes of prompt and options as JSON */
#define ANSWERS_MAX ((size_t)32 << 20)

static void forget(struct harness_asking *a)
{
	json_free(&a->data);
	json_free(&a->answers);
	*a = (struct harness_asking){ .data = NULL };
}

/* Send what was answered, and go on. */
static enum round reply(struct run *r, struct err *e)
{
	auto_buf struct buf line = BUF_INIT(ANSWERS_MAX);
	struct harness_run *h = r->harness;
	struct process *p = harness_process(h->resident);

	message_op_id(h->answer_id);
	message_put_answer(&line, r->job->turn.text, h->asking.answers, h->asking.ask.id,
	                   process_takes_op_ids(p) ? h->answer_id : NULL);
	forget(&h->asking);
	return process_send(p, &line, e) ? ROUND_FAILED : ROUND_AGAIN;
}

static const char *kind_of(const struct harness_run *h)
{
	return h->asking.ask.confirm ? "harness_confirm" : "harness_ask";
}

/* The call that stands for a question in the turn: what is asked are its arguments. */
static int commit_question(struct run *r, const char *prompt, const struct json *options,
                           struct item *ret, struct err *e)
{
	struct harness_run *h = r->harness;
	auto_buf struct buf body = BUF_INIT(4 * REQUEST_MAX);
	auto_json struct json *o = json_new_object();
	struct turn_step step = { .items = ret, .count = 1, .cost_nano = -1 };

	json_put_str(o, "question", prompt);
	json_put(o, "options", json_copy(options));
	json_put_int(o, "number", (int64_t)h->asking.next + 1);
	json_put_int(o, "of", (int64_t)h->asking.ask.count);
	json_write(o, &body);
	if (buf_failed(&body))
		return err_set(e, ENOMEM, "no memory for a question");
	*ret = (struct item){ .kind = ITEM_TOOL_CALL,
		              .call_state = CALL_PENDING,
		              .body = body.data,
		              .body_len = body.len };
	(void)snprintf(ret->tool, sizeof(ret->tool), "%s", kind_of(h));
	harness_call_id(h, ret->call_id, sizeof(ret->call_id));
	if (harness_commit(r, &step, e))
		return -1;
	ret->body = NULL; /* in the store by now */
	ret->body_len = 0;
	return 0;
}

static enum round put_request(struct run *r, const struct json *options, struct buf *text,
                              struct err *e)
{
	struct harness_run *h = r->harness;
	const char *prompt = ask_text(&h->asking.ask, h->asking.next);
	struct item call = { .seq = 0 };
	struct request q = { .id = uuid_new(),
		             .turn = r->job->turn,
		             .session = r->job->session,
		             .created_ms = clock_wall_ms() };
	enum round round = ROUND_FAILED;

	q.options = buf_take(text);
	q.prompt = strdup(prompt);
	if (!q.prompt || !q.options)
		(void)err_set(e, ENOMEM, "no memory for a question");
	else if (commit_question(r, prompt, options, &call, e) == 0) {
		q.call_seq = h->asking.seq = call.seq;
		memcpy(q.call_id, call.call_id, sizeof(q.call_id));
		(void)snprintf(q.kind, sizeof(q.kind), "%s", kind_of(h));
		call.body = q.prompt;
		call.body_len = strlen(q.prompt);
		round = run_ask(r, &call, &q, e);
		h->fate = round == ROUND_OVER ? FATE_PARK : h->fate;
	}
	request_release(&q);
	return round;
}

/* Ask the next question; what cannot be shown is answered here. */
static enum round put_next(struct run *r, struct err *e)
{
	struct harness_asking *a = &r->harness->asking;

	while (a->next < a->ask.count) {
		auto_json struct json *options = ask_options(&a->ask, a->next);
		auto_buf struct buf text = BUF_INIT(REQUEST_MAX);

		json_write(options, &text);
		if (!buf_failed(&text) &&
		    text.len + strlen(ask_text(&a->ask, a->next)) <= REQUEST_MAX)
			return put_request(r, options, &text, e);
		harness_warn(r,
		             "a question of the harness is larger than 64 KiB; it was "
		             "answered \"%s\"",
		             ask_default(&a->ask));
		json_push_str(a->answers, ask_default(&a->ask));
		a->next++;
	}
	return reply(r, e);
}

enum round harness_ask(struct run *r, const struct json *data, struct err *e)
{
	struct harness_asking *a = &r->harness->asking;
	struct err why = ERR_INIT;

	if (harness_end_round(r, e) || harness_flush(r, e))
		return ROUND_FAILED;
	forget(a);
	a->data = data ? json_copy(data) : json_new_object();
	a->answers = json_new_array();
	if (ask_read(a->data, &a->ask, &why) == 0)
		return put_next(r, e);
	harness_warn(r, "a question of the harness cannot be shown (%s); it was answered \"%s\"",
	             why.text, ask_default(&a->ask));
	json_push_str(a->answers, ask_default(&a->ask));
	return reply(r, e);
}

/* -- the answer --------------------------------------------------------------------------- */

/* 1 when the harness still waits for it. */
static int take_answer(struct run *r, const struct request *q)
{
	struct harness_asking *a = &r->harness->asking;
	const char *text = q->decision;

	if (q->state == REQUEST_WITHDRAWN)
		return 0;
	if (!text || q->state != REQUEST_ANSWERED)
		text = ask_default(&a->ask);
	else if (!a->ask.confirm && strcmp(text, "custom") == 0 && q->value)
		text = q->value;
	json_push_str(a->answers, text);
	a->next++;
	return 1;
}

enum round harness_answered(struct run *r, struct err *e)
{
	struct harness_asking *a = &r->harness->asking;
	struct request q;
	int waits;

	if (request_of_call(r->conf->store, &r->job->tenant, &r->job->turn, a->seq, &q, e))
		return e->code == STORE_UNAVAILABLE ? ROUND_STORE : ROUND_FAILED;
	if (q.state == REQUEST_OPEN) {
		request_release(&q);
		(void)err_set(e, STORE_CONFLICT, "the request is still open");
		return ROUND_FAILED;
	}
	waits = take_answer(r, &q);
	request_release(&q);
	a->seq = 0;
	r->harness->next++; /* its result */
	if (waits)
		return put_next(r, e);
	harness_warn(r, "the harness did not wait for the answer to its question");
	forget(a);
	return ROUND_AGAIN;
}
