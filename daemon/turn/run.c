/*
 * The loop of one turn.  Every round takes the one step that the transcript, as it is in the
 * store, asks for: so a new turn, one that was answered and one that a dead daemon left
 * behind are the same case.  A step's effect is committed before the next round; a call that
 * was started but has no result is never run again.
 */
#include "common/buf.h"
#include "common/clock.h"
#include "common/fd.h"
#include "common/json.h"
#include "common/log.h"
#include "daemon/model/model.h"
#include "daemon/turn/approval.h"
#include "daemon/turn/attached.h"
#include "daemon/turn/offered.h"
#include "daemon/turn/output.h"
#include "daemon/turn/queue.h"
#include "daemon/turn/render.h"
#include "daemon/turn/reply.h"
#include "daemon/turn/tell.h"
#include "daemon/turn/tools.h"
#include "daemon/turn/transcript.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS_MAX   256 /* answers of the model in one turn */
#define RETRY_MIN_MS 100
#define RETRY_MAX_MS 2000
#define PLACE_TRIES  3 /* more, after a sandbox died under it */

/* What a round came to. */
enum round {
	ROUND_AGAIN,
	ROUND_OVER,   /* the turn ended, waits, or belongs to somebody else */
	ROUND_STORE,  /* the store did not answer: wait, then read the transcript anew */
	ROUND_FAILED, /* with the error that ends the turn */
};

struct run {
	struct job *job;
	const struct turns_conf *conf;
	struct session session;
	const struct model *model;
	struct transcript transcript;
	struct attached attached;
	bool placed;             /* what came with the turn is in the sandbox */
	const struct item *call; /* the one that runs now, for progress */
	uint32_t starting; /* the call whose start we tried to commit and that we never ran; 0 =
	                      none */
	bool proven;       /* no sandbox of an earlier daemon is alive */
	bool settled;      /* the turn ended or waits for a person, as far as the store said */
};

static bool ends_turn(const char *type)
{
	return strcmp(type, "turn.completed") == 0 || strcmp(type, "turn.failed") == 0 ||
	       strcmp(type, "turn.cancelled") == 0;
}

void job_publish(const struct job *job, const char *type, struct json *data)
{
	const struct bus_event event = { .type = type,
		                         .turn = &job->turn,
		                         .session = &job->session,
		                         .data = data,
		                         .ends_turn = ends_turn(type) };

	bus_publish(job->turns->conf.bus, &job->tenant, &event);
}

static void publish(const struct run *r, const char *type, struct json *data)
{
	job_publish(r->job, type, data);
}

/* -- waiting for the store ------------------------------------------------------------ */

/* Sleep before another try; false when there shall be none, because of cancel or stop. */
static bool wait_retry(struct job *job, unsigned int *ms)
{
	struct pollfd p = { .fd = job->cancel.fd, .events = POLLIN };
	int fired = poll(&p, 1, (int)*ms);

	*ms = *ms * 2 > RETRY_MAX_MS ? RETRY_MAX_MS : *ms * 2;
	return fired == 0;
}

/* As wait_retry, but a cancelled turn still wants its end committed. */
static bool wait_commit(struct job *job, unsigned int *ms)
{
	if (cancel_fired(&job->cancel))
		(void)poll(NULL, 0, (int)*ms);
	else
		(void)wait_retry(job, ms);
	return !atomic_load(&job->abandon);
}

static void report_end(struct job *job, const struct turn_end *end)
{
	struct err e = ERR_INIT;

	turns_end_wait(job);
	if (!atomic_exchange(&job->reported, true))
		job_publish(job, tell_end_type(end->state), tell_end(end->error_code, end->error));
	if (store_settle(job->turns->conf.store, &job->tenant, &e))
		log_warn("tenant %s: %s (the mark is cleared later)", job->tenant.text, e.text);
}

