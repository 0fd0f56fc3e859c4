#include "daemon/http/worker.h"

#include "daemon/http/server.h"

#include <stdlib.h>

struct worker_pool {
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct http_exchange *first, **last; /* waiting */
	unsigned int waiting, max_waiting;
	bool stopping;
	unsigned int count;
	pthread_t threads[];
};

static struct http_exchange *take_first(struct worker_pool *p)
{
	struct http_exchange *ex = p->first;

	p->first = ex->next;
	if (!p->first)
		p->last = &p->first;
	p->waiting--;
	ex->next = NULL;
	return ex;
}

/* The next exchange to run, or NULL when the pool stops. */
static struct http_exchange *wait_for_work(struct worker_pool *p)
{
	struct http_exchange *ex = NULL;

	pthread_mutex_lock(&p->lock);
	while (!p->first && !p->stopping)
		pthread_cond_wait(&p->more, &p->lock);
	if (!p->stopping)
		ex = take_first(p);
	pthread_mutex_unlock(&p->lock);
	return ex;
}

static void *worker_main(void *arg)
{
	struct worker_pool *p = arg;
	struct http_exchange *ex;

	while ((ex = wait_for_work(p))) {
		exchange_run(ex);
		server_done(ex->server, ex);
	}
	return NULL;
}

int worker_start(unsigned int threads, unsigned int max_queued, struct worker_pool **ret,
                 struct err *e)
{
	struct worker_pool *p = calloc(1, sizeof(*p) + threads * sizeof(p->threads[0]));

	if (!p)
		return err_errno(e, "worker pool");
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->more, NULL);
	p->last = &p->first;
	p->max_waiting = max_queued;
	while (p->count < threads) {
		int failed = pthread_create(&p->threads[p->count], NULL, worker_main, p);

		if (failed) {
			worker_stop(p);
			worker_free(&p);
			return err_set(e, failed, "cannot start %u worker threads", threads);
		}
		p->count++;
	}
	*ret = p;
	return 0;
}

bool worker_submit(struct worker_pool *p, struct http_exchange *ex)
{
	bool room;

	pthread_mutex_lock(&p->lock);
	room = !p->stopping && p->waiting < p->max_waiting;
	if (room) {
		ex->next = NULL;
		*p->last = ex;
		p->last = &ex->next;
		p->waiting++;
		pthread_cond_signal(&p->more);
	}
	pthread_mutex_unlock(&p->lock);
	return room;
}

void worker_stop(struct worker_pool *p)
{
	pthread_mutex_lock(&p->lock);
	p->stopping = true;
	pthread_cond_broadcast(&p->more);
	pthread_mutex_unlock(&p->lock);
	while (p->count > 0)
		pthread_join(p->threads[--p->count], NULL);
	while (p->first) { /* nobody else looks at the queue any more */
		struct http_exchange *ex = take_first(p);

		exchange_refuse_stopping(ex);
		server_done(ex->server, ex);
	}
}

void worker_free(struct worker_pool **p)
{
	if (!*p)
		return;
	pthread_cond_destroy(&(*p)->more);
	pthread_mutex_destroy(&(*p)->lock);
	free(*p);
	*p = NULL;
}
