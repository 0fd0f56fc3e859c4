#include "daemon/sandbox/call.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/log.h"
#include "common/utf8.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>

#define SLOT_BITS   8
#define SLOT_MASK   (FRAME_CALLS_MAX - 1)
#define GRANT_AFTER (FRAME_WINDOW / 4) /* smaller grants would only be more frames */
#define CHUNK_HEAD  sizeof(uint32_t)
#define SHORTAGE_MS 200         /* until another try, when descriptors or memory are short */
#define STREAM_BIT  0x80000000U /* in the head of a chunk: standard error */

_Static_assert(FRAME_CALLS_MAX == 1 << SLOT_BITS, "a slot is the low byte of a call's id");

/* -- for the link thread (locked) ------------------------------------------------------------ */

void call_wake(struct call *c)
{
	(void)eventfd_write(c->event, 1);
}

static void stop_waiting(struct call *c)
{
	struct call **at = &c->sb->waiting;

	while (*at && *at != c)
		at = &(*at)->next;
	if (*at)
		*at = c->next;
	c->next = NULL;
}

void call_refuse(struct call *c, int code, const char *why)
{
	stop_waiting(c);
	if (c->sb->alone == c)
		c->sb->alone = NULL;
	c->state = CALL_REFUSED;
	(void)err_set(&c->refusal, code, "%s", why);
	call_wake(c);
}

/*
 * From when one wants to be alone nobody else enters, so that its turn comes.  What earlier
 * calls left behind, a changed guest even, ends with the sandbox that they ran in.
 */
static bool may_enter(struct call *c)
{
	struct sandbox *sb = c->sb;

	if (sb->alone && sb->alone != c)
		return false;
	if (!c->alone)
		return true;
	sb->alone = c;
	if (sandbox_has_work(sb))
		return false;
	if (!sb->used)
		return true;
	c->restarts = true;
	log_info("sandbox of tenant %s stops: a call wants one that nothing has used",
	         sb->tenant.text);
	sandbox_finish(sb);
	return false;
}

void call_admit(struct call *c)
{
	struct sandbox *sb = c->sb;
	size_t slot = 0;

	if (!may_enter(c))
		return;
	while (slot < FRAME_CALLS_MAX && sb->calls[slot])
		slot++;
	if (slot == FRAME_CALLS_MAX || sandbox_backlog(sb) > OUT_START_MAX) {
		call_refuse(c, SANDBOX_BUSY, "too many calls are open in this sandbox");
		return;
	}
	stop_waiting(c);
	sb->used = true;
	if (!sb->open++)
		sb->quiet_since = clock_mono_ms();
	sb->calls[slot] = c;
	c->state = CALL_OPEN;
	c->generation = sb->generation;
	c->id = ++sb->calls_made << SLOT_BITS | slot;
	c->window = c->credit = FRAME_WINDOW;
	call_wake(c);
	sandbox_put(sb, FRAME_START, c->id, c->start.data, c->start.len);
	if (c->state == CALL_OPEN && !c->has_input)
		sandbox_put(sb, FRAME_END, c->id, NULL, 0);
}

static void leave_slot(struct call *c, enum call_state state)
{
	struct sandbox *sb = c->sb;

	sb->calls[c->id & SLOT_MASK] = NULL;
	sb->open--;
	if (c->resting)
		sb->resting--;
	else if (!sandbox_has_work(sb))
		sb->idle_since = clock_mono_ms();
	c->resting = false;
	if (sb->alone == c)
		sb->alone = NULL;
	c->state = state;
	call_wake(c);
}

/* Let in who waited for somebody's end. */
void sandbox_admit(struct sandbox *sb)
{
	struct call *next;

	for (struct call *c = sb->waiting; c && sb->state == STATE_RUNNING; c = next) {
		next = c->next;
		call_admit(c);
	}
}

void call_doom(struct call *c)
{
	leave_slot(c, CALL_DOOMED);
	c->next = c->sb->doomed;
	c->sb->doomed = c;
}