/* Our own commit, of which we heard nothing, or that of somebody else: report what is there. */
static void report_stored(struct job *job)
{
	struct err e = ERR_INIT;
	struct turn t;

	if (turn_get(job->turns->conf.store, &job->tenant, &job->turn, &t, &e)) {
		log_warn("turn %s: its end is not reported: %s", job->turn.text, e.text);
		return;
	}
	report_end(job, &(struct turn_end){ t.state, t.error_code[0] ? t.error_code : NULL, t.error,
	                                    0 });
	turn_release(&t);
}

static bool finish(struct job *job, struct turn_end *end, bool once)
{
	struct store *store = job->turns->conf.store;
	unsigned int ms = RETRY_MIN_MS;
	struct err e = ERR_INIT;
	bool unsure = false;
	int rc;

	for (;;) {
		end->now_ms = clock_wall_ms();
		rc = turn_finish(store, &job->tenant, &job->turn, end, &e);
		if (rc == 0 || e.code != STORE_UNAVAILABLE)
			break;
		unsure = true;
		if (once || !wait_commit(job, &ms))
			break;
	}
	if (rc == 0)
		report_end(job, end);
	else if (e.code == STORE_CONFLICT && unsure)
		report_stored(job);
	else if (e.code != STORE_CONFLICT)
		log_error("turn %s: cannot commit its end: %s", job->turn.text, e.text);
	return rc == 0 || e.code == STORE_CONFLICT || e.code == STORE_NOT_FOUND;
}

bool job_finish(struct job *job, enum turn_state state, const char *error_code, const char *error)
{
	return finish(job, &(struct turn_end){ state, error_code, error, 0 }, false);
}

bool job_finish_once(struct job *job, enum turn_state state)
{
	return finish(job, &(struct turn_end){ .state = state }, true);
}

/* -- the model's step ------------------------------------------------------------ */

static void publish_piece(const struct run *r, const char *type, const char *text, size_t len)
{
	while (len > 0) {
		size_t n = output_prefix(text, len, TELL_CHARS);
		struct json *data = json_new_object();

		json_put_strn(data, "text", text, n);
		json_put_bool(data, "truncated", false);
		publish(r, type, data);
		text += n;
		len -= n;
	}
}

static void publish_text(void *ctx, const char *text, size_t len)
{
	publish_piece(ctx, "response.text.delta", text, len);
}

static void publish_reasoning(void *ctx, const char *text, size_t len)
{
	publish_piece(ctx, "response.reasoning.delta", text, len);
}

static void publish_discarded(void *ctx, const char *reason)
{
	struct json *data = json_new_object();

	json_put_str(data, "reason", reason);
	json_put_bool(data, "displayOnly", true);
	publish(ctx, "response.attempt.discarded", data);
}

/*
 * After a lost connection the commit may have happened, which the conflict of the second
 * try tells: the model is not asked again for what it has said.
 */
static enum round commit_answer(struct run *r, struct model_answer *answer, struct err *e)
{
	struct turn_step step = {
		answer->items.items,   answer->items.count,   answer->input_tokens,
		answer->output_tokens, answer->cached_tokens, (uint32_t)r->transcript.list.count,
	};
	unsigned int ms = RETRY_MIN_MS;
	bool unsure = false;

	while (turn_append(r->conf->store, &r->job->tenant, &r->job->turn, &step, e)) {
		if (e->code == STORE_CONFLICT && unsure) {
			transcript_forget(&r->transcript); /* the next round sees what is there */
			break;
		}
		if (e->code != STORE_UNAVAILABLE)
			return ROUND_FAILED;
		unsure = true;
		if (!wait_retry(r->job, &ms))
			return ROUND_STORE;
	}
	publish(r, "agent.turn.finished",
	        tell_answer(&r->job->turn, &answer->items.items[answer->items.count - 1], answer));
	transcript_add(&r->transcript, answer->items.items, answer->items.count);
	return ROUND_AGAIN;
}

