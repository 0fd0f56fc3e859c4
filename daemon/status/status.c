/*
 * Everything is gathered first, each part under its own lock for a moment, and then written
 * in one of two forms.  In JSON every line is a whole value but for the brackets around
 * them, because the way to the operator carries lines of a bounded length.
 */
#include "daemon/status/status.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/log.h"
#include "common/utf8.h"
#include "daemon/launcher/view.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DURATION_SIZE 32

struct report {
	const struct status_of *of;
	bool json;
	struct buf out;
	struct view_head *launcher;
	struct view_sandbox *rows; /* sorted by tenant, as is the next */
	struct sandbox_view *views;
	size_t view_count;
	size_t listed; /* tenants and errors that were written since the list began */
};

static int by_tenant(const void *a, const void *b)
{
	/* Both kinds of rows begin with the tenant. */
	return memcmp(a, b, sizeof(struct uuid));
}

_Static_assert(offsetof(struct view_sandbox, tenant) == 0, "by_tenant() compares it");
_Static_assert(offsetof(struct sandbox_view, tenant) == 0, "by_tenant() compares it");

/* -- words ------------------------------------------------------------------------------- */

static const char *duration(uint64_t ms, char ret[DURATION_SIZE])
{
	uint64_t s = ms / 1000;

	if (s < 120)
		(void)snprintf(ret, DURATION_SIZE, "%" PRIu64 " s", s);
	else if (s < 7200)
		(void)snprintf(ret, DURATION_SIZE, "%" PRIu64 " min", s / 60);
	else if (s < 172800)
		(void)snprintf(ret, DURATION_SIZE, "%" PRIu64 " h", s / 3600);
	else
		(void)snprintf(ret, DURATION_SIZE, "%" PRIu64 " days", s / 86400);
	return ret;
}

static void put_line(struct report *r, struct json *value)
{
	buf_adds(&r->out, r->listed++ ? ",\n" : "\n");
	json_write(value, &r->out);
	json_free(&value);
}

static void put_unknown_or_int(struct json *o, const char *key, int64_t value)
{
	if (value == VIEW_UNKNOWN)
		json_put_null(o, key);
	else
		json_put_int(o, key, value);
}

/* -- a tenant ---------------------------------------------------------------------------- */

struct sandbox_facts {
	const struct sandbox_view *view; /* NULL = it has none */
	const struct view_sandbox *row;  /* NULL = the launcher has none, or another generation */
};

static struct sandbox_facts find_sandbox(const struct report *r, const struct uuid *tenant)
{
	struct sandbox_facts f;

	f.view = bsearch(tenant, r->views, r->view_count, sizeof(*r->views), by_tenant);
	f.row = bsearch(tenant, r->rows, r->launcher->sandboxes, sizeof(*r->rows), by_tenant);
	if (!f.view || (f.row && f.row->generation != f.view->generation))
		f.row = NULL;
	return f;
}

static void put_sandbox_json(struct json *o, const struct sandbox_facts *f)
{
	struct json *s;

	if (!f->view) {
		json_put_null(o, "sandbox");
		return;
	}
	s = json_new_object();
	json_put_str(s, "state", f->view->state);
	json_put_int(s, "ageSeconds", (int64_t)(f->view->age_ms / 1000));
	json_put_int(s, "idleSeconds", (int64_t)(f->view->idle_ms / 1000));
	json_put_int(s, "calls", f->view->calls);
	put_unknown_or_int(s, "memoryBytes", f->row ? f->row->memory : VIEW_UNKNOWN);
	put_unknown_or_int(s, "tasks", f->row ? f->row->tasks : VIEW_UNKNOWN);
	json_put(o, "sandbox", s);
}

