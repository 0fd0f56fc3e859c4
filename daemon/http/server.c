/*
 * Start, loop and stop of the HTTP server.
 *
 * Flags and order matter with libmicrohttpd (0.9.75): MHD_USE_TURBO keeps it from
 * shutting down sockets that the stream thread has taken over; in external mode a
 * resume wakes nobody, so only the loop thread resumes and runs it right after; a
 * stop with a suspended connection aborts the process, so the loop ends only when
 * the workers are gone and every exchange has come back.
 */
#include "daemon/http/server.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/log.h"
#include "daemon/metrics/metrics.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#define CONNECTION_MEMORY 16384 /* holds the head; cleared for every request */
#define STOP_GRACE_MS     2000  /* for answers that clients are slow to take */
#define EVENTS            64
#define SPARE_DESCRIPTORS 64 /* for everything that is neither connection nor stream */
#define URGENT_WORKERS    4

unsigned int server_idle_s(const struct http_conf *c)
{
	return c->idle_ms / 1000 + (c->idle_ms % 1000 != 0);
}

/* -- the loop thread ---------------------------------------------------------------- */
static void ring(struct http_server *s)
{
	uint64_t one = 1;

	/* Cannot fail but for a full counter, and then it is readable anyway. */
	(void)!write(s->event_fd, &one, sizeof(one));
}

void server_done(struct http_server *s, struct http_exchange *first)
{
	struct http_exchange *last = first;
	bool alone;

	while (last->next)
		last = last->next;
	pthread_mutex_lock(&s->done_lock);
	alone = !s->done;
	*s->done_tail = first;
	s->done_tail = &last->next;
	pthread_mutex_unlock(&s->done_lock);
	if (alone)
		ring(s);
}

static void resume(struct http_exchange *ex)
{
	ex->server->running--;
	ex->stage = STAGE_READY;
	MHD_resume_connection(ex->mhd);
}

static void resume_done(struct http_server *s)
{
	struct http_exchange *ex;

	pthread_mutex_lock(&s->done_lock);
	ex = s->done;
	s->done = NULL;
	s->done_tail = &s->done;
	pthread_mutex_unlock(&s->done_lock);
	while (ex) {
		struct http_exchange *next = ex->next;

		resume(ex);
		ex = next;
	}
}

static void sooner(uint64_t *at_ms, uint64_t other_ms)
{
	if (other_ms && (!*at_ms || other_ms < *at_ms))
		*at_ms = other_ms;
}

static int loop_timeout(struct http_server *s, uint64_t now_ms, uint64_t linger_ms,
                        uint64_t stop_ms)
{
	MHD_UNSIGNED_LONG_LONG wait = 0;
	uint64_t at = s->sweep_ms;

	sooner(&at, linger_ms);
	sooner(&at, stop_ms);
	sooner(&at, s->listen_ms);
	if (MHD_get_timeout(s->mhd, &wait) == MHD_YES)
		sooner(&at, now_ms + wait);
	return clock_left_ms(at);
}

static void loop_events(struct http_server *s, int timeout_ms)
{
	struct epoll_event events[EVENTS];
	int n = epoll_wait(s->epoll_fd, events, EVENTS, timeout_ms);

	for (int i = 0; i < n; i++) {
		uint64_t count;

		if (events[i].data.ptr == s)
			(void)!read(s->event_fd, &count, sizeof(count));
		else if (events[i].data.ptr == &s->listen_fd)
			listener_take(s);
		else if (events[i].data.ptr)
			linger_event(events[i].data.ptr);
	}
}

static bool finished(const struct http_server *s, uint64_t now_ms, uint64_t stop_ms)
{
	if (!stop_ms || !atomic_load(&s->workers_gone) || s->running > 0)
		return false;
	return !s->sending || now_ms >= stop_ms;
}

static void *loop_main(void *arg)
{
	struct http_server *s = arg;
	uint64_t now = clock_mono_ms();
	uint64_t linger = 0, stop = 0;

	while (!finished(s, now, stop)) {
		loop_events(s, loop_timeout(s, now, linger, stop));
		now = clock_mono_ms();
		if (!stop && atomic_load(&s->stopping)) {
			/* From here on requests on old connections are answered with 503. */
			listener_close(s);
			stop = now + STOP_GRACE_MS;
		}
		listener_retry(s, now);
		resume_done(s);
		MHD_run(s->mhd);
		connection_sweep(s, now);
		connection_make_room(s);
		linger = linger_expire(&s->linger, now);
	}
	return NULL;
}

