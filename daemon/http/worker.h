/*
 * worker.h - a bounded queue of exchanges and the threads that run them.
 *
 * Exchanges belong to parties: a tenant, or those whom nobody knows.  Parties take turns,
 * each in the order in which it came, and none may have more than its share of the threads
 * and of the queue, so that one whose requests are many or slow delays itself.
 * A finished exchange goes back through server_done().
 */
#ifndef DAEMON_HTTP_WORKER_H
#define DAEMON_HTTP_WORKER_H

#include "common/err.h"
#include "common/id.h"

#include <stdbool.h>
#include <stdint.h>

struct http_exchange;
struct worker_pool;

struct worker_conf {
	unsigned int threads;
	unsigned int max_queued;
	/* Every party is bounded by its share of both; else by the whole. */
	bool shares;
};

/* What one party may have of n: three quarters, and less than all where that can be. */
static inline unsigned int worker_share(unsigned int n)
{
	return n > 1 ? n - (n + 3) / 4 : n;
}

int worker_start(const struct worker_conf *conf, struct worker_pool **ret, struct err *e)
	must_check;

enum worker_answer {
	WORKER_TAKEN,
	WORKER_PARTY_FULL, /* the party has its share of the queue; ex stays with the caller */
	WORKER_FULL,       /* the queue is full, or the pool stops; likewise */
};

/* party NULL: those whom nobody knows. */
enum worker_answer worker_submit(struct worker_pool *p, const struct uuid *party,
                                 struct http_exchange *ex);

/* Let running handlers finish, answer what is queued with 503, end the threads.  Blocks. */
void worker_stop(struct worker_pool *p);

/* After worker_stop(); NULL inside is fine. */
void worker_free(struct worker_pool **p);

#endif