static void put_sandbox_text(struct buf *out, const struct sandbox_facts *f)
{
	char age[DURATION_SIZE], idle[DURATION_SIZE];

	if (!f->view) {
		buf_adds(out, "no sandbox");
		return;
	}
	buf_addf(out, "sandbox %s for %s", f->view->state, duration(f->view->age_ms, age));
	if (f->row && f->row->memory != VIEW_UNKNOWN)
		buf_addf(out, ", %" PRId64 " MiB", f->row->memory >> 20);
	if (f->row && f->row->tasks != VIEW_UNKNOWN)
		buf_addf(out, ", %" PRId64 " tasks", f->row->tasks);
	if (f->view->calls)
		buf_addf(out, ", calls: %u", f->view->calls);
	else if (f->view->idle_ms)
		buf_addf(out, ", idle for %s", duration(f->view->idle_ms, idle));
}

static struct json *census_json(const struct turns_census *c)
{
	struct json *o = json_new_object();

	json_put_int(o, "running", c->running);
	json_put_int(o, "queued", c->queued);
	json_put_int(o, "waiting", c->waiting);
	return o;
}

static void put_tenant(void *ctx, const struct tenant *t)
{
	struct report *r = ctx;
	struct sandbox_facts f = find_sandbox(r, &t->id);
	size_t streams = bus_subscribers(r->of->bus, &t->id);
	struct turns_census c;
	struct json *o;

	turns_count(r->of->turns, &t->id, &c);
	if (!r->json) {
		buf_addf(&r->out, "  %s (%s): ", t->name, t->id.text);
		put_sandbox_text(&r->out, &f);
		buf_addf(&r->out, "; turns: %u running, %u queued, %u waiting; streams: %zu\n",
		         c.running, c.queued, c.waiting, streams);
		return;
	}
	o = json_new_object();
	json_put_str(o, "id", t->id.text);
	json_put_str(o, "name", t->name);
	put_sandbox_json(o, &f);
	json_put(o, "turns", census_json(&c));
	json_put_int(o, "streams", (int64_t)streams);
	put_line(r, o);
}

/* -- the whole --------------------------------------------------------------------------- */

/* By their time, the newest first, of both processes. */
static int newer(const void *a, const void *b)
{
	const struct log_line *x = a, *y = b;

	return x->at_ms < y->at_ms ? 1 : x->at_ms > y->at_ms ? -1 : 0;
}

static void put_error(struct report *r, const struct log_line *line)
{
	const char *level = line->level == LOG_ERROR ? "error" : "warn";
	auto_buf struct buf text = BUF_INIT(3 * sizeof(line->text));
	char at[CLOCK_TEXT_SIZE];
	struct json *o;

	(void)utf8_repair(line->text, strlen(line->text), &text);
	clock_format(line->at_ms, at);
	if (!r->json) {
		buf_addf(&r->out, "  %s %s: %s\n", at, level, text.data ? text.data : "");
		return;
	}
	o = json_new_object();
	json_put_str(o, "at", at);
	json_put_str(o, "level", level);
	json_put_strn(o, "message", text.data ? text.data : "", text.len);
	put_line(r, o);
}

static void put_errors(struct report *r)
{
	struct log_line all[2 * LOG_RECENT];
	size_t n = log_recent(all);

	for (size_t i = 0; i < r->launcher->errors; i++)
		all[n++] = r->launcher->error[i];
	qsort(all, n, sizeof(*all), newer);
	for (size_t i = 0; i < n; i++)
		put_error(r, &all[i]);
	if (!n && !r->json)
		buf_adds(&r->out, "  none\n");
}

struct totals {
	struct turns_census turns;
	struct store_use database;
	unsigned int streams;
	bool draining;
	uint64_t up_ms;
};

static struct totals count(const struct report *r)
{
	struct totals t = {
		.database = store_connections(r->of->store),
		.streams = http_streams(r->of->http),
		.draining = http_draining(r->of->http),
		.up_ms = clock_mono_ms() - r->of->begun_ms,
	};

	turns_count(r->of->turns, NULL, &t.turns);
	return t;
}