static void leave_doomed(struct call *c)
{
	struct call **at = &c->sb->doomed;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	c->next = NULL;
}

void call_lose(struct call *c, enum exec_reason loss)
{
	c->loss = loss;
	if (c->state == CALL_OPEN) {
		leave_slot(c, CALL_LOST);
		return;
	}
	leave_doomed(c);
	c->state = CALL_LOST;
	call_wake(c);
}

/* Adjacent bytes of one stream share a chunk, so that tiny frames cost no more than their bytes. */
static void queue_add(struct call *c, uint32_t stream, const struct frame *f)
{
	uint32_t head = 0, len = (uint32_t)f->len;

	if (c->queue.len)
		memcpy(&head, c->queue.data + c->last, CHUNK_HEAD);
	if (c->queue.len && (head & STREAM_BIT) == stream) {
		head += len;
		memcpy(c->queue.data + c->last, &head, CHUNK_HEAD);
	} else {
		c->last = c->queue.len;
		head = stream | len;
		buf_add(&c->queue, &head, CHUNK_HEAD);
	}
	buf_add(&c->queue, f->payload, f->len);
}

static int take_output(struct call *c, const struct frame *f, struct err *e)
{
	unsigned int stream = f->type == FRAME_STDERR;
	bool was_empty = !c->queue.len;

	if (!(c->streams & 1U << stream))
		return err_set(e, EPROTO, "output of a kind that this call does not have");
	if (!f->len)
		return err_set(e, EPROTO, "a data frame without data");
	if (f->len > c->window)
		return err_set(e, EPROTO, "%zu bytes of output with %zu bytes of credit", f->len,
		               c->window);
	c->window -= f->len;
	queue_add(c, stream ? STREAM_BIT : 0, f);
	if (buf_failed(&c->queue))
		return err_set(e, ENOMEM, "no memory for output");
	if (was_empty)
		call_wake(c);
	return 0;
}

static int take_credit(struct call *c, const struct frame *f, struct err *e)
{
	uint32_t bytes = frame_number(f);

	if (!bytes || bytes > FRAME_WINDOW - c->credit)
		return err_set(e, EPROTO, "credit of %u bytes for %zu bytes sent", bytes,
		               FRAME_WINDOW - c->credit);
	c->credit += bytes;
	call_wake(c);
	return 0;
}

static int take_exit(struct call *c, const struct frame *f, struct err *e)
{
	buf_add(&c->exit, f->payload, f->len);
	if (buf_failed(&c->exit))
		return err_set(e, ENOMEM, "no memory for the result of a call");
	leave_slot(c, CALL_EXITED);
	sandbox_admit(c->sb);
	return 0;
}

int call_frame(struct sandbox *sb, const struct frame *f, struct err *e)
{
	struct call *c = sb->calls[f->call & SLOT_MASK];

	if (!c || c->id != f->call)
		return err_set(e, EPROTO, "frame type 0x%02x for call %llu, which is not open",
		               (unsigned int)f->type, (unsigned long long)f->call);
	if (f->type == FRAME_EXIT)
		return take_exit(c, f, e);
	if (f->type == FRAME_CREDIT)
		return take_credit(c, f, e);
	return take_output(c, f, e);
}

/* -- opening, in the caller's thread --------------------------------------------------------- */

static int prepare(struct call *c, const struct call_plan *plan, struct err *e)
{
	json_write(plan->start, &c->start);
	c->loss = EXEC_LOST;
	if (buf_failed(&c->start))
		return err_set(e, SANDBOX_INVALID, "the call is longer than %d bytes",
		               FRAME_CONTROL_MAX);
	if (!utf8_valid(c->start.data, c->start.len))
		return err_set(e, SANDBOX_INVALID, "the call is not valid UTF-8");
	c->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->event < 0)
		return err_shortage(e, "open a call");
	c->streams = plan->streams;
	c->has_input = plan->has_input;
	return 0;
}

