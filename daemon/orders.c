#include "daemon/orders.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/log.h"
#include "daemon/store/patience.h"
#include "daemon/tenant/compiled.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SWEEP_MS 1000  /* between two looks for turns of tenants that are not declared */
#define DOUBT_MS 30000 /* a request that was let in before may still bring one */
#define BATCH    64    /* turns that are cancelled before the next look */
#define SEND_MS  1000

struct orders {
	struct orders_conf conf;
	pthread_t thread;
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	bool stopping;
	bool pending;
	struct launcher_message order; /* pending */
	int fd;
	/* of the thread */
	uint64_t sweep_ms, doubt_ms; /* monotonic; sweep_ms 0 = nothing to look for */
};

/* -- turns and sandboxes of tenants that are not declared ----------------------------------- */

struct tenants {
	struct roster *roster;
	struct uuid ids[BATCH];
	size_t n;
	bool more;
};

static void add_undeclared(void *ctx, const struct uuid *tenant)
{
	struct tenants *t = ctx;

	if (roster_declares(t->roster, tenant))
		return;
	if (t->n < BATCH)
		t->ids[t->n++] = *tenant;
	else
		t->more = true;
}

struct batch {
	struct uuid ids[BATCH];
	size_t n;
};

static void add_turn(void *ctx, const struct turn *t)
{
	struct batch *b = ctx;

	if (b->n < BATCH)
		b->ids[b->n++] = t->id;
}

static bool cancel_turns(struct orders *o, const struct uuid *tenant)
{
	struct batch batch = { .n = 0 };
	struct err e = ERR_INIT;

	if (turn_each_unfinished(o->conf.store, tenant, add_turn, &batch, &e) < 0) {
		log_warn("turns of removed tenant %s: %s", tenant->text, e.text);
		return false;
	}
	for (size_t i = 0; i < batch.n; i++) {
		struct turn t = { 0 };

		if (turns_cancel(o->conf.turns, tenant, &batch.ids[i], &t, &e) < 0)
			log_warn("turn %s of removed tenant %s: %s", batch.ids[i].text,
			         tenant->text, e.text);
		else
			turn_release(&t);
	}
	if (batch.n)
		log_info("tenant %s is not declared: %zu turns cancelled", tenant->text, batch.n);
	else if (store_settle(o->conf.store, tenant, &e) < 0)
		log_warn("removed tenant %s: %s", tenant->text, e.text);
	return batch.n == 0;
}

static bool is_undeclared(void *ctx, const struct uuid *tenant)
{
	const struct orders *o = ctx;

	return !roster_declares(o->conf.roster, tenant);
}

/* True when there was nothing to do. */
static bool sweep(struct orders *o)
{
	struct tenants tenants = { .roster = o->conf.roster };
	struct err e = ERR_INIT;
	bool done = true;

	if (store_each_unfinished(o->conf.store, add_undeclared, &tenants, &e) < 0) {
		log_warn("unfinished turns of removed tenants: %s", e.text);
		done = false;
	}
	for (size_t i = 0; i < tenants.n; i++)
		done = cancel_turns(o, &tenants.ids[i]) && done;
	/* After their turns, which would otherwise go on with what they lost. */
	sandboxes_end(o->conf.sandboxes, is_undeclared, o);
	return done && !tenants.more;
}

static void upkeep(struct orders *o)
{
	uint64_t now = clock_mono_ms();

	if (!o->sweep_ms || now < o->sweep_ms)
		return;
	o->sweep_ms = sweep(o) && now >= o->doubt_ms ? 0 : clock_mono_ms() + SWEEP_MS;
}

static int cancel_stored(struct store *store, const struct uuid *tenant, struct err *e)
{
	const struct turn_end end = { .state = TURN_CANCELLED, .now_ms = clock_wall_ms() };
	struct batch batch;

	do {
		batch.n = 0;
		if (turn_each_unfinished(store, tenant, add_turn, &batch, e) < 0)
			return -1;
		for (size_t i = 0; i < batch.n; i++)
			if (turn_finish(store, tenant, &batch.ids[i], &end, e) < 0)
				return err_wrap(e, "turn %s", batch.ids[i].text);
	} while (batch.n == BATCH);
	return 0;
}

