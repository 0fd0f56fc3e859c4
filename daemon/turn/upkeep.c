/*
 * What happens without anybody asking: requests expire, and the store is asked for
 * unfinished turns that nobody works on, wherever it was not known what it committed.
 */
#include "common/clock.h"
#include "common/log.h"
#include "daemon/harness/harness.h"
#include "daemon/turn/harness.h"
#include "daemon/turn/queue.h"
#include "daemon/turn/reply.h"

#include <stdlib.h>
#include <string.h>

#define PAUSE_MS   1000  /* before another try */
#define SWEEP_MS   5000  /* between two looks while there is doubt */
#define LONGEST_MS 60000 /* the wall clock may be set meanwhile */
#define REQUESTS   100000
#define SETTLE_MS  3000 /* without another turn's end */

/* -- what nobody works on ---------------------------------------------------------------- */

struct sweep {
	struct turns *turns;
	const struct uuid *tenant;
	struct err *e;
	int rc;
};

static bool is_known(struct turns *ts, const struct uuid *tenant, const struct uuid *turn)
{
	bool known;

	pthread_mutex_lock(&ts->lock);
	known = job_find(ts, tenant, turn) != NULL;
	pthread_mutex_unlock(&ts->lock);
	return known;
}

/*
 * What the store said may be old by now, which does no harm: the job of a turn that has
 * ended or waits finds that out and goes.
 */
static void take_up(void *ctx, const struct turn *t)
{
	struct sweep *s = ctx;
	struct turns *ts = s->turns;
	struct job *job;

	if (s->rc || is_known(ts, s->tenant, &t->id) ||
	    (t->state == TURN_WAITING && !t->cancel_requested))
		return;
	job = job_new(ts, s->tenant, &t->id, &t->session, s->e);
	if (!job) {
		s->rc = -1;
		return;
	}
	job->resumed = t->started_ms != 0;
	job->bytes = job->resumed ? 0 : strlen(t->input) + t->attachment_bytes;
	if (t->cancel_requested)
		cancel_fire(&job->cancel); /* its thread does nothing but end it */
	pthread_mutex_lock(&ts->lock);
	if (job_find(ts, s->tenant, &t->id)) {
		job_unref(job);
	} else {
		job_add(job);
		job_queue(job);
	}
	pthread_mutex_unlock(&ts->lock);
}

static void take_up_request(void *ctx, const struct request *q)
{
	struct sweep *s = ctx;
	bool lost = harness_asked(q) && !harness_has_run(s->turns->harnesses, &q->turn);
	struct err e = ERR_INIT;
	struct waiter *w;
	struct lane *l;

	pthread_mutex_lock(&s->turns->lock);
	l = lane_of(s->turns, s->tenant);
	/* Counted, but never refused: it waits already. */
	if (l && !job_find(s->turns, s->tenant, &q->turn) && waiter_add(s->turns, l, q, &e))
		log_warn("tenant %s: %s", s->tenant->text, e.text);
	w = l && lost ? waiter_find(l, &q->turn) : NULL;
	if (w)
		w->stirred = true;
	pthread_mutex_unlock(&s->turns->lock);
}

int upkeep_sweep(struct turns *ts, const struct uuid *tenant, struct err *e)
{
	struct sweep s = { ts, tenant, e, 0 };
	struct request_page page = { NULL, REQUESTS };
	struct err why = ERR_INIT;

	if (turn_each_unfinished(ts->conf.store, tenant, take_up, &s, e) || s.rc ||
	    request_list(ts->conf.store, tenant, &page, take_up_request, &s, e))
		return e->code == STORE_NOT_FOUND ? 0 : -1; /* purged: nothing is left to do */
	if (store_settle(ts->conf.store, tenant, &why))
		log_warn("tenant %s: %s", tenant->text, why.text);
	return 0;
}

/* -- requests that expire ------------------------------------------------------------------ */

static int expire(struct job *job, const struct waiter *w, struct err *e)
{
	struct request q;
	int rc;

	if (request_get(job->turns->conf.store, &job->tenant, &w->request, &q, e))
		return -1;
	job->session = q.session;
	rc = w->stirred ? reply_withdraw(job, &q, e) : reply_commit(job, &q, NULL, e);
	request_release(&q);
	return rc;
}

/* w is a copy. */
static void expire_waiter(struct turns *ts, const struct uuid *tenant, const struct waiter *w)
{
	static const struct uuid unknown = { "" };
	struct err e = ERR_INIT;
	struct job *job = job_new(ts, tenant, &w->turn, &unknown, &e);
	bool ours;
	int rc;

	if (!job)
		return;
	pthread_mutex_lock(&ts->lock);
	ours = !job_find(ts, tenant, &w->turn);
	if (ours)
		job_add(job);
	else
		job_unref(job);
	pthread_mutex_unlock(&ts->lock);
	if (!ours)
		return;
	job->resumed = true;
	rc = expire(job, w, &e);
	if (rc)
		log_warn("request %s: %s", w->request.text, e.text);
	if (rc == 0 || e.code != STORE_UNAVAILABLE)
		turns_end_wait(job); /* answered, withdrawn or expired: not ours any more */
	pthread_mutex_lock(&ts->lock);
	if (rc == 0) {
		job_queue(job);
	} else {
		turns_doubt(ts, job->lane);
		job_remove(job);
	}
	pthread_mutex_unlock(&ts->lock);
}