/* (locked) */
static int join(struct call *c, struct sandboxes *pool, const struct uuid *tenant, struct err *e)
{
	struct call **at;

	if (pool->stopping)
		return err_set(e, SANDBOX_STOPPING, "the server is stopping");
	c->sb = pool_find(pool, tenant);
	if (!c->sb)
		return err_set(e, ERR_SHORTAGE, "no memory for a sandbox");
	c->pool = pool;
	pool->inside++;
	at = &c->sb->waiting;
	while (*at)
		at = &(*at)->next;
	*at = c;
	if (c->sb->state == STATE_RUNNING)
		call_admit(c);
	else if (c->sb->state == STATE_STOPPED)
		sandbox_begin(c->sb);
	else if (c->sb->state == STATE_STARTING)
		c->generation = c->sb->generation;
	return 0;
}

static enum call_state state_of(struct call *c)
{
	enum call_state state;

	pthread_mutex_lock(&c->pool->lock);
	state = c->state;
	pthread_mutex_unlock(&c->pool->lock);
	return state;
}

static void give_up_waiting(struct call *c, int code, const char *why)
{
	pthread_mutex_lock(&c->pool->lock);
	if (c->state == CALL_WAITING) {
		call_refuse(c, code, why);
		sandbox_admit(c->sb);
	}
	pthread_mutex_unlock(&c->pool->lock);
}

/* The time to wait for a start is over. */
static void end_waiting(struct call *c)
{
	bool runs, restarts;

	pthread_mutex_lock(&c->pool->lock);
	runs = c->sb->state == STATE_RUNNING;
	restarts = c->restarts;
	c->restarts = false;
	pthread_mutex_unlock(&c->pool->lock);
	if (restarts)
		return; /* its time was spent on the others: a start has as much once more */
	if (!runs)
		give_up_waiting(c, SANDBOX_START_FAILED,
		                "the sandbox before this one has not ended yet");
	else if (c->alone)
		give_up_waiting(c, SANDBOX_BUSY,
		                "other commands are running in the sandbox, and did not end");
}

bool call_sleep(const struct call *c, const struct cancel *cancel, int timeout_ms)
{
	struct pollfd fds[2] = { { .fd = c->event, .events = POLLIN },
		                 { .fd = cancel ? cancel->fd : -1, .events = POLLIN } };
	eventfd_t count;

	if (poll(fds, 2, timeout_ms) < 0)
		return false;
	if (fds[0].revents)
		(void)eventfd_read(c->event, &count);
	return fds[1].revents != 0;
}

/* As long as the end of the generation before, a start, and a start's failure may take. */
static uint64_t patience_of(const struct sandboxes *pool)
{
	return ENDING_MS + pool->conf.start_timeout_ms + 2 * (uint64_t)CAUSE_WAIT_MS;
}

static int wait_open(struct call *c, const struct call_plan *plan, struct err *e)
{
	const uint64_t patience = patience_of(c->pool);
	uint64_t deadline = clock_mono_ms() + patience;

	while (state_of(c) == CALL_WAITING) {
		if (call_sleep(c, plan->cancel, clock_left_ms(deadline)))
			give_up_waiting(c, SANDBOX_CANCELLED,
			                "cancelled before the sandbox was ready");
		if (clock_left_ms(deadline))
			continue;
		end_waiting(c);
		deadline = clock_mono_ms() + patience; /* for who waits for one that is alone */
	}
	if (state_of(c) == CALL_REFUSED) {
		*e = c->refusal;
		return -1;
	}
	return 0;
}

static int try_open(struct call *c, const struct sandbox_use *use, const struct call_plan *plan,
                    struct err *e)
{
	int joined;

	if (plan->cancel && cancel_fired(plan->cancel))
		return err_set(e, SANDBOX_CANCELLED, "cancelled before it began");
	if (prepare(c, plan, e) < 0)
		return -1;
	c->alone = use->alone;
	pthread_mutex_lock(&use->sandboxes->lock);
	joined = join(c, use->sandboxes, use->tenant, e);
	pthread_mutex_unlock(&use->sandboxes->lock);
	return joined < 0 ? -1 : wait_open(c, plan, e);
}