/* -1 when the database is away: whose turns are not cancelled now would go on. */
static int cancel_all_stored(struct store *store, struct tenants *tenants,
                             struct patience *patience, struct err *e)
{
	for (size_t i = 0; i < tenants->n; i++)
		while (cancel_stored(store, &tenants->ids[i], e) < 0) {
			if (patience_wait(patience, e) == 0)
				continue;
			if (e->code == STORE_UNAVAILABLE || e->code == ECANCELED)
				return -1;
			log_warn("removed tenant %s: %s", tenants->ids[i].text, e->text);
			break;
		}
	return 0;
}

int orders_cancel_leftovers(struct store *store, struct roster *roster, int stop_fd, struct err *e)
{
	struct patience patience = patience_begin(stop_fd);
	struct tenants tenants = { .roster = roster };

	while (store_each_unfinished(store, add_undeclared, &tenants, e) < 0)
		if (patience_wait(&patience, e) < 0)
			return err_wrap(e, "unfinished turns of removed tenants");
	if (cancel_all_stored(store, &tenants, &patience, e) < 0)
		return err_wrap(e, "turns of removed tenants");
	return 0;
}

/* -- orders ------------------------------------------------------------------------------------ */

/* The launcher reads; a socket that stays full means that it does not, and then it ends us. */
static void answer(struct orders *o, const struct launcher_message *order, int rc,
                   const struct err *cause)
{
	struct launcher_message m = {
		.op = LAUNCHER_DONE,
		.generation = order->generation,
		.processes = order->processes,
		.status = rc < 0 ? 1 : 0,
	};
	struct pollfd p = { .fd = o->conf.launcher_sock, .events = POLLOUT };
	struct err e = ERR_INIT;

	if (rc < 0)
		(void)snprintf(m.cause, sizeof(m.cause), "%.255s", cause->text);
	while (launcher_send(o->conf.launcher_sock, &m, NULL, &e) < 0) {
		if (e.code == EAGAIN && poll(&p, 1, SEND_MS) == 1)
			continue;
		log_error("answer to the launcher: %s", e.text);
		return;
	}
}

static bool is_declared(void *ctx, const struct uuid *tenant)
{
	return registry_find(ctx, tenant) != NULL;
}

static void take_registry(struct orders *o, const struct launcher_message *order, int fd)
{
	struct registry *next = NULL;
	struct err e = ERR_INIT;
	int rc = registry_take(fd, &next, &e);

	if (rc == 0) {
		log_info("takes a registry with %zu tenants", registry_count(next));
		store_readmit(o->conf.store, is_declared, next);
		roster_replace(o->conf.roster, next);
		http_recheck(o->conf.http);
		o->sweep_ms = clock_mono_ms();
		o->doubt_ms = o->sweep_ms + DOUBT_MS;
	}
	/* Last: who waits for it may use a new token at once. */
	answer(o, order, rc, &e);
}

static void purge(struct orders *o, const struct launcher_message *order)
{
	struct err e = ERR_INIT;
	int rc = 0;

	if (roster_declares(o->conf.roster, &order->tenant))
		rc = err_set(&e, EBUSY, "tenant %s is declared", order->tenant.text);
	if (rc == 0)
		rc = store_purge(o->conf.store, &order->tenant, &e);
	answer(o, order, rc, &e);
}

static void tell_status(struct orders *o, const struct launcher_message *order, int fd)
{
	struct err e = ERR_INIT;
	int rc = status_write(o->conf.status, fd, &e);

	answer(o, order, rc, &e);
}

/* What runs goes on; what is queued goes on after the next start. */
static void pause_work(struct orders *o, const struct launcher_message *order)
{
	struct launcher_message told = *order;
	struct turns_census census;
	struct err e = ERR_INIT;

	http_drain(o->conf.http);
	(void)turns_drain(o->conf.turns, 0);
	turns_count(o->conf.turns, NULL, &census);
	told.processes = census.running;
	answer(o, &told, 0, &e);
}