static enum round answer_too_long(size_t left, struct err *e)
{
	(void)err_set(e, TURNS_TOO_LARGE,
	              "the model's answer has more than the %zu bytes that the turn has left "
	              "(--max-turn-bytes)",
	              left);
	return ROUND_FAILED;
}

static size_t bytes_of(const struct item_list *items)
{
	size_t n = 0;

	for (size_t i = 0; i < items->count; i++)
		n += items->items[i].body_len;
	return n;
}

static enum round ask_model(struct run *r, struct err *e)
{
	size_t left = r->conf->max_turn_bytes - r->transcript.bytes; /* check_bounds() */
	struct model_prompt prompt = { .transcript = &r->transcript.list,
		                       .answer_max = left ? left : 1 };
	const struct model_sink sink = { publish_text, r, publish_reasoning, publish_discarded };
	struct model_answer answer = { 0 };
	enum round round = ROUND_FAILED;
	struct model_image image;
	int rc = attached_image(&r->attached, r->conf->store, &r->job->tenant, &image, e);

	if (rc)
		return e->code == STORE_UNAVAILABLE ? ROUND_STORE : ROUND_FAILED;
	prompt.tools = offered_tools(&prompt.tool_count);
	prompt.images = &image;
	prompt.image_count = image.data ? 1 : 0;
	publish(r, "agent.turn.started", NULL);
	rc = model_respond(r->model, &prompt, &sink, &r->job->cancel, &answer, e);
	free(image.data);
	if (rc)
		return e->code == MODEL_TOO_LONG ? answer_too_long(left, e) : ROUND_FAILED;
	if (bytes_of(&answer.items) > left)
		(void)answer_too_long(left, e);
	else if (answer.items.count)
		round = commit_answer(r, &answer, e);
	else
		(void)err_set(e, MODEL_FAILED, "the model answered nothing");
	item_list_release(&answer.items);
	return round;
}

/* -- a tool call's step ------------------------------------------------------------ */

static void publish_progress(void *ctx, const char *text, size_t len, bool skipped)
{
	const struct run *r = ctx;
	struct json *data = json_new_object();

	json_put_str(data, "callId", r->call->call_id);
	json_put_str(data, "name", r->call->tool);
	json_put_strn(data, "output", text, len);
	json_put_bool(data, "truncated", skipped);
	publish(r, "tool.output.updated", data);
}

/*
 * Commit the result.  The call had its effect, so only a stop gives up; after a lost
 * connection the commit may have happened, which the conflict of the second try tells.
 */
static enum round commit_result(struct run *r, const struct item *call,
                                struct tool_outcome *outcome, struct err *e)
{
	unsigned int ms = RETRY_MIN_MS;
	bool unsure = false;

	tool_outcome_store_details(outcome);
	while (turn_finish_call(r->conf->store, &r->job->tenant, &r->job->turn, call->seq,
	                        &outcome->result, e)) {
		if (e->code == STORE_CONFLICT && unsure) {
			publish(r, "tool.finished",
			        tell_result(call, &outcome->result, outcome->details));
			transcript_forget(&r->transcript);
			return ROUND_AGAIN;
		}
		if (e->code != STORE_UNAVAILABLE)
			return ROUND_FAILED;
		unsure = true;
		if (!wait_commit(r->job, &ms))
			return ROUND_OVER;
	}
	publish(r, "tool.finished", tell_result(call, &outcome->result, outcome->details));
	transcript_mark(&r->transcript, call->seq, CALL_DONE);
	transcript_add(&r->transcript, &outcome->result, 1);
	return ROUND_AGAIN;
}

/*
 * When it is not known whether the start was committed, the next round looks: a call that
 * is started then, and that we never ran, is ours to judge again, and to run or refuse.
 */
static enum round start_call(struct run *r, const struct item *call, struct err *e)
{
	bool unsure = r->starting == call->seq;

