#include "daemon/harness/harness.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/log.h"
#include "daemon/harness/resident.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

#define LOOK_MS 50 /* between two looks at the cancel of who waits for a process */
#define TRIES   3  /* to start a process, while its sandbox ends under it */
#define STOP_MS 3000

void harness_wake(struct harnesses *h)
{
	(void)eventfd_write(h->wake, 1);
}

int harnesses_start(const struct harnesses_conf *conf, struct harnesses **ret, struct err *e)
{
	struct harnesses *h = calloc(1, sizeof(*h));
	pthread_condattr_t attr;
	int failed;

	if (!h)
		return err_set(e, ENOMEM, "no memory for harnesses");
	h->conf = *conf;
	h->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_init(&h->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&h->changed, &attr);
	pthread_condattr_destroy(&attr);
	failed = h->wake < 0 ? errno : pthread_create(&h->keeper, NULL, harness_keeper, h);
	if (failed) {
		fd_close(&h->wake);
		free(h);
		return err_set(e, failed, "cannot start the thread that looks after harnesses");
	}
	*ret = h;
	return 0;
}

static struct timespec after(unsigned int ms)
{
	uint64_t when = clock_mono_ms() + ms;

	return (struct timespec){ .tv_sec = (time_t)(when / 1000),
		                  .tv_nsec = (long)(when % 1000) * 1000000 };
}

void harnesses_stop(struct harnesses **hp)
{
	struct harnesses *h = *hp;
	struct timespec until = after(STOP_MS);

	if (!h)
		return;
	pthread_mutex_lock(&h->lock);
	for (struct resident *r = h->first; r; r = r->next)
		if (r->state != RESIDENT_ENDING)
			resident_end(h, r);
	while (h->first && pthread_cond_timedwait(&h->changed, &h->lock, &until) == 0)
		;
	h->stopping = true;
	pthread_mutex_unlock(&h->lock);
	harness_wake(h);
	pthread_join(h->keeper, NULL);
	pthread_cond_destroy(&h->changed);
	pthread_mutex_destroy(&h->lock);
	fd_close(&h->wake);
	free(h);
	*hp = NULL;
}

/* -- taking ------------------------------------------------------------------------------- */

static struct resident *find(struct harnesses *h, const struct uuid *session)
{
	struct resident *r = h->first;

	while (r && !uuid_equal(&r->session, session))
		r = r->next;
	return r;
}

/* The one of a tenant that has been idle for the longest time; NULL when there is room. */
static int make_room(struct harnesses *h, const struct uuid *tenant, struct err *e)
{
	struct resident *oldest = NULL;
	size_t n = 0;

	for (struct resident *r = h->first; r; r = r->next) {
		if (!uuid_equal(&r->tenant, tenant))
			continue;
		n++;
		if (r->state == RESIDENT_IDLE && (!oldest || r->used_ms < oldest->used_ms))
			oldest = r;
	}
	if (n < HARNESS_TENANT_MAX)
		return 0;
	if (!oldest)
		return err_set(e, HARNESS_LIMIT,
		               "%d harnesses of the tenant are at work, the limit; let a turn end",
		               HARNESS_TENANT_MAX);
	resident_end(h, oldest);
	return 1;
}

static struct resident *add(struct harnesses *h, const struct harness_place *place, struct err *e)
{
	struct resident *r = calloc(1, sizeof(*r));

	if (!r) {
		(void)err_set(e, ENOMEM, "no memory for a harness");
		return NULL;
	}
	r->tenant = *place->tenant;
	r->session = *place->session;
	r->state = RESIDENT_TAKEN;
	r->next = h->first;
	h->first = r;
	h->count++;
	return r;
}

/* (locked) One step: 0 with *ret, 1 to wait, -1. */
static int claim(struct harnesses *h, const struct harness_place *place, struct resident **ret,
                 struct err *e)
{
	struct resident *r = find(h, place->session);
	int rc;

	if (r && r->state == RESIDENT_PARKED)
		resident_cancel(h, r);
	if (r && r->state != RESIDENT_IDLE)
		return 1;
	if (!r) {
		rc = make_room(h, place->tenant, e);
		if (rc)
			return rc;
		r = add(h, place, e);
	}
	if (!r)
		return -1;
	r->state = RESIDENT_TAKEN;
	*ret = r;
	return 0;
}

static int wait_claim(struct harnesses *h, const struct harness_place *place,
                      const struct cancel *cancel, struct resident **ret, struct err *e)
{
	int rc;

	pthread_mutex_lock(&h->lock);
	while ((rc = claim(h, place, ret, e)) > 0) {
		struct timespec until = after(LOOK_MS);

		if (cancel_fired(cancel)) {
			rc = err_set(e, SANDBOX_CANCELLED, "cancelled");
			break;
		}
		(void)pthread_cond_timedwait(&h->changed, &h->lock, &until);
	}
	pthread_mutex_unlock(&h->lock);
	return rc;
}

