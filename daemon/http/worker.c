#include "daemon/http/worker.h"

#include "daemon/http/server.h"

#include <stdlib.h>

#define BATCHES 2 /* of one party at once */

/* Exists while it has something queued or running. */
struct party {
	struct uuid id;            /* no text: those whom nobody knows */
	struct party *prev, *next; /* all of them */
	struct party *after;       /* in the row of those whose turn comes */
	bool in_row;               /* exactly while it has something queued that may run */
	struct http_exchange *first, **last; /* waiting */
	unsigned int waiting, running;
	unsigned int batches; /* of what runs */
};

struct worker_pool {
	struct worker_conf conf;
	unsigned int party_running, party_waiting; /* at most, of one party */
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct party *parties;
	struct party *row, **row_end;
	unsigned int waiting;
	bool stopping;
	unsigned int count;
	pthread_t threads[];
};

/* -- parties, with the lock held --------------------------------------------------------- */

/* NULL = no memory.  There are no more of them than exchanges queued and running. */
static struct party *party_of(struct worker_pool *p, const struct uuid *id)
{
	struct party *party;

	for (party = p->parties; party; party = party->next)
		if (uuid_equal(&party->id, id))
			return party;
	party = calloc(1, sizeof(*party));
	if (!party)
		return NULL;
	party->id = *id;
	party->last = &party->first;
	party->next = p->parties;
	if (party->next)
		party->next->prev = party;
	p->parties = party;
	return party;
}

/*
 * What could be answered together waits while two batches run, and the longer those take, the
 * more come together: so many small requests cost the switches between threads of a few.
 */
static bool may_run(const struct worker_pool *p, const struct party *party)
{
	if (!party->first || party->running >= p->party_running)
		return false;
	return !party->first->route->handle_all || party->batches < BATCHES;
}

/* Into the row when it belongs there; away when it has nothing left. */
static void settle(struct worker_pool *p, struct party *party)
{
	if (!party->in_row && may_run(p, party)) {
		party->in_row = true;
		party->after = NULL;
		*p->row_end = party;
		p->row_end = &party->after;
		pthread_cond_signal(&p->more);
	}
	if (party->first || party->running)
		return;
	if (party->prev)
		party->prev->next = party->next;
	else
		p->parties = party->next;
	if (party->next)
		party->next->prev = party->prev;
	free(party);
}

static struct http_exchange *take_first(struct worker_pool *p, struct party *party)
{
	struct http_exchange *ex = party->first;

	party->first = ex->next;
	if (!party->first)
		party->last = &party->first;
	party->waiting--;
	p->waiting--;
	ex->next = NULL;
	return ex;
}

/* The first, and those behind it that are answered together with it. */
static struct http_exchange *take_batch(struct worker_pool *p, struct party *party)
{
	struct http_exchange *first = take_first(p, party), *last = first;

	if (!first->route->handle_all)
		return first;
	party->batches++;
	if (!*party->id.text)
		return first; /* those whom nobody knows need not be one */
	for (int n = 1; n < HTTP_BATCH_MAX && party->first && party->first->route == first->route;
	     n++) {
		last->next = take_first(p, party);
		last = last->next;
	}
	return first;
}

static struct party *take_turn(struct worker_pool *p)
{
	struct party *party = p->row;

	p->row = party->after;
	if (!p->row)
		p->row_end = &p->row;
	party->in_row = false;
	return party;
}

/* -- threads ------------------------------------------------------------------------------- */

/* What to run next and whose it is, or NULL when the pool stops. */
static struct http_exchange *wait_for_work(struct worker_pool *p, struct party **ret)
{
	struct http_exchange *ex = NULL;

	pthread_mutex_lock(&p->lock);
	while (!p->row && !p->stopping)
		pthread_cond_wait(&p->more, &p->lock);
	if (!p->stopping) {
		*ret = take_turn(p);
		ex = take_batch(p, *ret);
		(*ret)->running++;
		settle(p, *ret);
	}
	pthread_mutex_unlock(&p->lock);
	return ex;
}

static void finish(struct worker_pool *p, struct party *party, bool batch)
{
	pthread_mutex_lock(&p->lock);
	party->running--;
	party->batches -= batch;
	settle(p, party);
	pthread_mutex_unlock(&p->lock);
}

static void *worker_main(void *arg)
{
	struct worker_pool *p = arg;
	struct http_exchange *ex;
	struct party *party;

	while ((ex = wait_for_work(p, &party))) {
		bool batch = ex->route->handle_all != NULL;

		exchange_run_all(ex);
		finish(p, party, batch);
		server_done(ex->server, ex);
	}
	return NULL;
}

int worker_start(const struct worker_conf *conf, struct worker_pool **ret, struct err *e)
{
	struct worker_pool *p = calloc(1, sizeof(*p) + conf->threads * sizeof(p->threads[0]));

	if (!p)
		return err_errno(e, "worker pool");
	p->conf = *conf;
	p->party_running = conf->shares ? worker_share(conf->threads) : conf->threads;
	p->party_waiting = conf->shares ? worker_share(conf->max_queued) : conf->max_queued;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->more, NULL);
	p->row_end = &p->row;
	while (p->count < conf->threads) {
		int failed = pthread_create(&p->threads[p->count], NULL, worker_main, p);

		if (failed) {
			worker_stop(p);
			worker_free(&p);
			return err_set(e, failed, "cannot start %u worker threads", conf->threads);
		}
		p->count++;
	}
	*ret = p;
	return 0;
}

static enum worker_answer submit(struct worker_pool *p, const struct uuid *id,
                                 struct http_exchange *ex)
{
	struct party *party;

	if (p->stopping || p->waiting >= p->conf.max_queued)
		return WORKER_FULL;
	party = party_of(p, id);
	if (!party)
		return WORKER_FULL;
	if (party->waiting >= p->party_waiting)
		return WORKER_PARTY_FULL;
	ex->next = NULL;
	*party->last = ex;
	party->last = &ex->next;
	party->waiting++;
	p->waiting++;
	settle(p, party);
	return WORKER_TAKEN;
}

enum worker_answer worker_submit(struct worker_pool *p, const struct uuid *party,
                                 struct http_exchange *ex)
{
	static const struct uuid nobody = { "" };
	enum worker_answer answer;

	pthread_mutex_lock(&p->lock);
	answer = submit(p, party ? party : &nobody, ex);
	pthread_mutex_unlock(&p->lock);
	return answer;
}

/* Nobody else looks at the queue any more, and nothing runs. */
static void refuse_queued(struct worker_pool *p)
{
	while (p->parties) {
		struct party *party = p->parties;

		while (party->first) {
			struct http_exchange *ex = take_first(p, party);

			exchange_refuse_stopping(ex);
			server_done(ex->server, ex);
		}
		settle(p, party);
	}
}

void worker_stop(struct worker_pool *p)
{
	pthread_mutex_lock(&p->lock);
	p->stopping = true;
	pthread_cond_broadcast(&p->more);
	pthread_mutex_unlock(&p->lock);
	while (p->count > 0)
		pthread_join(p->threads[--p->count], NULL);
	refuse_queued(p);
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
