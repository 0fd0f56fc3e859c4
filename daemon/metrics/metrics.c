#include "daemon/metrics/metrics.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

#define BOUNDS 12

static const struct family {
	const char *name, *help;
	const char *label; /* NULL = none */
	const char *values[METRIC_VALUES];
} families[METRIC_COUNT] = {
	[METRIC_TURNS] = { "cloister_turns_total",
	                   "Turns that have ended.",
	                   "state",
	                   { "completed", "failed", "cancelled" } },
	[METRIC_SANDBOX_START] = { "cloister_sandbox_starts_total",
	                           "Sandboxes that were to start.",
	                           "result",
	                           { "running", "failed", "limit", "disk_full" } },
	[METRIC_SANDBOX_END] = { "cloister_sandbox_ends_total",
	                         "Sandboxes that have ended.",
	                         "cause",
	                         { "ended", "oom", "pids", "disk_full", "lost" } },
	[METRIC_EXEC] = { "cloister_execs_total",
	                  "Commands that were run, by their end.",
	                  "reason",
	                  { "exited", "timeout", "cancelled", "lost", "oom", "pids",
	                    "disk_full" } },
	[METRIC_EXEC_BYTES] = { "cloister_exec_output_bytes_total",
	                        "What commands have said.",
	                        "stream",
	                        { "stdout", "stderr" } },
	[METRIC_FILE_BYTES] = { "cloister_file_bytes_total",
	                        "Contents of files in sandboxes.",
	                        "direction",
	                        { "read", "written" } },
	[METRIC_STREAMS] = { "cloister_event_streams_total", "Event streams that were opened." },
	[METRIC_STREAM_RESETS] = { "cloister_event_stream_resets_total",
	                           "Gaps that readers of event streams were told of." },
	[METRIC_EVENTS] = { "cloister_events_total", "Events that were published." },
	[METRIC_PROVIDER] = { "cloister_model_calls_total",
	                      "Calls of models.",
	                      "result",
	                      { "answered", "failed" } },
	[METRIC_TOKENS] = { "cloister_model_tokens_total",
	                    "Tokens of models, as they count them; cached ones are part of input.",
	                    "kind",
	                    { "input", "output", "cached" } },
	[METRIC_ATTEMPTS] = { "cloister_wrong_tokens_total",
	                      "Requests with a bearer token that is nobody's.",
	                      "answer",
	                      { "refused", "throttled" } },
	[METRIC_DATABASE_CONNECTS] = { "cloister_database_connects_total",
	                               "Connections to the database that were opened." },
	[METRIC_DATABASE_WAITS] = { "cloister_database_wait_timeouts_total",
	                            "Waits for a connection to the database that were given up." },
};

/* Upper bounds in microseconds; the last bucket has none. */
static const uint32_t short_bounds[BOUNDS] = { 1000,   2500,   5000,   10000,   25000,   50000,
	                                       100000, 250000, 500000, 1000000, 2500000, 10000000 };
static const uint32_t long_bounds[BOUNDS] = { 100000,   250000,    500000,    1000000,
	                                      2500000,  5000000,   10000000,  30000000,
	                                      60000000, 120000000, 300000000, 600000000 };

struct histogram {
	atomic_uint_fast64_t buckets[BOUNDS + 1];
	atomic_uint_fast64_t sum; /* microseconds */
};

static const struct {
	const char *name, *help;
} times[METRIC_TIME_COUNT] = {
	[METRIC_TIME_START] = { "cloister_sandbox_start_seconds",
	                        "From asking for a sandbox until it takes calls." },
	[METRIC_TIME_PROVIDER] = { "cloister_model_answer_seconds",
	                           "From asking a model until its answer is whole." },
};

static atomic_uint_fast64_t cells[METRIC_COUNT][METRIC_VALUES];
static struct histogram histograms[METRIC_TIME_COUNT];

/* Statuses that the server gives; the last one stands for all others. */
static const int statuses[] = { 200, 201, 202, 204, 400, 401, 403, 404, 405, 408, 409,
	                        413, 414, 415, 422, 429, 431, 500, 503, 505, 507, 0 };

static struct {
	const char *method, *pattern;
	atomic_uint_fast64_t by_status[ARRAY_LEN(statuses)];
	struct histogram took;
} routes[METRIC_ROUTES];

/* -- counting ---------------------------------------------------------------------------- */

void metric_add(enum metric m, size_t value, uint64_t n)
{
	if (value < METRIC_VALUES)
		atomic_fetch_add_explicit(&cells[m][value], n, memory_order_relaxed);
}

static void observe(struct histogram *h, const uint32_t bounds[BOUNDS], uint64_t us)
{
	size_t at = 0;

	while (at < BOUNDS && us > bounds[at])
		at++;
	atomic_fetch_add_explicit(&h->buckets[at], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&h->sum, us, memory_order_relaxed);
}

void metric_time(enum metric_time m, uint64_t microseconds)
{
	observe(&histograms[m], long_bounds, microseconds);
}

void metric_route(size_t route, const char *method, const char *pattern)
{
	if (route >= METRIC_ROUTES - 1)
		return;
	routes[route].method = method;
	routes[route].pattern = pattern;
}

