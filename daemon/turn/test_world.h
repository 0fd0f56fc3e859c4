/*
 * test_world.h - for the tests of this folder: the scheduler on a real store, with the
 * real guest below a fake launcher.
 */
#ifndef DAEMON_TURN_TEST_WORLD_H
#define DAEMON_TURN_TEST_WORLD_H

/* clang-format off */
#include "common/test.h"
#include "common/sanitizer.h"
#include "daemon/sandbox/fake_launcher.h"
#include "daemon/store/test_fixture.h"
#include "daemon/turn/queue.h"
/* clang-format on */

#include <signal.h>

static struct fake fake;
static struct sandboxes *boxes;
static struct bus *bus;
static struct turns *turns;
static atomic_bool orphaned;
static atomic_bool holds, held; /* the link thread stays in a DRAIN; it does */

static const struct turns_conf usual = {
	.max_running = 8,
	.max_running_tenant = 8,
	.max_queued = 64,
	.max_queued_tenant = 64,
	.max_waiting_tenant = 8,
	.max_queued_bytes = 1 << 24,
	.max_queued_bytes_tenant = 1 << 24,
	.max_turn_bytes = 1 << 24,
	.max_turn_steps = 256,
	.harness_silence_ms = 60000,
	.proof_ms = 20000,
};

/* A tenant of the test's own. */
static inline struct uuid new_tenant(void)
{
	return uuid_new();
}

static inline void start_turns(const struct turns_conf *base)
{
	struct turns_conf conf = *base;

	conf.store = store;
	conf.sandboxes = boxes;
	conf.bus = bus;
	conf.orphaned = &orphaned;
	assert_ok(turns_start(&conf, &turns, &e));
}

static inline void on_launcher(void *ctx, int op)
{
	(void)ctx;
	if (op == 0)
		atomic_store(&orphaned, true);
	else
		assert_int_equal(op, LAUNCHER_DRAIN);
	while (op && holds) {
		held = true;
		(void)usleep(1000);
	}
}

static inline void begin(const struct turns_conf *conf, void (*behave)(struct guest *g))
{
	const struct bus_conf bus_conf = { .generation = store_generation(store),
		                           .replay_events = 1000,
		                           .replay_bytes = 1 << 22,
		                           .tenant_subscribers = 8 };
	struct sandboxes_conf boxes_conf = { .start_timeout_ms = 30000,
		                             .idle_ms = 60000,
		                             .max_active = 64,
		                             .launcher_message = on_launcher };

	atomic_store(&orphaned, false);
	fake_begin(&fake, behave);
	boxes_conf.launcher_sock = fake.server_end;
	assert_ok(bus_new(&bus_conf, &bus, &e));
	assert_ok(sandboxes_start(&boxes_conf, &boxes, &e));
	start_turns(conf);
}

static inline void end(void)
{
	turns_stop(&turns);
	sandboxes_stop(&boxes);
	fake_end(&fake);
	bus_free(&bus);
}

/* -- turns ------------------------------------------------------------------------------ */

static inline int submit_in(const struct uuid *tenant, const struct session *s, const char *input,
                            struct uuid *ret)
{
	struct turn t = { .session = s->id, .input = strdup(input) };
	int rc;

	e.code = 0;
	rc = turns_submit(turns, tenant, &t, &e);
	*ret = t.id;
	turn_release(&t);
	return rc;
}

/* The guest runs on this machine, which has no /workspace. */
static inline struct session session_here(const struct uuid *tenant)
{
	struct session s = { .id = uuid_new(), .model = "demo", .cwd = "/tmp" };

	s.created_ms = s.updated_ms = clock_wall_ms();
	assert_ok(session_insert(store, tenant, &s, NULL, &e));
	return s;
}

static inline struct uuid submit(const struct uuid *tenant, const char *input)
{
	const struct session s = session_here(tenant);
	struct uuid id;

	assert_ok(submit_in(tenant, &s, input, &id));
	return id;
}

static inline enum turn_state state_of(const struct uuid *tenant, const struct uuid *id,
                                       char *ret_code)
{
	struct turn t;
	enum turn_state state;

	assert_ok(turn_get(store, tenant, id, &t, &e));
	state = t.state;
	if (ret_code)
		(void)snprintf(ret_code, sizeof(t.error_code), "%s", t.error_code);
	turn_release(&t);
	return state;
}