/* -- start ---------------------------------------------------------------------------- */
static void set_defaults(struct http_conf *c)
{
	const struct {
		unsigned int *field;
		unsigned int value;
	} defaults[] = {
		{ &c->workers, 4 },          { &c->max_queued, 64 * (c->workers ? c->workers : 4) },
		{ &c->request_ms, 30000 },   { &c->idle_ms, 30000 },
		{ &c->heartbeat_ms, 15000 }, { &c->stall_ms, 30000 },
	};

	for (size_t i = 0; i < ARRAY_LEN(defaults); i++)
		if (!*defaults[i].field)
			*defaults[i].field = defaults[i].value;
}

static int check_limits(const struct http_conf *c, struct err *e)
{
	uint64_t need = (uint64_t)c->max_connections + c->max_streams + SPARE_DESCRIPTORS;
	struct rlimit limit;

	if (!c->max_connections)
		return err_set(e, EINVAL, "http: max_connections must be at least 1");
	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return err_errno(e, "http: getrlimit");
	if (limit.rlim_cur >= need)
		return 0;
	return err_set(e, EMFILE,
	               "http: %u connections and %u event streams need %llu descriptors, "
	               "but the limit is %llu: raise it (ulimit -n, LimitNOFILE=)",
	               c->max_connections, c->max_streams, (unsigned long long)need,
	               (unsigned long long)limit.rlim_cur);
}

/* Paths are decoded by request.c. */
static size_t keep_escapes(void *cls, struct MHD_Connection *mhd, char *text)
{
	(void)cls;
	(void)mhd;
	return strlen(text);
}

static void log_mhd(void *cls, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));

/* Mostly about what clients did wrong, so not for the ordinary log. */
static void log_mhd(void *cls, const char *fmt, va_list ap)
{
	char text[300];

	(void)cls;
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	text[strcspn(text, "\n")] = '\0';
	log_debug("libmicrohttpd: %s", text);
}

static int start_mhd(struct http_server *s, struct err *e)
{
	s->mhd = MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_TURBO |
	                                  MHD_USE_ERROR_LOG | MHD_USE_NO_LISTEN_SOCKET,
	                          0, NULL, NULL, connection_request, s, /* */
	                          MHD_OPTION_EXTERNAL_LOGGER, log_mhd,
	                          NULL,                                 /* first: start logs too */
	                          MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, /* threads block signals */
	                          MHD_OPTION_CONNECTION_LIMIT, s->conf.max_connections,   /* */
	                          MHD_OPTION_CONNECTION_TIMEOUT, server_idle_s(&s->conf), /* */
	                          MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY,
	                          MHD_OPTION_NOTIFY_CONNECTION, connection_notify, s,      /* */
	                          MHD_OPTION_NOTIFY_COMPLETED, connection_completed, s,    /* */
	                          MHD_OPTION_URI_LOG_CALLBACK, connection_request_line, s, /* */
	                          MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL,        /* */
#if MHD_VERSION >= 0x00097701
	                          MHD_OPTION_CLIENT_DISCIPLINE_LVL,
	                          1, /* no bare LF, no folds, no blanks in targets */
#endif
	                          MHD_OPTION_END);
	return s->mhd ? 0 : err_set(e, EIO, "libmicrohttpd does not start");
}

static int watch(const struct http_server *s, int fd, void *tag, struct err *e)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = tag };

	if (epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0)
		return err_errno(e, "http: epoll_ctl");
	return 0;
}

static int open_loop(struct http_server *s, struct err *e)
{
	const union MHD_DaemonInfo *info;

	s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	s->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->epoll_fd < 0 || s->event_fd < 0)
		return err_errno(e, "http: epoll, eventfd");
	linger_init(&s->linger, s->epoll_fd);
	if (start_mhd(s, e) < 0)
		return -1;
	info = MHD_get_daemon_info(s->mhd, MHD_DAEMON_INFO_EPOLL_FD);
	if (!info)
		return err_set(e, EIO, "libmicrohttpd has no epoll descriptor");
	if (watch(s, s->event_fd, s, e) < 0 || listener_start(s, e) < 0)
		return -1;
	return watch(s, info->epoll_fd, NULL, e);
}

