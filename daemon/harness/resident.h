/*
 * resident.h - the table of resident harnesses (inside this folder only).
 *
 * A resident is in the table from its first use until its process is gone.  State and links
 * are guarded by the lock of the table; the process belongs to whoever has taken the
 * resident, or to the keeper.
 */
#ifndef DAEMON_HARNESS_RESIDENT_H
#define DAEMON_HARNESS_RESIDENT_H

#include "daemon/harness/harness.h"

#include <pthread.h>

enum resident_state {
	RESIDENT_TAKEN,
	RESIDENT_IDLE,    /* rests; the process lives, as far as is known */
	RESIDENT_PARKED,  /* its run waits for a person */
	RESIDENT_WINDING, /* its run was cancelled, and its result is awaited */
	RESIDENT_ENDING,  /* was asked to end, or killed; not to be used again */
};

struct resident {
	struct resident *next;
	struct uuid tenant, session;
	enum resident_state state;
	struct process *process; /* NULL while it is started */
	bool fresh;
	bool stirred; /* parked: that it went on was reported */
	struct harness_parking parking;
	char run_id[HARNESS_RUN_ID_MAX + 1]; /* winding */
	uint64_t deadline;                   /* monotonic ms; winding and ending */
	bool killed;
	uint64_t used_ms; /* idle since */
};

struct harnesses {
	struct harnesses_conf conf;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* one was given back, or is gone */
	struct resident *first;
	size_t count;
	bool stopping;
	int wake; /* eventfd: the keeper looks again */
	pthread_t keeper;
};

/* (locked) Ask it to end; it must not be taken. */
void resident_end(struct harnesses *h, struct resident *r);

/* (locked) Cancel its parked run. */
void resident_cancel(struct harnesses *h, struct resident *r);

void *harness_keeper(void *harnesses); /* the thread */
void harness_wake(struct harnesses *h);

#endif