	if (call->call_state == CALL_PENDING &&
	    turn_start_call(r->conf->store, &r->job->tenant, &r->job->turn, call->seq, e)) {
		if (e->code != STORE_UNAVAILABLE && !(e->code == STORE_CONFLICT && unsure))
			return ROUND_FAILED;
		r->starting = call->seq;
		return ROUND_STORE;
	}
	r->starting = 0;
	transcript_mark(&r->transcript, call->seq, CALL_STARTED);
	publish(r, "tool.started", tell_call(call));
	return ROUND_AGAIN;
}

static enum round refuse_call(struct run *r, const struct item *call, struct tool_outcome *outcome,
                              struct err *e)
{
	bool ours = call->call_state == CALL_PENDING || call->seq == r->starting;
	enum round round = ours ? start_call(r, call, e) : ROUND_AGAIN;

	if (round == ROUND_AGAIN)
		round = commit_result(r, call, outcome, e);
	tool_outcome_release(outcome);
	return round;
}

static enum round run_call(struct run *r, const struct item *call, struct err *e)
{
	struct tool_context context = {
		.sandboxes = r->conf->sandboxes,
		.tenant = &r->job->tenant,
		.cwd = r->session.cwd,
		.cancel = &r->job->cancel,
		.progress = publish_progress,
		.ctx = r,
	};
	struct tool_outcome outcome;
	enum round round = start_call(r, call, e);

	if (round != ROUND_AGAIN)
		return round;
	r->call = call;
	if (tool_run(&context, call, &outcome, e))
		return ROUND_FAILED;
	round = commit_result(r, call, &outcome, e);
	tool_outcome_release(&outcome);
	return round;
}

static void publish_request(const struct run *r, const struct request *q)
{
	struct json *data = json_new_object();

	json_put(data, "request", request_json(q));
	publish(r, "request.created", data);
}

/* 0 when the request is stored; after a lost connection it may have been by an earlier try. */
static int commit_request(struct run *r, const struct request *q, struct err *e)
{
	struct store *store = r->conf->store;
	unsigned int ms = RETRY_MIN_MS;
	struct request stored;
	bool unsure = false;

	while (request_insert(store, &r->job->tenant, q, e)) {
		if (e->code == STORE_CONFLICT && unsure &&
		    request_get(store, &r->job->tenant, &q->id, &stored, e) == 0) {
			request_release(&stored);
			return 0;
		}
		unsure = unsure || e->code == STORE_UNAVAILABLE;
		if (e->code != STORE_UNAVAILABLE || !wait_retry(r->job, &ms))
			return -1;
	}
	return 0;
}

static enum round ask(struct run *r, const struct item *call, const struct request *q,
                      struct err *e)
{
	if (turns_begin_wait(r->job, q, e))
		return ROUND_FAILED;
	if (commit_request(r, q, e) == 0) {
		if (!q->before_call)
			publish(r, "tool.started", tell_call(call));
		publish_request(r, q);
		r->settled = true;
		return ROUND_OVER;
	}
	turns_end_wait(r->job);
	return ROUND_FAILED;
}

static struct request new_request(const struct run *r, const struct item *call)
{
	struct request q = {
		.id = uuid_new(),
		.turn = r->job->turn,
		.session = r->job->session,
		.call_seq = call->seq,
		.created_ms = clock_wall_ms(),
	};

	memcpy(q.call_id, call->call_id, sizeof(q.call_id));
	return q;
}

static enum round ask_person(struct run *r, const struct item *call, struct err *e)
{
	struct request q = new_request(r, call);
	struct tool_outcome refusal;
	enum round round;

	if (tool_question(call, &q, &refusal))
		round = ask(r, call, &q, e);
	else
		round = refuse_call(r, call, &refusal, e);
	request_release(&q);
	return round;
}