void metric_request(size_t route, int status, uint64_t microseconds)
{
	size_t at = 0;

	if (route >= METRIC_ROUTES)
		route = METRIC_ROUTES - 1;
	while (statuses[at] && statuses[at] != status)
		at++;
	atomic_fetch_add_explicit(&routes[route].by_status[at], 1, memory_order_relaxed);
	observe(&routes[route].took, short_bounds, microseconds);
}

/* -- reading ----------------------------------------------------------------------------- */

void metrics_head(struct buf *out, const char *name, const char *type, const char *help)
{
	buf_addf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_label(struct buf *out, const char *label, const char *value)
{
	buf_addf(out, "%s=\"", label);
	for (const char *p = value; *p; p++) {
		if (*p == '\\' || *p == '"')
			buf_addc(out, '\\');
		if (*p == '\n')
			buf_adds(out, "\\n");
		else
			buf_addc(out, *p);
	}
	buf_addc(out, '"');
}

void metrics_sample(struct buf *out, const char *name, const char *label, const char *value,
                    uint64_t n)
{
	buf_adds(out, name);
	if (label) {
		buf_addc(out, '{');
		put_label(out, label, value);
		buf_addc(out, '}');
	}
	buf_addf(out, " %" PRIu64 "\n", n);
}

void metrics_sample2(struct buf *out, const char *name, const char *const labels[2],
                     const char *const values[2], uint64_t n)
{
	buf_addf(out, "%s{", name);
	put_label(out, labels[0], values[0]);
	buf_addc(out, ',');
	put_label(out, labels[1], values[1]);
	buf_addf(out, "} %" PRIu64 "\n", n);
}

/* Every value of every label is written, those that were never counted too. */
static void write_counter(struct buf *out, enum metric m)
{
	const struct family *f = &families[m];

	metrics_head(out, f->name, "counter", f->help);
	if (!f->label)
		metrics_sample(out, f->name, NULL, NULL, atomic_load(&cells[m][0]));
	for (size_t i = 0; f->label && i < METRIC_VALUES && f->values[i]; i++)
		metrics_sample(out, f->name, f->label, f->values[i], atomic_load(&cells[m][i]));
}

/* label NULL = none.  Each bucket holds those below it, so that the last one is the count. */
static void write_histogram(struct buf *out, const char *name, const char *label, const char *value,
                            const struct histogram *h, const uint32_t bounds[BOUNDS])
{
	const char *labels[2] = { "le", label }, *values[2] = { NULL, value };
	uint64_t n = 0, sum = atomic_load(&h->sum);
	char bucket[96], le[32];

	(void)snprintf(bucket, sizeof(bucket), "%s_bucket", name);
	for (size_t i = 0; i <= BOUNDS; i++) {
		n += atomic_load(&h->buckets[i]);
		if (i < BOUNDS)
			(void)snprintf(le, sizeof(le), "%g", bounds[i] / 1e6);
		values[0] = i < BOUNDS ? le : "+Inf";
		if (label)
			metrics_sample2(out, bucket, labels, values, n);
		else
			metrics_sample(out, bucket, "le", values[0], n);
	}
	buf_addf(out, "%s_sum", name);
	if (label) {
		buf_addc(out, '{');
		put_label(out, label, value);
		buf_addc(out, '}');
	}
	buf_addf(out, " %" PRIu64 ".%06" PRIu64 "\n", sum / 1000000, sum % 1000000);
	(void)snprintf(bucket, sizeof(bucket), "%s_count", name);
	metrics_sample(out, bucket, label, value, n);
}

static const char *route_name(size_t i, char *ret, size_t size)
{
	if (routes[i].method)
		(void)snprintf(ret, size, "%s %s", routes[i].method, routes[i].pattern);
	else
		(void)snprintf(ret, size, "none");
	return ret;
}

static bool has_route(size_t i)
{
	return routes[i].method || i == METRIC_ROUTES - 1;
}

static void write_route(struct buf *out, size_t i)
{
	static const char *const labels[] = { "route", "status" };
	char name[160], status[16];

	for (size_t k = 0; k < ARRAY_LEN(statuses); k++) {
		uint64_t n = atomic_load(&routes[i].by_status[k]);
		const char *values[2] = { route_name(i, name, sizeof(name)), status };

		if (statuses[k])
			(void)snprintf(status, sizeof(status), "%d", statuses[k]);
		else
			(void)snprintf(status, sizeof(status), "other");
		if (n)
			metrics_sample2(out, "cloister_http_requests_total", labels, values, n);
	}
}

void metrics_write(struct buf *out)
{
	char name[160];

	metrics_head(out, "cloister_http_requests_total", "counter",
	             "Requests that were answered.");
	for (size_t i = 0; i < METRIC_ROUTES; i++)
		if (has_route(i))
			write_route(out, i);
	metrics_head(out, "cloister_http_request_seconds", "histogram",
	             "From the request line until the answer was there.");
	for (size_t i = 0; i < METRIC_ROUTES; i++)
		if (has_route(i))
			write_histogram(out, "cloister_http_request_seconds", "route",
			                route_name(i, name, sizeof(name)), &routes[i].took,
			                short_bounds);
	for (size_t i = 0; i < METRIC_COUNT; i++)
		write_counter(out, (enum metric)i);
	for (size_t i = 0; i < METRIC_TIME_COUNT; i++) {
		metrics_head(out, times[i].name, "histogram", times[i].help);
		write_histogram(out, times[i].name, NULL, NULL, &histograms[i], long_bounds);
	}
}
