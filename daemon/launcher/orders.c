#include "daemon/launcher/orders.h"

#include "common/fd.h"
#include "common/log.h"
#include "daemon/launcher/child.h"
#include "daemon/launcher/purge.h"
#include "daemon/launcher/view.h"
#include "daemon/tenant/compiled.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

int orders_open(struct orders *o, struct err *e)
{
	o->registry = o->conf->registry;
	o->remover = o->view_fd = -1;
	return control_open(&o->control, o->conf->state_dir, e);
}

void orders_close(struct orders *o)
{
	control_close(&o->control);
	fd_close(&o->view_fd);
	registry_free(&o->next);
	registry_free(&o->owned);
}

const struct tenant *orders_tenant(const struct orders *o, const struct uuid *id)
{
	const struct tenant *t = registry_find(o->registry, id);

	return !t && o->under_way == ORDER_REGISTRY ? registry_find(o->next, id) : t;
}

/* -- the end of an order ------------------------------------------------------------------- */

static void printf_like(3, 4) finish(struct orders *o, bool ok, const char *fmt, ...)
{
	bool given_up = o->under_way == ORDER_REGISTRY && o->next;
	struct err e = ERR_INIT;
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(e.text, sizeof(e.text), fmt, ap);
	va_end(ap);
	o->under_way = ORDER_NONE;
	registry_free(&o->next);
	if (given_up)
		o->changed(o->ctx, o->registry);
	if (ok)
		log_info("%s", e.text);
	else
		log_error("%s", e.text);
	control_line(&o->control, !ok, e.text);
	control_end(&o->control, !ok);
	if (o->again && o->accepting)
		orders_reload(o);
}

static void give(struct orders *o, const struct launcher_message *order, int fd)
{
	struct launcher_message m = *order;
	int fds[2] = { fd, -1 };

	m.generation = ++o->number;
	o->tell(o->ctx, &m, fd < 0 ? NULL : fds);
}

/* -- reload ---------------------------------------------------------------------------------- */

static void report_fault(void *ctx, const char *line)
{
	struct orders *o = ctx;

	log_error("registry: %s", line);
	control_line(&o->control, true, line);
}

/* A reload refuses what a start refuses. */
static int load_registry(struct orders *o, struct err *e)
{
	const struct launcher_conf *conf = o->conf;

	if (registry_load(conf->registry_path, conf->state_dir, &o->next, report_fault, o, e) < 0)
		return -1;
	return conf->guarded ? guarded_check(conf->guarded, o->next, report_fault, o, e) : 0;
}

static void read_registry(struct orders *o)
{
	const struct launcher_message order = { .op = LAUNCHER_REGISTRY };
	struct err e = ERR_INIT;
	int fd = -1;

	if (load_registry(o, &e) == 0)
		fd = registry_compile(o->next, &e);
	if (fd < 0) {
		finish(o, false, "%s; the registry in force stays as it was", e.text);
		return;
	}
	o->under_way = ORDER_REGISTRY;
	give(o, &order, fd);
}

void orders_reload(struct orders *o)
{
	o->again = o->under_way != ORDER_NONE || !o->accepting;
	if (!o->again)
		read_registry(o);
}

static void commit(struct orders *o)
{
	const struct registry *before = o->registry;
	struct registry *old = o->owned;

	o->owned = mem_take(&o->next);
	o->registry = o->owned;
	o->changed(o->ctx, before);
	registry_free(&old);
	finish(o, true, "registry in force: %zu tenant%s", registry_count(o->registry),
	       registry_count(o->registry) == 1 ? "" : "s");
}

/* -- purge ----------------------------------------------------------------------------------- */

static void begin_purge(struct orders *o, const struct uuid *tenant)
{
	const struct launcher_message order = { .op = LAUNCHER_PURGE, .tenant = *tenant };

	o->tenant = *tenant;
	if (registry_find(o->registry, tenant)) {
		finish(o, false,
		       "tenant %s is declared; take it out of the registry and reload first",
		       tenant->text);
	} else if (o->runs(o->ctx, tenant)) {
		finish(o, false, "the sandbox of tenant %s has not ended yet; try again",
		       tenant->text);
	} else {
		o->under_way = ORDER_PURGE;
		give(o, &order, -1);
	}
}

static no_return void remove_files(const struct orders *o, pid_t launcher)
{
	struct err e = ERR_INIT;

	child_begin(launcher);
	fd_close_from(STDERR_FILENO + 1, &o->state_fd, 1);
	if (purge_files(o->state_fd, &o->tenant, &e) == 0)
		_exit(0);
	log_error("purge of tenant %s: %s", o->tenant.text, e.text);
	_exit(1);
}

static void begin_files(struct orders *o)
{
	pid_t launcher = getpid();

	o->under_way = ORDER_FILES;
	o->remover = fork();
	if (o->remover == 0)
		remove_files(o, launcher);
	if (o->remover < 0)
		finish(o, false, "start a process to remove the files: %s", strerrordesc_np(errno));
}

