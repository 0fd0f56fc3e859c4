#include "daemon/turn/turns.h"

#include "common/clock.h"
#include "common/json.h"
#include "common/log.h"
#include "daemon/turn/job.h"
#include "daemon/turn/tools.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LANES       1024
#define TURN_STACK  ((size_t)512 * 1024)
#define CANCEL_WAIT 2500 /* ms */

/* A tenant's queue and its count of running turns. */
struct lane {
	struct lane *chain; /* in its bucket */
	struct lane *next;  /* in the ring of lanes with queued jobs */
	struct uuid tenant;
	struct job *first, *last;
	unsigned int queued; /* those in the list, and those being stored */
	unsigned int running;
	bool ringed;
};

struct turns {
	struct turns_conf conf;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* a job ended */
	struct lane *buckets[LANES];
	struct lane *ring_first,
		*ring_last; /* lanes with queued jobs, in the order in which they may start */
	struct job *running_first;
	unsigned int queued;
	unsigned int running;
	bool stopping;
};

static struct lane *lane_of(struct turns *ts, const struct uuid *tenant)
{
	size_t i = uuid_hash(tenant) % LANES;
	struct lane *l;

	for (l = ts->buckets[i]; l; l = l->chain)
		if (uuid_equal(&l->tenant, tenant))
			return l;
	l = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	l->tenant = *tenant;
	l->chain = ts->buckets[i];
	ts->buckets[i] = l;
	return l;
}

/* -- lists; all with the lock held -------------------------------------------------- */

static void ring_add(struct turns *ts, struct lane *l)
{
	if (l->ringed || !l->first)
		return;
	l->ringed = true;
	l->next = NULL;
	if (ts->ring_last)
		ts->ring_last->next = l;
	else
		ts->ring_first = l;
	ts->ring_last = l;
}

static struct lane *ring_take(struct turns *ts)
{
	struct lane *l = ts->ring_first;

	if (!l)
		return NULL;
	ts->ring_first = l->next;
	if (!l->next)
		ts->ring_last = NULL;
	l->ringed = false;
	return l;
}

static void queue_add(struct turns *ts, struct job *job)
{
	struct lane *l = job->lane;

	job->next = NULL;
	job->prev = l->last;
	if (l->last)
		l->last->next = job;
	else
		l->first = job;
	l->last = job;
	l->queued++;
	ts->queued++;
	ring_add(ts, l);
}

static void queue_remove(struct turns *ts, struct job *job)
{
	struct lane *l = job->lane;

	if (job->prev)
		job->prev->next = job->next;
	else
		l->first = job->next;
	if (job->next)
		job->next->prev = job->prev;
	else
		l->last = job->prev;
	l->queued--;
	ts->queued--;
}

static void running_add(struct turns *ts, struct job *job)
{
	job->prev = NULL;
	job->next = ts->running_first;
	if (job->next)
		job->next->prev = job;
	ts->running_first = job;
	job->lane->running++;
	ts->running++;
}

static void running_remove(struct turns *ts, struct job *job)
{
	if (job->prev)
		job->prev->next = job->next;
	else
		ts->running_first = job->next;
	if (job->next)
		job->next->prev = job->prev;
	job->lane->running--;
	ts->running--;
}

/* -- scheduling -------------------------------------------------------------------- */

static void schedule(struct turns *ts);

static void job_free(struct job *job)
{
	cancel_release(&job->cancel);
	free(job);
}

static void *job_thread(void *arg)
{
	struct job *job = arg;
	struct turns *ts = job->turns;

	job_run(job, &ts->conf);
	pthread_mutex_lock(&ts->lock);
	running_remove(ts, job);
	schedule(ts);
	pthread_cond_broadcast(&ts->changed);
	pthread_mutex_unlock(&ts->lock);
	job_free(job);
	return NULL;
}

/* With the lock held.  A job whose thread cannot be made goes back to the head of its queue. */
static bool start_job(struct turns *ts, struct job *job)
{
	pthread_attr_t attr;
	pthread_t thread;
	int rc;

	queue_remove(ts, job);
	running_add(ts, job);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, TURN_STACK);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	rc = pthread_create(&thread, &attr, job_thread, job);
	pthread_attr_destroy(&attr);
	if (rc == 0)
		return true;
	running_remove(ts, job);
	queue_add(ts, job);
	log_error("no thread for turn %s (%d); it stays queued", job->turn.text, rc);
	return false;
}