static inline void wait_state(const struct uuid *tenant, const struct uuid *id,
                              enum turn_state state)
{
	enum turn_state now = TURN_QUEUED;

	for (int i = 0; i < 12000; i++) {
		now = state_of(tenant, id, NULL);
		if (now == state)
			return;
		(void)usleep(5000);
	}
	print_error("turn %s is %s, not %s\n", id->text, turn_state_name(now),
	            turn_state_name(state));
	fail();
}

static inline void wait_failed(const struct uuid *tenant, const struct uuid *id, const char *code)
{
	char found[64];

	wait_state(tenant, id, TURN_FAILED);
	(void)state_of(tenant, id, found);
	assert_string_equal(found, code);
}

/* The last result of the turn's calls; owned by the caller. */
static inline char *last_result(const struct uuid *tenant, const struct uuid *id)
{
	struct item_list list;
	char *text = NULL;

	assert_ok(turn_items(store, tenant, id, &list, &e));
	for (size_t i = 0; i < list.count; i++) {
		if (list.items[i].kind != ITEM_TOOL_RESULT)
			continue;
		free(text);
		text = strdup(list.items[i].body);
	}
	item_list_release(&list);
	return text;
}

static inline void assert_result(const struct uuid *tenant, const struct uuid *id, const char *want)
{
	auto_free char *text = last_result(tenant, id);

	if (!text || strncmp(text, want, strlen(want)) != 0) {
		print_error("result: %s\n", text ? text : "none");
		fail();
	}
}

static inline size_t in_state(const struct uuid *tenant, const struct uuid *id,
                              enum call_state state)
{
	struct item_list list;
	size_t n = 0;

	assert_ok(turn_items(store, tenant, id, &list, &e));
	for (size_t i = 0; i < list.count; i++)
		n += list.items[i].call_state == state;
	item_list_release(&list);
	return n;
}

static inline void wait_started(const struct uuid *tenant, const struct uuid *id, size_t n)
{
	for (int i = 0; i < 12000 && in_state(tenant, id, CALL_STARTED) < n; i++)
		(void)usleep(5000);
	assert_int_equal(in_state(tenant, id, CALL_STARTED), n);
}

static inline void wait_none(unsigned int (*count)(void))
{
	unsigned int busy = 1;

	for (int i = 0; i < 12000 && busy; i++) {
		pthread_mutex_lock(&turns->lock);
		busy = count();
		pthread_mutex_unlock(&turns->lock);
		if (busy)
			(void)usleep(5000);
	}
	assert_int_equal(busy, 0);
}

static inline unsigned int count_running(void)
{
	return turns->running;
}

static inline unsigned int count_busy(void)
{
	return turns->queued + turns->running + (turns->bytes != 0);
}

static inline void wait_none_runs(void)
{
	wait_none(count_running);
}

/* Until nothing is queued or runs: a thread may be on its way out for a moment. */
static inline void wait_idle(void)
{
	wait_none(count_busy);
}

/* -- requests ----------------------------------------------------------------------------- */

static inline void take_request(void *ctx, const struct request *q)
{
	*(struct uuid *)ctx = q->id;
}

static inline struct uuid request_of(const struct uuid *tenant, const struct uuid *turn)
{
	const struct request_page page = { turn, 10 };
	struct uuid id = { "" };

	wait_state(tenant, turn, TURN_WAITING);
	assert_ok(request_list(store, tenant, &page, take_request, &id, &e));
	assert_string_not_equal(id.text, "");
	return id;
}

/* Who asks for a turn that another thread is still busy with, and for too long, asks again. */
static inline int answer(const struct uuid *tenant, const struct uuid *id, const char *decision,
                         struct err *ret_err)
{
	const struct answer a = { decision, NULL };
	struct request q;
	int rc = -1;

	for (int i = 0; i < 10 && rc < 0; i++) {
		*ret_err = (struct err)ERR_INIT;
		rc = turns_answer(turns, tenant, id, &a, &q, ret_err);
		if (!strstr(ret_err->text, "somebody else works"))
			break;
	}
	if (rc == 0)
		request_release(&q);
	return rc;
}

/* On a machine that stands still now and then some cancels are late, but not many. */
static int late_cancels;

