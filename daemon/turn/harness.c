/*
 * The engine of sessions that are driven by the tenant's own program.  It is given the turn
 * once, whatever happens: one that was begun and whose run is gone, with a daemon that died
 * or with its process, fails and says so.
 */
#include "daemon/turn/harness.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/json.h"
#include "common/log.h"
#include "daemon/turn/harness_run.h"
#include "daemon/turn/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define START_MS  30000 /* from submit to "start" */
#define CANCEL_MS 700   /* for the result of a cancelled run to be part of the turn */
#define ARGS_MAX  64

/* -- beginning -------------------------------------------------------------------------- */

/* Whether nobody wants to be asked, whatever was so when the session was opened. */
static bool is_unbound(const struct run *r)
{
	return strcmp(r->session.approvals, "sandbox") == 0 && !r->session.planning &&
	       (!r->conf->roster ||
	        roster_approvals(r->conf->roster, &r->job->tenant) == TENANT_SANDBOX);
}

static enum round prepare(struct run *r, struct err *e)
{
	void *run = NULL;
	struct resident *resident;

	if (!is_unbound(r)) {
		(void)err_set(e, HARNESS_UNAVAILABLE,
		              "the operator wants calls to be asked about, and what a harness does "
		              "is not asked about");
		return ROUND_FAILED;
	}
	if (!r->job->resumed)
		return ROUND_AGAIN;
	resident = harness_resume(r->job->turns->harnesses, &r->job->turn, &run);
	if (!resident) {
		(void)err_set(e, HARNESS_INTERRUPTED,
		              "the harness's run was lost when the daemon or the sandbox ended; it "
		              "is not run again");
		return ROUND_FAILED;
	}
	r->harness = run;
	r->harness->resident = resident;
	r->harness->fate = FATE_WIND;
	return ROUND_AGAIN;
}

/* The session's command as arguments that live as long as *ret_doc. */
static int read_command(const struct session *s, struct json **ret_doc,
                        const char *argv[ARGS_MAX + 1], struct err *e)
{
	if (json_parse(s->harness, strlen(s->harness), ret_doc, e))
		return err_wrap(e, "command of session %s", s->id.text);
	for (size_t i = 0; i < ARGS_MAX; i++)
		argv[i] = json_str(json_at(*ret_doc, i));
	argv[ARGS_MAX] = NULL;
	return 0;
}

static void tell_started(const struct run *r)
{
	struct resident *resident = r->harness->resident;
	struct json *data = json_new_object();

	json_put_int(data, "pid", process_pid(harness_process(resident)));
	run_publish(r, "harness.started", data);
}

/* What is not about the sandbox as a whole is about the command. */
static int not_taken(struct err *e)
{
	if (e->code == SANDBOX_LOST || (e->code > SANDBOX_NO_ROOM && e->code <= SANDBOX_IO))
		e->code = HARNESS_UNAVAILABLE;
	return -1;
}

static int take(struct run *r, struct err *e)
{
	const char *argv[ARGS_MAX + 1];
	const struct harness_place place = { &r->job->tenant, &r->job->session, r->session.cwd,
		                             argv };
	auto_json struct json *doc = NULL;
	struct harness_run *h = r->harness;

	if (read_command(&r->session, &doc, argv, e) ||
	    harness_take(r->job->turns->harnesses, &place, &r->job->cancel, &h->resident, e))
		return not_taken(e);
	h->fate = FATE_DROP;
	if (harness_is_new(h->resident))
		tell_started(r);
	return 0;
}

static int submit(struct run *r, struct err *e)
{
	const struct item *input = r->transcript.list.items;
	auto_buf struct buf line = BUF_INIT(7 * input->body_len + 1000);
	struct harness_run *h = r->harness;
	struct process *p = harness_process(h->resident);

	message_put_submit(&line, r->job->turn.text, input->body,
	                   process_takes_op_ids(p) ? h->submit_id : NULL);
	h->deadline = clock_mono_ms() + START_MS;
	h->fate = FATE_WIND;
	return process_send(p, &line, e);
}

static enum round begin(struct run *r, struct err *e)
{
	enum round round = run_read(r, e);

	if (round == ROUND_AGAIN)
		round = run_place(r, e);
	if (round != ROUND_AGAIN)
		return round;
	r->harness = harness_run_new(r->conf->max_turn_bytes);
	if (!r->harness) {
		(void)err_set(e, ENOMEM, "no memory for a harness's run");
		return ROUND_FAILED;
	}
	r->harness->next = (uint32_t)r->transcript.list.count;
	if (take(r, e) || submit(r, e)) {
		/* No other round may take it for one that has begun. */
		if (!r->harness->resident) {
			harness_run_free(r->harness);
			r->harness = NULL;
		}
		return ROUND_FAILED;
	}
	transcript_forget(&r->transcript);
	return ROUND_AGAIN;
}

/* -- going on --------------------------------------------------------------------------- */

/* It ended in the middle of the turn: what it had said is kept, and the turn fails. */
static enum round ended(struct run *r, struct err *e)
{
	r->harness->fate = FATE_DROP;
	harness_save(r);
	(void)process_why(harness_process(r->harness->resident), e);
	return ROUND_FAILED;
}

static enum round not_begun(struct run *r, struct err *e)
{
	r->harness->fate = FATE_DROP;
	(void)err_set(e, HARNESS_REFUSED, "the harness did not begin the turn within %d s",
	              START_MS / 1000);
	return ROUND_FAILED;
}

