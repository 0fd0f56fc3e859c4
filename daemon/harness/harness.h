/*
 * harness.h - the resident harnesses: at most one process for each session.
 *
 * A process is started when a turn needs it, asked whether it listens before it is used
 * again, and ended with its session, its sandbox or the daemon.  Who has taken one is the
 * only one to use it until it is given back, parked, wound up or dropped.  One thread of
 * our own looks after those that nobody has.  Thread-safe.
 */
#ifndef DAEMON_HARNESS_HARNESS_H
#define DAEMON_HARNESS_HARNESS_H

#include "daemon/harness/process.h"

#define HARNESS_TENANT_MAX 16    /* processes of a tenant */
#define HARNESS_WIND_MS    10000 /* from a cancel to the result, then the process is killed */
#define HARNESS_END_MS     5000  /* from the request to end to the kill */

struct harnesses;
struct resident;

struct harnesses_conf {
	struct sandboxes *sandboxes;
	/*
	 * A harness whose run waits for a person went on, or ended.  Called once for each time
	 * that it is parked, by a thread of ours; may take locks, but not block for long.
	 */
	void (*stirred)(void *ctx, const struct uuid *tenant, const struct uuid *turn);
	void *ctx;
};

int harnesses_start(const struct harnesses_conf *conf, struct harnesses **ret, struct err *e)
	must_check;

/* Ask all of them to end, kill those that do not, free.  Nobody has one any more. */
void harnesses_stop(struct harnesses **h);

/* Where a session's process runs, and what it is. */
struct harness_place {
	const struct uuid *tenant;
	const struct uuid *session;
	const char *cwd;
	const char *const *argv; /* NULL-terminated */
};

/*
 * Take the session's process, started anew when there is none that listens; waits while it
 * is wound up.  HARNESS_UNAVAILABLE, HARNESS_LIMIT, SANDBOX_CANCELLED, and the codes of
 * sandbox_exec().
 */
int harness_take(struct harnesses *h, const struct harness_place *place, struct cancel *cancel,
                 struct resident **ret, struct err *e) must_check;

struct process *harness_process(struct resident *r);
bool harness_is_new(const struct resident *r); /* it was started for this use */

/* The run that goes on in it when it is parked; free is called for one that nobody resumes. */
struct harness_parking {
	struct uuid turn;
	void *run;
	void (*free)(void *run);
};

void harness_give(struct harnesses *h, struct resident *r); /* back: it has nothing to do */
void harness_park(struct harnesses *h, struct resident *r, const struct harness_parking *parking);

/*
 * Nobody waits for its run any more, which it was told: it is taken back after its result,
 * and killed when there is none in time.
 */
void harness_wind(struct harnesses *h, struct resident *r, const char *run_id);
void harness_drop(struct harnesses *h, struct resident *r); /* kill it */

/* Take up what was parked for a turn; NULL when there is no such run. */
struct resident *harness_resume(struct harnesses *h, const struct uuid *turn, void **ret_run);
bool harness_has_run(struct harnesses *h, const struct uuid *turn);

/* The turn has ended: a run that was parked for it is cancelled. */
void harness_forget_turn(struct harnesses *h, const struct uuid *turn);

/* The session is gone: its process is asked to end. */
void harness_forget_session(struct harnesses *h, const struct uuid *session);

#endif
