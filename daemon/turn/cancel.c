/*
 * Cancelling.  What runs is told to stop before anything else, and then one thread for
 * each cancel does what may block on the store, so that the caller gets its answer in
 * time: the store may not answer for as long as it likes.
 */
#include "daemon/turn/turns.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/sanitizer.h"
#include "daemon/turn/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define ANSWER_MS      1800 /* from the call to its answer */
#define GRACE_MS       1200 /* for the turn's own thread to end it */
#define CANCELS        64   /* at once */
#define CANCELS_TENANT 16
#define STEPS          20 /* looks at the turn before a cancel gives up */
#define CANCEL_STACK   ((size_t)256 * 1024)

/* One cancel, shared by the caller and the thread; guarded by the lock of turns. */
struct cancelling {
	struct turns *turns;
	struct lane *lane;
	struct uuid tenant, id;
	uint64_t began_ms;
	unsigned int refs;
	bool done;
	/* written by the thread before done */
	int rc;
	struct turn turn;
	struct err e;
};

static void unref(struct cancelling *c)
{
	if (--c->refs)
		return;
	turn_release(&c->turn);
	free(c);
}

/*
 * The turn's job: held for us, or running.  NULL while somebody else holds it, for whom
 * we waited a moment.
 */
static struct job *take(struct cancelling *c, struct job *fresh)
{
	struct turns *ts = c->turns;
	struct timespec until = turns_time(c->began_ms + GRACE_MS);
	struct job *job = job_find(ts, &c->tenant, &c->id);

	if (!job) {
		job = fresh;
		job_ref(job); /* one is ours, one is that of the known */
		job_add(job);
	} else if (job->place == JOB_QUEUED) {
		job_unqueue(job);
		job_ref(job);
	} else if (job->place == JOB_RUNNING) {
		job_ref(job);
	} else {
		(void)pthread_cond_timedwait(&ts->changed, &ts->lock, &until);
		return NULL;
	}
	cancel_fire(&job->cancel);
	return job;
}

/* End it, unless its own thread does so within a moment. */
static bool end_turn(struct cancelling *c, struct job *job)
{
	struct turns *ts = c->turns;
	bool held, ended = false;

	pthread_mutex_lock(&ts->lock);
	held = job->place == JOB_HELD;
	if (!held)
		ended = turns_await(ts, job, c->began_ms + GRACE_MS);
	pthread_mutex_unlock(&ts->lock);
	ended = ended || job_finish_once(job, TURN_CANCELLED);
	pthread_mutex_lock(&ts->lock);
	if (held && !ended && !ts->closing)
		job_queue(job); /* its thread does nothing but end it */
	else if (held)
		job_remove(job);
	job_unref(job);
	pthread_mutex_unlock(&ts->lock);
	return ended;
}

/* One step: 1 when the turn is over, 0 to look again. */
static int step(struct cancelling *c, struct turn *t, struct err *e)
{
	struct turns *ts = c->turns;
	struct err ignored = ERR_INIT;
	struct job *job, *fresh;

	if (turn_get(ts->conf.store, &c->tenant, &c->id, t, e))
		return -1;
	if (turn_state_terminal(t->state))
		return 1;
	/* So that a daemon that is killed now ends it after its next start. */
	if (!t->cancel_requested &&
	    turn_request_cancel(ts->conf.store, &c->tenant, &c->id, &ignored) &&
	    ignored.code != STORE_CONFLICT)
		log_warn("turn %s: %s", c->id.text, ignored.text);
	fresh = job_new(ts, &c->tenant, &c->id, &t->session, e);
	if (!fresh)
		return -1;
	pthread_mutex_lock(&ts->lock);
	job = take(c, fresh);
	if (job != fresh)
		job_unref(fresh);
	pthread_mutex_unlock(&ts->lock);
	if (!job || end_turn(c, job))
		return 0;
	return err_set(e, STORE_UNAVAILABLE,
	               "the turn is stopped, but its end is not committed yet");
}

static void work(struct cancelling *c)
{
	struct turn t = { 0 };
	int rc = 0;

	for (int i = 0; i < STEPS && rc == 0; i++) {
		turn_release(&t);
		rc = step(c, &t, &c->e);
	}
	if (rc == 0)
		rc = err_set(&c->e, STORE_UNAVAILABLE, "the turn is stopped, but does not end");
	c->rc = rc < 0 ? -1 : 0;
	c->turn = t;
}

static void *cancel_main(void *arg)
{
	struct cancelling *c = arg;
	struct turns *ts = c->turns;

	work(c);
	pthread_mutex_lock(&ts->lock);
	if (c->rc && c->e.code == STORE_UNAVAILABLE)
		turns_doubt(ts, c->lane); /* what was flagged as cancelled ends when it can */
	c->done = true;
	c->lane->cancels--;
	ts->cancels--;
	unref(c);
	pthread_cond_broadcast(&ts->changed);
	pthread_mutex_unlock(&ts->lock);
	return NULL;
}

/* (locked) The caller's cancel, with its thread. */
static struct cancelling *begin(struct turns *ts, const struct uuid *tenant, const struct uuid *id)
{
	struct lane *l = lane_of(ts, tenant);
	struct cancelling *c;
	pthread_attr_t attr;
	pthread_t thread;
	int rc;

	if (!l || l->cancels >= CANCELS_TENANT || ts->cancels >= CANCELS || ts->closing)
		return NULL;
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	*c = (struct cancelling){ .turns = ts,
		                  .lane = l,
		                  .tenant = *tenant,
		                  .id = *id,
		                  .began_ms = clock_mono_ms(),
		                  .refs = 2 };
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, CANCEL_STACK + SANITIZER_STACK);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	rc = pthread_create(&thread, &attr, cancel_main, c);
	pthread_attr_destroy(&attr);
	if (rc) {
		free(c);
		return NULL;
	}
	l->cancels++;
	ts->cancels++;
	return c;
}

static int take_result(struct cancelling *c, struct turn *ret, struct err *e)
{
	if (!c->done)
		return err_set(e, STORE_UNAVAILABLE,
		               "the turn is stopped, but the database has not committed its end "
		               "in time");
	if (c->rc) {
		*e = c->e;
		return -1;
	}
	*ret = c->turn;
	c->turn = (struct turn){ .input = NULL };
	return 0;
}

int turns_cancel(struct turns *ts, const struct uuid *tenant, const struct uuid *id,
                 struct turn *ret, struct err *e)
{
	struct timespec until = turns_time(clock_mono_ms() + ANSWER_MS);
	struct cancelling *c;
	struct job *job;
	int rc;

	pthread_mutex_lock(&ts->lock);
	job = job_find(ts, tenant, id);
	if (job)
		cancel_fire(&job->cancel);
	c = begin(ts, tenant, id);
	if (c) {
		while (!c->done && pthread_cond_timedwait(&ts->changed, &ts->lock, &until) == 0)
			;
		rc = take_result(c, ret, e);
		unref(c);
	} else {
		rc = err_set(e, STORE_UNAVAILABLE,
		             "too many cancels wait for the database; what "
		             "ran of the turn is stopped");
	}
	pthread_mutex_unlock(&ts->lock);
	return rc;
}