/* What it had said is kept; what it does instead of speaking is ended with it. */
static enum round silent(struct run *r, struct err *e)
{
	r->harness->fate = FATE_DROP;
	harness_save(r);
	(void)err_set(e, HARNESS_SILENT,
	              "the harness said nothing for %u s (--harness-silence-seconds)",
	              r->conf->harness_silence_ms / 1000);
	return ROUND_FAILED;
}

static void await_line(struct run *r)
{
	if (r->harness->started)
		r->harness->deadline = clock_mono_ms() + r->conf->harness_silence_ms;
}

static int send_cancel(const struct run *r, struct harness_run *h)
{
	auto_buf struct buf line = BUF_INIT(500);
	struct process *p = harness_process(h->resident);
	char op_id[HARNESS_OP_ID_LEN + 1];
	struct err e = ERR_INIT;

	h->told = true;
	message_op_id(op_id);
	message_put_cancel(&line, r->job->turn.text, process_takes_op_ids(p) ? op_id : NULL);
	return process_send(p, &line, &e);
}

static void take_result(struct run *r, const struct message *m)
{
	struct harness_run *h = r->harness;

	if (json_get(m->doc, "usage"))
		h->usage = outcome_usage(json_get(m->doc, "usage"));
	harness_give(r->job->turns->harnesses, h->resident);
	h->resident = NULL;
	h->fate = FATE_NONE;
}

/* Whether the line that was read is the result of our run. */
static bool is_result(struct run *r, struct message *m)
{
	const struct buf *line = process_line(harness_process(r->harness->resident));

	message_read(line->data ? line->data : "", line->len, m);
	return m->type == MESSAGE_RESULT && m->run_id && strcmp(m->run_id, r->job->turn.text) == 0;
}

/*
 * The turn is cancelled whatever the harness does; it is given a moment to say what it has
 * used, and then the keeper of harnesses waits for it.
 */
static enum round cancelled(struct run *r, struct err *e)
{
	uint64_t deadline = clock_mono_ms() + CANCEL_MS;
	struct harness_run *h = r->harness;

	if (job_abandoned(r->job))
		return ROUND_FAILED;
	if (send_cancel(r, h))
		h->fate = FATE_DROP;
	while (h->fate == FATE_WIND && clock_left_ms(deadline)) {
		enum process_event event =
			process_next(harness_process(h->resident), NULL, deadline);
		auto_message struct message m = { .doc = NULL };

		if (event == PROCESS_ENDED)
			h->fate = FATE_DROP;
		else if (event == PROCESS_LINE && is_result(r, &m))
			take_result(r, &m);
	}
	harness_save(r);
	return err_set(e, SANDBOX_CANCELLED, "cancelled"), ROUND_FAILED;
}

/* Many lines are no reason to let one go on that does not begin. */
static enum process_event hear(const struct run *r)
{
	const struct harness_run *h = r->harness;

	return clock_left_ms(h->deadline) || cancel_fired(&r->job->cancel)
	               ? process_next(harness_process(h->resident), &r->job->cancel, h->deadline)
	               : PROCESS_TIMEOUT;
}

static enum round next(struct run *r, struct err *e)
{
	enum round round;

	switch (hear(r)) {
	case PROCESS_LINE:
		round = harness_line(r, e);
		await_line(r);
		return round;
	case PROCESS_TOO_LONG:
		await_line(r);
		return harness_tell_skipped(r, e) ? ROUND_FAILED : ROUND_AGAIN;
	case PROCESS_TIMEOUT:
		return r->harness->started ? silent(r, e) : not_begun(r, e);
	case PROCESS_CANCELLED:
		return cancelled(r, e);
	case PROCESS_ENDED:
		break;
	}
	return ended(r, e);
}

static enum round do_round(struct run *r, struct err *e)
{
	enum round round;

	if (!r->harness)
		return begin(r, e);
	if (r->harness->asking.seq) {
		await_line(r); /* it was the person who was waited for */
		return harness_answered(r, e);
	}
	do
		round = next(r, e);
	while (round == ROUND_AGAIN);
	return round;
}

/* -- letting go --------------------------------------------------------------------------- */

static void release(struct run *r)
{
	struct harnesses *hs = r->job->turns->harnesses;
	struct harness_run *h = r->harness;

	transcript_forget(&r->transcript);
	if (!h)
		return;
	r->harness = NULL;
	if (h->resident && h->fate == FATE_PARK) {
		const struct harness_parking parking = { r->job->turn, h, harness_run_free };

		harness_park(hs, h->resident, &parking);
		return;
	}
	if (h->resident && h->fate == FATE_WIND && (h->told || send_cancel(r, h) == 0))
		harness_wind(hs, h->resident, r->job->turn.text);
	else if (h->resident)
		harness_drop(hs, h->resident);
	harness_run_free(h);
}

const struct engine engine_harness = { prepare, do_round, release };

/* -- runs that do not wait any more --------------------------------------------------------- */

bool harness_asked(const struct request *q)
{
	return strncmp(q->kind, "harness_", 8) == 0;
}

void harness_stirred(void *ctx, const struct uuid *tenant, const struct uuid *turn)
{
	struct turns *ts = ctx;
	struct waiter *w;
	struct lane *l;

	pthread_mutex_lock(&ts->lock);
	l = lane_of(ts, tenant);
	w = l ? waiter_find(l, turn) : NULL;
	if (w) {
		w->stirred = true;
		pthread_cond_signal(&ts->upkeep_due);
	}
	pthread_mutex_unlock(&ts->lock);
}