/*
 * Start queued jobs while there are slots.  Each lane in the ring is looked at once: one
 * that is at its own limit goes to the back, so that each of N waiting tenants starts
 * once in any N consecutive starts.
 */
static void schedule(struct turns *ts)
{
	struct lane *l, *first_blocked = NULL;

	while (!ts->stopping && ts->running < ts->conf.max_running && (l = ring_take(ts))) {
		if (!l->first)
			continue;
		if (l->running >= ts->conf.max_running_tenant) {
			ring_add(ts, l);
			if (l == first_blocked)
				return;
			first_blocked = first_blocked ? first_blocked : l;
			continue;
		}
		first_blocked = NULL;
		if (!start_job(ts, l->first))
			return;
		ring_add(ts, l);
	}
}

static struct job *job_new(struct turns *ts, const struct uuid *tenant, const struct turn *t,
                           struct err *e)
{
	struct job *job = calloc(1, sizeof(*job));

	if (!job) {
		(void)err_set(e, ENOMEM, "no memory for a turn");
		return NULL;
	}
	if (cancel_init(&job->cancel, e)) {
		free(job);
		return NULL;
	}
	job->turns = ts;
	job->tenant = *tenant;
	job->turn = t->id;
	job->session = t->session;
	return job;
}

/* Takes job, also when it fails. */
static int queue_job(struct turns *ts, struct job *job, struct err *e)
{
	pthread_mutex_lock(&ts->lock);
	job->lane = lane_of(ts, &job->tenant);
	if (job->lane) {
		queue_add(ts, job);
		schedule(ts);
	}
	pthread_mutex_unlock(&ts->lock);
	if (job->lane)
		return 0;
	job_free(job);
	return err_set(e, ENOMEM, "no memory for a tenant's queue");
}

/* Queue a turn that the store has as queued. */
static int enqueue(struct turns *ts, const struct uuid *tenant, const struct turn *t, struct err *e)
{
	struct job *job = job_new(ts, tenant, t, e);

	return job ? queue_job(ts, job, e) : -1;
}

/* -- start: what an earlier daemon left ---------------------------------------------- */

struct resume {
	struct turns *turns;
	const struct uuid *tenant;
	struct err *e;
	int rc;
};

static void resume_turn(void *ctx, const struct turn *t)
{
	struct resume *r = ctx;

	if (r->rc)
		return;
	if (t->cancel_requested) {
		struct job *job = job_new(r->turns, r->tenant, t, r->e);

		r->rc = -1;
		if (!job)
			return;
		cancel_fire(&job->cancel); /* its thread does nothing but end it */
		r->rc = queue_job(r->turns, job, r->e);
	} else if (t->state != TURN_WAITING) {
		r->rc = enqueue(r->turns, r->tenant, t, r->e);
	}
}

static void resume_tenant(void *ctx, const struct uuid *tenant)
{
	struct resume *r = ctx;
	struct err settle = ERR_INIT;

	if (r->rc)
		return;
	r->tenant = tenant;
	if (turn_each_unfinished(r->turns->conf.store, tenant, resume_turn, r, r->e))
		r->rc = -1;
	else if (store_settle(r->turns->conf.store, tenant, &settle))
		log_warn("tenant %s: %s", tenant->text, settle.text);
}

int turns_start(const struct turns_conf *conf, struct turns **ret, struct err *e)
{
	struct resume r = { .e = e };
	pthread_condattr_t attr;
	struct turns *ts = calloc(1, sizeof(*ts));

	if (!ts)
		return err_set(e, ENOMEM, "no memory for the scheduler");
	ts->conf = *conf;
	pthread_mutex_init(&ts->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&ts->changed, &attr);
	pthread_condattr_destroy(&attr);
	r.turns = ts;
	if (store_each_unfinished(conf->store, resume_tenant, &r, e) || r.rc) {
		turns_stop(&ts);
		return err_wrap(e, "taking up unfinished turns");
	}
	*ret = ts;
	return 0;
}

/* -- submit -------------------------------------------------------------------- */