/*
 * Nothing was sent yet, and what is short is given back by others: who can be cancelled waits
 * for that, as long as for a start.
 */
int call_open(struct call *c, const struct sandbox_use *use, const struct call_plan *plan,
              struct err *e)
{
	struct pollfd p = { .fd = plan->cancel ? plan->cancel->fd : -1, .events = POLLIN };
	uint64_t deadline = clock_mono_ms() + patience_of(use->sandboxes);
	struct err why = ERR_INIT;
	bool waits = false;

	while (try_open(c, use, plan, &why) < 0) {
		if (why.code != ERR_SHORTAGE || !plan->cancel) {
			*e = why;
			return -1;
		}
		if (!clock_left_ms(deadline))
			return err_set(e, SANDBOX_START_FAILED, "%s", why.text);
		if (!waits)
			log_warn("a call in the sandbox of tenant %s waits: %s", use->tenant->text,
			         why.text);
		waits = true;
		call_finish(c);
		*c = (struct call)CALL_INIT;
		(void)poll(&p, 1, SHORTAGE_MS);
	}
	return 0;
}

/* -- running --------------------------------------------------------------------------------- */

/* (locked) */
static void grant(struct call *c)
{
	if (c->taken < GRANT_AFTER)
		return;
	c->window += c->taken;
	sandbox_put_credit(c->sb, c->id, (uint32_t)c->taken);
	c->taken = 0;
}

/* (locked) */
static void feed(struct call *c, const struct call_plan *plan)
{
	c->wants_room = false;
	while (c->state == CALL_OPEN && c->sent < plan->input_len && c->credit) {
		size_t n = plan->input_len - c->sent;

		if (sandbox_backlog(c->sb) >= OUT_INPUT_MAX) {
			c->wants_room = c->sb->out_wanted = true;
			return;
		}
		n = n > FRAME_DATA_MAX ? FRAME_DATA_MAX : n;
		n = n > c->credit ? c->credit : n;
		c->credit -= n;
		sandbox_put(c->sb, FRAME_INPUT, c->id, plan->input + c->sent, n);
		c->sent += n;
	}
	if (c->state == CALL_OPEN && c->sent == plan->input_len && !plan->more_input) {
		c->input_ended = true;
		sandbox_put(c->sb, FRAME_END, c->id, NULL, 0);
	}
}

enum call_state call_exchange(struct call *c, const struct call_plan *plan, struct buf *batch)
{
	struct buf empty = *batch;
	enum call_state state;

	pthread_mutex_lock(&c->pool->lock);
	if (c->state == CALL_OPEN)
		grant(c);
	if (c->state == CALL_OPEN && c->has_input && !c->input_ended && !plan->cancelled)
		feed(c, plan);
	*batch = c->queue;
	c->queue = empty;
	c->last = 0;
	state = c->state;
	pthread_mutex_unlock(&c->pool->lock);
	return state;
}

int call_lie(struct call *c, const char *reason, struct err *e)
{
	struct sandbox *sb = c->sb;

	pthread_mutex_lock(&c->pool->lock);
	if (sb->generation == c->generation)
		sandbox_break(sb, "protocol error: %s", reason);
	pthread_mutex_unlock(&c->pool->lock);
	return err_set(e, SANDBOX_LOST, "the sandbox broke the protocol and was ended");
}

void call_deliver(struct call *c, const struct call_plan *plan, struct buf *batch, bool *lied)
{
	struct err why = ERR_INIT, ignored;
	uint32_t head;

	for (size_t at = 0; at < batch->len; at += head & ~STREAM_BIT) {
		memcpy(&head, batch->data + at, CHUNK_HEAD);
		at += CHUNK_HEAD;
		c->taken += head & ~STREAM_BIT;
		if (!*lied && plan->take(plan->ctx, head & STREAM_BIT ? 2 : 1, batch->data + at,
		                         head & ~STREAM_BIT, &why) < 0) {
			*lied = true;
			(void)call_lie(c, why.text, &ignored);
		}
	}
	buf_reset(batch);
}

