/* job.h - one set-up in memory (inside this folder only). */
#ifndef DAEMON_SETUP_JOB_H
#define DAEMON_SETUP_JOB_H

#include "daemon/setup/setups.h"

#include <stdatomic.h>

enum setup_place {
	SETUP_HELD,   /* its place is taken, and nothing is to be done yet */
	SETUP_QUEUED, /* waits for a thread */
	SETUP_WORKED, /* has one */
};

struct setup_job {
	struct setup_job *next; /* in the list of all that are not held */
	struct setups *setups;
	struct uuid tenant, session;
	enum setup_place place;
	bool over; /* its end is committed or about to be: another try is another job */
	unsigned int refs;
	struct cancel cancel; /* fired: end at once */
	struct cancel done;   /* fired when it is over */
	char *secret;         /* what git's helper says; NULL = none.  Wiped before it is freed */
	atomic_bool abandon;  /* leave it as it is: the daemon stops */
};

/*
 * Clone and check out, in steps that are told as they begin.  Fills state (ready or failed),
 * head, code and error of *end.
 */
void steps_run(struct setup_job *job, const struct session *session, struct setup *end);

struct sandboxes *setup_job_sandboxes(const struct setup_job *job);

void setup_job_tell(const struct setup_job *job, const char *type, struct json *data);

#endif