static int check_limits(const struct turns *ts, const struct lane *l, struct err *e)
{
	if (ts->stopping)
		return err_set(e, TURNS_STOPPING, "the server is stopping");
	if (l->queued >= ts->conf.max_queued_tenant)
		return err_set(e, TURNS_TENANT_QUEUE_FULL,
		               "the tenant has %u queued turns, the limit", l->queued);
	if (ts->queued >= ts->conf.max_queued)
		return err_set(e, TURNS_QUEUE_FULL, "%u turns are queued, the limit", ts->queued);
	return 0;
}

/* Count the turn as queued before it is stored, so that limits hold and nothing is undone. */
static int reserve(struct turns *ts, const struct uuid *tenant, struct lane **ret, struct err *e)
{
	struct lane *l;
	int rc = -1;

	pthread_mutex_lock(&ts->lock);
	l = lane_of(ts, tenant);
	if (!l) {
		(void)err_set(e, ENOMEM, "no memory for a tenant's queue");
	} else if (check_limits(ts, l, e) == 0) {
		l->queued++;
		ts->queued++;
		*ret = l;
		rc = 0;
	}
	pthread_mutex_unlock(&ts->lock);
	return rc;
}

static void unreserve(struct turns *ts, struct lane *l)
{
	pthread_mutex_lock(&ts->lock);
	l->queued--;
	ts->queued--;
	pthread_mutex_unlock(&ts->lock);
}

static int insert(struct turns *ts, const struct uuid *tenant, struct turn *t, struct err *e)
{
	bool existing = false;

	t->id = uuid_new();
	t->state = TURN_QUEUED;
	t->created_ms = clock_wall_ms();
	if (turn_insert(ts->conf.store, tenant, t, &existing, e))
		return -1;
	if (existing)
		return 0;
	turn_publish(ts->conf.bus, tenant, &t->id, &t->session, "turn.queued", NULL);
	return enqueue(ts, tenant, t, e);
}

int turns_submit(struct turns *ts, const struct uuid *tenant, struct turn *t, struct err *e)
{
	struct lane *l;
	int rc;

	if (reserve(ts, tenant, &l, e))
		return -1;
	rc = insert(ts, tenant, t, e);
	unreserve(ts, l);
	return rc;
}

/* -- cancel -------------------------------------------------------------------- */

/* With the lock held: stop every job of the turn.  Queued ones are taken out into *ret_queued. */
static bool fire_jobs(struct turns *ts, const struct uuid *tenant, const struct uuid *id,
                      struct job **ret_queued)
{
	struct lane *l = lane_of(ts, tenant);
	bool running = false;

	for (struct job *job = l ? l->first : NULL; job; job = job->next) {
		if (!uuid_equal(&job->turn, id))
			continue;
		queue_remove(ts, job);
		*ret_queued = job;
		break;
	}
	for (struct job *job = ts->running_first; job; job = job->next) {
		if (!uuid_equal(&job->turn, id))
			continue;
		cancel_fire(&job->cancel);
		running = true;
	}
	return running;
}

static bool is_running(const struct turns *ts, const struct uuid *id)
{
	for (const struct job *job = ts->running_first; job; job = job->next)
		if (uuid_equal(&job->turn, id))
			return true;
	return false;
}

static struct timespec deadline_after(unsigned int ms)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += ms / 1000;
	t.tv_nsec += (long)(ms % 1000) * 1000000;
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	return t;
}

/* Fire, and wait until no thread works on the turn. */
static struct job *stop_jobs(struct turns *ts, const struct uuid *tenant, const struct uuid *id)
{
	struct timespec until = deadline_after(CANCEL_WAIT);
	struct job *queued = NULL;

	pthread_mutex_lock(&ts->lock);
	if (fire_jobs(ts, tenant, id, &queued))
		while (is_running(ts, id) &&
		       pthread_cond_timedwait(&ts->changed, &ts->lock, &until) == 0)
			;
	pthread_mutex_unlock(&ts->lock);
	return queued;
}

/*
 * End a turn that no thread works on: queued, or waiting for a person.  When the store
 * does not answer, a thread goes on trying and the caller is told.
 */
static int end_idle(struct turns *ts, const struct uuid *tenant, const struct turn *t,
                    struct job *queued, struct err *e)
{
	struct job *job = queued ? queued : job_new(ts, tenant, t, e);
	bool busy, done;

