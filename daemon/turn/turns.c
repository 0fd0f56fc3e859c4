#include "daemon/turn/turns.h"

#include "common/clock.h"
#include "common/json.h"
#include "common/log.h"
#include "daemon/harness/harness.h"
#include "daemon/store/patience.h"
#include "daemon/turn/harness.h"
#include "daemon/turn/queue.h"
#include "daemon/turn/reply.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HOLD_MS 2000 /* how long an answer waits for the thread that asked to be gone */

/* -- start: what an earlier daemon left ---------------------------------------------- */

struct sweep {
	struct turns *turns;
	struct err e;
};

static void sweep_tenant(void *ctx, const struct uuid *tenant)
{
	struct sweep *s = ctx;
	struct lane *l;

	if (upkeep_sweep(s->turns, tenant, &s->e) == 0)
		return;
	log_error("unfinished turns of tenant %s are taken up later: %s", tenant->text, s->e.text);
	pthread_mutex_lock(&s->turns->lock);
	l = lane_of(s->turns, tenant);
	if (l)
		turns_doubt(s->turns, l);
	pthread_mutex_unlock(&s->turns->lock);
}

static struct turns *turns_new(const struct turns_conf *conf)
{
	struct turns *ts = calloc(1, sizeof(*ts));
	pthread_condattr_t attr;

	if (!ts)
		return NULL;
	ts->conf = *conf;
	pthread_mutex_init(&ts->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&ts->changed, &attr);
	pthread_cond_init(&ts->upkeep_due, &attr);
	pthread_condattr_destroy(&attr);
	return ts;
}

/* None of them is asked for twice: the list comes whole or not at all. */
static int sweep_all(struct sweep *sweep, struct err *e)
{
	const struct turns_conf *conf = &sweep->turns->conf;
	struct patience patience = patience_begin(conf->end ? conf->end->fd : -1);

	while (store_each_unfinished(conf->store, sweep_tenant, sweep, e))
		if (patience_wait(&patience, e))
			return -1;
	return 0;
}

int turns_start(const struct turns_conf *conf, struct turns **ret, struct err *e)
{
	struct sweep sweep = { .turns = turns_new(conf) };
	struct harnesses_conf harnesses = { .sandboxes = conf->sandboxes,
		                            .stirred = harness_stirred };

	if (!sweep.turns)
		return err_set(e, ENOMEM, "no memory for the scheduler");
	harnesses.ctx = sweep.turns;
	if (harnesses_start(&harnesses, &sweep.turns->harnesses, e) || sweep_all(&sweep, e) ||
	    upkeep_start(sweep.turns, e)) {
		turns_stop(&sweep.turns);
		return err_wrap(e, "taking up unfinished turns");
	}
	*ret = sweep.turns;
	return 0;
}

/* -- submit -------------------------------------------------------------------- */

static int check_limits(const struct job *job, struct err *e)
{
	const struct turns *ts = job->turns;
	const struct turns_conf *conf = &ts->conf;
	const struct lane *l = job->lane;

	if (ts->draining)
		return err_set(e, TURNS_STOPPING,
		               "the server takes no more work until its next start");
	if (l->queued >= conf->max_queued_tenant)
		return err_set(e, TURNS_TENANT_QUEUE_FULL,
		               "the tenant has %u queued turns, the limit", l->queued);
	if (l->bytes + job->bytes > conf->max_queued_bytes_tenant)
		return err_set(e, TURNS_TENANT_QUEUE_FULL,
		               "the tenant has %zu bytes of queued input, %zu more are too many",
		               l->bytes, job->bytes);
	if (ts->queued >= conf->max_queued)
		return err_set(e, TURNS_QUEUE_FULL, "%u turns are queued, the limit", ts->queued);
	if (ts->bytes + job->bytes > conf->max_queued_bytes)
		return err_set(e, TURNS_QUEUE_FULL,
		               "%zu bytes of input are queued, %zu more are "
		               "too many",
		               ts->bytes, job->bytes);
	return 0;
}

