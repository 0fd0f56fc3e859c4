/*
 * job.h - one turn in memory, between scheduler and turn loop (inside this folder only).
 *
 * A turn has at most one job at a time, and only its job, or who holds that, changes it.
 */
#ifndef DAEMON_TURN_JOB_H
#define DAEMON_TURN_JOB_H

#include "common/cancel.h"
#include "daemon/turn/turns.h"

#include <stdatomic.h>

enum job_place {
	JOB_HELD,    /* known, so that nobody else takes the turn; whoever made it works on it */
	JOB_QUEUED,  /* in its lane's queue */
	JOB_RUNNING, /* has a thread */
	JOB_GONE,    /* not known any more; somebody still looks at it */
};

struct job {
	struct job *prev, *next; /* in its lane's queue, or in the list of running jobs */
	struct job *chain;       /* in its bucket, unless gone */
	struct lane *lane;
	struct turns *turns;
	struct uuid tenant;
	struct uuid turn;
	struct uuid session;
	enum job_place place;
	unsigned int refs;
	size_t bytes; /* of input that has not been begun */
	bool counted; /* among the queued */
	bool resumed; /* it has run before */
	struct cancel cancel;
	atomic_bool abandon;  /* asked to by turns_stop(): see job_abandoned() */
	atomic_bool reported; /* its end was published */
};

/*
 * Take the turn from its last committed step to its end, to a question to a person, or
 * to a cancel.  Blocks; in the job's own thread.  False when it is not known what
 * became of the turn, so that the store must be asked.
 */
bool job_run(struct job *job);

/* The daemon stops: the turn is left as it is, and goes on after the next start. */
bool job_abandoned(const struct job *job);

/*
 * Commit a terminal state and report it.  Tries until the store answers or the job is
 * abandoned.  True when the turn has ended, whoever ended it.
 */
bool job_finish(struct job *job, enum turn_state state, const char *error_code, const char *error);

/* As job_finish, but one try and no more. */
bool job_finish_once(struct job *job, enum turn_state state);

/* Publish "turn.queued" and the like about a job's turn. */
void job_publish(const struct job *job, const char *type, struct json *data);

#endif
