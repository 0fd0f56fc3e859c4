#include "daemon/turn/reply.h"

#include "common/clock.h"
#include "daemon/turn/approval.h"
#include "daemon/turn/questions.h"
#include "daemon/turn/queue.h"
#include "daemon/turn/render.h"
#include "daemon/turn/tell.h"

#include <stdlib.h>
#include <string.h>

/* Whether what was asked is if a call may run, so that its result is still to come. */
static bool is_approval(const struct request *q)
{
	return strcmp(q->kind, APPROVAL_KIND) == 0;
}

/* The body is NULL for an approval. */
static int result_of(const struct request *q, const struct answer *a, struct item *ret,
                     struct err *e)
{
	*ret = (struct item){ .body = NULL };
	if (is_approval(q))
		return 0;
	return a ? tool_answered(q, a->decision, a->value, ret, e) : tool_expired(q, ret, e);
}

static void tell(struct job *job, const struct uuid *request, const struct item *result,
                 const char *how)
{
	turns_end_wait(job);
	job_publish(job, "request.resolved", request_resolved_json(request, how));
	if (result->body)
		job_publish(job, "tool.finished", tell_reply(result, how));
}

/* Whoever holds the turn's job is the only one who could have ended the request. */
static bool is_committed(const struct job *job, const struct uuid *id, enum request_state wanted)
{
	struct err e = ERR_INIT;
	struct request now;
	bool done;

	if (request_get(job->turns->conf.store, &job->tenant, id, &now, &e))
		return false;
	done = now.state == wanted;
	request_release(&now);
	return done;
}

int reply_withdraw(struct job *job, const struct request *q, struct err *e)
{
	struct request_decision decision = { .withdrawn = true, .now_ms = clock_wall_ms() };
	struct item result;
	int rc;

	if (tool_withdrawn(q, &result, e))
		return -1;
	decision.result = &result;
	rc = request_answer(job->turns->conf.store, &job->tenant, &q->id, &decision, e);
	if (rc && e->code == STORE_UNAVAILABLE && is_committed(job, &q->id, REQUEST_WITHDRAWN))
		rc = 0;
	if (rc == 0)
		tell(job, &q->id, &result, "withdrawn");
	free(result.body);
	return rc;
}

int reply_commit(struct job *job, const struct request *q, const struct answer *a, struct err *e)
{
	struct request_decision decision = { .decision = a ? a->decision : NULL,
		                             .value = a ? a->value : NULL,
		                             .now_ms = clock_wall_ms() };
	struct item result;
	bool planning;
	int rc;

	if (result_of(q, a, &result, e))
		return -1;
	decision.result = result.body ? &result : NULL;
	if (a && tool_changes_planning(q, a->decision, &planning))
		decision.planning = &planning;
	rc = request_answer(job->turns->conf.store, &job->tenant, &q->id, &decision, e);
	if (rc && e->code == STORE_UNAVAILABLE &&
	    is_committed(job, &q->id, a ? REQUEST_ANSWERED : REQUEST_EXPIRED))
		rc = 0;
	if (rc == 0)
		tell(job, &q->id, &result, a ? "answered" : "expired");
	free(result.body);
	return rc;
}

static int tell_stored(struct job *job, const struct request *q, struct err *e)
{
	const struct answer answer = { q->decision, q->value };
	struct item result;

	if (result_of(q, q->state == REQUEST_ANSWERED ? &answer : NULL, &result, e))
		return -1;
	tell(job, &q->id, &result, q->state == REQUEST_ANSWERED ? "answered" : "expired");
	free(result.body);
	return 0;
}

int reply_catch_up(struct job *job, struct err *e)
{
	const struct waiter *w;
	struct uuid id = { "" };
	struct request q;
	int rc = 0;

	pthread_mutex_lock(&job->turns->lock);
	w = waiter_find(job->lane, &job->turn);
	if (w)
		id = w->request;
	pthread_mutex_unlock(&job->turns->lock);
	if (!id.text[0])
		return 0;
	if (request_get(job->turns->conf.store, &job->tenant, &id, &q, e)) {
		if (e->code == STORE_NOT_FOUND)
			turns_end_wait(job);
		return -1;
	}
	if (q.state == REQUEST_ANSWERED || q.state == REQUEST_EXPIRED)
		rc = tell_stored(job, &q, e);
	request_release(&q);
	return rc;
}
