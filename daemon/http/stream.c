/*
 * The stream thread.
 *
 * Every stream is in exactly one of two lists, both ordered by the time of the last
 * byte the kernel took, so that only their first entries need a timer: `quiet` (all
 * is sent; a heartbeat is due) or `stalled` (the socket is full; the client is cut
 * when it takes nothing for too long).
 *
 * A stream that is woken, or new, is pushed on the stack `woken` by any thread.  One
 * that is closed while it stands there is freed when it is popped.
 */
#include "daemon/http/stream.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/log.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEARTBEAT    ": heartbeat\n\n"
#define PIECES_A_RUN 64           /* then the other streams have their turn */
#define SEND_BUFFER  (128 * 1024) /* in the kernel, for a client that does not read */
#define EVENTS       256

enum stream_state {
	STREAM_NEW, /* pushed, not yet seen by the thread */
	STREAM_QUIET,
	STREAM_STALLED,
	STREAM_CLOSED, /* waits on the stack to be freed */
};

struct stream {
	struct stream_pool *pool;
	struct stream *prev, *next; /* in the list of its state */
	struct stream *below;       /* in the stack */
	atomic_bool woken;          /* stands in the stack */
	enum stream_state state;
	int fd;
	struct stream_source source;
	const void *principal;
	const char *data; /* borrowed: what the socket has not taken */
	size_t left;
	uint64_t since_ms; /* the kernel last took a byte */
};

struct stream_list {
	struct stream *first, *last;
};

struct stream_pool {
	int epoll_fd;
	int event_fd;
	unsigned int max;
	unsigned int heartbeat_ms;
	unsigned int stall_ms;
	bool (*still)(void *ctx, const void *principal);
	void (*release)(void *ctx, const void *principal);
	void *ctx; /* for both */
	atomic_uint count;
	atomic_bool stopping;
	atomic_bool recheck;
	_Atomic(struct stream *) woken;
	struct stream_list quiet, stalled;
	uint64_t now_ms;
	pthread_t thread;
};

static void ring(struct stream_pool *p)
{
	uint64_t one = 1;

	/* Cannot fail but for a full counter, and then it is readable anyway. */
	(void)!write(p->event_fd, &one, sizeof(one));
}

static void push(struct stream *st)
{
	struct stream_pool *p = st->pool;
	struct stream *top = atomic_load(&p->woken);

	do
		st->below = top;
	while (!atomic_compare_exchange_weak(&p->woken, &top, st));
	if (!top)
		ring(p);
}

void stream_wake(struct stream *st)
{
	if (!atomic_exchange(&st->woken, true))
		push(st);
}

static struct stream_list *list_of(struct stream *st)
{
	return st->state == STREAM_STALLED ? &st->pool->stalled : &st->pool->quiet;
}

static void unlink_stream(struct stream *st)
{
	struct stream_list *l = list_of(st);

	if (st->prev)
		st->prev->next = st->next;
	else
		l->first = st->next;
	if (st->next)
		st->next->prev = st->prev;
	else
		l->last = st->prev;
	st->prev = st->next = NULL;
}

/* The one place where a stream changes its list. */
static void move_to(struct stream *st, enum stream_state state)
{
	struct stream_list *l;

	if (st->state == STREAM_QUIET || st->state == STREAM_STALLED)
		unlink_stream(st);
	st->state = state;
	if (state == STREAM_CLOSED)
		return;
	l = list_of(st);
	st->prev = l->last;
	if (l->last)
		l->last->next = st;
	else
		l->first = st;
	l->last = st;
}

static void stream_close(struct stream *st)
{
	struct stream_pool *p = st->pool;

	move_to(st, STREAM_CLOSED);
	/* libmicrohttpd may still hold the same socket, and then closing ours unwatches nothing. */
	(void)epoll_ctl(p->epoll_fd, EPOLL_CTL_DEL, st->fd, NULL);
	fd_close(&st->fd);
	atomic_fetch_sub(&p->count, 1); /* first: who hears of the close may count on the place */
	st->source.close(st->source.ctx);
	if (p->release && st->principal)
		p->release(p->ctx, st->principal);
	/* From here on nobody wakes it: either it stands in the stack, or never will. */
	if (!atomic_load(&st->woken))
		free(st);
}

