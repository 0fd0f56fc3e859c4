/*
 * queue.h - jobs, their queues and who may start when (inside this folder only).
 *
 * One lane for each tenant.  Lanes with queued jobs stand in a ring in the order in which
 * they may start, so that of N tenants that wait each starts once in any N starts.
 * Functions marked (locked) expect turns->lock to be held.
 */
#ifndef DAEMON_TURN_QUEUE_H
#define DAEMON_TURN_QUEUE_H

#include "daemon/turn/job.h"

#include <pthread.h>

#define LANES 1024
#define JOBS  1024 /* buckets */

/* A turn that waits for a person: all that is in memory of it. */
struct waiter {
	struct waiter *next;
	struct uuid turn;
	struct uuid request;
	uint64_t expires_ms; /* wall clock; 0 = never */
	uint64_t retry_ms;   /* monotonic: not before */
	bool stirred;        /* what asked does not wait for the answer any more */
};

struct lane {
	struct lane *chain; /* in its bucket */
	struct lane *next;  /* in the ring */
	struct uuid tenant;
	struct job *first, *last;
	unsigned int queued; /* those in the list, and those being stored */
	size_t bytes;        /* of their inputs */
	unsigned int running;
	unsigned int cancels; /* threads that cancel */
	struct waiter *waiters;
	unsigned int waiting;
	bool ringed;
	uint64_t doubt_until, doubt_next; /* monotonic ms: ask the store what is unfinished */
	uint64_t settle_ms; /* monotonic: tell the store that nothing is; 0 = it was told */
};

struct turns {
	struct turns_conf conf;
	struct harnesses *harnesses;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* a job ended or moved, a cancel is done */
	pthread_cond_t upkeep_due;
	pthread_t upkeep;
	bool upkeep_runs;
	struct lane *lanes[LANES];
	struct job *jobs[JOBS];
	struct lane *ring_first, *ring_last;
	struct job *running_first;
	unsigned int queued;
	size_t bytes;
	unsigned int running;
	unsigned int cancels;
	bool start_failed; /* there was no thread: try again later */
	bool draining;     /* start nothing */
	bool closing;      /* and leave everything as it is */
};

/* Allocate a job that nobody knows yet; takes the lock for a moment. */
struct job *job_new(struct turns *ts, const struct uuid *tenant, const struct uuid *turn,
                    const struct uuid *session, struct err *e);

void job_ref(struct job *job);   /* (locked) */
void job_unref(struct job *job); /* (locked) the last one frees */

struct lane *lane_of(struct turns *ts, const struct uuid *tenant); /* (locked) NULL = no memory */
struct job *job_find(struct turns *ts, const struct uuid *tenant,  /* (locked) */
                     const struct uuid *turn);

void job_add(struct job *job);     /* (locked) make it known, held; the turn has no other */
void job_count(struct job *job);   /* (locked) count it as queued while it is held */
void job_queue(struct job *job);   /* (locked) held -> queued; starts what may start */
void job_unqueue(struct job *job); /* (locked) queued -> held */
void job_remove(struct job *job);  /* (locked) held -> gone, and unref */

/* The launcher is gone, and with it every sandbox: begin nothing and end nothing. */
static inline bool turns_orphaned(const struct turns *ts)
{
	return ts->conf.orphaned && atomic_load(ts->conf.orphaned);
}

void turns_schedule(struct turns *ts); /* (locked) start what may start */

/* (locked) Nobody knows for sure what the store has: have it asked, now and for a minute. */
void turns_doubt(struct turns *ts, struct lane *l);

/*
 * (locked) Wait until the turn has no job, or no thread any more when it is running.
 * False when that is not so by then.
 */
bool turns_await(struct turns *ts, const struct job *job, uint64_t deadline_ms);

/* -- turns that wait for a person -- */
struct waiter *waiter_find(const struct lane *l, const struct uuid *turn); /* (locked) */

/* (locked) Add it, or bring it up to date; 0 or -1 without memory. */
int waiter_add(struct turns *ts, struct lane *l, const struct request *q, struct err *e) must_check;

/* Before its request is stored.  TURNS_WAITING_LIMIT. */
int turns_begin_wait(struct job *job, const struct request *q, struct err *e) must_check;
void turns_end_wait(struct job *job);

/* -- upkeep.c -- */
/* A turn of the tenant has ended: the mark of its unfinished work goes when no other follows. */
void upkeep_settle_later(struct turns *ts, struct lane *l);

int upkeep_start(struct turns *ts, struct err *e) must_check;
void upkeep_stop(struct turns *ts);

/* Take up what the store has unfinished of a tenant and nobody works on. */
int upkeep_sweep(struct turns *ts, const struct uuid *tenant, struct err *e) must_check;

/* Monotonic time in the form that pthread_cond_timedwait() takes. */
struct timespec turns_time(uint64_t mono_ms);

#endif