/* Whether the process that is there may be used again. */
static int ask(struct resident *r, struct cancel *cancel, struct err *e)
{
	process_rest(r->process, false);
	if (process_ping(r->process, cancel, e) == 0)
		return 0;
	if (e->code != SANDBOX_CANCELLED) {
		log_info("harness of session %s is started again: %s", r->session.text, e->text);
		process_close(&r->process);
	}
	return -1;
}

static int start(struct harnesses *h, const struct harness_place *place, struct cancel *cancel,
                 struct resident *r, struct err *e)
{
	const struct sandbox_use use = { h->conf.sandboxes, place->tenant, cancel };
	int rc = -1;

	for (int i = 0; i < TRIES && rc; i++) {
		rc = process_start(&use, place->cwd, place->argv, &r->process, e);
		if (e->code != SANDBOX_LOST)
			break;
	}
	r->fresh = rc == 0;
	return rc;
}

static void leave(struct harnesses *h, struct resident *r, enum resident_state state)
{
	pthread_mutex_lock(&h->lock);
	r->state = state;
	r->used_ms = clock_mono_ms();
	pthread_cond_broadcast(&h->changed);
	pthread_mutex_unlock(&h->lock);
	harness_wake(h);
}

/* Its process listens; or there is none, or it was asked in vain. */
static int ready(struct harnesses *h, const struct harness_place *place, struct cancel *cancel,
                 struct resident *r, struct err *e)
{
	struct err why = ERR_INIT;

	r->fresh = false;
	if (r->process && ask(r, cancel, &why) && r->process) {
		*e = why;
		return -1;
	}
	if (!r->process && start(h, place, cancel, r, e))
		return -1;
	if (r->process)
		process_forget_stderr(r->process);
	return 0;
}

int harness_take(struct harnesses *h, const struct harness_place *place, struct cancel *cancel,
                 struct resident **ret, struct err *e)
{
	struct resident *r = NULL;
	int rc;

	if (wait_claim(h, place, cancel, &r, e) || !r)
		return -1;
	rc = ready(h, place, cancel, r, e);
	if (rc == 0)
		*ret = r;
	else if (r->process)
		harness_drop(h, r); /* its answer may still come, and be taken for another's */
	else
		leave(h, r, RESIDENT_ENDING);
	return rc;
}

struct process *harness_process(struct resident *r)
{
	return r->process;
}

bool harness_is_new(const struct resident *r)
{
	return r->fresh;
}

/* -- giving back -------------------------------------------------------------------------- */

void harness_give(struct harnesses *h, struct resident *r)
{
	process_rest(r->process, true);
	leave(h, r, RESIDENT_IDLE);
}

void harness_park(struct harnesses *h, struct resident *r, const struct harness_parking *parking)
{
	r->parking = *parking;
	r->stirred = false;
	leave(h, r, RESIDENT_PARKED);
}

void harness_wind(struct harnesses *h, struct resident *r, const char *run_id)
{
	(void)snprintf(r->run_id, sizeof(r->run_id), "%s", run_id);
	r->deadline = clock_mono_ms() + HARNESS_WIND_MS;
	leave(h, r, RESIDENT_WINDING);
}

void harness_drop(struct harnesses *h, struct resident *r)
{
	process_kill(r->process);
	r->killed = true;
	leave(h, r, RESIDENT_ENDING);
}

/* -- runs that wait ----------------------------------------------------------------------- */

static struct resident *find_parked(struct harnesses *h, const struct uuid *turn)
{
	struct resident *r = h->first;

	while (r && !(r->state == RESIDENT_PARKED && uuid_equal(&r->parking.turn, turn)))
		r = r->next;
	return r;
}

struct resident *harness_resume(struct harnesses *h, const struct uuid *turn, void **ret_run)
{
	struct resident *r;

	pthread_mutex_lock(&h->lock);
	r = find_parked(h, turn);
	if (r) {
		*ret_run = r->parking.run;
		r->parking.run = NULL;
		r->state = RESIDENT_TAKEN;
	}
	pthread_mutex_unlock(&h->lock);
	return r;
}

bool harness_has_run(struct harnesses *h, const struct uuid *turn)
{
	bool found;

	pthread_mutex_lock(&h->lock);
	found = find_parked(h, turn) != NULL;
	pthread_mutex_unlock(&h->lock);
	return found;
}

void harness_forget_turn(struct harnesses *h, const struct uuid *turn)
{
	struct resident *r;

	pthread_mutex_lock(&h->lock);
	r = find_parked(h, turn);
	if (r)
		resident_cancel(h, r);
	pthread_mutex_unlock(&h->lock);
}

void harness_forget_session(struct harnesses *h, const struct uuid *session)
{
	struct resident *r;

	pthread_mutex_lock(&h->lock);
	r = find(h, session);
	if (r && r->state != RESIDENT_TAKEN && r->state != RESIDENT_ENDING)
		resident_end(h, r);
	pthread_mutex_unlock(&h->lock);
}
