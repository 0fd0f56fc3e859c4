#include "daemon/sandbox/pool.h"

#include "daemon/sandbox/call.h"
#include "daemon/sandbox/link.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/log.h"
#include "daemon/metrics/metrics.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* -- the table ------------------------------------------------------------------------------- */

static struct sandbox **bucket_of(struct sandboxes *pool, const struct uuid *tenant)
{
	uint32_t hash = 2166136261U;

	for (size_t i = 0; i < UUID_TEXT_LEN; i++)
		hash = (hash ^ (unsigned char)tenant->text[i]) * 16777619U;
	return &pool->buckets[hash % POOL_BUCKETS];
}

static struct sandbox *sandbox_new(struct sandboxes *pool, const struct uuid *tenant)
{
	struct sandbox *sb = calloc(1, sizeof(*sb));

	if (!sb)
		return NULL;
	sb->pool = pool;
	sb->tenant = *tenant;
	sb->from_source = (struct source){ .kind = SOURCE_FROM_GUEST, .sb = sb };
	sb->to_source = (struct source){ .kind = SOURCE_TO_GUEST, .sb = sb };
	sb->from_guest = sb->to_guest = -1;
	sb->partial.max = FRAME_HEADER_SIZE + FRAME_CONTROL_MAX + POOL_READ_SIZE;
	sb->out.max = OUT_MAX;
	return sb;
}

struct sandbox *pool_find(struct sandboxes *pool, const struct uuid *tenant)
{
	struct sandbox **bucket = bucket_of(pool, tenant);
	struct sandbox *sb;

	for (sb = *bucket; sb; sb = sb->next_in_bucket)
		if (uuid_equal(&sb->tenant, tenant))
			return sb;
	sb = sandbox_new(pool, tenant);
	if (sb) {
		sb->next_in_bucket = *bucket;
		*bucket = sb;
	}
	return sb;
}

/* -- states ---------------------------------------------------------------------------------- */

static void list_add(struct sandbox *sb)
{
	sb->prev = NULL;
	sb->next = sb->pool->active;
	if (sb->next)
		sb->next->prev = sb;
	sb->pool->active = sb;
}

static void list_remove(struct sandbox *sb)
{
	if (sb->prev)
		sb->prev->next = sb->next;
	else
		sb->pool->active = sb->next;
	if (sb->next)
		sb->next->prev = sb->prev;
}

/* The only place that changes a state. */
static void sandbox_move(struct sandbox *sb, enum sandbox_state to)
{
	static const bool legal[4][4] = {
		[STATE_STOPPED] = { [STATE_STARTING] = true },
		[STATE_STARTING] = { [STATE_RUNNING] = true, [STATE_ENDING] = true },
		[STATE_RUNNING] = { [STATE_ENDING] = true },
		[STATE_ENDING] = { [STATE_STOPPED] = true },
	};

	if (!legal[sb->state][to])
		abort();
	if (sb->state == STATE_STOPPED) {
		list_add(sb);
		sb->pool->active_count++;
	}
	if (to == STATE_STOPPED) {
		list_remove(sb);
		sb->pool->active_count--;
	}
	sb->state = to;
}

/* Whoever asks the launcher may see its end before the link thread does. */
static bool is_end_of_launcher(const struct sandboxes *pool, const struct err *e)
{
	return !pool->launcher_gone &&
	       (e->code == EPIPE || e->code == ECONNRESET || e->code == ENOTCONN);
}

static int send_op(struct sandbox *sb, enum launcher_op op, struct err *e)
{
	struct launcher_message m = { .op = op, .generation = sb->generation };

	m.tenant = sb->tenant;
	if (sb->pool->launcher_gone)
		return err_set(e, EPIPE, "the launcher is gone; restart cloisterd");
	return launcher_send(sb->pool->conf.launcher_sock, &m, NULL, e);
}

static void sandbox_kill(struct sandbox *sb)
{
	struct err e = ERR_INIT;

	sb->deadline = 0;
	sb->kill_wanted = send_op(sb, LAUNCHER_KILL, &e) < 0 && !sb->pool->launcher_gone;
}

