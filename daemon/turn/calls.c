/*
 * A tool call's step: it is judged, started, run, and its result committed; or a person is
 * asked.  A call that was started but has no result is never run again.
 */
#include "daemon/turn/calls.h"
#include "common/clock.h"
#include "common/json.h"
#include "daemon/turn/approval.h"
#include "daemon/turn/batch.h"
#include "daemon/turn/questions.h"
#include "daemon/turn/queue.h"
#include "daemon/turn/remote.h"
#include "daemon/turn/render.h"
#include "daemon/turn/run.h"
#include "daemon/turn/task.h"
#include "daemon/turn/tell.h"

#include <string.h>

/* What is published about a call while it runs. */
struct progress {
	const struct run *run;
	const struct item *call;
};

static void publish_progress(void *ctx, const char *text, size_t len, bool skipped)
{
	const struct progress *p = ctx;
	struct json *data = json_new_object();

	json_put_str(data, "callId", p->call->call_id);
	json_put_str(data, "name", p->call->tool);
	json_put_strn(data, "output", text, len);
	json_put_bool(data, "truncated", skipped);
	run_publish(p->run, "tool.output.updated", data);
}

static void ignore_progress(void *ctx, const char *text, size_t len, bool skipped)
{
	(void)ctx;
	(void)text;
	(void)len;
	(void)skipped;
}

static void publish_result(const struct run *r, const struct item *call,
                           const struct tool_outcome *outcome)
{
	struct json *plan = tell_plan(outcome->details);

	run_publish(r, "tool.finished", tell_result(call, &outcome->result, outcome->details));
	if (plan)
		run_publish(r, "plan.updated", plan);
}

/*
 * Commit the result.  The call had its effect, so only a stop gives up; after a lost
 * connection the commit may have happened, which the conflict of the second try tells.
 */
enum round calls_commit(struct run *r, const struct item *call, struct tool_outcome *outcome,
                        struct err *e)
{
	unsigned int ms = RUN_RETRY_MS;
	bool unsure = false;

	tool_outcome_store_details(outcome);
	while (turn_finish_call(r->conf->store, &r->job->tenant, &r->job->turn, call->seq,
	                        &outcome->result, e)) {
		if (e->code == STORE_CONFLICT && unsure) {
			publish_result(r, call, outcome);
			transcript_forget(&r->transcript);
			return ROUND_AGAIN;
		}
		if (e->code != STORE_UNAVAILABLE)
			return ROUND_FAILED;
		unsure = true;
		if (!run_wait_commit(r->job, &ms))
			return ROUND_OVER;
	}
	publish_result(r, call, outcome);
	seen_take(&r->seen, call->call_id, &outcome->image);
	transcript_mark(&r->transcript, call->seq, CALL_DONE);
	transcript_add(&r->transcript, &outcome->result, 1);
	return ROUND_AGAIN;
}

/*
 * When it is not known whether the start was committed, the next round looks: a call that
 * is started then, and that we never ran, is ours to judge again, and to run or refuse.
 */
enum round calls_start(struct run *r, const struct item *call, struct err *e)
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
	run_publish(r, "tool.started", tell_call(call));
	return ROUND_AGAIN;
}

static enum round refuse_call(struct run *r, const struct item *call, struct tool_outcome *outcome,
                              struct err *e)
{
	bool ours = call->call_state == CALL_PENDING || call->seq == r->starting;
	enum round round = ours ? calls_start(r, call, e) : ROUND_AGAIN;

	if (round == ROUND_AGAIN)
		round = calls_commit(r, call, outcome, e);
	tool_outcome_release(outcome);
	return round;
}

static int run_tool(struct run *r, const struct item *call,
                    void (*progress)(void *ctx, const char *text, size_t len, bool skipped),
                    struct tool_outcome *ret, struct err *e)
{
	struct progress about = { r, call };
	const struct tool_context context = {
		.sandboxes = r->conf->sandboxes,
		.tenant = &r->job->tenant,
		.cwd = r->session.cwd,
		.cancel = &r->job->cancel,
		/* What runs quietly is a child agent's, which is told of images only. */
		.sees_images = progress == publish_progress && r->model && r->model->sees_images,
		.progress = progress,
		.ctx = &about,
	};