/* It could not be received: the launcher hears of it, and what is in force stays. */
static bool lacks_descriptor(const struct launcher_message *order, int fd)
{
	return fd < 0 && (order->op == LAUNCHER_REGISTRY || order->op == LAUNCHER_STATUS);
}

static void carry_out(struct orders *o, const struct launcher_message *order, int fd)
{
	struct err e = ERR_INIT;

	if (lacks_descriptor(order, fd)) {
		answer(o, order,
		       err_set(&e, EMFILE, "the server has no descriptor left; try again"), &e);
		return;
	}
	switch (order->op) {
	case LAUNCHER_REGISTRY:
		take_registry(o, order, fd);
		break;
	case LAUNCHER_STATUS:
		tell_status(o, order, fd);
		break;
	case LAUNCHER_PAUSE:
		pause_work(o, order);
		break;
	default:
		purge(o, order);
	}
}

void orders_take(struct orders *o, const struct launcher_message *m, int *fd)
{
	pthread_mutex_lock(&o->lock);
	if (o->pending) {
		log_error("the launcher sent order %u before the one ahead was over", m->op);
	} else {
		o->pending = true;
		o->order = *m;
		o->fd = fd_take(fd);
		pthread_cond_signal(&o->changed);
	}
	pthread_mutex_unlock(&o->lock);
}

/* -- the thread ----------------------------------------------------------------------------------
 */

static void wait_for_work(struct orders *o)
{
	struct timespec until = { .tv_sec = (time_t)(o->sweep_ms / 1000),
		                  .tv_nsec = (long)(o->sweep_ms % 1000) * 1000000 };
	int rc = 0;

	while (!o->stopping && !o->pending && rc != ETIMEDOUT) {
		if (o->sweep_ms)
			rc = pthread_cond_timedwait(&o->changed, &o->lock, &until);
		else
			(void)pthread_cond_wait(&o->changed, &o->lock);
	}
}

static void *orders_main(void *arg)
{
	struct orders *o = arg;

	pthread_mutex_lock(&o->lock);
	for (;;) {
		auto_close int fd = -1;
		struct launcher_message order;
		bool pending;

		wait_for_work(o);
		if (o->stopping)
			break;
		pending = o->pending;
		if (pending) {
			order = o->order;
			fd = fd_take(&o->fd);
			o->pending = false;
		}
		pthread_mutex_unlock(&o->lock);
		if (pending)
			carry_out(o, &order, fd);
		upkeep(o);
		pthread_mutex_lock(&o->lock);
	}
	pthread_mutex_unlock(&o->lock);
	return NULL;
}

static void orders_free(struct orders *o)
{
	fd_close(&o->fd);
	pthread_mutex_destroy(&o->lock);
	pthread_cond_destroy(&o->changed);
	free(o);
}

int orders_start(const struct orders_conf *conf, struct orders **ret, struct err *e)
{
	struct orders *o = calloc(1, sizeof(*o));
	pthread_condattr_t attr;
	int failed;

	if (!o)
		return err_set(e, ENOMEM, "no memory for orders");
	o->conf = *conf;
	o->fd = -1;
	o->sweep_ms = clock_mono_ms();
	pthread_mutex_init(&o->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&o->changed, &attr);
	pthread_condattr_destroy(&attr);
	failed = pthread_create(&o->thread, NULL, orders_main, o);
	if (failed) {
		orders_free(o);
		return err_set(e, failed, "cannot start the thread for orders");
	}
	*ret = o;
	return 0;
}

void orders_stop(struct orders **at)
{
	struct orders *o = *at;

	if (!o)
		return;
	pthread_mutex_lock(&o->lock);
	o->stopping = true;
	pthread_cond_signal(&o->changed);
	pthread_mutex_unlock(&o->lock);
	pthread_join(o->thread, NULL);
	orders_free(o);
	*at = NULL;
}