/* Refuse the waiters of one generation; 0 = all. */
static void refuse_waiters(struct sandbox *sb, uint64_t generation, int code, const char *why)
{
	struct call *next;

	for (struct call *c = sb->waiting; c; c = next) {
		next = c->next;
		if (!generation || c->generation == generation)
			call_refuse(c, code, why);
	}
}

void pool_refuse(struct sandboxes *pool, int code, const char *why)
{
	for (size_t i = 0; i < POOL_BUCKETS; i++)
		for (struct sandbox *sb = pool->buckets[i]; sb; sb = sb->next_in_bucket)
			refuse_waiters(sb, 0, code, why);
}

static void refuse_start(struct sandbox *sb, int code, const char *why)
{
	unsigned int left_out;

	if (log_paced(&sb->pool->refusals, &left_out))
		log_warn("sandbox of tenant %s does not start: %s (%u more since the last line)",
		         sb->tenant.text, why, left_out);
	metric_count(METRIC_SANDBOX_START, METRIC_LIMIT);
	refuse_waiters(sb, 0, code, why);
}

/* One that ends counts until it is gone: so long it still has its share of the machine. */
static bool at_limit(struct sandbox *sb)
{
	const struct sandboxes *pool = sb->pool;
	char why[128];

	if (pool->active_count < pool->conf.max_active)
		return false;
	(void)snprintf(
		why, sizeof(why),
		"%u sandboxes run, and no more may (--max-active-sandboxes); try again later",
		pool->active_count);
	refuse_start(sb, SANDBOX_LIMIT, why);
	return true;
}

/* -- faults ---------------------------------------------------------------------------------- */

/* What counts, one less for each while that has passed. */
static unsigned int faults_of(struct sandbox *sb, uint64_t now)
{
	uint64_t passed = (now - sb->faults_ms) / FAULT_MS;

	sb->faults -= passed < sb->faults ? (unsigned int)passed : sb->faults;
	sb->faults_ms = sb->faults ? sb->faults_ms + passed * FAULT_MS : now;
	return sb->faults;
}

static void count_fault(struct sandbox *sb)
{
	if (faults_of(sb, clock_mono_ms()) < sb->pool->conf.max_faults)
		sb->faults++;
}

/* Each start is work for the machine and lines in the log, and some guests want nothing else. */
static bool ended_too_often(struct sandbox *sb)
{
	const struct sandboxes *pool = sb->pool;

	if (!pool->conf.max_faults || faults_of(sb, clock_mono_ms()) < pool->conf.max_faults)
		return false;
	refuse_start(sb, SANDBOX_START_FAILED,
	             "it ended by faults too often of late; try again in a second");
	return true;
}

/* A start whose pipes could not be taken would be in vain. */
static bool has_descriptors(struct err *e)
{
	auto_close int one = eventfd(0, EFD_CLOEXEC);
	auto_close int two = one < 0 ? -1 : eventfd(0, EFD_CLOEXEC);

	return two >= 0 || err_shortage(e, "start a sandbox") == 0;
}

void sandbox_begin(struct sandbox *sb)
{
	struct err e = ERR_INIT;

	if (at_limit(sb) || ended_too_often(sb))
		return;
	if (!has_descriptors(&e)) {
		refuse_waiters(sb, 0, e.code, e.text);
		return;
	}
	sb->generation = ++sb->pool->last_generation;
	sb->why.code = 0;
	if (send_op(sb, LAUNCHER_START, &e) < 0) {
		/* Else the link thread, which reads the same end, tells them. */
		if (!is_end_of_launcher(sb->pool, &e))
			refuse_waiters(sb, 0, SANDBOX_START_FAILED, e.text);
		return;
	}
	sandbox_move(sb, STATE_STARTING);
	sb->begun_ms = clock_mono_ms();
	sb->ran = sb->used = false;
	sb->deadline = sb->begun_ms + sb->pool->conf.start_timeout_ms;
	for (struct call *c = sb->waiting; c; c = c->next)
		c->generation = sb->generation;
	link_wake(sb->pool);
}