void call_give_up(struct call *c, const char *why)
{
	pthread_mutex_lock(&c->pool->lock);
	if (c->state == CALL_OPEN)
		sandbox_break(c->sb, "%s", why);
	pthread_mutex_unlock(&c->pool->lock);
}

void call_send_cancel(struct call *c, struct call_plan *plan)
{
	uint64_t deadline = clock_mono_ms() + CANCEL_GRACE_MS;

	plan->cancelled = true;
	if (!c->deadline || deadline < c->deadline)
		c->deadline = deadline;
	pthread_mutex_lock(&c->pool->lock);
	if (c->state == CALL_OPEN)
		sandbox_put(c->sb, FRAME_CANCEL, c->id, NULL, 0);
	pthread_mutex_unlock(&c->pool->lock);
}

/* All that is awaited is the reason of a loss, which has a deadline of its own. */
static void pause_doomed(struct call *c, struct call_plan *plan)
{
	if (!call_sleep(c, plan->cancelled ? NULL : plan->cancel, -1))
		return;
	plan->cancelled = true;
	pthread_mutex_lock(&c->pool->lock);
	if (c->state == CALL_DOOMED)
		call_lose(c, EXEC_LOST);
	pthread_mutex_unlock(&c->pool->lock);
}

/* Sleep unless there is more to do; mind the cancel and the deadline in any case. */
static void pause_call(struct call *c, struct call_plan *plan, enum call_state state, bool busy)
{
	const struct cancel *cancel = plan->cancelled ? NULL : plan->cancel;

	if (state == CALL_DOOMED)
		pause_doomed(c, plan);
	else if (call_sleep(c, cancel, busy ? 0 : clock_left_ms(c->deadline)))
		call_send_cancel(c, plan);
	else if (c->deadline && !clock_left_ms(c->deadline))
		call_give_up(c, plan->cancelled ? "a cancelled call did not end"
		                                : "a call did not end at its deadline");
}

int call_run(struct call *c, const struct sandbox_use *use, struct call_plan *plan, struct err *e)
{
	auto_buf struct buf batch = BUF_INIT(c->queue.max);
	uint64_t due = 0;
	enum call_state state;
	bool lied = false;

	plan->cancel = use->cancel;
	plan->begun = clock_mono_ms();
	if (call_open(c, use, plan, e) < 0)
		return -1;
	if (plan->timeout_ms) {
		due = clock_mono_ms() + plan->timeout_ms;
		c->deadline = due + CANCEL_GRACE_MS;
	}
	for (;;) {
		bool busy;

		state = call_exchange(c, plan, &batch);
		busy = batch.len > 0;
		call_deliver(c, plan, &batch, &lied);
		if (state != CALL_OPEN && state != CALL_DOOMED)
			break;
		pause_call(c, plan, state, busy);
	}
	if (lied) { /* whatever its EXIT says */
		c->state = CALL_LOST;
		c->loss = EXEC_LOST;
	}
	plan->timed_out = due && !clock_left_ms(due);
	return 0;
}

void call_finish(struct call *c)
{
	struct sandboxes *pool = c->pool;

	if (pool) {
		pthread_mutex_lock(&pool->lock);
		if (!--pool->inside)
			pthread_cond_broadcast(&pool->left);
		pthread_mutex_unlock(&pool->lock);
	}
	fd_close(&c->event);
	buf_release(&c->start);
	buf_release(&c->queue);
	buf_release(&c->exit);
}

