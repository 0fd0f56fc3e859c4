/*
 * The end of a turn: committed, whatever the store does meanwhile, and reported once.
 */
#include "common/clock.h"
#include "common/json.h"
#include "common/log.h"
#include "daemon/harness/harness.h"
#include "daemon/metrics/metrics.h"
#include "daemon/turn/queue.h"
#include "daemon/turn/run.h"
#include "daemon/turn/tell.h"

#include <poll.h>
#include <string.h>

#define RETRY_MAX_MS 2000

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

void run_publish(const struct run *r, const char *type, struct json *data)
{
	job_publish(r->job, type, data);
}

/* -- waiting for the store ------------------------------------------------------------ */

bool job_abandoned(const struct job *job)
{
	return atomic_load(&job->abandon) || turns_orphaned(job->turns);
}

bool run_wait_retry(struct job *job, unsigned int *ms)
{
	struct pollfd p = { .fd = job->cancel.fd, .events = POLLIN };

	(void)poll(&p, 1, (int)*ms);
	*ms = *ms * 2 > RETRY_MAX_MS ? RETRY_MAX_MS : *ms * 2;
	return !cancel_fired(&job->cancel);
}

/* As wait_retry, but a cancelled turn still wants its end committed. */
bool run_wait_commit(struct job *job, unsigned int *ms)
{
	if (cancel_fired(&job->cancel))
		(void)poll(NULL, 0, (int)*ms);
	else
		(void)run_wait_retry(job, ms);
	return !job_abandoned(job);
}

static void report_end(struct job *job, const struct turn_end *end)
{
	turns_end_wait(job);
	harness_forget_turn(job->turns->harnesses, &job->turn);
	if (!atomic_exchange(&job->reported, true)) {
		metric_count(METRIC_TURNS, end->state == TURN_COMPLETED ? METRIC_COMPLETED
		                           : end->state == TURN_FAILED  ? METRIC_FAILED
		                                                        : METRIC_CANCELLED);
		job_publish(job, tell_end_type(end->state), tell_end(end->error_code, end->error));
	}
	upkeep_settle_later(job->turns, job->lane);
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
	unsigned int ms = RUN_RETRY_MS;
	struct err e = ERR_INIT;
	bool unsure = false;
	int rc;

	for (;;) {
		end->now_ms = clock_wall_ms();
		rc = turn_finish(store, &job->tenant, &job->turn, end, &e);
		if (rc == 0 || e.code != STORE_UNAVAILABLE)
			break;
		unsure = true;
		if (once || !run_wait_commit(job, &ms))
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
	{ TURNS_TOO_MANY_STEPS, "turn_step_limit", NULL },
	{ TURNS_LOOP, "loop_detected", NULL },
	{ TURNS_NOT_ATTACHED, "attachment_not_written", NULL },
	{ MODEL_CONTEXT, "context_overflow", NULL },
	{ SETUPS_FAILED, "setup_failed", NULL },
	{ MODEL_FAILED, "model_failed", NULL },
	{ HARNESS_UNAVAILABLE, "harness_unavailable", NULL },
	{ HARNESS_ENDED, "harness_ended", NULL },
	{ HARNESS_LIMIT, "harness_limit", NULL },
	{ HARNESS_REFUSED, "harness_refused", NULL },
	{ HARNESS_SILENT, "harness_silent", NULL },
	{ HARNESS_INTERRUPTED, "harness_interrupted", NULL },
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
	unsigned int ms = RUN_RETRY_MS;
	struct err e = ERR_INIT;
	enum turn_state state;
	struct turn t;

	while (turn_get(r->conf->store, &r->job->tenant, &r->job->turn, &t, &e))
		if (e.code != STORE_UNAVAILABLE || !run_wait_commit(r->job, &ms))
			return e.code == STORE_NOT_FOUND;
	state = t.state;
	turn_release(&t);
	return turn_state_terminal(state) || state == TURN_WAITING;
}

void run_fail(struct run *r, const struct err *e)
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