/*
 * Send what is left.  1 when all is out, 0 when the socket is full, -1 when the
 * client is gone.
 */
static int flush(struct stream *st)
{
	while (st->left > 0) {
		ssize_t n = send(st->fd, st->data, st->left, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : -1;
		st->data += n;
		st->left -= (size_t)n;
		st->since_ms = st->pool->now_ms;
		move_to(st, st->state);
	}
	return 1;
}

/* Send and fetch until the socket is full or the source is empty; may close st. */
static void pump(struct stream *st)
{
	for (int pieces = 0;; pieces++) {
		int sent = flush(st);
		int more;

		if (sent < 0) {
			stream_close(st);
			return;
		}
		if (sent == 0) {
			if (st->state != STREAM_STALLED) {
				st->since_ms = st->pool->now_ms;
				move_to(st, STREAM_STALLED);
			}
			return;
		}
		if (st->state == STREAM_STALLED)
			move_to(st, STREAM_QUIET);
		if (pieces == PIECES_A_RUN) {
			stream_wake(st);
			return;
		}
		more = st->source.next(st->source.ctx, &st->data, &st->left);
		if (more < 0)
			stream_close(st);
		if (more <= 0)
			return;
	}
}

static int watch(struct stream *st)
{
	struct epoll_event ev = {
		.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
		.data.ptr = st,
	};

	return epoll_ctl(st->pool->epoll_fd, EPOLL_CTL_ADD, st->fd, &ev);
}

static bool denied(const struct stream *st)
{
	const struct stream_pool *p = st->pool;

	return p->still && st->principal && !p->still(p->ctx, st->principal);
}

/* Those that are new on the stack are looked at when they begin. */
static void close_denied(struct stream_pool *p)
{
	struct stream *const firsts[] = { p->quiet.first, p->stalled.first };

	for (size_t i = 0; i < sizeof(firsts) / sizeof(firsts[0]); i++) {
		for (struct stream *st = firsts[i], *next; st; st = next) {
			next = st->next;
			if (denied(st))
				stream_close(st);
		}
	}
}

static void begin(struct stream *st)
{
	st->since_ms = st->pool->now_ms;
	move_to(st, STREAM_QUIET);
	if (denied(st)) {
		stream_close(st);
		return;
	}
	if (watch(st) < 0) {
		log_warn("event stream: epoll_ctl: %m");
		stream_close(st);
		return;
	}
	if (st->source.attached)
		st->source.attached(st->source.ctx, st);
	pump(st);
}

static void serve_woken(struct stream_pool *p)
{
	struct stream *st = atomic_exchange(&p->woken, NULL);

	while (st) {
		struct stream *below = st->below;

		/* Before next() is asked, so that no wake is lost. */
		atomic_store(&st->woken, false);
		if (st->state == STREAM_CLOSED)
			free(st);
		else if (st->state == STREAM_NEW)
			begin(st);
		else
			pump(st);
		st = below;
	}
}

/* Whatever the client sends is read once and dropped; its end is the end of the stream. */
static void serve_event(struct stream *st, uint32_t events)
{
	char waste[4096];

	if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
		stream_close(st);
		return;
	}
	if (events & EPOLLIN)
		(void)!recv(st->fd, waste, sizeof(waste), MSG_DONTWAIT);
	if ((events & EPOLLOUT) && st->state == STREAM_STALLED)
		pump(st);
}

static void serve_timers(struct stream_pool *p)
{
	struct stream *st;

	while ((st = p->stalled.first) && st->since_ms + p->stall_ms <= p->now_ms)
		stream_close(st);
	while ((st = p->quiet.first) && st->since_ms + p->heartbeat_ms <= p->now_ms) {
		st->data = HEARTBEAT;
		st->left = strlen(HEARTBEAT);
		/* Counts as the last byte even when the socket is full: no second one is due. */
		st->since_ms = p->now_ms;
		move_to(st, STREAM_QUIET);
		pump(st);
	}
}

static int next_timer(const struct stream_pool *p)
{
	uint64_t at = 0;

	if (p->quiet.first)
		at = p->quiet.first->since_ms + p->heartbeat_ms;
	if (p->stalled.first && (!at || p->stalled.first->since_ms + p->stall_ms < at))
		at = p->stalled.first->since_ms + p->stall_ms;
	return clock_left_ms(at);
}