/* -- results --------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	int code;
} guest_errors[] = {
	{ "not_found", SANDBOX_NOT_FOUND },
	{ "not_executable", SANDBOX_NOT_EXECUTABLE },
	{ "no_cwd", SANDBOX_NO_CWD },
	{ "not_a_file", SANDBOX_NOT_A_FILE },
	{ "not_a_directory", SANDBOX_NOT_A_DIRECTORY },
	{ "denied", SANDBOX_DENIED },
	{ "exists", SANDBOX_EXISTS },
	{ "no_space", SANDBOX_NO_SPACE },
	{ "too_large", SANDBOX_TOO_LARGE },
	{ "invalid", SANDBOX_INVALID },
	{ "busy", SANDBOX_BUSY },
	{ "again", SANDBOX_AGAIN },
	{ "changed", SANDBOX_CHANGED },
	{ "io", SANDBOX_IO },
	{ "cancelled", SANDBOX_CANCELLED },
};

static int error_code(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(guest_errors); i++)
		if (!strcmp(guest_errors[i].name, name))
			return guest_errors[i].code;
	return 0;
}

/* The EXIT {"error":{...}}: always -1. */
static int take_error(struct call *c, const struct call_plan *plan, const struct json *doc,
                      struct err *e)
{
	static const struct json_field outer[] = { { "error", JSON_OBJECT, true, false } };
	static const struct json_field inner[] = { { "code", JSON_STRING, true, false },
		                                   { "message", JSON_STRING, true, false } };
	const struct json *error[1], *v[2];
	struct json_faults faults = { .count = 0 };
	size_t len;
	int code;

	if (!json_fields(doc, "", outer, 1, error, &faults) ||
	    !json_fields(error[0], "error", inner, 2, v, &faults))
		return call_lie(c, faults.first.text, e);
	code = error_code(json_str(v[0]));
	if (!code)
		return call_lie(c, "EXIT with an unknown error", e);
	if (code == SANDBOX_CANCELLED && !plan->cancelled)
		return call_lie(c, "EXIT says cancelled, but nobody did", e);
	len = json_str_len(v[1]) < 300 ? json_str_len(v[1]) : utf8_whole(json_str(v[1]), 300);
	return err_set(e, code, "%.*s", (int)len, json_str(v[1]));
}

/* The sandbox ended under it: always -1. */
static int take_loss(const struct call *c, const struct call_plan *plan, struct err *e)
{
	if (plan->cancelled)
		return err_set(e, SANDBOX_CANCELLED, "cancelled");
	if (c->loss == EXEC_OOM)
		return err_set(e, SANDBOX_OOM, "the sandbox reached its memory limit and ended");
	if (c->loss == EXEC_PIDS)
		return err_set(e, SANDBOX_PIDS, "the sandbox reached its task limit and ended");
	if (c->loss == EXEC_DISK_FULL)
		return err_set(e, SANDBOX_DISK_FULL, "the disk is full, and the sandbox was ended");
	return err_set(e, SANDBOX_LOST, "the sandbox ended during the call");
}

int call_parse(const char *text, size_t len, struct json **ret, struct err *e)
{
	if (json_too_many(text, len, FRAME_VALUES_MAX))
		return err_set(e, EPROTO, "JSON with more than %d values", FRAME_VALUES_MAX);
	return json_parse(text, len, ret, e);
}

int call_result(struct call *c, const struct call_plan *plan, struct call_exit *ret, struct err *e)
{
	struct json_faults faults = { .count = 0 };

	if (c->state == CALL_LOST)
		return take_loss(c, plan, e);
	if (call_parse(c->exit.data ? c->exit.data : "", c->exit.len, &ret->doc, e) < 0)
		return call_lie(c, e->text, e);
	if (json_get(ret->doc, "error"))
		return take_error(c, plan, ret->doc, e);
	if (!json_fields(ret->doc, "", ret->fields, ret->n, ret->values, &faults))
		return call_lie(c, faults.first.text, e);
	for (size_t i = 0; i < ret->n; i++)
		if (ret->values[i] && ret->fields[i].type == JSON_INT &&
		    json_int(ret->values[i]) < 0)
			return call_lie(c, "EXIT with a negative number", e);
	return 0;
}
