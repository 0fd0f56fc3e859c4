/*
 * worker.h - a bounded queue of exchanges and the threads that run them.
 *
 * A finished exchange goes back through server_done().
 */
#ifndef DAEMON_HTTP_WORKER_H
#define DAEMON_HTTP_WORKER_H

#include "common/err.h"

#include <stdbool.h>

struct http_exchange;
struct worker_pool;

int worker_start(unsigned int threads, unsigned int max_queued, struct worker_pool **ret,
                 struct err *e) must_check;

/* False when the queue is full or the pool stops; then ex stays with the caller. */
bool worker_submit(struct worker_pool *p, struct http_exchange *ex);

/* Let running handlers finish, answer what is queued with 503, end the threads.  Blocks. */
void worker_stop(struct worker_pool *p);

/* After worker_stop(); NULL inside is fine. */
void worker_free(struct worker_pool **p);

#endif
