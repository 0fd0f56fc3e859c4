/*
 * Places, threads and durability of set-ups.
 *
 * What a job ends with is committed before it is told, and tried until the store answers.  A
 * set-up that the store has as unfinished and nobody works on is taken up again at start, and
 * by whoever waits for it.
 */
#include "daemon/setup/job.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/log.h"
#include "daemon/store/patience.h"

#include <poll.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS   64  /* started as they are needed; most of the time they wait for git */
#define PLACES    256 /* of all tenants */
#define OF_TENANT 16
#define RETRY_MS  200

struct setups {
	struct setups_conf conf;
	pthread_mutex_t lock;
	pthread_cond_t work;
	pthread_t threads[THREADS];
	unsigned int thread_count;
	unsigned int idle;
	struct setup_job *first; /* queued and worked on, the oldest first */
	unsigned int places;
	bool closing;
};

/* -- jobs (locked unless said otherwise) ------------------------------------------------ */

static void unref(struct setup_job *job)
{
	if (--job->refs)
		return;
	job->setups->places--;
	if (job->secret)
		sodium_memzero(job->secret, strlen(job->secret));
	free(job->secret);
	cancel_release(&job->cancel);
	cancel_release(&job->done);
	free(job);
}

static struct setup_job *find(struct setups *s, const struct uuid *tenant,
                              const struct uuid *session)
{
	struct setup_job *job = s->first;

	while (job && (job->over || !uuid_equal(&job->session, session) ||
	               !uuid_equal(&job->tenant, tenant)))
		job = job->next;
	return job;
}

static void take_out(struct setup_job *job)
{
	struct setup_job **at = &job->setups->first;

	while (*at != job)
		at = &(*at)->next;
	*at = job->next;
}

static bool works_for(const struct setups *s, const struct uuid *tenant)
{
	for (const struct setup_job *job = s->first; job; job = job->next)
		if (job->place == SETUP_WORKED && uuid_equal(&job->tenant, tenant))
			return true;
	return false;
}

/* The launcher is gone, and the sandboxes with it. */
static bool is_orphaned(const struct setups *s)
{
	return s->conf.orphaned && atomic_load(s->conf.orphaned);
}

/* The oldest of a tenant that has none under way. */
static struct setup_job *next_job(struct setups *s)
{
	if (is_orphaned(s))
		return NULL;
	for (struct setup_job *job = s->first; job; job = job->next)
		if (job->place == SETUP_QUEUED && !works_for(s, &job->tenant))
			return job;
	return NULL;
}

/* Not locked: nobody knows it yet. */
static struct setup_job *new_job(struct setups *s, const struct uuid *tenant, struct err *e)
{
	struct setup_job *job = calloc(1, sizeof(*job));

	if (!job) {
		(void)err_shortage(e, "a set-up");
		return NULL;
	}
	job->setups = s;
	job->tenant = *tenant;
	job->refs = 1;
	job->cancel.fd = job->done.fd = -1;
	if (cancel_init(&job->cancel, e) == 0 && cancel_init(&job->done, e) == 0)
		return job;
	cancel_release(&job->cancel);
	free(job);
	return NULL;
}

static unsigned int places_of(const struct setups *s, const struct uuid *tenant)
{
	unsigned int n = 0;

	for (const struct setup_job *job = s->first; job; job = job->next)
		n += uuid_equal(&job->tenant, tenant);
	return n;
}

/* -- one set-up, in its thread ------------------------------------------------------------- */

void setup_job_tell(const struct setup_job *job, const char *type, struct json *data)
{
	const struct bus_event event = { .type = type, .session = &job->session, .data = data };

	bus_publish(job->setups->conf.bus, &job->tenant, &event);
}

struct sandboxes *setup_job_sandboxes(const struct setup_job *job)
{
	return job->setups->conf.sandboxes;
}

