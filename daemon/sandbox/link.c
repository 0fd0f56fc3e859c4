#include "daemon/sandbox/link.h"

#include "daemon/sandbox/call.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/json.h"
#include "common/log.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define TICK_MS   100 /* how late a deadline may be noticed */
#define EVENTS    64
#define READY_MAX 256 /* bytes of JSON in READY */

/* -- what is watched ------------------------------------------------------------------------- */

static bool watch(struct sandboxes *pool, int fd, uint32_t events, struct source *source)
{
	struct epoll_event event = { .events = events, .data.ptr = source };

	return epoll_ctl(pool->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

bool link_watch_in(struct sandbox *sb)
{
	return watch(sb->pool, sb->from_guest, EPOLLIN, &sb->from_source);
}

bool link_watch_out(struct sandbox *sb, bool on)
{
	bool done = true;

	/* Only while something waits: a watched descriptor always reports its errors. */
	if (on && !sb->to_watched)
		done = watch(sb->pool, sb->to_guest, EPOLLOUT, &sb->to_source);
	else if (!on && sb->to_watched)
		done = epoll_ctl(sb->pool->epoll, EPOLL_CTL_DEL, sb->to_guest, NULL) == 0;
	if (done)
		sb->to_watched = on;
	return done;
}

int link_open(struct sandboxes *pool, struct err *e)
{
	pool->launcher_source.kind = SOURCE_LAUNCHER;
	pool->wake_source.kind = SOURCE_WAKE;
	pool->epoll = epoll_create1(EPOLL_CLOEXEC);
	pool->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (pool->epoll >= 0 && pool->wake >= 0 &&
	    watch(pool, pool->wake, EPOLLIN, &pool->wake_source) &&
	    watch(pool, pool->conf.launcher_sock, EPOLLIN, &pool->launcher_source))
		return 0;
	(void)err_errno(e, "prepare the link thread");
	link_close(pool);
	return -1;
}

void link_close(struct sandboxes *pool)
{
	fd_close(&pool->epoll);
	fd_close(&pool->wake);
}

void link_wake(struct sandboxes *pool)
{
	(void)eventfd_write(pool->wake, 1);
}

/* -- from a guest ---------------------------------------------------------------------------- */

static int check_ready(const struct frame *f, struct err *e)
{
	static const struct json_field fields[] = {
		{ .name = "version", .type = JSON_INT, .required = true },
		{ .name = "pid", .type = JSON_INT, .required = true },
	};
	const struct json *values[ARRAY_LEN(fields)];
	struct json_faults faults = { .count = 0 };
	auto_json struct json *doc = NULL;

	if (f->call != 0 || f->len > READY_MAX)
		return err_set(e, EPROTO, "READY of call %llu with %zu bytes",
		               (unsigned long long)f->call, f->len);
	if (call_parse(f->payload, f->len, &doc, e) < 0)
		return err_wrap(e, "READY");
	if (!json_fields(doc, "", fields, ARRAY_LEN(fields), values, &faults))
		return err_set(e, EPROTO, "READY: %s", faults.first.text);
	if (json_int(values[0]) != FRAME_VERSION)
		return err_set(e, EPROTO, "the guest speaks version %lld of the protocol, not %d",
		               (long long)json_int(values[0]), FRAME_VERSION);
	return 0;
}

static int take_ready(struct sandbox *sb, const struct frame *f, struct err *e)
{
	if (sb->state != STATE_STARTING)
		return err_set(e, EPROTO, "a second READY");
	if (check_ready(f, e) < 0)
		return -1;
	sandbox_ready(sb);
	return 0;
}

static int take_pong(struct sandbox *sb, const struct frame *f, struct err *e)
{
	if (!sb->ping_sent || f->call != 0)
		return err_set(e, EPROTO, "PONG without a PING");
	if (f->len != 4)
		return err_set(e, EPROTO, "PONG with %zu bytes", f->len);
	sb->ping_sent = 0;
	sandbox_answered(sb, frame_number(f));
	return 0;
}

static int take_frame(struct sandbox *sb, const struct frame *f, struct err *e)
{
	if (sb->state == STATE_STARTING && f->type != FRAME_READY)
		return err_set(e, EPROTO, "frame type 0x%02x before READY", (unsigned int)f->type);
	switch (f->type) {
	case FRAME_READY:
		return take_ready(sb, f, e);
	case FRAME_PONG:
		return take_pong(sb, f, e);
	case FRAME_STDOUT:
	case FRAME_STDERR:
	case FRAME_EXIT:
	case FRAME_CREDIT:
		return call_frame(sb, f, e);
	case FRAME_HELLO:
	case FRAME_START:
	case FRAME_INPUT:
	case FRAME_END:
	case FRAME_CANCEL:
	case FRAME_PING:
	default:
		return err_set(e, EPROTO, "frame type 0x%02x, which only the daemon sends",
		               (unsigned int)f->type);
	}
}

/* Take all whole frames; returns how many bytes they were. */
static size_t take_frames(struct sandbox *sb, const char *data, size_t len)
{
	struct err e = ERR_INIT;
	struct frame f;
	size_t used = 0, size = 0;
	int got = 0;

	while (sandbox_is_live(sb) &&
	       (got = frame_get(data + used, len - used, &f, &size, &e)) > 0) {
		used += size;
		if (take_frame(sb, &f, &e) < 0) {
			got = -1;
			break;
		}
	}
	if (got < 0)
		sandbox_break(sb, "protocol error: %s", e.text);
	return used;
}

static void take_bytes(struct sandbox *sb, const char *data, size_t len)
{
	size_t used;

	sb->quiet_since = clock_mono_ms();
	if (sb->partial.len) {
		buf_add(&sb->partial, data, len);
		data = sb->partial.data;
		len = sb->partial.len;
	}
	used = take_frames(sb, data, len);
	if (data == sb->partial.data)
		buf_consume(&sb->partial, used);
	else
		buf_add(&sb->partial, data + used, len - used);
	if (!sb->partial.len)
		buf_release(&sb->partial);
	if (buf_failed(&sb->partial))
		sandbox_break(sb, "no memory for what the guest sends");
}

/* Its end may come in the middle of a frame: what ends it does not ask first. */
static void take_end(struct sandbox *sb, ssize_t n)
{
	if (n < 0)
		sandbox_break(sb, "read from the guest: %s", strerrordesc_np(errno));
	else if (sb->partial.len)
		sandbox_gone(sb, "the guest ended in the middle of a frame");
	else
		sandbox_gone(sb, "the guest ended");
}

/* One read, so that every other sandbox gets its turn before the next one. */
static void read_guest(struct sandbox *sb)
{
	struct sandboxes *pool = sb->pool;
	bool live;
	ssize_t n;

	pthread_mutex_lock(&pool->lock);
	live = sandbox_is_live(sb) &&
	       sb->from_guest >= 0; /* the event may be of the generation before */
	pthread_mutex_unlock(&pool->lock);
	if (!live)
		return;
	n = read(sb->from_guest, pool->read_space, sizeof(pool->read_space));
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	pthread_mutex_lock(&pool->lock);
	if (sandbox_is_live(sb) && n > 0)
		take_bytes(sb, pool->read_space, (size_t)n);
	else if (sandbox_is_live(sb))
		take_end(sb, n);
	pthread_mutex_unlock(&pool->lock);
}

/* -- from the launcher ----------------------------------------------------------------------- */

static void take_message(struct sandboxes *pool, const struct launcher_message *m, int fds[2])
{
	struct sandbox *sb = pool->active;

	while (sb && (sb->generation != m->generation || !uuid_equal(&sb->tenant, &m->tenant)))
		sb = sb->next;
	if (!sb) /* of a generation that is over */
		return;
	if (m->op == LAUNCHER_STARTED && fds[0] < 0)
		sandbox_break(sb, "no descriptors are left for the pipes to the guest");
	else if (m->op == LAUNCHER_STARTED)
		sandbox_started(sb, fd_take(&fds[0]), fd_take(&fds[1]), m->processes);
	else
		sandbox_exited(sb, m->status, m->cause);
}

static void lose_launcher(struct sandboxes *pool, const char *why)
{
	log_error("the launcher is gone: %s", why);
	/* First: who then loses a call knows that it is not the sandbox that failed. */
	if (pool->conf.launcher_message)
		pool->conf.launcher_message(pool->conf.ctx, 0);
	pthread_mutex_lock(&pool->lock);
	pool->launcher_gone = true;
	(void)epoll_ctl(pool->epoll, EPOLL_CTL_DEL, pool->conf.launcher_sock, NULL);
	while (pool->active)
		sandbox_exited(pool->active, -1, "the launcher is gone");
	pool_refuse(pool, SANDBOX_START_FAILED, "the launcher is gone; restart cloisterd");
	pthread_mutex_unlock(&pool->lock);
}

static void handle_message(struct sandboxes *pool, const struct launcher_message *m, int fds[2])
{
	switch (m->op) {
	case LAUNCHER_STARTED:
	case LAUNCHER_EXITED:
		pthread_mutex_lock(&pool->lock);
		take_message(pool, m, fds);
		pthread_mutex_unlock(&pool->lock);
		break;
	case LAUNCHER_DRAIN:
		if (pool->conf.launcher_message)
			pool->conf.launcher_message(pool->conf.ctx, LAUNCHER_DRAIN);
		break;
	case LAUNCHER_REGISTRY:
	case LAUNCHER_PURGE:
	case LAUNCHER_STATUS:
	case LAUNCHER_PAUSE:
		if (pool->conf.launcher_order)
			pool->conf.launcher_order(pool->conf.ctx, m, &fds[0]);
		break;
	default:
		log_error("refused message %u from the launcher", m->op);
	}
}

static void read_launcher(struct sandboxes *pool)
{
	struct launcher_message m;
	struct err e = ERR_INIT;
	int fds[2] = { -1, -1 };
	int got;

	if (pool->launcher_gone)
		return;
	got = launcher_receive(pool->conf.launcher_sock, &m, fds, &e);
	if (got > 0)
		handle_message(pool, &m, fds);
	else if (got == 0)
		lose_launcher(pool, "it closed the socket");
	else if (e.code != EAGAIN && e.code != EINTR)
		lose_launcher(pool, e.text);
	fd_close(&fds[0]);
	fd_close(&fds[1]);
}

/* -- the thread ------------------------------------------------------------------------------ */

static void flush_guest(struct sandbox *sb)
{
	pthread_mutex_lock(&sb->pool->lock);
	sandbox_flush(sb);
	pthread_mutex_unlock(&sb->pool->lock);
}

static void handle_event(struct sandboxes *pool, const struct source *source)
{
	eventfd_t count;

	switch (source->kind) {
	case SOURCE_LAUNCHER:
		read_launcher(pool);
		break;
	case SOURCE_WAKE:
		(void)eventfd_read(pool->wake, &count);
		break;
	case SOURCE_FROM_GUEST:
		read_guest(source->sb);
		break;
	case SOURCE_TO_GUEST:
		flush_guest(source->sb);
		break;
	}
}

/* Do what is due, at most every tick unless asked for.  -1 forever, or ms to the next time. */
static int upkeep(struct sandboxes *pool, bool asked, uint64_t *next)
{
	uint64_t now = clock_mono_ms();
	bool any;

	pthread_mutex_lock(&pool->lock);
	if (asked || now >= *next) {
		for (struct sandbox *sb = pool->active; sb; sb = sb->next)
			sandbox_upkeep(sb, now);
		*next = now + TICK_MS;
	}
	any = pool->active || pool->stopping;
	pthread_mutex_unlock(&pool->lock);
	return any ? clock_left_ms(*next) : -1;
}

static bool is_over(struct sandboxes *pool)
{
	bool over;

	pthread_mutex_lock(&pool->lock);
	over = pool->stopping && (!pool->active || clock_mono_ms() >= pool->stop_deadline);
	pthread_mutex_unlock(&pool->lock);
	return over;
}

void *link_run(void *arg)
{
	struct sandboxes *pool = arg;
	struct epoll_event events[EVENTS];
	uint64_t next = 0;
	bool asked = true;

	while (!is_over(pool)) {
		int n = epoll_wait(pool->epoll, events, EVENTS, upkeep(pool, asked, &next));

		asked = false;
		for (int i = 0; i < n; i++) {
			const struct source *source = events[i].data.ptr;

			asked = asked || source->kind == SOURCE_WAKE;
			handle_event(pool, source);
		}
	}
	return NULL;
}
