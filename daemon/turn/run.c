/*
 * The loop of one turn.  Every round takes the one step that the transcript, as it is in the
 * store, asks for: so a new turn, one that was answered and one that a dead daemon left
 * behind are the same case.  A step's effect is committed before the next round; a call that
 * was started but has no result is never run again.
 */
#include "daemon/turn/run.h"

#include "common/log.h"
#include "daemon/turn/guard.h"
#include "daemon/turn/harness.h"
#include "daemon/turn/queue.h"
#include "daemon/turn/remote.h"

#include <errno.h>
#include <stdatomic.h>

static const struct item *open_call(const struct item_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		if (list->items[i].kind == ITEM_TOOL_CALL && list->items[i].call_state != CALL_DONE)
			return &list->items[i];
	return NULL;
}

/* So that no turn fills the memory of the server. */
static int check_bytes(const struct run *r, struct err *e)
{
	if (r->transcript.bytes > r->conf->max_turn_bytes)
		return err_set(
			e, TURNS_TOO_LARGE,
			"what was said and done in the turn has %zu bytes, more than the %zu "
			"that it may have (--max-turn-bytes)",
			r->transcript.bytes, r->conf->max_turn_bytes);
	return 0;
}

/* So that no turn goes on for ever. */
static int check_progress(const struct run *r, struct err *e)
{
	const struct item *call = guard_loop(&r->transcript.list);

	if (guard_steps(&r->transcript.list) + r->child_answers >= r->conf->max_turn_steps)
		return err_set(e, TURNS_TOO_MANY_STEPS,
		               "the model has answered %u times and is not done (--max-turn-steps)",
		               r->conf->max_turn_steps);
	if (call)
		return err_set(
			e, TURNS_LOOP,
			"the model made the same call of %s %d times in a row, with the same "
			"failure each time",
			call->tool, GUARD_REPEATS);
	return 0;
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
	if (check_bytes(r, e) || (!call && check_progress(r, e)))
		return ROUND_FAILED;
	round = run_place(r, e);
	if (round != ROUND_AGAIN)
		return round;
	return call ? run_step_call(r, call, e) : run_ask_model(r, e);
}

enum round run_read(struct run *r, struct err *e)
{
	if (transcript_read(&r->transcript, r->conf->store, &r->job->tenant, &r->job->turn, e))
		return e->code == STORE_UNAVAILABLE ? ROUND_STORE : ROUND_FAILED;
	if (!attached_tell(&r->attached, &r->transcript)) {
		(void)err_set(e, ENOMEM, "no memory for what came with the turn");
		return ROUND_FAILED;
	}
	return ROUND_AGAIN;
}

static enum round run_round(struct run *r, struct err *e)
{
	enum round round = run_read(r, e);

	if (round == ROUND_AGAIN)
		round = step(r, e);
	if (round != ROUND_AGAIN)
		transcript_forget(&r->transcript);
	return round;
}

static void forget(struct run *r)
{
	transcript_forget(&r->transcript);
	context_release(&r->context);
	remote_forget(r);
	seen_release(&r->seen);
}

const struct engine engine_agent = { run_find_model, run_round, forget };

/* Which one drives the turns of a session. */
static const struct engine *engine_of(const struct session *session)
{
	return session->harness[0] ? &engine_harness : &engine_agent;
}

static enum round prepare(struct run *r, struct err *e)
{
	enum round round = run_prepare(r, e);

	if (round != ROUND_AGAIN)
		return round;
	r->engine = engine_of(&r->session);
	round = r->engine->prepare(r, e);
	if (round == ROUND_AGAIN)
		run_publish(r, r->job->resumed ? "turn.resumed" : "turn.started", NULL);
	return round;
}

/* Take steps until one of them ends it; what that was. */
static enum round take_steps(struct run *r, struct err *e)
{
	enum round (*next)(struct run * r, struct err * e) = prepare;
	unsigned int ms = RUN_RETRY_MS;

	for (;;) {
		bool cancelled = cancel_fired(&r->job->cancel) || job_abandoned(r->job);
		enum round round = cancelled ? ROUND_FAILED : next(r, e);

		/* No step leaves anything half done that the next round does not find. */
		if (round == ROUND_FAILED && !cancelled && e->code == ERR_SHORTAGE)
			round = ROUND_STORE;
		if (round == ROUND_OVER || round == ROUND_FAILED)
			return round;
		if (round == ROUND_STORE) {
			log_warn("turn %s: %s; trying again", r->job->turn.text, e->text);
			(void)run_wait_retry(r->job, &ms);
			continue;
		}
		ms = RUN_RETRY_MS;
		next = r->engine->round;
	}
}

bool job_run(struct job *job)
{
	struct run r = { .job = job, .conf = &job->turns->conf };
	struct err e = ERR_INIT;
	enum round round = take_steps(&r, &e);

	if (r.engine)
		r.engine->release(&r);
	attached_release(&r.attached);
	if (job_abandoned(job))
		return true;
	if (round == ROUND_FAILED && cancel_fired(&job->cancel))
		r.settled = job_finish(job, TURN_CANCELLED, NULL, NULL);
	else if (round == ROUND_FAILED)
		run_fail(&r, &e);
	return r.settled;
}