static void close_all(struct stream_pool *p)
{
	struct stream *st;

	while ((st = p->quiet.first) || (st = p->stalled.first))
		stream_close(st);
	st = atomic_exchange(&p->woken, NULL);
	while (st) {
		struct stream *below = st->below;

		atomic_store(&st->woken, false);
		if (st->state == STREAM_CLOSED)
			free(st);
		else
			stream_close(st);
		st = below;
	}
}

static void *stream_main(void *arg)
{
	struct stream_pool *p = arg;
	struct epoll_event events[EVENTS];

	while (!atomic_load(&p->stopping)) {
		int n = epoll_wait(p->epoll_fd, events, EVENTS, next_timer(p));

		p->now_ms = clock_mono_ms();
		for (int i = 0; i < n; i++) {
			uint64_t count;

			if (events[i].data.ptr)
				serve_event(events[i].data.ptr, events[i].events);
			else
				(void)!read(p->event_fd, &count, sizeof(count));
		}
		if (atomic_exchange(&p->recheck, false))
			close_denied(p);
		serve_woken(p);
		serve_timers(p);
	}
	close_all(p);
	return NULL;
}

bool stream_reserve(struct stream_pool *p)
{
	if (atomic_fetch_add(&p->count, 1) < p->max)
		return true;
	atomic_fetch_sub(&p->count, 1);
	return false;
}

void stream_unreserve(struct stream_pool *p)
{
	atomic_fetch_sub(&p->count, 1);
}

void stream_recheck(struct stream_pool *p)
{
	atomic_store(&p->recheck, true);
	ring(p);
}

/* A dead peer is noticed by unanswered bytes (heartbeats) or unanswered probes. */
static void set_socket(int fd, unsigned int stall_ms)
{
	int on = 1, off = 0, idle_s = 30, interval_s = 10, probes = 3, size = SEND_BUFFER;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_CORK, &off, sizeof(off));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &stall_ms, sizeof(stall_ms));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
}

bool stream_adopt(struct stream_pool *p, int fd, const struct stream_source *source,
                  const void *principal)
{
	struct stream *st = calloc(1, sizeof(*st));

	if (!st)
		return false;
	set_socket(fd, p->stall_ms);
	st->pool = p;
	st->fd = fd;
	st->source = *source;
	st->principal = principal;
	stream_wake(st);
	return true;
}

static void pool_free(struct stream_pool *p)
{
	fd_close(&p->epoll_fd);
	fd_close(&p->event_fd);
	free(p);
}

static int pool_open(struct stream_pool *p, struct err *e)
{
	struct epoll_event ev = { .events = EPOLLIN };

	p->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	p->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->epoll_fd < 0 || p->event_fd < 0)
		return err_errno(e, "event streams");
	if (epoll_ctl(p->epoll_fd, EPOLL_CTL_ADD, p->event_fd, &ev) < 0)
		return err_errno(e, "event streams: epoll_ctl");
	return 0;
}

int stream_start(const struct http_conf *conf, struct stream_pool **ret, struct err *e)
{
	struct stream_pool *p = calloc(1, sizeof(*p));
	int failed;

	if (!p)
		return err_errno(e, "event streams");
	p->max = conf->max_streams;
	p->heartbeat_ms = conf->heartbeat_ms;
	p->stall_ms = conf->stall_ms;
	p->still = conf->still;
	p->release = conf->release;
	p->ctx = conf->ctx;
	if (pool_open(p, e) < 0) {
		pool_free(p);
		return -1;
	}
	failed = pthread_create(&p->thread, NULL, stream_main, p);
	if (failed) {
		pool_free(p);
		return err_set(e, failed, "cannot start the thread of event streams");
	}
	*ret = p;
	return 0;
}

void stream_stop(struct stream_pool **p)
{
	if (!*p)
		return;
	atomic_store(&(*p)->stopping, true);
	ring(*p);
	pthread_join((*p)->thread, NULL);
	pool_free(*p);
	*p = NULL;
}

unsigned int stream_count(const struct stream_pool *p)
{
	return atomic_load(&p->count);
}