static inline void count_late_cancel(void)
{
	late_cancels++;
	assert_true(SANITIZED || late_cancels < 6);
}

static inline int cancel(const struct uuid *tenant, const struct uuid *id, struct turn *ret,
                         struct err *ret_err)
{
	uint64_t began = clock_mono_ms();
	int rc = turns_cancel(turns, tenant, id, ret, ret_err);

	if (clock_mono_ms() - began >= 2000)
		count_late_cancel();
	return rc;
}

/* What is too late for the promised time is asked for again. */
static inline void cancel_ok(const struct uuid *tenant, const struct uuid *id)
{
	struct turn t;
	int rc = cancel(tenant, id, &t, &e);

	for (int i = 0; i < 10 && rc < 0 && e.code == STORE_UNAVAILABLE; i++) {
		count_late_cancel();
		e = (struct err)ERR_INIT;
		rc = cancel(tenant, id, &t, &e);
	}
	assert_ok(rc);
	assert_int_equal(t.state, TURN_CANCELLED);
	turn_release(&t);
}

/* -- the database, from the side ------------------------------------------------------------ */

static inline struct pg *owner_of(const struct uuid *tenant)
{
	struct pg *pg = NULL;
	const struct pg_place at = { cluster.socket_dir, "5432", NULL };
	char hex[33], name[64];

	uuid_hex(tenant, hex);
	(void)snprintf(name, sizeof(name), "ct_%s", hex);
	assert_ok(pg_connect(&at, OWNER_ROLE, name, &pg, &e));
	return pg;
}

/* From now on the database takes only items for which that is true; a turn of it has ended. */
static inline void take_items_only_if(const struct uuid *tenant, const char *condition)
{
	struct pg *pg = owner_of(tenant);
	char sql[300];

	(void)snprintf(sql, sizeof(sql), "ALTER TABLE app.item ADD CHECK (%s)", condition);
	assert_ok(pg_script(pg, sql, &e));
	pg_close(&pg);
}

/* Hold the turn's row, so that every step of it blocks in the store. */
static inline struct pg *lock_row(const struct uuid *tenant, const struct uuid *turn)
{
	struct pg *pg = owner_of(tenant);
	char sql[200];

	(void)snprintf(sql, sizeof(sql), "BEGIN; SELECT FROM app.turn WHERE id = '%s' FOR UPDATE",
	               turn->text);
	assert_ok(pg_script(pg, sql, &e));
	return pg;
}

/* To each child of the postmaster; only to those that serve tenants, when so wanted.  How many. */
static inline int signal_backends(bool tenants_only, int sig)
{
	char path[64], line[4096], name[64];
	FILE *f;
	int signalled = 0;
	size_t n;

	(void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", cluster.pid, cluster.pid);
	f = fopen(path, "re");
	n = f ? fread(line, 1, sizeof(line) - 1, f) : 0;
	line[n] = '\0';
	if (f)
		(void)fclose(f);
	for (char *at = line; *at; at += strspn(at, " ")) {
		pid_t child = (pid_t)strtol(at, &at, 10);

		(void)snprintf(path, sizeof(path), "/proc/%d/cmdline", child);
		f = fopen(path, "re");
		n = f ? fread(name, 1, sizeof(name) - 1, f) : 0;
		name[n] = '\0';
		if (f)
			(void)fclose(f);
		if (child > 0 && (!tenants_only || strstr(name, "postgres: cr_")))
			signalled += kill(child, sig) == 0;
	}
	return signalled;
}

/* Nothing of PostgreSQL answers any more; and again. */
static inline void freeze(void)
{
	(void)kill(cluster.pid, SIGSTOP);
	signal_backends(false, SIGSTOP);
}

static inline void thaw(void)
{
	signal_backends(false, SIGCONT);
	(void)kill(cluster.pid, SIGCONT);
}

/* After a test that failed halfway. */
static inline int clean_up(void **state)
{
	(void)state;
	holds = held = false;
	thaw();
	if (turns)
		turns_stop(&turns);
	if (boxes) {
		sandboxes_stop(&boxes);
		fake_end(&fake);
	}
	bus_free(&bus);
	return 0;
}

#define CASE(test) cmocka_unit_test_teardown(test, clean_up)

#endif