/* Counted as queued before it is stored, so that limits hold and nothing is undone. */
static int admit(struct job *job, struct err *e)
{
	struct turns *ts = job->turns;
	int rc;

	pthread_mutex_lock(&ts->lock);
	rc = check_limits(job, e);
	if (rc == 0) {
		job_add(job);
		job_count(job);
	} else {
		job_unref(job);
	}
	pthread_mutex_unlock(&ts->lock);
	return rc;
}

/* What was committed is queued; when nobody knows what was, the store is asked later. */
static void release(struct job *job, bool queue, const struct err *e)
{
	struct turns *ts = job->turns;

	pthread_mutex_lock(&ts->lock);
	if (queue) {
		job_queue(job);
	} else {
		if (e && e->code == STORE_UNAVAILABLE)
			turns_doubt(ts, job->lane);
		job_remove(job);
	}
	pthread_mutex_unlock(&ts->lock);
}

/* What was accepted before is no new work: there is room for its answer in every queue. */
static int find_known(struct turns *ts, const struct uuid *tenant, struct turn *t, struct err *e)
{
	struct err why = ERR_INIT;

	if (!t->client_request.text[0])
		return -1;
	if (turn_find(ts->conf.store, tenant, t, &why) == 0)
		return 0;
	if (why.code == STORE_KEY_REUSED)
		*e = why;
	return -1;
}

int turns_submit(struct turns *ts, const struct uuid *tenant, struct turn *t, struct err *e)
{
	bool existing = false;
	struct job *job;
	int rc;

	t->id = uuid_new();
	t->state = TURN_QUEUED;
	t->created_ms = clock_wall_ms();
	job = job_new(ts, tenant, &t->id, &t->session, e);
	if (!job)
		return -1;
	job->bytes = strlen(t->input) + t->attachment_bytes;
	if (admit(job, e))
		return find_known(ts, tenant, t, e);
	rc = turn_insert(ts->conf.store, tenant, t, &existing, e);
	if (rc == 0 && !existing)
		job_publish(job, "turn.queued", NULL);
	release(job, rc == 0 && !existing, rc ? e : NULL);
	return rc;
}

/* -- answer -------------------------------------------------------------------- */

static int check_decision(const struct request *q, const struct answer *a, struct err *e)
{
	auto_json struct json *options = NULL;

	if (json_parse(q->options, strlen(q->options), &options, e))
		return err_wrap(e, "options of request %s", q->id.text);
	if (strcmp(a->decision, "custom") == 0 && !a->value)
		return err_set(e, TURNS_BAD_DECISION, "decision \"custom\" needs a value");
	for (size_t i = 0; i < json_len(options); i++)
		if (strcmp(json_str(json_at(options, i)), a->decision) == 0)
			return 0;
	return err_set(e, TURNS_BAD_DECISION, "decision is not one of the request's options");
}

static int not_open(struct err *e)
{
	return err_set(e, STORE_CONFLICT, "the request is not open any more");
}

/*
 * The turn of an open request has a job as long as the thread that asked is on its way
 * out, or while somebody else answers or cancels.
 */
static bool hold(struct job *job)
{
	struct turns *ts = job->turns;
	struct timespec until = turns_time(clock_mono_ms() + HOLD_MS);
	bool free_now = false;
	int rc = 0;

	pthread_mutex_lock(&ts->lock);
	for (;;) {
		free_now = !job_find(ts, &job->tenant, &job->turn);
		if (free_now || rc || ts->closing || !waiter_find(job->lane, &job->turn))
			break;
		rc = pthread_cond_timedwait(&ts->changed, &ts->lock, &until);
	}
	if (free_now)
		job_add(job);
	else
		job_unref(job);
	pthread_mutex_unlock(&ts->lock);
	return free_now;
}

static int answer_open(struct turns *ts, const struct uuid *tenant, const struct request *q,
                       const struct answer *a, struct err *e)
{
	struct job *job = job_new(ts, tenant, &q->turn, &q->session, e);
	struct request again;
	int rc;

	if (!job)
		return -1;
	if (!hold(job)) {
		if (request_get(ts->conf.store, tenant, &q->id, &again, e))
			return -1;
		rc = again.state;
		request_release(&again);
		return rc != REQUEST_OPEN
		               ? not_open(e)
		               : err_set(e, STORE_UNAVAILABLE,
		                         "somebody else works on the request's turn; try again");
	}
	job->resumed = true;
	rc = reply_commit(job, q, a, e);
	release(job, rc == 0, rc ? e : NULL);
	return rc;
}