/* The daemon stops, or its launcher is gone, and with it the sandbox. */
static bool is_abandoned(const struct setup_job *job)
{
	return atomic_load(&job->abandon) || is_orphaned(job->setups);
}

/* The store did not answer: false when there shall be no other try. */
static bool wait_store(const struct setup_job *job)
{
	struct pollfd p = { .fd = job->cancel.fd, .events = POLLIN };

	(void)poll(&p, 1, RETRY_MS);
	return !is_abandoned(job);
}

static int begin(const struct setup_job *job, struct session *ret, struct err *e)
{
	struct store *store = job->setups->conf.store;

	while (setup_mark_running(store, &job->tenant, &job->session, e) ||
	       session_get(store, &job->tenant, &job->session, ret, e))
		if (e->code != STORE_UNAVAILABLE || !wait_store(job))
			return -1;
	return 0;
}

static void tell_end(const struct setup_job *job, const struct setup *end)
{
	struct json *data = json_new_object();

	if (end->state == SETUP_READY) {
		json_put_str(data, "commit", end->head);
	} else {
		json_put_str(data, "code", end->code);
		json_put_str(data, "message", end->error);
	}
	setup_job_tell(
		job, end->state == SETUP_READY ? "session.setup.completed" : "session.setup.failed",
		data);
}

static void finish(struct setup_job *job, const struct setup *end)
{
	struct store *store = job->setups->conf.store;
	struct err e = ERR_INIT;
	bool unsure = false;

	pthread_mutex_lock(&job->setups->lock);
	job->over = true;
	pthread_mutex_unlock(&job->setups->lock);
	while (setup_finish(store, &job->tenant, &job->session, end, &e)) {
		if (e.code == STORE_CONFLICT && unsure)
			break; /* it was committed by an earlier try */
		if (e.code != STORE_UNAVAILABLE || !wait_store(job)) {
			log_warn("set-up of session %s: %s", job->session.text, e.text);
			return;
		}
		unsure = true;
	}
	tell_end(job, end);
	if (store_settle(store, &job->tenant, &e))
		log_warn("tenant %s: %s (the mark is cleared later)", job->tenant.text, e.text);
}

static void tell_start(const struct setup_job *job, const struct setup *setup)
{
	struct json *data = json_new_object();

	json_put_str(data, "url", setup->url);
	json_put_str(data, "ref", setup->ref[0] ? setup->ref : NULL);
	json_put_str(data, "branch", setup->branch[0] ? setup->branch : NULL);
	setup_job_tell(job, "session.setup.started", data);
}

static void work(struct setup_job *job)
{
	struct setup end = { .state = SETUP_FAILED };
	struct session session;
	struct err e = ERR_INIT;

	if (begin(job, &session, &e)) {
		if (e.code != STORE_CONFLICT && e.code != STORE_NOT_FOUND)
			log_warn("set-up of session %s: %s", job->session.text, e.text);
		return;
	}
	tell_start(job, &session.setup);
	if (session.setup.private && !job->secret) {
		(void)snprintf(end.code, sizeof(end.code), "credential_lost");
		(void)snprintf(end.error, sizeof(end.error),
		               "the daemon was restarted, and the credential was kept in memory "
		               "only: give it again with POST /v1/sessions/%s/setup",
		               job->session.text);
	} else {
		steps_run(job, &session, &end);
	}
	if (!is_abandoned(job))
		finish(job, &end);
}

static void *thread_main(void *arg);

/*
 * (locked) So many threads that no tenant's set-up waits for another tenant's, whose server
 * may be slow for as long as a step may take.  One that cannot be started leaves it to others.
 */
static int more_threads(struct setups *s)
{
	int failed;

	if (s->idle || s->thread_count == THREADS)
		return 0;
	failed = pthread_create(&s->threads[s->thread_count], NULL, thread_main, s);
	s->thread_count += !failed;
	return failed;
}