static void say_hello(struct sandbox *sb, uint32_t processes)
{
	struct buf hello = BUF_INIT(256);

	buf_addf(&hello, "{\"version\":%d,\"tenant\":\"%s\",\"processes\":%u}", FRAME_VERSION,
	         sb->tenant.text, processes);
	if (!buf_failed(&hello))
		sandbox_put(sb, FRAME_HELLO, 0, hello.data, hello.len);
	buf_release(&hello);
}

void sandbox_started(struct sandbox *sb, int to_guest, int from_guest, uint32_t processes)
{
	auto_close int to = to_guest, from = from_guest;
	struct err e = ERR_INIT;

	if (sb->state != STATE_STARTING || sb->to_guest >= 0)
		return;
	if (fd_set_nonblocking(to, &e) < 0 || fd_set_nonblocking(from, &e) < 0) {
		sandbox_break(sb, "%s", e.text);
		return;
	}
	sb->to_guest = fd_take(&to);
	sb->from_guest = fd_take(&from);
	if (!link_watch_in(sb))
		sandbox_break(sb, "cannot wait for the guest: %s", strerrordesc_np(errno));
	else
		say_hello(sb, processes);
}

void sandbox_ready(struct sandbox *sb)
{
	struct call *next;

	sandbox_move(sb, STATE_RUNNING);
	sb->ran = true;
	metric_count(METRIC_SANDBOX_START, METRIC_RUNS);
	metric_time(METRIC_TIME_START, (clock_mono_ms() - sb->begun_ms) * 1000);
	sb->idle_since = sb->quiet_since = clock_mono_ms();
	sb->ping_sent = 0;
	log_info("sandbox of tenant %s runs", sb->tenant.text);
	for (struct call *c = sb->waiting; c && sb->state == STATE_RUNNING; c = next) {
		next = c->next;
		call_admit(c);
	}
	/* Let in the first ones broke it: the others wait for the next generation. */
	for (struct call *c = sb->waiting; c; c = c->next)
		c->generation = 0;
}

/* Open calls are told at once, or as soon as the runner has said why. */
enum telling {
	TELL_NOW,
	TELL_LATER,
};

static void end_calls(struct sandbox *sb, enum telling telling)
{
	for (size_t i = 0; i < FRAME_CALLS_MAX; i++) {
		if (sb->calls[i] && telling == TELL_LATER)
			call_doom(sb->calls[i]);
		else if (sb->calls[i])
			call_lose(sb->calls[i], EXEC_LOST);
	}
}

static void lose_doomed(struct sandbox *sb, enum exec_reason loss)
{
	while (sb->doomed)
		call_lose(sb->doomed, loss);
}

/* After ending_ms follows KILL; 0 = at once. */
static void sandbox_end(struct sandbox *sb, enum telling telling, unsigned int ending_ms)
{
	end_calls(sb, telling);
	sandbox_move(sb, STATE_ENDING);
	if (ending_ms)
		sb->deadline = clock_mono_ms() + ending_ms;
	else
		sandbox_kill(sb);
	link_wake(sb->pool);
}

/* Of a start that failed, why is said to those who wait for it. */
static void note_why(struct sandbox *sb, const char *why, unsigned int wait_ms)
{
	log_warn("sandbox of tenant %s is ended: %s", sb->tenant.text, why);
	if (sb->state == STATE_STARTING)
		(void)err_set(&sb->why, SANDBOX_START_FAILED, "%s", why);
	count_fault(sb);
	sb->cause_deadline = clock_mono_ms() + wait_ms;
}

void sandbox_break(struct sandbox *sb, const char *fmt, ...)
{
	char why[300];
	va_list ap;

	/* A second fault of one that is given time ends its time. */
	if (sb->state == STATE_ENDING && sb->deadline)
		sandbox_kill(sb);
	if (!sandbox_is_live(sb))
		return;
	va_start(ap, fmt);
	(void)vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	note_why(sb, why, CAUSE_WAIT_MS);
	sandbox_end(sb, TELL_NOW, 0);
}

