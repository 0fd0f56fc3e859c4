#include "daemon/turn/queue.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/sanitizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TURN_STACK ((size_t)512 * 1024)
#define DOUBT_MS   60000 /* longer than a statement that was given up can live on in the server */

struct timespec turns_time(uint64_t mono_ms)
{
	return (struct timespec){ .tv_sec = (time_t)(mono_ms / 1000),
		                  .tv_nsec = (long)(mono_ms % 1000) * 1000000 };
}

/* -- what is known ------------------------------------------------------------------- */

struct lane *lane_of(struct turns *ts, const struct uuid *tenant)
{
	size_t i = uuid_hash(tenant) % LANES;
	struct lane *l;

	for (l = ts->lanes[i]; l; l = l->chain)
		if (uuid_equal(&l->tenant, tenant))
			return l;
	l = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	l->tenant = *tenant;
	l->chain = ts->lanes[i];
	ts->lanes[i] = l;
	return l;
}

struct job *job_find(struct turns *ts, const struct uuid *tenant, const struct uuid *turn)
{
	struct job *job = ts->jobs[uuid_hash(turn) % JOBS];

	while (job && !(uuid_equal(&job->turn, turn) && uuid_equal(&job->tenant, tenant)))
		job = job->chain;
	return job;
}

struct job *job_new(struct turns *ts, const struct uuid *tenant, const struct uuid *turn,
                    const struct uuid *session, struct err *e)
{
	struct job *job = calloc(1, sizeof(*job));

	if (!job) {
		(void)err_set(e, ERR_SHORTAGE, "no memory for a turn");
		return NULL;
	}
	*job = (struct job){ .turns = ts,
		             .tenant = *tenant,
		             .turn = *turn,
		             .session = *session,
		             .place = JOB_GONE,
		             .refs = 1,
		             .cancel = CANCEL_INIT };
	pthread_mutex_lock(&ts->lock);
	job->lane = lane_of(ts, tenant);
	if (!job->lane) {
		job_unref(job);
		job = NULL;
		(void)err_set(e, ERR_SHORTAGE, "no memory for a tenant's queue");
	}
	pthread_mutex_unlock(&ts->lock);
	return job;
}

void job_ref(struct job *job)
{
	job->refs++;
}

void job_unref(struct job *job)
{
	if (--job->refs)
		return;
	cancel_release(&job->cancel);
	free(job);
}

/* -- lists ------------------------------------------------------------------------------ */

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

static void link_job(struct job **first, struct job **last, struct job *before, struct job *job)
{
	job->prev = before;
	job->next = before ? before->next : *first;
	*(before ? &before->next : first) = job;
	if (job->next)
		job->next->prev = job;
	else if (last)
		*last = job;
}

static void unlink_job(struct job **first, struct job **last, struct job *job)
{
	*(job->prev ? &job->prev->next : first) = job->next;
	if (job->next)
		job->next->prev = job->prev;
	else if (last)
		*last = job->prev;
}

static void uncount(struct job *job)
{
	if (!job->counted)
		return;
	job->counted = false;
	job->lane->queued--;
	job->lane->bytes -= job->bytes;
	job->turns->queued--;
	job->turns->bytes -= job->bytes;
}

void job_count(struct job *job)
{
	if (job->counted)
		return;
	job->counted = true;
	job->lane->queued++;
	job->lane->bytes += job->bytes;
	job->turns->queued++;
	job->turns->bytes += job->bytes;
}

/* -- the places of a job ------------------------------------------------------------------ */

void job_add(struct job *job)
{
	struct job **bucket = &job->turns->jobs[uuid_hash(&job->turn) % JOBS];

	job->chain = *bucket;
	*bucket = job;
	job->place = JOB_HELD;
}

static void put_in_queue(struct job *job, bool in_front)
{
	struct lane *l = job->lane;

	link_job(&l->first, &l->last, in_front ? NULL : l->last, job);
	job_count(job);
	job->place = JOB_QUEUED;
	ring_add(job->turns, l);
}

void job_queue(struct job *job)
{
	put_in_queue(job, false);
	turns_schedule(job->turns);
	pthread_cond_broadcast(&job->turns->changed);
}

void job_unqueue(struct job *job)
{
	unlink_job(&job->lane->first, &job->lane->last, job);
	uncount(job);
	job->place = JOB_HELD;
}

void job_remove(struct job *job)
{
	struct turns *ts = job->turns;
	struct job **at = &ts->jobs[uuid_hash(&job->turn) % JOBS];

	while (*at != job)
		at = &(*at)->chain;
	*at = job->chain;
	uncount(job);
	job->place = JOB_GONE;
	job_unref(job);
	pthread_cond_broadcast(&ts->changed);
}

bool turns_await(struct turns *ts, const struct job *job, uint64_t deadline_ms)
{
	struct timespec until = turns_time(deadline_ms);

	while (job->place != JOB_GONE && job->place != JOB_QUEUED && !ts->closing)
		if (pthread_cond_timedwait(&ts->changed, &ts->lock, &until) == ETIMEDOUT)
			break;
	return job->place == JOB_GONE;
}