	if (remote_is(call))
		return remote_run(r, call, ret, e);
	return tool_run(&context, call, ret, e);
}

int calls_run(struct run *r, const struct item *call, struct tool_outcome *ret, struct err *e)
{
	return run_tool(r, call, publish_progress, ret, e);
}

int calls_run_quietly(struct run *r, const struct item *call, struct tool_outcome *ret,
                      struct err *e)
{
	return run_tool(r, call, ignore_progress, ret, e);
}

static enum round run_call(struct run *r, const struct item *call, struct err *e)
{
	struct tool_outcome outcome;
	enum round round = calls_start(r, call, e);

	if (round != ROUND_AGAIN)
		return round;
	if (task_is(call) ? task_run(r, call, &outcome, e) : calls_run(r, call, &outcome, e))
		return ROUND_FAILED;
	round = calls_commit(r, call, &outcome, e);
	tool_outcome_release(&outcome);
	return round;
}

static void publish_request(const struct run *r, const struct request *q)
{
	struct json *data = json_new_object();

	json_put(data, "request", request_json(q));
	run_publish(r, "request.created", data);
}

/* 0 when the request is stored; after a lost connection it may have been by an earlier try. */
static int commit_request(struct run *r, const struct request *q, struct err *e)
{
	struct store *store = r->conf->store;
	unsigned int ms = RUN_RETRY_MS;
	struct request stored;
	bool unsure = false;

	while (request_insert(store, &r->job->tenant, q, e)) {
		if (e->code == STORE_CONFLICT && unsure &&
		    request_get(store, &r->job->tenant, &q->id, &stored, e) == 0) {
			request_release(&stored);
			return 0;
		}
		unsure = unsure || e->code == STORE_UNAVAILABLE;
		if (e->code != STORE_UNAVAILABLE || !run_wait_retry(r->job, &ms))
			return -1;
	}
	return 0;
}

enum round run_ask(struct run *r, const struct item *call, const struct request *q, struct err *e)
{
	if (turns_begin_wait(r->job, q, e))
		return ROUND_FAILED;
	if (commit_request(r, q, e) == 0) {
		if (!q->before_call)
			run_publish(r, "tool.started", tell_call(call));
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
		round = run_ask(r, call, &q, e);
	else
		round = refuse_call(r, call, &refusal, e);
	request_release(&q);
	return round;
}

/* One that is to run, unless somebody has to allow it first, or it is not allowed. */
static enum round approve_call(struct run *r, const struct item *call, struct err *e)
{
	bool remote = remote_is(call);
	struct approval_case c = { .store = r->conf->store,
		                   .tenant = &r->job->tenant,
		                   .turn = &r->job->turn,
		                   .session = &r->session,
		                   .call = call,
		                   .writes = tool_writes(call),
		                   .asks = remote };
	struct request q = new_request(r, call);
	enum approval approval = APPROVAL_REFUSE;
	enum round round = ROUND_FAILED;
	struct tool_outcome refusal;

	if (remote && !remote_judge(r, call, &c.writes, &refusal))
		return refuse_call(r, call, &refusal, e);
	if (approval_of(&c, &q, &refusal, &approval, e))
		return e->code == STORE_UNAVAILABLE ? ROUND_STORE : ROUND_FAILED;
	switch (approval) {
	case APPROVAL_RUN:
		round = run_call(r, call, e);
		break;
	case APPROVAL_ASK:
		round = run_ask(r, call, &q, e);
		break;
	case APPROVAL_REFUSE:
		round = refuse_call(r, call, &refusal, e);
		break;
	}
	request_release(&q);
	return round;
}

/*
 * A call that was started before this job took the turn up is one of a daemon that
 * died.  A question is different: it is started while it waits, and then the turn is
 * not ours to run, so one that is found here had lost its request with its turn.
 */
enum round run_step_call(struct run *r, const struct item *call, struct err *e)
{
	struct tool_outcome outcome;
	size_t n = batch_size(r, call);

	if (n > 1)
		return batch_run(r, call, n, e);
	if (call->call_state == CALL_STARTED && call->seq != r->starting) {
		if (!tool_asks(call) && !remote_is(call) && run_prove(r, e) != ROUND_AGAIN)
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