/* One that is to run, unless somebody has to allow it first, or it is not allowed. */
static enum round approve_call(struct run *r, const struct item *call, struct err *e)
{
	const struct approval_case c = { r->conf->store, &r->job->tenant, &r->job->turn,
		                         &r->session, call };
	struct request q = new_request(r, call);
	enum approval approval = APPROVAL_REFUSE;
	enum round round = ROUND_FAILED;
	struct tool_outcome refusal;

	if (approval_of(&c, &q, &refusal, &approval, e))
		return e->code == STORE_UNAVAILABLE ? ROUND_STORE : ROUND_FAILED;
	switch (approval) {
	case APPROVAL_RUN:
		round = run_call(r, call, e);
		break;
	case APPROVAL_ASK:
		round = ask(r, call, &q, e);
		break;
	case APPROVAL_REFUSE:
		round = refuse_call(r, call, &refusal, e);
		break;
	}
	request_release(&q);
	return round;
}

/*
 * The daemon that started the call may be dead and its sandbox still alive, with the call
 * running in it.  The turn goes on when a sandbox of ours runs, whose runner holds the
 * tenant's lock.
 */
static enum round prove(struct run *r, struct err *e)
{
	struct tool_context context = { .sandboxes = r->conf->sandboxes,
		                        .tenant = &r->job->tenant,
		                        .cancel = &r->job->cancel };
	uint64_t deadline = clock_mono_ms() + r->conf->proof_ms;
	unsigned int ms = RETRY_MIN_MS;
	struct err why = ERR_INIT;

	while (!r->proven) {
		r->proven = tool_prove(&context, &why) == 0;
		if (r->proven || (clock_left_ms(deadline) > 0 && wait_retry(r->job, &ms)))
			continue;
		(void)err_set(e, TURNS_NOT_PROVEN,
		              "a call ran when the daemon ended, and its sandbox may still be "
		              "alive: %s",
		              why.text);
		return ROUND_FAILED;
	}
	return ROUND_AGAIN;
}

/*
 * A call that was started before this job took the turn up is one of a daemon that
 * died.  A question is different: it is started while it waits, and then the turn is
 * not ours to run, so one that is found here had lost its request with its turn.
 */
static enum round step_call(struct run *r, const struct item *call, struct err *e)
{
	struct tool_outcome outcome;

	if (call->call_state == CALL_STARTED && call->seq != r->starting) {
		if (!tool_asks(call) && prove(r, e) != ROUND_AGAIN)
			return ROUND_FAILED;
		tool_interrupted(call, &outcome);
		return refuse_call(r, call, &outcome, e);
	}
	if (tool_asks(call))
		return ask_person(r, call, e);
	/*
	 * Also one whose start was committed unheard of: that of a call that is refused is
	 * committed, too, so having been started does not mean that it was allowed.
	 */
	return approve_call(r, call, e);
}

/* -- rounds ------------------------------------------------------------ */

static const struct item *open_call(const struct item_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		if (list->items[i].kind == ITEM_TOOL_CALL && list->items[i].call_state != CALL_DONE)
			return &list->items[i];
	return NULL;
}

static size_t answers(const struct item_list *list)
{
	size_t n = 0;

	for (size_t i = 0; i < list->count; i++)
		n += list->items[i].kind == ITEM_ASSISTANT;
	return n;
}

/* What all of them come to at most, so that no turn fills the memory of the server. */
static int check_bounds(const struct run *r, struct err *e)
{
	if (answers(&r->transcript.list) >= ROUNDS_MAX)
		return err_set(e, MODEL_FAILED, "the model asked for more than %d rounds",
		               ROUNDS_MAX);
	if (r->transcript.bytes > r->conf->max_turn_bytes)
		return err_set(
			e, TURNS_TOO_LARGE,
			"what was said and done in the turn has %zu bytes, more than the %zu "
			"that it may have (--max-turn-bytes)",
			r->transcript.bytes, r->conf->max_turn_bytes);
	return 0;
}