	if (!job)
		return -1;
	pthread_mutex_lock(&ts->lock);
	busy = is_running(ts, &t->id);
	pthread_mutex_unlock(&ts->lock);
	atomic_store(&job->abandon, true); /* one try */
	done = busy || job_finish(job, &ts->conf, TURN_CANCELLED, NULL, NULL);
	atomic_store(&job->abandon, false);
	cancel_fire(&job->cancel);
	if (!done)
		return queue_job(ts, job, e);
	job_free(job);
	return 0;
}

int turns_cancel(struct turns *ts, const struct uuid *tenant, const struct uuid *id,
                 struct turn *ret, struct err *e)
{
	struct job *queued;

	if (turn_get(ts->conf.store, tenant, id, ret, e))
		return -1;
	if (turn_state_terminal(ret->state))
		return 0;
	if (turn_request_cancel(ts->conf.store, tenant, id, e) && e->code != STORE_CONFLICT) {
		turn_release(ret);
		return -1;
	}
	queued = stop_jobs(ts, tenant, id);
	if (end_idle(ts, tenant, ret, queued, e)) {
		turn_release(ret);
		return -1;
	}
	turn_release(ret);
	return turn_get(ts->conf.store, tenant, id, ret, e);
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

static int commit_answer(struct turns *ts, const struct uuid *tenant, struct request *q,
                         const struct answer *a, struct err *e)
{
	struct json *data = json_new_object();
	struct turn t = { .id = q->turn, .session = q->session };
	struct item result;
	struct request_decision decision = { a->decision, a->value, &result, clock_wall_ms() };
	int rc;

	tool_answered(q, a->decision, a->value, &result);
	rc = request_answer(ts->conf.store, tenant, &q->id, &decision, e);
	free(result.body);
	if (rc) {
		json_free(&data);
		return -1;
	}
	json_put_str(data, "requestId", q->id.text);
	turn_publish(ts->conf.bus, tenant, &q->turn, &q->session, "request.resolved", data);
	return enqueue(ts, tenant, &t, e);
}

int turns_answer(struct turns *ts, const struct uuid *tenant, const struct uuid *request,
                 const struct answer *answer, struct request *ret, struct err *e)
{
	if (request_get(ts->conf.store, tenant, request, ret, e))
		return -1;
	if (ret->state != REQUEST_OPEN) {
		request_release(ret);
		return err_set(e, STORE_CONFLICT, "the request is not open any more");
	}
	if (check_decision(ret, answer, e) || commit_answer(ts, tenant, ret, answer, e)) {
		request_release(ret);
		return -1;
	}
	request_release(ret);
	return request_get(ts->conf.store, tenant, request, ret, e);
}

/* -- stop -------------------------------------------------------------------- */

bool turns_drain(struct turns *ts, unsigned int seconds)
{
	struct timespec until = deadline_after(seconds * 1000);
	bool idle;

	pthread_mutex_lock(&ts->lock);
	ts->stopping = true;
	while (ts->running && pthread_cond_timedwait(&ts->changed, &ts->lock, &until) == 0)
		;
	idle = ts->running == 0;
	pthread_mutex_unlock(&ts->lock);
	return idle;
}

static void free_lanes(struct turns *ts)
{
	for (size_t i = 0; i < LANES; i++) {
		while (ts->buckets[i]) {
			struct lane *l = ts->buckets[i];

			while (l->first) {
				struct job *job = l->first;

				queue_remove(ts, job);
				job_free(job);
			}
			ts->buckets[i] = l->chain;
			free(l);
		}
	}
}

void turns_stop(struct turns **tsp)
{
	struct turns *ts = *tsp;

	pthread_mutex_lock(&ts->lock);
	ts->stopping = true;
	for (struct job *job = ts->running_first; job; job = job->next) {
		atomic_store(&job->abandon, true);
		cancel_fire(&job->cancel);
	}
	while (ts->running)
		pthread_cond_wait(&ts->changed, &ts->lock);
	pthread_mutex_unlock(&ts->lock);
	free_lanes(ts);
	pthread_cond_destroy(&ts->changed);
	pthread_mutex_destroy(&ts->lock);
	free(ts);
	*tsp = NULL;
}