static void *thread_main(void *arg)
{
	struct setups *s = arg;
	struct setup_job *job;

	pthread_mutex_lock(&s->lock);
	while (!s->closing) {
		job = next_job(s);
		if (!job) {
			s->idle++;
			pthread_cond_wait(&s->work, &s->lock);
			s->idle--;
			continue;
		}
		job->place = SETUP_WORKED;
		if (next_job(s))
			(void)more_threads(s);
		pthread_mutex_unlock(&s->lock);
		work(job);
		pthread_mutex_lock(&s->lock);
		take_out(job);
		cancel_fire(&job->done);
		unref(job);
		/* Another one of the tenant may have waited for this. */
		pthread_cond_broadcast(&s->work);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

/* (locked) */
static void add(struct setup_job *job)
{
	struct setups *s = job->setups;
	struct setup_job **at = &s->first;

	while (*at)
		at = &(*at)->next;
	*at = job;
	job->place = SETUP_QUEUED;
	(void)more_threads(s);
	pthread_cond_signal(&s->work);
}

/* -- what was left behind ------------------------------------------------------------------ */

/* One that was let in long ago, so the bounds are not asked. */
static int adopt(struct setups *s, const struct uuid *tenant, const struct uuid *session,
                 struct err *e)
{
	struct setup_job *job = new_job(s, tenant, e);

	if (!job)
		return -1;
	job->session = *session;
	pthread_mutex_lock(&s->lock);
	s->places++;
	if (s->closing || find(s, tenant, session))
		unref(job);
	else
		add(job);
	pthread_mutex_unlock(&s->lock);
	return 0;
}

struct adoption {
	struct setups *setups;
	const struct uuid *tenant;
};

static void adopt_session(void *ctx, const struct uuid *session)
{
	const struct adoption *a = ctx;
	struct err e = ERR_INIT;

	if (adopt(a->setups, a->tenant, session, &e))
		log_warn("set-up of session %s: %s", session->text, e.text);
}

static void adopt_tenant(void *ctx, const struct uuid *tenant)
{
	struct adoption a = { ctx, tenant };
	struct err e = ERR_INIT;

	if (setup_each_unfinished(a.setups->conf.store, tenant, adopt_session, &a, &e))
		log_error("unfinished set-ups of tenant %s wait for their turns: %s", tenant->text,
		          e.text);
}

static int take_up(struct setups *s, struct err *e)
{
	struct patience patience = patience_begin(s->conf.end ? s->conf.end->fd : -1);

	while (store_each_unfinished(s->conf.store, adopt_tenant, s, e))
		if (patience_wait(&patience, e))
			return -1;
	return 0;
}

/* -- for the rest of the daemon ------------------------------------------------------------- */

int setups_start(const struct setups_conf *conf, struct setups **ret, struct err *e)
{
	struct setups *s = calloc(1, sizeof(*s));
	int failed;

	if (!s)
		return err_errno(e, "set-ups of sessions");
	s->conf = *conf;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->work, NULL);
	*ret = s;
	pthread_mutex_lock(&s->lock);
	failed = more_threads(s);
	pthread_mutex_unlock(&s->lock);
	if (failed) {
		setups_stop(ret);
		return err_set(e, failed, "cannot start a thread for set-ups");
	}
	if (take_up(s, e) == 0)
		return 0;
	setups_stop(ret);
	return err_wrap(e, "taking up unfinished set-ups");
}

void setups_stop(struct setups **at)
{
	struct setups *s = *at;

	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	s->closing = true;
	for (struct setup_job *job = s->first; job; job = job->next) {
		atomic_store(&job->abandon, true);
		cancel_fire(&job->cancel);
	}
	pthread_cond_broadcast(&s->work);
	pthread_mutex_unlock(&s->lock);
	for (unsigned int i = 0; i < s->thread_count; i++)
		pthread_join(s->threads[i], NULL);
	while (s->first) {
		struct setup_job *job = s->first;

		take_out(job);
		unref(job);
	}
	pthread_cond_destroy(&s->work);
	pthread_mutex_destroy(&s->lock);
	free(s);
	*at = NULL;
}

bool setups_allow_http(const struct setups *s)
{
	return s->conf.allow_http;
}

int setups_take(struct setups *s, const struct uuid *tenant, struct setup_job **ret, struct err *e)
{
	struct setup_job *job = new_job(s, tenant, e);
	int rc = 0;

	if (!job)
		return -1;
	pthread_mutex_lock(&s->lock);
	s->places++;
	if (s->closing)
		rc = err_set(e, SETUPS_STOPPING,
		             "the server takes no more work until its next start");
	else if (s->places > PLACES || places_of(s, tenant) >= OF_TENANT)
		rc = err_set(e, SETUPS_FULL, "too many repositories are being set up");
	if (rc)
		unref(job);
	else
		*ret = job;
	pthread_mutex_unlock(&s->lock);
	return rc;
}

void setups_drop(struct setup_job **at)
{
	struct setup_job *job = *at;
	struct setups *s;

	if (!job)
		return;
	*at = NULL;
	s = job->setups;
	pthread_mutex_lock(&s->lock);
	unref(job);
	pthread_mutex_unlock(&s->lock);
}

/* What git's protocol for credentials takes; an empty password is none. */
static char *make_secret(const struct setup_credential *c)
{
	size_t size = strlen(c->username) + strlen(c->password) + sizeof("username=\npassword=\n");
	char *text = malloc(size);

	if (text)
		(void)snprintf(text, size, "username=%s\npassword=%s\n", c->username, c->password);
	return text;
}

void setups_run(struct setup_job **at, const struct uuid *session,
                const struct setup_credential *credential)
{
	struct setup_job *job = *at;
	struct setups *s = job->setups;

	*at = NULL;
	job->session = *session;
	job->secret = credential ? make_secret(credential) : NULL;
	pthread_mutex_lock(&s->lock);
	if (s->closing || find(s, &job->tenant, session))
		unref(job);
	else
		add(job);
	pthread_mutex_unlock(&s->lock);
}

void setups_forget(struct setups *s, const struct uuid *tenant, const struct uuid *session)
{
	struct setup_job *job;

	pthread_mutex_lock(&s->lock);
	job = find(s, tenant, session);
	if (job)
		cancel_fire(&job->cancel);
	pthread_mutex_unlock(&s->lock);
}

/* 1 when it is over as far as the store knows, with *e when it failed; 0 when it is not. */
static int look(struct setups *s, const struct uuid *tenant, const struct uuid *session,
                struct err *e)
{
	struct session found;

	if (session_get(s->conf.store, tenant, session, &found, e))
		return -1;
	if (setup_is_open(&found.setup))
		return adopt(s, tenant, session, e);
	if (found.setup.state != SETUP_FAILED)
		return 1;
	return err_set(e, SETUPS_FAILED, "%s: %s", found.setup.code, found.setup.error);
}

int setups_wait(struct setups *s, const struct uuid *tenant, const struct uuid *session,
                struct cancel *cancel, struct err *e)
{
	for (;;) {
		struct setup_job *job;
		bool found;
		struct pollfd p[2] = { { .fd = cancel->fd, .events = POLLIN },
			               { .events = POLLIN } };
		int rc;

		pthread_mutex_lock(&s->lock);
		job = find(s, tenant, session);
		found = job != NULL;
		if (found)
			job->refs++;
		pthread_mutex_unlock(&s->lock);
		if (found) {
			p[1].fd = job->done.fd;
			(void)poll(p, 2, -1);
			setups_drop(&job);
		}
		if (cancel_fired(cancel))
			return err_set(e, SANDBOX_CANCELLED, "cancelled");
		rc = found ? 0 : look(s, tenant, session, e);
		if (rc)
			return rc > 0 ? 0 : -1;
	}
}
