#include "daemon/sandbox/call.h"
#include "daemon/sandbox/link.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/log.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#define PING_AFTER_MS  10000
#define PONG_MS        15000
#define STOP_ENDING_MS 3000 /* when the server stops: from end of input to KILL */
#define STOP_MS        5000 /* until it does not wait for runners any more */
#define LEAVE_MS       5000 /* until it does not wait for callers any more */

static int init_locks(struct sandboxes *s, struct err *e)
{
	pthread_condattr_t attr;
	int failed = pthread_condattr_init(&attr);

	if (!failed) {
		failed = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
		failed = failed ? failed : pthread_cond_init(&s->left, &attr);
		pthread_condattr_destroy(&attr);
	}
	failed = failed ? failed : pthread_mutex_init(&s->lock, NULL);
	if (!failed)
		return 0;
	errno = failed;
	return err_errno(e, "prepare the sandboxes");
}

/* The link thread takes no signal, and a guest that closes its input must not end the server. */
static int start_thread(struct sandboxes *s, struct err *e)
{
	sigset_t all, old;
	int failed;

	(void)signal(SIGPIPE, SIG_IGN);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	failed = pthread_create(&s->thread, NULL, link_run, s);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!failed)
		return 0;
	errno = failed;
	return err_errno(e, "start the link thread");
}

static void pool_free(struct sandboxes *s)
{
	for (size_t i = 0; i < POOL_BUCKETS; i++)
		while (s->buckets[i]) {
			struct sandbox *sb = s->buckets[i];

			s->buckets[i] = sb->next_in_bucket;
			fd_close(&sb->to_guest);
			fd_close(&sb->from_guest);
			buf_release(&sb->out);
			buf_release(&sb->partial);
			free(sb);
		}
	link_close(s);
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->left);
	free(s);
}

int sandboxes_start(const struct sandboxes_conf *conf, struct sandboxes **ret, struct err *e)
{
	auto_free struct sandboxes *s = calloc(1, sizeof(*s));

	if (!s)
		return err_set(e, ENOMEM, "no memory for the sandboxes");
	s->conf = *conf;
	s->ping_after_ms = PING_AFTER_MS;
	s->pong_ms = PONG_MS;
	if (fd_set_nonblocking(conf->launcher_sock, e) < 0 || init_locks(s, e) < 0 ||
	    link_open(s, e) < 0)
		return -1;
	if (start_thread(s, e) < 0) {
		link_close(s);
		return -1;
	}
	*ret = mem_take(&s);
	return 0;
}

static void begin_stop(struct sandboxes *s)
{
	pthread_mutex_lock(&s->lock);
	s->stopping = true;
	s->stop_deadline = clock_mono_ms() + STOP_MS;
	pool_refuse(s, SANDBOX_STOPPING, "the server is stopping");
	for (struct sandbox *sb = s->active; sb; sb = sb->next) {
		sandbox_finish(sb);
		if (sb->deadline)
			sb->deadline = clock_mono_ms() + STOP_ENDING_MS;
	}
	link_wake(s);
	pthread_mutex_unlock(&s->lock);
}

/* False when a caller is still inside after LEAVE_MS, which only a sink that blocks can cause. */
static bool wait_for_callers(struct sandboxes *s)
{
	struct timespec until;
	int failed = 0;
	bool empty;

	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += LEAVE_MS / 1000;
	pthread_mutex_lock(&s->lock);
	while (s->inside && !failed)
		failed = pthread_cond_timedwait(&s->left, &s->lock, &until);
	empty = !s->inside;
	pthread_mutex_unlock(&s->lock);
	return empty;
}

void sandboxes_stop(struct sandboxes **s)
{
	if (!*s)
		return;
	begin_stop(*s);
	pthread_join((*s)->thread, NULL);
	if (wait_for_callers(*s))
		pool_free(*s);
	else
		log_error("a call did not return from its sink; its sandbox's memory is not freed");
	*s = NULL;
}

size_t sandboxes_running(struct sandboxes *s)
{
	size_t n = 0;

	pthread_mutex_lock(&s->lock);
	for (const struct sandbox *sb = s->active; sb; sb = sb->next)
		n += sb->state == STATE_RUNNING;
	pthread_mutex_unlock(&s->lock);
	return n;
}

void sandboxes_end(struct sandboxes *s, bool (*fn)(void *ctx, const struct uuid *tenant), void *ctx)
{
	pthread_mutex_lock(&s->lock);
	for (struct sandbox *sb = s->active; sb; sb = sb->next) {
		if (!fn(ctx, &sb->tenant))
			continue;
		log_info("sandbox of tenant %s: told to end", sb->tenant.text);
		while (sb->waiting)
			call_refuse(sb->waiting, SANDBOX_STOPPING, "the tenant is not declared");
		sandbox_finish(sb);
	}
	link_wake(s);
	pthread_mutex_unlock(&s->lock);
}

size_t sandboxes_view(struct sandboxes *s, struct sandbox_view *ret, size_t max)
{
	static const char *const states[] = { "stopped", "starting", "running", "ending" };
	uint64_t now = clock_mono_ms();
	size_t n = 0;

	pthread_mutex_lock(&s->lock);
	for (const struct sandbox *sb = s->active; sb && n < max; sb = sb->next) {
		bool idle =
			sb->state == STATE_RUNNING && !sandbox_has_work(sb) && now > sb->idle_since;

		ret[n++] = (struct sandbox_view){
			.tenant = sb->tenant,
			.generation = sb->generation,
			.state = states[sb->state],
			.age_ms = now - sb->begun_ms,
			.idle_ms = idle ? now - sb->idle_since : 0,
			.calls = sb->open - sb->resting,
		};
	}
	pthread_mutex_unlock(&s->lock);
	return n;
}
