/*
 * job.h - one turn in memory, between scheduler (turns.c) and turn loop (run.c).
 */
#ifndef DAEMON_TURN_JOB_H
#define DAEMON_TURN_JOB_H

#include "common/cancel.h"
#include "daemon/turn/turns.h"

#include <stdatomic.h>

struct job {
	struct job *prev, *next; /* in its lane's queue, or in the list of running jobs */
	struct lane *lane;
	struct turns *turns;
	struct uuid tenant;
	struct uuid turn;
	struct uuid session;
	struct cancel cancel;
	atomic_bool abandon; /* the daemon stops: leave the turn as it is */
};

/*
 * Take the turn from its last committed step to its end, to a question to a person, or
 * to a cancel.  Blocks; in the job's own thread.
 */
void job_run(struct job *job, const struct turns_conf *conf);

/*
 * Commit a terminal state and report it.  Tries until the store answers or the job is
 * abandoned.  True when the turn has ended, whoever ended it.
 */
bool job_finish(struct job *job, const struct turns_conf *conf, enum turn_state state,
                const char *error_code, const char *error);

/* Publish "turn.queued" and the like about a turn. */
void turn_publish(struct bus *bus, const struct uuid *tenant, const struct uuid *turn,
                  const struct uuid *session, const char *type, struct json *data);

#endif