void sandbox_gone(struct sandbox *sb, const char *fmt, ...)
{
	char why[300];
	va_list ap;

	if (!sandbox_is_live(sb))
		return;
	va_start(ap, fmt);
	(void)vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	note_why(sb, why, LOSS_WAIT_MS);
	sandbox_end(sb, TELL_LATER, LOSS_WAIT_MS);
}

void sandbox_finish(struct sandbox *sb)
{
	if (sandbox_is_live(sb))
		sandbox_end(sb, TELL_NOW, sb->state == STATE_STARTING ? 0 : ENDING_MS);
}

static void close_pipes(struct sandbox *sb)
{
	fd_close(&sb->to_guest);
	fd_close(&sb->from_guest);
	sb->to_watched = false;
	sb->out_done = 0;
	sb->out.failed = sb->partial.failed = false;
	buf_release(&sb->out);
	buf_release(&sb->partial);
}

/* What the runner's exit status says about what ended the sandbox (runner/runner.h). */
static enum exec_reason loss_of(int status)
{
	switch (status) {
	case RUNNER_OOM:
		return EXEC_OOM;
	case RUNNER_PIDS:
		return EXEC_PIDS;
	case RUNNER_NO_ROOM:
		return EXEC_DISK_FULL;
	default:
		return EXEC_LOST;
	}
}

/* Tell those who waited for this start why it failed.  cause: the runner's, or NULL. */
static void report_failed_start(struct sandbox *sb, int status, const char *cause)
{
	struct err e = sb->why;

	if (status == RUNNER_NO_ROOM)
		(void)err_set(&e, SANDBOX_NO_ROOM, "%s", cause);
	else if (!e.code)
		(void)err_set(&e, SANDBOX_START_FAILED, "%s", cause ? cause : "unknown reason");
	else if (cause)
		(void)err_set(&e, SANDBOX_START_FAILED, "%.200s (%s)", sb->why.text, cause);
	refuse_waiters(sb, sb->generation, e.code, e.text);
	sb->cause_deadline = 0;
}

static void count_end(const struct sandbox *sb, int status)
{
	static const enum metric_loss losses[] = {
		[EXEC_LOST] = METRIC_LOST,
		[EXEC_OOM] = METRIC_OOM,
		[EXEC_PIDS] = METRIC_PIDS,
		[EXEC_DISK_FULL] = METRIC_DISK_FULL,
	};

	if (sb->ran)
		metric_count(METRIC_SANDBOX_END,
		             status == 0 ? METRIC_ENDED : losses[loss_of(status)]);
	else
		metric_count(METRIC_SANDBOX_START,
		             status == RUNNER_NO_ROOM ? METRIC_NO_ROOM : METRIC_NOT_STARTED);
}

void sandbox_exited(struct sandbox *sb, int status, const char *cause)
{
	char text[64];

	if (!*cause) {
		(void)snprintf(text, sizeof(text), "%s %d",
		               status > 128 ? "runner ended by signal" : "runner ended with status",
		               status > 128 ? status - 128 : status);
		cause = text;
	}
	log_info("sandbox of tenant %s ended: %s", sb->tenant.text, cause);
	count_end(sb, status);
	if (sb->state != STATE_ENDING)
		sandbox_end(sb, TELL_LATER, ENDING_MS);
	lose_doomed(sb, loss_of(status));
	report_failed_start(sb, status, cause);
	close_pipes(sb);
	sb->deadline = 0;
	sb->kill_wanted = false;
	sandbox_move(sb, STATE_STOPPED);
	if (sb->waiting)
		sandbox_begin(sb);
}

/* -- what is due ----------------------------------------------------------------------------- */

static bool is_idle(const struct sandbox *sb, uint64_t now)
{
	return now - sb->idle_since >= sb->pool->conf.idle_ms;
}