/* -- marks ------------------------------------------------------------------------------------ */

/*
 * A mark that is there too long is harmless, and setting and taking it is two commits: so a
 * tenant whose turns follow one another keeps it.
 */
void upkeep_settle_later(struct turns *ts, struct lane *l)
{
	pthread_mutex_lock(&ts->lock);
	if (!l->settle_ms)
		pthread_cond_signal(&ts->upkeep_due);
	l->settle_ms = clock_mono_ms() + SETTLE_MS;
	pthread_mutex_unlock(&ts->lock);
}

/* Called without the lock; what goes wrong is made good after the next turn. */
static void settle(struct turns *ts, const struct uuid *tenant)
{
	struct err e = ERR_INIT;

	if (store_settle(ts->conf.store, tenant, &e) && e.code != STORE_NOT_FOUND)
		log_warn("tenant %s: %s (the mark is cleared later)", tenant->text, e.text);
}

/* -- the thread ----------------------------------------------------------------------------- */

/* What is to be done now, and when there is more to do. */
struct due {
	struct lane *sweep;
	struct lane *settle;
	struct lane *lane; /* of the waiter */
	struct waiter waiter;
	uint64_t wait_ms;
};

static void look_at(struct lane *l, uint64_t mono, uint64_t wall, struct due *due)
{
	if (l->doubt_until && l->doubt_next <= mono)
		due->sweep = l;
	else if (l->doubt_until && l->doubt_next - mono < due->wait_ms)
		due->wait_ms = l->doubt_next - mono;
	if (l->settle_ms && l->settle_ms <= mono)
		due->settle = l;
	else if (l->settle_ms && l->settle_ms - mono < due->wait_ms)
		due->wait_ms = l->settle_ms - mono;
	for (struct waiter *w = l->waiters; w; w = w->next) {
		if (!w->expires_ms && !w->stirred)
			continue;
		if ((w->stirred || w->expires_ms <= wall) && w->retry_ms <= mono) {
			due->lane = l;
			due->waiter = *w;
			w->retry_ms = mono + PAUSE_MS;
		} else {
			bool later = !w->stirred && w->expires_ms > wall;
			uint64_t left = later ? w->expires_ms - wall : PAUSE_MS;

			due->wait_ms = left < due->wait_ms ? left : due->wait_ms;
		}
	}
}

static struct due find_due(struct turns *ts)
{
	uint64_t mono = clock_mono_ms(), wall = clock_wall_ms();
	struct due due = { .wait_ms = ts->start_failed ? PAUSE_MS : LONGEST_MS };

	for (size_t i = 0; i < LANES; i++)
		for (struct lane *l = ts->lanes[i]; l && !due.sweep && !due.lane && !due.settle;
		     l = l->chain)
			look_at(l, mono, wall, &due);
	return due;
}

static void sweep_lane(struct turns *ts, struct lane *l)
{
	const struct uuid tenant = l->tenant;
	struct err e = ERR_INIT;
	uint64_t now;
	int rc;

	rc = upkeep_sweep(ts, &tenant, &e);
	if (rc)
		log_warn("tenant %s: %s; asking again", tenant.text, e.text);
	now = clock_mono_ms();
	pthread_mutex_lock(&ts->lock);
	l->doubt_next = now + (rc ? PAUSE_MS : SWEEP_MS);
	if (rc == 0 && l->doubt_next > l->doubt_until)
		l->doubt_until = 0;
	pthread_mutex_unlock(&ts->lock);
}

static void *upkeep_main(void *arg)
{
	struct turns *ts = arg;
	struct timespec until;
	struct due due;

	pthread_mutex_lock(&ts->lock);
	while (!ts->closing) {
		due = find_due(ts);
		if (due.sweep || due.lane || due.settle) {
			if (due.settle)
				due.settle->settle_ms = 0;
			pthread_mutex_unlock(&ts->lock);
			if (due.settle)
				settle(ts, &due.settle->tenant);
			if (due.lane)
				expire_waiter(ts, &due.lane->tenant, &due.waiter);
			if (due.sweep)
				sweep_lane(ts, due.sweep);
			pthread_mutex_lock(&ts->lock);
			continue;
		}
		until = turns_time(clock_mono_ms() + due.wait_ms);
		(void)pthread_cond_timedwait(&ts->upkeep_due, &ts->lock, &until);
		if (ts->start_failed && !ts->closing) {
			ts->start_failed = false;
			turns_schedule(ts);
		}
	}
	pthread_mutex_unlock(&ts->lock);
	return NULL;
}

int upkeep_start(struct turns *ts, struct err *e)
{
	int failed = pthread_create(&ts->upkeep, NULL, upkeep_main, ts);

	if (failed)
		return err_set(e, failed, "cannot start the thread that looks after turns");
	ts->upkeep_runs = true;
	return 0;
}

void upkeep_stop(struct turns *ts)
{
	pthread_mutex_lock(&ts->lock);
	pthread_cond_signal(&ts->upkeep_due);
	pthread_mutex_unlock(&ts->lock);
	if (ts->upkeep_runs)
		pthread_join(ts->upkeep, NULL);
}