static int start_threads(struct http_server *s, struct err *e)
{
	struct worker_conf workers = { s->conf.workers, s->conf.max_queued, s->conf.party };
	struct worker_conf urgent = workers;
	int failed;

	urgent.threads = URGENT_WORKERS;
	if (worker_start(&workers, &s->workers, e) < 0 ||
	    worker_start(&urgent, &s->urgent, e) < 0 || stream_start(&s->conf, &s->streams, e) < 0)
		return -1;
	failed = pthread_create(&s->thread, NULL, loop_main, s);
	if (failed)
		return err_set(e, failed, "cannot start the thread of the HTTP loop");
	s->thread_runs = true;
	return 0;
}

/* Signals are the business of the thread that starts the server. */
static int start_threads_without_signals(struct http_server *s, struct err *e)
{
	sigset_t all, old;
	int ret;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	ret = start_threads(s, e);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return ret;
}

/* Some places are nobody's, so that who is not known yet can come to be. */
static struct budget kept_connections(const struct http_conf *c)
{
	size_t all = c->max_connections - c->max_connections / 8;

	return (struct budget){ .max = all, .share = c->party ? all * 3 / 4 : all };
}

int http_start(const struct http_conf *conf, struct http_server **ret, struct err *e)
{
	struct http_server *s = calloc(1, sizeof(*s));

	if (!s)
		return err_errno(e, "http server");
	s->conf = *conf;
	s->listen_fd = s->reserve_fd = s->epoll_fd = s->event_fd = -1;
	s->done_tail = &s->done;
	linger_init(&s->linger, -1);
	pthread_mutex_init(&s->done_lock, NULL);
	set_defaults(&s->conf);
	s->bodies = budget_of_bodies(s->conf.max_body);
	s->kept = kept_connections(conf);
	for (size_t i = 0; conf->routes[i].method; i++)
		metric_route(i, conf->routes[i].method, conf->routes[i].pattern);
	if (check_limits(&s->conf, e) < 0 ||
	    throttle_open(&s->throttle, conf->max_attempts, conf->proxies, conf->proxy_count, e) <
	            0 ||
	    listener_open(s, e) < 0 || open_loop(s, e) < 0 ||
	    start_threads_without_signals(s, e) < 0) {
		http_stop(&s);
		return -1;
	}
	*ret = s;
	return 0;
}

/* -- stop ----------------------------------------------------------------------------- */
uint16_t http_port(const struct http_server *s)
{
	return s->port;
}

unsigned int http_streams(const struct http_server *s)
{
	return stream_count(s->streams);
}

bool http_draining(const struct http_server *s)
{
	return atomic_load(&s->draining);
}

void http_drain(struct http_server *s)
{
	atomic_store(&s->draining, true);
}

/* Everything that was handed out has come back when this returns. */
static void stop_threads(struct http_server *s)
{
	atomic_store(&s->stopping, true);
	if (s->thread_runs)
		ring(s);
	if (s->workers)
		worker_stop(s->workers);
	if (s->urgent)
		worker_stop(s->urgent);
	atomic_store(&s->workers_gone, true);
	if (s->thread_runs) {
		ring(s);
		pthread_join(s->thread, NULL);
	}
}

void http_recheck(struct http_server *s)
{
	stream_recheck(s->streams);
}

void http_stop(struct http_server **at)
{
	struct http_server *s = *at;

	if (!s)
		return;
	stop_threads(s);
	listener_close(s);
	if (s->mhd)
		MHD_stop_daemon(s->mhd);
	worker_free(&s->workers);
	worker_free(&s->urgent);
	stream_stop(&s->streams);
	linger_release(&s->linger);
	throttle_close(&s->throttle);
	fd_close(&s->epoll_fd);
	fd_close(&s->event_fd);
	pthread_mutex_destroy(&s->done_lock);
	free(s);
	*at = NULL;
}