/*
 * Before anything of the turn goes on, also after a restart: the sandbox may be another
 * one.  A sandbox that dies meanwhile is not the file's fault.
 */
static enum round place(struct run *r, struct err *e)
{
	struct tool_context context = { .sandboxes = r->conf->sandboxes,
		                        .tenant = &r->job->tenant,
		                        .cancel = &r->job->cancel };
	unsigned int ms = RETRY_MIN_MS;

	if (r->placed || !r->attached.list)
		return ROUND_AGAIN;
	if (r->job->resumed && prove(r, e) != ROUND_AGAIN)
		return ROUND_FAILED;
	for (int tries = 0; attached_write(&r->attached, r->conf->store, &context, e); tries++) {
		if (e->code == STORE_UNAVAILABLE)
			return ROUND_STORE;
		if (e->code != SANDBOX_LOST)
			return ROUND_FAILED;
		if (tries == PLACE_TRIES || !wait_retry(r->job, &ms)) {
			e->code = TURNS_NOT_ATTACHED;
			return ROUND_FAILED;
		}
	}
	r->placed = true;
	return ROUND_AGAIN;
}

static enum round step(struct run *r, struct err *e)
{
	const struct item_list *list = &r->transcript.list;
	const struct item *call = open_call(list);
	enum round round;

	if (!call && list->count && list->items[list->count - 1].kind == ITEM_ASSISTANT) {
		r->settled = job_finish(r->job, TURN_COMPLETED, NULL, NULL);
		return ROUND_OVER;
	}
	if (check_bounds(r, e))
		return ROUND_FAILED;
	round = place(r, e);
	if (round != ROUND_AGAIN)
		return round;
	return call ? step_call(r, call, e) : ask_model(r, e);
}

static enum round run_round(struct run *r, struct err *e)
{
	enum round round;

	if (transcript_read(&r->transcript, r->conf->store, &r->job->tenant, &r->job->turn, e))
		return e->code == STORE_UNAVAILABLE ? ROUND_STORE : ROUND_FAILED;
	if (!attached_tell(&r->attached, &r->transcript)) {
		(void)err_set(e, ENOMEM, "no memory for what came with the turn");
		return ROUND_FAILED;
	}
	round = step(r, e);
	if (round != ROUND_AGAIN)
		transcript_forget(&r->transcript);
	return round;
}

/*
 * What the tenant is told.  Where the error's own text speaks of the host (paths,
 * programs, SQL), it goes to the operator's log and the tenant gets a text of ours.
 */
static const struct failure {
	int code;
	const char *name;
	const char *text; /* NULL = the error's own */
} failures[] = {
	{ SANDBOX_START_FAILED, "sandbox_unavailable",
	  "the sandbox did not start; the operator's log names the cause beside this turn's id" },
	{ TURNS_NOT_PROVEN, "sandbox_unavailable",
	  "a call ran when the daemon ended, and its sandbox may still be alive; the operator's "
	  "log names the cause beside this turn's id" },
	{ SANDBOX_LIMIT, "sandbox_limit", NULL },
	{ SANDBOX_NO_ROOM, "disk_full", NULL },
	{ TURNS_WAITING_LIMIT, "waiting_turn_limit", NULL },
	{ TURNS_TOO_LARGE, "turn_too_large", NULL },
	{ TURNS_NOT_ATTACHED, "attachment_not_written", NULL },
	{ MODEL_FAILED, "model_failed", NULL },
	{ STORE_TENANT_FULL, "tenant_storage_full", NULL },
	{ 0, "internal_error", "the server failed; its log names the cause beside this turn's id" },
};

static const struct failure *failure_of(int code)
{
	const struct failure *f = failures;

	while (f->code && f->code != code)
		f++;
	return f;
}

/*
 * A conflict may mean that the turn ended or waits, and is nobody's then; but a rule of
 * the schema that an item broke gives the same code, and that turn has to end.
 */
