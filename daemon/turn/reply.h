/*
 * reply.h - the end of a request to a person, committed and told (inside this folder only).
 */
#ifndef DAEMON_TURN_REPLY_H
#define DAEMON_TURN_REPLY_H

#include "daemon/turn/job.h"

/*
 * Commit what became of an open request of the job's turn, which the caller holds: the
 * decision, or NULL when it expired.  Then the wait is over and that is published.  When
 * nothing was heard of the commit, the store is asked once whether it happened.  Codes as
 * of request_answer().
 */
int reply_commit(struct job *job, const struct request *q, const struct answer *a, struct err *e)
	must_check;

/* As reply_commit(), of one whose answer nobody waits for any more: it is withdrawn. */
int reply_withdraw(struct job *job, const struct request *q, struct err *e) must_check;

/*
 * Before a turn goes on: when it waited, as far as is known here, publish the reply that
 * was committed and that nobody heard of.  Codes as of request_get().
 */
int reply_catch_up(struct job *job, struct err *e) must_check;

#endif
