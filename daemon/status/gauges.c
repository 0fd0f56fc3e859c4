/*
 * How things stand, for Prometheus.  A label takes values from a set that the operator or
 * this program bounds: tenants by name only while few are declared.
 */
#include "daemon/status/status.h"

#include "common/clock.h"
#include "common/log.h"
#include "daemon/metrics/metrics.h"

#include <stdlib.h>
#include <string.h>

#define SANDBOXES_MAX 4096

static void put_census(struct buf *out, const struct status_of *of)
{
	struct turns_census c;

	turns_count(of->turns, NULL, &c);
	metrics_head(out, "cloister_turns", "gauge", "Turns that are not over.");
	metrics_sample(out, "cloister_turns", "state", "running", c.running);
	metrics_sample(out, "cloister_turns", "state", "queued", c.queued);
	metrics_sample(out, "cloister_turns", "state", "waiting", c.waiting);
}

static void put_sandboxes(struct buf *out, const struct status_of *of)
{
	static const char *const states[] = { "starting", "running", "ending" };
	struct sandbox_view *views = calloc(SANDBOXES_MAX, sizeof(*views));
	size_t n = views ? sandboxes_view(of->sandboxes, views, SANDBOXES_MAX) : 0;

	metrics_head(out, "cloister_sandboxes", "gauge", "Sandboxes that are not stopped.");
	for (size_t i = 0; i < ARRAY_LEN(states); i++) {
		size_t in_state = 0;

		for (size_t k = 0; k < n; k++)
			in_state += strcmp(views[k].state, states[i]) == 0;
		metrics_sample(out, "cloister_sandboxes", "state", states[i], in_state);
	}
	free(views);
}

static void put_gauge(struct buf *out, const char *name, const char *help, uint64_t n)
{
	metrics_head(out, name, "gauge", help);
	metrics_sample(out, name, NULL, NULL, n);
}

static void put_database(struct buf *out, const struct status_of *of)
{
	struct store_use use = store_connections(of->store);

	metrics_head(out, "cloister_database_connections", "gauge", "Connections to the database.");
	metrics_sample(out, "cloister_database_connections", "state", "busy", use.busy);
	metrics_sample(out, "cloister_database_connections", "state", "idle", use.idle);
	put_gauge(out, "cloister_database_connections_max",
	          "Connections that there may be at once.", use.max);
}

/* -- tenants ----------------------------------------------------------------------------- */

struct tenants {
	const struct status_of *of;
	struct buf *out;
	size_t n;
};

static void count_tenant(void *ctx, const struct tenant *t)
{
	struct tenants *all = ctx;

	(void)t;
	all->n++;
}

static void put_turns(void *ctx, const struct tenant *t)
{
	static const char *const labels[] = { "tenant", "state" };
	const struct tenants *all = ctx;
	struct turns_census c;

	turns_count(all->of->turns, &t->id, &c);
	metrics_sample2(all->out, "cloister_tenant_turns", labels,
	                (const char *[]){ t->name, "running" }, c.running);
	metrics_sample2(all->out, "cloister_tenant_turns", labels,
	                (const char *[]){ t->name, "queued" }, c.queued);
	metrics_sample2(all->out, "cloister_tenant_turns", labels,
	                (const char *[]){ t->name, "waiting" }, c.waiting);
}

static void put_streams(void *ctx, const struct tenant *t)
{
	const struct tenants *all = ctx;

	metrics_sample(all->out, "cloister_tenant_event_streams", "tenant", t->name,
	               bus_subscribers(all->of->bus, &t->id));
}

static void put_tenants(struct buf *out, const struct status_of *of)
{
	struct tenants all = { of, out, 0 };

	roster_each(of->roster, count_tenant, &all);
	put_gauge(out, "cloister_tenants", "Tenants that are declared.", all.n);
	if (all.n > STATUS_TENANT_SERIES)
		return;
	metrics_head(out, "cloister_tenant_turns", "gauge", "Turns of a tenant that are not over.");
	roster_each(of->roster, put_turns, &all);
	metrics_head(out, "cloister_tenant_event_streams", "gauge",
	             "Event streams of a tenant that are open.");
	roster_each(of->roster, put_streams, &all);
}

void status_metrics(const struct status_of *of, struct buf *out)
{
	struct http_server *http = of->http;

	metrics_write(out);
	metrics_head(out, "cloister_instance", "gauge", "1, with the id of this run.");
	metrics_sample(out, "cloister_instance", "instance", log_instance(), 1);
	put_gauge(out, "cloister_up_seconds", "For how long it serves.",
	          (clock_mono_ms() - of->begun_ms) / 1000);
	put_gauge(out, "cloister_draining", "1 when no more work is taken.",
	          http && http_draining(http));
	put_census(out, of);
	put_sandboxes(out, of);
	put_gauge(out, "cloister_event_streams_open", "Event streams that are open.",
	          http ? http_streams(http) : 0);
	put_database(out, of);
	put_tenants(out, of);
}