static void put_totals_text(struct report *r, const struct totals *t)
{
	char up[DURATION_SIZE];

	buf_addf(&r->out, "instance %s, boundary %s, up for %s%s\n", log_instance(),
	         r->of->boundary, duration(t->up_ms, up),
	         t->draining ? ", drains: takes no more work" : "");
	buf_addf(&r->out, "turns: %u running, %u queued, %u waiting for a person\n",
	         t->turns.running, t->turns.queued, t->turns.waiting);
	buf_addf(&r->out, "sandboxes: %zu of at most %u%s\n", r->view_count, r->of->max_sandboxes,
	         strcmp(r->of->boundary, "service") == 0
	                 ? ""
	                 : "; memory and tasks are not counted in this boundary");
	buf_addf(&r->out, "event streams: %u of at most %u\n", t->streams, r->of->max_streams);
	buf_addf(&r->out, "database connections: %u in use, %u idle, of at most %u\n",
	         t->database.busy, t->database.idle, t->database.max);
}

static struct json *bound_json(const char *what, size_t n, unsigned int max)
{
	struct json *o = json_new_object();

	json_put_int(o, what, (int64_t)n);
	json_put_int(o, "max", max);
	return o;
}

/* All but the closing bracket: tenants and errors follow. */
static void put_totals_json(struct report *r, const struct totals *t)
{
	struct json *o = json_new_object(), *database = json_new_object();

	json_put_int(o, "version", 1);
	json_put_str(o, "instance", log_instance());
	json_put_str(o, "boundary", r->of->boundary);
	json_put_int(o, "upSeconds", (int64_t)(t->up_ms / 1000));
	json_put_bool(o, "draining", t->draining);
	json_put(o, "turns", census_json(&t->turns));
	json_put(o, "sandboxes", bound_json("active", r->view_count, r->of->max_sandboxes));
	json_put(o, "streams", bound_json("open", t->streams, r->of->max_streams));
	json_put_int(database, "inUse", t->database.busy);
	json_put_int(database, "idle", t->database.idle);
	json_put_int(database, "max", t->database.max);
	json_put(o, "database", database);
	json_write(o, &r->out);
	json_free(&o);
	if (!buf_failed(&r->out))
		buf_truncate(&r->out, r->out.len - 1);
}

static void begin_list(struct report *r, const char *json, const char *text)
{
	r->listed = 0;
	buf_adds(&r->out, r->json ? json : text);
}

static void write_report(struct report *r)
{
	struct totals t = count(r);

	(r->json ? put_totals_json : put_totals_text)(r, &t);
	begin_list(r, ",\n\"tenants\":[", "tenants:\n");
	roster_each(r->of->roster, put_tenant, r);
	begin_list(r, "\n],\n\"errors\":[", "last errors and warnings:\n");
	put_errors(r);
	if (r->json)
		buf_adds(&r->out, "\n]}\n");
}

static int write_view(const struct status_of *of, int fd, struct sandbox_view *views, struct err *e)
{
	auto_free struct view_sandbox *rows = NULL;
	struct view_head head;
	struct report r = { .of = of, .launcher = &head, .views = views };
	int rc;

	if (view_take(fd, &head, &rows, e) < 0)
		return -1;
	r.out = (struct buf)BUF_INIT(VIEW_OUT_MAX);
	r.json = head.json;
	r.rows = rows;
	r.view_count = sandboxes_view(of->sandboxes, views, VIEW_SANDBOXES_MAX);
	qsort(rows, head.sandboxes, sizeof(*rows), by_tenant);
	qsort(views, r.view_count, sizeof(*views), by_tenant);
	write_report(&r);
	if (buf_failed(&r.out))
		rc = err_set(e, ENOMEM, "the status has more than %zu bytes", VIEW_OUT_MAX);
	else
		rc = fd_write_all(fd, r.out.data, r.out.len, e);
	buf_release(&r.out);
	return rc;
}

int status_write(const struct status_of *of, int fd, struct err *e)
{
	struct sandbox_view *views = calloc(VIEW_SANDBOXES_MAX, sizeof(*views));
	int rc = views ? write_view(of, fd, views, e)
	               : err_set(e, ENOMEM, "no memory for the status");

	free(views);
	return rc;
}
