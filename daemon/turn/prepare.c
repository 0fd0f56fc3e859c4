/*
 * What a turn needs before it goes on: its session, its model, no sandbox of a daemon that
 * died, and what came with it in the sandbox.
 */
#include "common/clock.h"
#include "daemon/tool/tools.h"
#include "daemon/turn/reply.h"
#include "daemon/turn/run.h"

#include <stdio.h>
#include <string.h>

#define PLACE_TRIES 3 /* more, after a sandbox died under it */

enum round run_prove(struct run *r, struct err *e)
{
	struct tool_context context = { .sandboxes = r->conf->sandboxes,
		                        .tenant = &r->job->tenant,
		                        .cancel = &r->job->cancel };
	uint64_t deadline = clock_mono_ms() + r->conf->proof_ms;
	unsigned int ms = RUN_RETRY_MS;
	struct err why = ERR_INIT;

	while (!r->proven) {
		r->proven = tool_prove(&context, &why) == 0;
		if (r->proven || (clock_left_ms(deadline) > 0 && run_wait_retry(r->job, &ms)))
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
 * Before anything of the turn goes on, also after a restart: the sandbox may be another
 * one.  A sandbox that dies meanwhile is not the file's fault.
 */
enum round run_place(struct run *r, struct err *e)
{
	struct tool_context context = { .sandboxes = r->conf->sandboxes,
		                        .tenant = &r->job->tenant,
		                        .cancel = &r->job->cancel };
	unsigned int ms = RUN_RETRY_MS;

	if (r->placed || !r->attached.list)
		return ROUND_AGAIN;
	if (r->job->resumed && run_prove(r, e) != ROUND_AGAIN)
		return ROUND_FAILED;
	for (int tries = 0; attached_write(&r->attached, r->conf->store, &context, e); tries++) {
		if (e->code == STORE_UNAVAILABLE)
			return ROUND_STORE;
		if (e->code != SANDBOX_LOST)
			return ROUND_FAILED;
		if (tries == PLACE_TRIES || !run_wait_retry(r->job, &ms)) {
			e->code = TURNS_NOT_ATTACHED;
			return ROUND_FAILED;
		}
	}
	r->placed = true;
	return ROUND_AGAIN;
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

/* An id may be another model's or account's now than when the session was opened. */
static int find_model(struct run *r, struct err *e)
{
	const char *id = r->session.model;

	if (r->conf->roster && !roster_allows(r->conf->roster, &r->job->tenant, id))
		return err_set(e, MODEL_FAILED, "model %s is not in your catalogue any more", id);
	r->model = model_find(id);
	if (!r->model)
		return err_set(e, MODEL_FAILED, "model %s is not available any more", id);
	if (strcmp(r->session.credential, r->model->credential) != 0)
		return err_set(e, MODEL_FAILED,
		               "model %s has another address or account now than when the session "
		               "was opened",
		               id);
	return 0;
}

enum round run_find_model(struct run *r, struct err *e)
{
	return find_model(r, e) ? ROUND_FAILED : ROUND_AGAIN;
}

/* What the session begins with has to be there before its first turn goes on. */
static enum round await_repository(struct run *r, struct err *e)
{
	enum setup_state state = r->session.setup.state;

	if (state == SETUP_NONE || state == SETUP_READY || !r->conf->setups ||
	    setups_wait(r->conf->setups, &r->job->tenant, &r->job->session, &r->job->cancel, e) ==
	            0)
		return ROUND_AGAIN;
	return e->code == STORE_UNAVAILABLE ? ROUND_STORE : ROUND_FAILED;
}

enum round run_prepare(struct run *r, struct err *e)
{
	const struct turns_conf *c = r->conf;

	if (reply_catch_up(r->job, e) ||
	    turn_mark_running(c->store, &r->job->tenant, &r->job->turn, clock_wall_ms(), e) ||
	    session_get(c->store, &r->job->tenant, &r->job->session, &r->session, e) ||
	    read_attached(r, e))
		return e->code == STORE_UNAVAILABLE ? ROUND_STORE : ROUND_FAILED;
	/* Also in sessions that were opened before the operator wanted it. */
	if (c->roster && roster_approvals(c->roster, &r->job->tenant) == TENANT_ASK)
		(void)snprintf(r->session.approvals, sizeof(r->session.approvals), "ask");
	return await_repository(r, e);
}