void turns_doubt(struct turns *ts, struct lane *l)
{
	l->doubt_next = clock_mono_ms();
	l->doubt_until = l->doubt_next + DOUBT_MS;
	pthread_cond_signal(&ts->upkeep_due);
}

/* -- starting ------------------------------------------------------------------------------ */

static void leave_running(struct job *job)
{
	unlink_job(&job->turns->running_first, NULL, job);
	job->lane->running--;
	job->turns->running--;
	job->place = JOB_HELD;
}

static void *job_thread(void *arg)
{
	struct job *job = arg;
	struct turns *ts = job->turns;
	bool settled = job_run(job);

	pthread_mutex_lock(&ts->lock);
	leave_running(job);
	if (!settled && !ts->closing)
		turns_doubt(ts, job->lane);
	job_remove(job);
	turns_schedule(ts);
	pthread_mutex_unlock(&ts->lock);
	return NULL;
}

/* What only one that runs needs: a queued turn costs memory, and nothing that runs out sooner. */
static int start_thread(struct job *job, struct err *e)
{
	pthread_attr_t attr;
	pthread_t thread;
	int rc;

	if (cancel_open(&job->cancel, e) < 0)
		return -1;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, TURN_STACK + SANITIZER_STACK);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	rc = pthread_create(&thread, &attr, job_thread, job);
	pthread_attr_destroy(&attr);
	if (rc == 0)
		return 0;
	cancel_release(&job->cancel);
	return err_set(e, ERR_SHORTAGE, "no thread (%s)", strerrordesc_np(rc));
}

static bool start_job(struct turns *ts, struct job *job)
{
	static struct log_pace pace; /* a tenant's requests ask for it, as often as they like */
	unsigned int left_out;
	struct err e = ERR_INIT;

	job_unqueue(job);
	link_job(&ts->running_first, NULL, NULL, job);
	job->lane->running++;
	ts->running++;
	job->place = JOB_RUNNING;
	if (start_thread(job, &e) == 0)
		return true;
	leave_running(job);
	put_in_queue(job, true);
	ts->start_failed = true;
	pthread_cond_signal(&ts->upkeep_due);
	if (log_paced(&pace, &left_out))
		log_error("turn %s stays queued: %s (%u more since the last line)", job->turn.text,
		          e.text, left_out);
	return false;
}

/*
 * Each lane in the ring is looked at once: one that is at its own limit goes to the back,
 * behind those that were never at theirs.
 */
void turns_schedule(struct turns *ts)
{
	struct lane *l, *first_blocked = NULL;

	while (!ts->draining && !turns_orphaned(ts) && ts->running < ts->conf.max_running &&
	       (l = ring_take(ts))) {
		if (l->first && l->running >= ts->conf.max_running_tenant) {
			ring_add(ts, l);
			if (l == first_blocked)
				return;
			first_blocked = first_blocked ? first_blocked : l;
			continue;
		}
		first_blocked = NULL;
		if (l->first && !start_job(ts, l->first))
			return;
		ring_add(ts, l);
	}
}

/* -- turns that wait for a person --------------------------------------------------------- */

struct waiter *waiter_find(const struct lane *l, const struct uuid *turn)
{
	struct waiter *w = l->waiters;

	while (w && !uuid_equal(&w->turn, turn))
		w = w->next;
	return w;
}

int waiter_add(struct turns *ts, struct lane *l, const struct request *q, struct err *e)
{
	struct waiter *w = waiter_find(l, &q->turn);

	if (!w) {
		w = calloc(1, sizeof(*w));
		if (!w)
			return err_set(e, ENOMEM, "no memory for a turn that waits");
		w->turn = q->turn;
		w->next = l->waiters;
		l->waiters = w;
		l->waiting++;
	}
	w->request = q->id;
	w->expires_ms = q->expires_ms;
	w->stirred = false;
	if (w->expires_ms)
		pthread_cond_signal(&ts->upkeep_due);
	return 0;
}

int turns_begin_wait(struct job *job, const struct request *q, struct err *e)
{
	const struct turns *ts = job->turns;
	int rc;

	pthread_mutex_lock(&job->turns->lock);
	if (job->lane->waiting >= ts->conf.max_waiting_tenant)
		rc = err_set(e, TURNS_WAITING_LIMIT,
		             "the tenant has %u turns that wait for a person, the limit; answer or "
		             "cancel some of them",
		             job->lane->waiting);
	else
		rc = waiter_add(job->turns, job->lane, q, e);
	pthread_mutex_unlock(&job->turns->lock);
	return rc;
}

void turns_end_wait(struct job *job)
{
	struct waiter **at = &job->lane->waiters, *w;

	pthread_mutex_lock(&job->turns->lock);
	while (*at && !uuid_equal(&(*at)->turn, &job->turn))
		at = &(*at)->next;
	w = *at;
	if (w) {
		*at = w->next;
		job->lane->waiting--;
	}
	pthread_mutex_unlock(&job->turns->lock);
	free(w);
}