static bool is_over(struct run *r)
{
	unsigned int ms = RETRY_MIN_MS;
	struct err e = ERR_INIT;
	enum turn_state state;
	struct turn t;

	while (turn_get(r->conf->store, &r->job->tenant, &r->job->turn, &t, &e))
		if (e.code != STORE_UNAVAILABLE || !wait_commit(r->job, &ms))
			return e.code == STORE_NOT_FOUND;
	state = t.state;
	turn_release(&t);
	return turn_state_terminal(state) || state == TURN_WAITING;
}

static void fail(struct run *r, const struct err *e)
{
	const struct failure *f = failure_of(e->code);

	if (e->code == STORE_NOT_FOUND || (e->code == STORE_CONFLICT && is_over(r))) {
		r->settled = true;
		return;
	}
	if (f->text)
		log_error("turn %s: %s: %s", r->job->turn.text, f->name, e->text);
	r->settled = job_finish(r->job, TURN_FAILED, f->name, f->text ? f->text : e->text);
}

static int read_attached(struct run *r, struct err *e)
{
	struct turn t;
	int rc;

	if (turn_get(r->conf->store, &r->job->tenant, &r->job->turn, &t, e))
		return -1;
	rc = attached_read(&r->attached, &t, e);
	turn_release(&t);
	return rc;
}

static enum round prepare(struct run *r, struct err *e)
{
	const struct turns_conf *c = r->conf;

	if (reply_catch_up(r->job, e) ||
	    turn_mark_running(c->store, &r->job->tenant, &r->job->turn, clock_wall_ms(), e) ||
	    session_get(c->store, &r->job->tenant, &r->job->session, &r->session, e) ||
	    read_attached(r, e))
		return e->code == STORE_UNAVAILABLE ? ROUND_STORE : ROUND_FAILED;
	if (c->roster && !roster_allows(c->roster, &r->job->tenant, r->session.model)) {
		(void)err_set(e, MODEL_FAILED, "model %s is not in your catalogue any more",
		              r->session.model);
		return ROUND_FAILED;
	}
	r->model = model_find(r->session.model);
	if (!r->model) {
		(void)err_set(e, MODEL_FAILED, "model %s is not available any more",
		              r->session.model);
		return ROUND_FAILED;
	}
	if (strcmp(r->session.credential, r->model->credential) != 0) {
		(void)err_set(e, MODEL_FAILED,
		              "model %s has another address or account now than when the session "
		              "was opened",
		              r->session.model);
		return ROUND_FAILED;
	}
	publish(r, r->job->resumed ? "turn.resumed" : "turn.started", NULL);
	return ROUND_AGAIN;
}

/* Take steps until one of them ends it; what that was. */
static enum round take_steps(struct run *r, struct err *e)
{
	enum round (*next)(struct run * r, struct err * e) = prepare;
	unsigned int ms = RETRY_MIN_MS;

	for (;;) {
		enum round round = cancel_fired(&r->job->cancel) ? ROUND_FAILED : next(r, e);

		if (round == ROUND_OVER || round == ROUND_FAILED)
			return round;
		if (round == ROUND_STORE) {
			log_warn("turn %s: %s; trying again", r->job->turn.text, e->text);
			(void)wait_retry(r->job, &ms);
			continue;
		}
		ms = RETRY_MIN_MS;
		next = run_round;
	}
}

bool job_run(struct job *job)
{
	struct run r = { .job = job, .conf = &job->turns->conf };
	struct err e = ERR_INIT;
	enum round round = take_steps(&r, &e);

	transcript_forget(&r.transcript);
	attached_release(&r.attached);
	if (atomic_load(&job->abandon))
		return true;
	if (round == ROUND_FAILED && cancel_fired(&job->cancel))
		r.settled = job_finish(job, TURN_CANCELLED, NULL, NULL);
	else if (round == ROUND_FAILED)
		fail(&r, &e);
	return r.settled;
}