static void check_running(struct sandbox *sb, uint64_t now)
{
	const struct sandboxes *pool = sb->pool;

	if (sb->ping_sent && now - sb->ping_sent >= pool->pong_ms) {
		sandbox_break(sb, "the guest does not answer");
	} else if (!sb->ping_sent && ((sb->open && now - sb->quiet_since >= pool->ping_after_ms) ||
	                              (!sandbox_has_work(sb) && is_idle(sb, now)))) {
		sb->ping_sent = now;
		sandbox_put(sb, FRAME_PING, 0, NULL, 0);
	}
}

void sandbox_answered(struct sandbox *sb, uint32_t survivors)
{
	uint64_t now = clock_mono_ms();

	if (sandbox_has_work(sb) || !is_idle(sb, now))
		return;
	/* A process in the background is work, too; it is asked for again later. */
	sb->idle_since = now;
	if (survivors)
		return;
	log_info("sandbox of tenant %s stops: idle", sb->tenant.text);
	sandbox_finish(sb);
}

static void check_ending(struct sandbox *sb, uint64_t now)
{
	close_pipes(sb);
	if (sb->kill_wanted || (sb->deadline && now >= sb->deadline))
		sandbox_kill(sb);
	if (sb->cause_deadline && now >= sb->cause_deadline) {
		lose_doomed(sb, EXEC_LOST);
		report_failed_start(sb, -1, NULL);
	}
}

void sandbox_upkeep(struct sandbox *sb, uint64_t now)
{
	if (sb->state == STATE_STARTING && now >= sb->deadline)
		sandbox_break(sb, "not ready within %u ms", sb->pool->conf.start_timeout_ms);
	else if (sb->state == STATE_RUNNING)
		check_running(sb, now);
	if (sb->state == STATE_ENDING)
		check_ending(sb, now);
}

/* -- frames for the guest -------------------------------------------------------------------- */

size_t sandbox_backlog(const struct sandbox *sb)
{
	return sb->out.len - sb->out_done;
}

/* Copies at most as many bytes as were written since the last time. */
static void drop_written(struct sandbox *sb)
{
	if (sb->out_done == sb->out.len)
		buf_release(&sb->out);
	else if (sb->out_done >= sb->out.len / 2)
		buf_consume(&sb->out, sb->out_done);
	else
		return;
	sb->out_done = 0;
}

static void wake_those_who_want_room(struct sandbox *sb)
{
	if (!sb->out_wanted || sandbox_backlog(sb) > OUT_INPUT_MAX / 2)
		return;
	sb->out_wanted = false;
	for (size_t i = 0; i < FRAME_CALLS_MAX; i++)
		if (sb->calls[i] && sb->calls[i]->wants_room)
			call_wake(sb->calls[i]);
}

void sandbox_flush(struct sandbox *sb)
{
	ssize_t n = 0;

	if (sb->to_guest < 0 || sb->state == STATE_ENDING)
		return;
	while (sandbox_backlog(sb)) {
		n = write(sb->to_guest, sb->out.data + sb->out_done, sandbox_backlog(sb));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			break;
		sb->out_done += (size_t)n;
	}
	if (n < 0 && errno == EPIPE) {
		sandbox_gone(sb, "the guest has closed its input");
		return;
	}
	if (n < 0 && errno != EAGAIN) {
		sandbox_break(sb, "write to the guest: %s", strerrordesc_np(errno));
		return;
	}
	drop_written(sb);
	if (!link_watch_out(sb, sandbox_backlog(sb) > 0))
		sandbox_break(sb, "cannot wait for the guest: %s", strerrordesc_np(errno));
	else
		wake_those_who_want_room(sb);
}

static void check_out(struct sandbox *sb)
{
	if (buf_failed(&sb->out))
		sandbox_break(sb, "the guest does not read: %zu bytes wait for it",
		              sandbox_backlog(sb));
	else
		sandbox_flush(sb);
}

void sandbox_put(struct sandbox *sb, enum frame_type type, uint64_t call, const void *payload,
                 size_t len)
{
	frame_put(&sb->out, type, call, payload, len);
	check_out(sb);
}

void sandbox_put_credit(struct sandbox *sb, uint64_t call, uint32_t bytes)
{
	frame_put_credit(&sb->out, call, bytes);
	check_out(sb);
}