int turns_answer(struct turns *ts, const struct uuid *tenant, const struct uuid *request,
                 const struct answer *answer, struct request *ret, struct err *e)
{
	struct request q;
	int rc;

	if (request_get(ts->conf.store, tenant, request, &q, e))
		return -1;
	if (q.state != REQUEST_OPEN)
		rc = not_open(e);
	else if (q.expires_ms && q.expires_ms <= clock_wall_ms())
		rc = err_set(e, STORE_CONFLICT, "the request has expired");
	else
		rc = check_decision(&q, answer, e);
	if (rc == 0)
		rc = answer_open(ts, tenant, &q, answer, e);
	request_release(&q);
	return rc ? -1 : request_get(ts->conf.store, tenant, request, ret, e);
}

/* -- how many ------------------------------------------------------------------ */

void turns_count(struct turns *ts, const struct uuid *tenant, struct turns_census *ret)
{
	size_t first = tenant ? uuid_hash(tenant) % LANES : 0;

	*ret = (struct turns_census){ 0 };
	pthread_mutex_lock(&ts->lock);
	for (size_t i = first; i < (tenant ? first + 1 : LANES); i++) {
		for (const struct lane *l = ts->lanes[i]; l; l = l->chain) {
			if (tenant && !uuid_equal(&l->tenant, tenant))
				continue;
			ret->running += l->running;
			ret->queued += l->queued;
			ret->waiting += l->waiting;
		}
	}
	pthread_mutex_unlock(&ts->lock);
}

/* -- stop -------------------------------------------------------------------- */

bool turns_drain(struct turns *ts, unsigned int seconds)
{
	struct timespec until = turns_time(clock_mono_ms() + (uint64_t)seconds * 1000);
	bool idle;

	pthread_mutex_lock(&ts->lock);
	ts->draining = true;
	while (ts->running && pthread_cond_timedwait(&ts->changed, &ts->lock, &until) == 0)
		;
	idle = ts->running == 0;
	pthread_mutex_unlock(&ts->lock);
	return idle;
}

static void free_lane(struct lane *l)
{
	while (l->first) {
		struct job *job = l->first;

		job_unqueue(job);
		job_remove(job);
	}
	while (l->waiters) {
		struct waiter *w = l->waiters;

		l->waiters = w->next;
		free(w);
	}
	free(l);
}

static void free_lanes(struct turns *ts)
{
	for (size_t i = 0; i < LANES; i++) {
		while (ts->lanes[i]) {
			struct lane *l = ts->lanes[i];

			ts->lanes[i] = l->chain;
			free_lane(l);
		}
	}
}

void turns_forget_session(struct turns *ts, const struct uuid *session)
{
	harness_forget_session(ts->harnesses, session);
}

void turns_stop(struct turns **tsp)
{
	struct turns *ts = *tsp;

	pthread_mutex_lock(&ts->lock);
	ts->draining = ts->closing = true;
	for (struct job *job = ts->running_first; job; job = job->next) {
		atomic_store(&job->abandon, true);
		cancel_fire(&job->cancel);
	}
	pthread_cond_broadcast(&ts->changed);
	pthread_mutex_unlock(&ts->lock);
	upkeep_stop(ts);
	pthread_mutex_lock(&ts->lock);
	while (ts->running || ts->cancels)
		pthread_cond_wait(&ts->changed, &ts->lock);
	pthread_mutex_unlock(&ts->lock);
	harnesses_stop(&ts->harnesses); /* one may be stirred, which takes the lock */
	pthread_mutex_lock(&ts->lock);
	free_lanes(ts);
	pthread_mutex_unlock(&ts->lock);
	pthread_cond_destroy(&ts->changed);
	pthread_cond_destroy(&ts->upkeep_due);
	pthread_mutex_destroy(&ts->lock);
	free(ts);
	*tsp = NULL;
}