bool orders_reaped(struct orders *o, pid_t pid, int wait_status)
{
	if (o->remover < 0 || pid != o->remover)
		return false;
	o->remover = -1;
	if (wait_status == 0)
		finish(o, true, "nothing is left of tenant %s", o->tenant.text);
	else
		finish(o, false,
		       "the database of tenant %s is dropped, but not all files are removed; the "
		       "log of cloisterd says why",
		       o->tenant.text);
	return true;
}

/* -- status, and no more work ---------------------------------------------------------------- */

/* Questions are no news: nothing of them is logged. */
static void end_question(struct orders *o, int exit_status, const char *fault)
{
	o->under_way = ORDER_NONE;
	fd_close(&o->view_fd);
	if (fault)
		control_line(&o->control, true, fault);
	control_end(&o->control, exit_status);
	if (o->again && o->accepting)
		orders_reload(o);
}

static void begin_status(struct orders *o, bool json)
{
	const struct launcher_message order = { .op = LAUNCHER_STATUS };
	struct err e = ERR_INIT;
	int fd;

	if (o->view(o->ctx, json, &o->view_fd, &o->view_at, &e) < 0) {
		end_question(o, 1, e.text);
		return;
	}
	fd = fcntl(o->view_fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0) {
		end_question(o, 1, "no descriptor for the status");
		return;
	}
	o->under_way = ORDER_STATUS;
	give(o, &order, fd);
}

static void show_line(void *ctx, const char *line)
{
	struct orders *o = ctx;

	control_line(&o->control, false, line);
}

static void end_status(struct orders *o)
{
	struct err e = ERR_INIT;

	if (view_lines(o->view_fd, o->view_at, show_line, o, &e) < 0)
		end_question(o, 1, e.text);
	else
		end_question(o, 0, NULL);
}

static void begin_pause(struct orders *o)
{
	const struct launcher_message order = { .op = LAUNCHER_PAUSE };

	if (!o->paused)
		log_info("drain: no more work is taken until the next start");
	o->paused = true;
	o->under_way = ORDER_PAUSE;
	give(o, &order, -1);
}

static void end_pause(struct orders *o, uint32_t turns)
{
	char line[64];

	(void)snprintf(line, sizeof(line), "%u turn%s still run%s", turns, turns == 1 ? "" : "s",
	               turns == 1 ? "s" : "");
	control_line(&o->control, false, turns ? line : "nothing runs");
	end_question(o, turns ? CONTROL_BUSY : 0, NULL);
}

/* -- who asks, who answers --------------------------------------------------------------------- */

void orders_serve(struct orders *o)
{
	struct control_request request;

	if (!control_serve(&o->control, &request))
		return;
	if (!o->accepting) {
		control_line(&o->control, true, "cloisterd is starting or stopping; try again");
		control_end(&o->control, 1);
	} else if (o->under_way != ORDER_NONE) {
		control_line(&o->control, true, "another order is under way; try again");
		control_end(&o->control, 1);
	} else if (request.word == CONTROL_PURGE) {
		begin_purge(o, &request.tenant);
	} else if (request.word == CONTROL_STATUS || request.word == CONTROL_STATUS_JSON) {
		begin_status(o, request.word == CONTROL_STATUS_JSON);
	} else if (request.word == CONTROL_DRAIN) {
		begin_pause(o);
	} else if (!o->conf->registry_path) {
		finish(o, false, "cloisterd runs in local mode, without a registry");
	} else {
		read_registry(o);
	}
}

/* What is under way is the server's to answer. */
static bool is_with_server(const struct orders *o)
{
	return o->under_way != ORDER_NONE && o->under_way != ORDER_FILES;
}

static bool is_question(const struct orders *o)
{
	return o->under_way == ORDER_STATUS || o->under_way == ORDER_PAUSE;
}

bool orders_done(struct orders *o, const struct launcher_message *m)
{
	if (!is_with_server(o) || m->generation != o->number)
		return false;
	if (is_question(o) && m->status != 0)
		end_question(o, 1, m->cause);
	else if (o->under_way == ORDER_STATUS)
		end_status(o);
	else if (o->under_way == ORDER_PAUSE)
		end_pause(o, m->processes);
	else if (m->status != 0)
		finish(o, false, "%s: %s",
		       o->under_way == ORDER_PURGE ? "purge" : "the registry in force stays",
		       m->cause);
	else if (o->under_way == ORDER_REGISTRY)
		commit(o);
	else
		begin_files(o);
	return true;
}

void orders_accept(struct orders *o, bool accepting)
{
	o->accepting = accepting;
	if (!accepting && is_question(o))
		end_question(o, 1, "cloisterd stops");
	else if (!accepting && is_with_server(o))
		finish(o, false, "cloisterd stops");
	else if (accepting && o->again)
		orders_reload(o);
}
