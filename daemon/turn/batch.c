#include "daemon/turn/batch.h"

#include "common/buf.h"
#include "common/sanitizer.h"

#include "daemon/turn/calls.h"
#include "daemon/turn/questions.h"
#include "daemon/turn/remote.h"
#include "daemon/turn/task.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#define BATCH_STACK ((size_t)512 * 1024)

/* One of them, with a copy of its call: the transcript moves when results are added. */
struct slot {
	struct run *run;
	struct item call;
	pthread_t thread;
	bool threaded;
	bool failed;
	struct tool_outcome outcome;
	struct err e;
};

static bool may_join(struct run *r, const struct item *call)
{
	if (call->kind != ITEM_TOOL_CALL || call->call_state != CALL_PENDING ||
	    call->seq == r->starting || tool_asks(call) || task_is(call))
		return false;
	return remote_is(call) ? remote_reads(r, call) : !tool_writes(call);
}

size_t batch_size(struct run *r, const struct item *call)
{
	const struct item_list *list = &r->transcript.list;
	const struct item *end = list->items + list->count;
	size_t n = 0;

	while (call + n < end && n < BATCH_MAX && may_join(r, call + n))
		n++;
	return n ? n : 1;
}

static int copy_call(struct slot *s, struct run *r, const struct item *call, struct err *e)
{
	auto_buf struct buf body = BUF_INIT(call->body_len);

	buf_add(&body, call->body, call->body_len);
	*s = (struct slot){ .run = r, .call = *call };
	s->call.details = s->call.opaque = NULL;
	s->call.body = buf_take(&body);
	return s->call.body ? 0 : err_set(e, ENOMEM, "no memory for a call");
}

static void *run_slot(void *arg)
{
	struct slot *s = arg;

	s->failed = calls_run(s->run, &s->call, &s->outcome, &s->e) != 0;
	return NULL;
}

static void begin_slot(struct slot *s)
{
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, BATCH_STACK + SANITIZER_STACK);
	s->threaded = pthread_create(&s->thread, &attr, run_slot, s) == 0;
	pthread_attr_destroy(&attr);
}

/* Wait for it; one that got no thread runs now. */
static void end_slot(struct slot *s)
{
	if (s->threaded)
		pthread_join(s->thread, NULL);
	else
		(void)run_slot(s);
	s->threaded = false;
}

/* How many were started; what kept the next one from it is for the next round to find. */
static size_t start_all(struct run *r, struct slot *slots, const struct item *call, size_t n,
                        enum round *ret, struct err *e)
{
	for (size_t i = 0; i < n; i++) {
		*ret = ROUND_FAILED;
		if (copy_call(&slots[i], r, call + i, e))
			return i;
		*ret = calls_start(r, call + i, e);
		if (*ret != ROUND_AGAIN) {
			free(slots[i].call.body);
			return i;
		}
	}
	return n;
}

/*
 * What was run is committed, also behind one that failed: it had its effect, and only a stop
 * gives up.  The round and the error are those of the first that was not committed.
 */
static enum round commit_slot(struct slot *s, enum round round, struct err *e)
{
	struct err later = ERR_INIT;
	struct err *why = round == ROUND_AGAIN ? e : &later;
	enum round own = ROUND_FAILED;

	end_slot(s);
	if (s->failed) {
		*why = s->e;
	} else {
		if (round != ROUND_OVER)
			own = calls_commit(s->run, &s->call, &s->outcome, why);
		tool_outcome_release(&s->outcome);
	}
	free(s->call.body);
	return round == ROUND_AGAIN ? own : round;
}

enum round batch_run(struct run *r, const struct item *call, size_t n, struct err *e)
{
	enum round round = ROUND_AGAIN, started = ROUND_AGAIN;
	struct slot slots[BATCH_MAX];
	struct err why = ERR_INIT; /* the next one did not start */
	size_t running = start_all(r, slots, call, n, &started, &why);

	for (size_t i = 1; i < running; i++)
		begin_slot(&slots[i]);
	for (size_t i = 0; i < running; i++)
		round = commit_slot(&slots[i], round, e);
	if (round != ROUND_AGAIN)
		return round;
	if (started != ROUND_AGAIN)
		*e = why;
	return started;
}
