#include "daemon/turn/test_world.h"

#include "daemon/turn/context.h"

static char scratch[] = "/tmp/ct-XXXXXX"; /* files by which commands and tests tell each other */

static void in_scratch(char ret[256], const char *fmt, ...) printf_like(2, 3);
static void in_scratch(char ret[256], const char *fmt, ...)
{
	int n = snprintf(ret, 256, "%s/", scratch);
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(ret + n, 256 - (size_t)n, fmt, ap);
	va_end(ap);
}

static bool exists(const char *name)
{
	char path[256];

	in_scratch(path, "%s", name);
	return access(path, F_OK) == 0;
}

static void touch(const char *name)
{
	char path[256];
	FILE *f;

	in_scratch(path, "%s", name);
	f = fopen(path, "we");
	assert_non_null(f);
	assert_int_equal(fclose(f), 0);
}

static void remove_file(const char *name)
{
	char path[256];

	in_scratch(path, "%s", name);
	assert_int_equal(unlink(path), 0);
}

static void wait_file(const char *name)
{
	for (int i = 0; i < 12000 && !exists(name); i++)
		(void)usleep(5000);
	assert_true(exists(name));
}

/* A command that says when it runs and then waits for a file. */
static void gate(char ret[600], const char *name)
{
	(void)snprintf(ret, 600, "$ touch %s/%s.up; until [ -e %s/%s.go ]; do sleep 0.02; done",
	               scratch, name, scratch, name);
}

static struct uuid start_gate(const struct uuid *tenant, const char *name)
{
	char line[600], up[64];
	struct uuid id;

	gate(line, name);
	id = submit(tenant, line);
	(void)snprintf(up, sizeof(up), "%s.up", name);
	wait_file(up);
	return id;
}

/*
 * The store is read once: what somebody changes there meanwhile changes nothing, and what
 * is run is what was committed when the turn was taken up.
 */
static void a_transcript_is_read_once(void **state)
{
	const struct uuid tenant = new_tenant();
	char line[700], command[600];
	struct uuid id;
	struct pg *pg;

	(void)state;
	begin(&usual, behave_real);
	gate(command, "once");
	(void)snprintf(line, sizeof(line), "%s\n$ echo original", command);
	id = submit(&tenant, line);
	wait_file("once.up");
	pg = owner_of(&tenant);
	assert_ok(pg_script(pg,
	                    "UPDATE app.item SET body = '{\"command\":\"echo changed\"}'::bytea "
	                    "WHERE call_state = 'pending'",
	                    &e));
	pg_close(&pg);
	touch("once.go");
	wait_state(&tenant, &id, TURN_COMPLETED);
	assert_result(&tenant, &id, "original\n");
	end();
}

static struct uuid put_turn(const struct uuid *tenant, const struct session *s, size_t len)
{
	struct turn t = { .id = uuid_new(), .session = s->id, .created_ms = clock_wall_ms() };
	auto_buf struct buf input = BUF_INIT(len);
	bool existing;

	memset(buf_extend(&input, len), 'x', len);
	t.input = buf_take(&input);
	assert_ok(turn_insert(store, tenant, &t, &existing, &e));
	turn_release(&t);
	return t.id;
}

/* One earlier turn that is as long as may be looked at, and one that is a byte longer. */
static void earlier_turns_are_bounded(void **state)
{
	const struct model model = { .context_window = 1 };
	const struct turn_end failed = { .state = TURN_FAILED, .now_ms = 1000 };
	const struct uuid tenant = new_tenant();

	(void)state;
	for (size_t more = 0; more < 2; more++) {
		const struct session s = session_here(&tenant);
		const size_t len = CONTEXT_BYTES_MAX - EARLIER_ITEM_BYTES + more;
		struct uuid before = put_turn(&tenant, &s, len), now;
		struct context c = { .known = false };

		assert_ok(turn_finish(store, &tenant, &before, &failed, &e));
		now = put_turn(&tenant, &s, 1);
		assert_ok(context_read(&c, &model, store, &tenant, &now, &e));
		assert_int_equal(c.earlier.turn_count, !more);
		assert_int_equal(c.earlier.cut, more);
		context_release(&c);
		assert_ok(turn_finish(store, &tenant, &now, &failed, &e));
	}
}

/* -- admission ------------------------------------------------------------------------------ */

static void text_comes_back(void **state)
{
	const struct uuid tenant = new_tenant();
	struct uuid id;

	(void)state;
	begin(&usual, behave_real);
	id = submit(&tenant, "hello");
	wait_state(&tenant, &id, TURN_COMPLETED);
	end();
	assert_int_equal(fake.starts, 0); /* nothing needed the sandbox */
}

static void refused(const struct uuid *tenant, const char *input, int code)
{
	const struct session s = session_here(tenant);
	struct turn t;
	struct uuid id;

	assert_code(submit_in(tenant, &s, input, &id), code);
	assert_code(turn_get(store, tenant, &id, &t, &e), STORE_NOT_FOUND);
}

static void queues_have_bounds(void **state)
{
	const struct uuid a = new_tenant(), b = new_tenant(), c = new_tenant();
	struct turns_conf conf = usual;
	struct uuid running, last;

	(void)state;
	conf.max_running = 1;
	conf.max_queued = 3;
	conf.max_queued_tenant = 2;
	begin(&conf, behave_real);
	running = start_gate(&a, "bound");
	(void)submit(&a, "1");
	(void)submit(&a, "2");
	refused(&a, "3", TURNS_TENANT_QUEUE_FULL);
	last = submit(&b, "1");
	refused(&b, "2", TURNS_QUEUE_FULL);
	refused(&c, "1", TURNS_QUEUE_FULL);
	touch("bound.go");
	wait_state(&a, &running, TURN_COMPLETED);
	wait_state(&b, &last, TURN_COMPLETED);
	last = submit(&c, "1");
	wait_state(&c, &last, TURN_COMPLETED);
	end();
}

static void input_bytes_have_bounds(void **state)
{
	const struct uuid a = new_tenant(), b = new_tenant();
	struct turns_conf conf = usual;
	struct uuid running, last;

	(void)state;
	conf.max_running = 1;
	begin(&conf, behave_real);
	running = start_gate(&a, "bytes");
	pthread_mutex_lock(&turns->lock);
	turns->conf.max_queued_bytes = 14;
	turns->conf.max_queued_bytes_tenant = 10;
	pthread_mutex_unlock(&turns->lock);
	(void)submit(&a, "123456");
	(void)submit(&a, "1234");
	refused(&a, "5", TURNS_TENANT_QUEUE_FULL);
	(void)submit(&b, "1234");
	refused(&b, "5", TURNS_QUEUE_FULL);
	touch("bytes.go");
	wait_state(&a, &running, TURN_COMPLETED);
	wait_idle();
	last = submit(&a, "0123456789");
	wait_state(&a, &last, TURN_COMPLETED);
	wait_idle();
	end();
}

#define TENANTS 5
#define EACH    3
#define STARTS  ((size_t)TENANTS * EACH)

/* Who started, in the order of the starts: one digit and a line end each. */
static size_t read_starts(char *ret, size_t max)
{
	char path[256], digit;
	size_t n = 0;
	FILE *f;

	in_scratch(path, "starts");
	f = fopen(path, "re");
	while (f && n < max && fread(&digit, 1, 1, f) == 1)
		if (digit != '\n')
			ret[n++] = digit;
	if (f)
		(void)fclose(f);
	return n;
}

/* One slot: every waiting tenant starts once in any TENANTS consecutive starts. */
static void tenants_take_turns(void **state)
{
	struct uuid tenants[TENANTS], ids[TENANTS * EACH], first;
	const struct uuid blocker = new_tenant();
	struct turns_conf conf = usual;
	char starts[STARTS];

	(void)state;
	conf.max_running = 1;
	begin(&conf, behave_real);
	first = start_gate(&blocker, "fair");
	for (int t = 0; t < TENANTS; t++)
		tenants[t] = new_tenant();
	/* The first tenant has queued everything before the last one comes. */
	for (int t = 0; t < TENANTS; t++) {
		for (int i = 0; i < EACH; i++) {
			char line[300];

			(void)snprintf(line, sizeof(line), "$ echo %d >>%s/starts", t, scratch);
			ids[t * EACH + i] = submit(&tenants[t], line);
		}
	}
	touch("fair.go");
	wait_state(&blocker, &first, TURN_COMPLETED);
	for (int i = 0; i < TENANTS * EACH; i++)
		wait_state(&tenants[i / EACH], &ids[i], TURN_COMPLETED);
	assert_int_equal(read_starts(starts, STARTS), STARTS);
	for (int from = 0; from + TENANTS <= TENANTS * EACH; from++) {
		int seen = 0;

		for (int i = from; i < from + TENANTS; i++)
			seen |= 1 << (starts[i] - '0');
		assert_int_equal(seen, (1 << TENANTS) - 1);
	}
	end();
}

static void a_tenant_has_its_share(void **state)
{
	const struct uuid a = new_tenant(), b = new_tenant();
	struct turns_conf conf = usual;
	struct uuid one, two, other;

	(void)state;
	conf.max_running = 2;
	conf.max_running_tenant = 1;
	begin(&conf, behave_real);
	one = start_gate(&a, "share");
	two = submit(&a, "x");
	other = submit(&b, "y");
	wait_state(&b, &other, TURN_COMPLETED);
	assert_int_equal(state_of(&a, &two, NULL), TURN_QUEUED);
	touch("share.go");
	wait_state(&a, &one, TURN_COMPLETED);
	wait_state(&a, &two, TURN_COMPLETED);
	end();
}

/* -- cancel ---------------------------------------------------------------------------------- */

static void cancel_in_every_state(void **state)
{
	const struct uuid a = new_tenant(), b = new_tenant();
	struct turns_conf conf = usual;
	struct uuid running, queued, waiting, done;
	struct turn t;

	(void)state;
	conf.max_running = 1;
	begin(&conf, behave_real);
	done = submit(&a, "x");
	wait_state(&a, &done, TURN_COMPLETED);
	waiting = submit(&a, "? go");
	wait_state(&a, &waiting, TURN_WAITING);
	running = start_gate(&a, "cancel");
	queued = submit(&a, "y");
	assert_code(cancel(&b, &running, &t, &e), STORE_NOT_FOUND);
	assert_int_equal(state_of(&a, &running, NULL), TURN_RUNNING);
	cancel_ok(&a, &queued);
	cancel_ok(&a, &waiting);
	cancel_ok(&a, &running);
	cancel_ok(&a, &running); /* and nothing changes */
	assert_ok(cancel(&a, &done, &t, &e));
	assert_int_equal(t.state, TURN_COMPLETED);
	turn_release(&t);
	assert_false(exists("cancel.go"));
	done = submit(&a, "next");
	wait_state(&a, &done, TURN_COMPLETED);
	wait_idle();
	end();
}

/* Takes a command and then hears nothing any more. */
static void behave_deaf(struct guest *g)
{
	guest_shake(g);
	(void)guest_next(g);
	touch("deaf");
	guest_wait_killed(g);
}

/* The best of three: see count_late_cancel(). */
static void cancel_of_a_deaf_sandbox_is_committed_in_time(void **state)
{
	int before = late_cancels, in_time = 0;

	(void)state;
	for (int i = 0; i < 3 && !in_time; i++) {
		const struct uuid tenant = new_tenant();
		struct uuid id;

		begin(&usual, behave_deaf);
		id = submit(&tenant, "$ true");
		wait_file("deaf");
		cancel_ok(&tenant, &id);
		end();
		in_time = late_cancels == before;
		before = late_cancels;
		remove_file("deaf");
	}
	assert_true(SANITIZED || in_time);
}

struct racer {
	pthread_t thread;
	const struct uuid *tenant, *turn, *request;
	const char *decision;
	int rc;
	struct err e;
	enum turn_state state;
};

static void *race_cancel(void *arg)
{
	struct racer *r = arg;
	struct turn t = { 0 };

	/* Again, where the turn's thread or the store stood still for too long. */
	for (int i = 0; i < 10; i++) {
		r->e = (struct err)ERR_INIT;
		r->rc = turns_cancel(turns, r->tenant, r->turn, &t, &r->e);
		if (r->rc == 0 || r->e.code != STORE_UNAVAILABLE)
			break;
	}
	r->state = t.state;
	turn_release(&t);
	return NULL;
}

static void *race_answer(void *arg)
{
	struct racer *r = arg;

	r->rc = answer(r->tenant, r->request, r->decision, &r->e);
	return NULL;
}

static void cancel_against_the_end(void **state)
{
	const struct uuid tenant = new_tenant();
	int ends[2] = { 0, 0 };

	(void)state;
	begin(&usual, behave_real);
	for (int i = 0; i < 40; i++) {
		struct uuid id = submit(&tenant, "x");
		struct racer r = { .tenant = &tenant, .turn = &id };

		(void)usleep((unsigned int)(i % 20) * 500);
		(void)race_cancel(&r);
		assert_int_equal(r.rc, 0);
		assert_true(r.state == TURN_CANCELLED || r.state == TURN_COMPLETED);
		assert_int_equal(state_of(&tenant, &id, NULL), r.state);
		ends[r.state == TURN_COMPLETED]++;
	}
	print_message("%d cancelled, %d completed\n", ends[0], ends[1]);
	end();
}

static void cancel_against_an_answer(void **state)
{
	const struct uuid tenant = new_tenant();

	(void)state;
	begin(&usual, behave_real);
	for (int i = 0; i < 20; i++) {
		struct uuid id = submit(&tenant, "? go | yes"), request = request_of(&tenant, &id);
		struct racer c = { .tenant = &tenant, .turn = &id };
		struct racer a = { .tenant = &tenant, .request = &request, .decision = "yes" };

		pthread_create(&a.thread, NULL, race_answer, &a);
		(void)usleep((unsigned int)(i % 10) * 300);
		pthread_create(&c.thread, NULL, race_cancel, &c);
		pthread_join(a.thread, NULL);
		pthread_join(c.thread, NULL);
		assert_int_equal(c.rc, 0);
		assert_true(turn_state_terminal(state_of(&tenant, &id, NULL)));
		assert_true(a.rc == 0 || a.e.code == STORE_CONFLICT);
		assert_true(a.rc == 0 || c.state == TURN_CANCELLED);
	}
	wait_idle();
	end();
}

static void one_answer_wins(void **state)
{
	const struct uuid tenant = new_tenant();

	(void)state;
	begin(&usual, behave_real);
	for (int i = 0; i < 10; i++) {
		struct uuid id = submit(&tenant, "? go | yes | no");
		struct uuid request = request_of(&tenant, &id);
		struct racer r[4];
		const char *winner = "";
		int won = 0;

		for (int k = 0; k < 4; k++) {
			r[k] = (struct racer){ .tenant = &tenant,
				               .request = &request,
				               .decision = k % 2 ? "yes" : "no" };
			pthread_create(&r[k].thread, NULL, race_answer, &r[k]);
		}
		for (int k = 0; k < 4; k++) {
			pthread_join(r[k].thread, NULL);
			won += r[k].rc == 0;
			winner = r[k].rc == 0 ? r[k].decision : winner;
			assert_true(r[k].rc == 0 || r[k].e.code == STORE_CONFLICT);
		}
		assert_int_equal(won, 1);
		wait_state(&tenant, &id, TURN_COMPLETED);
		assert_result(&tenant, &id, winner);
	}
	end();
}

/* -- the store does not answer ---------------------------------------------------------------- */

static void cancel_without_a_store(void **state)
{
	const struct uuid tenant = new_tenant();
	struct uuid running, waiting;
	struct turn t;
	char path[256];
	bool ticks = true;

	(void)state;
	begin(&usual, behave_real);
	waiting = submit(&tenant, "? go");
	wait_state(&tenant, &waiting, TURN_WAITING);
	in_scratch(path, "ticks");
	{
		char line[600];

		(void)snprintf(line, sizeof(line),
		               "$ touch %s/frozen.up; while :; do echo >>%s; sleep 0.05; done",
		               scratch, path);
		running = submit(&tenant, line);
	}
	wait_file("ticks");
	freeze();
	assert_int_equal(cancel(&tenant, &running, &t, &e), -1);
	assert_int_equal(e.code, STORE_UNAVAILABLE);
	assert_int_equal(cancel(&tenant, &waiting, &t, &e), -1);
	assert_int_equal(e.code, STORE_UNAVAILABLE);
	/* The work is stopped all the same, as soon as the guest does not stand still. */
	for (int i = 0; i < 20 && ticks; i++) {
		(void)unlink(path);
		(void)usleep(300000);
		ticks = exists("ticks");
	}
	assert_false(ticks);
	thaw();
	wait_state(&tenant, &running, TURN_CANCELLED);
	wait_state(&tenant, &waiting, TURN_CANCELLED);
	end();
}

/* Every connection is cut, again and again, while turns run. */
static void cut_connections(void **state)
{
	const struct uuid tenant = new_tenant();
	struct uuid ids[6];
	char line[600], path[256];
	int counts = 0;
	FILE *f;

	(void)state;
	begin(&usual, behave_real);
	in_scratch(path, "effects");
	for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
		line[0] = '\0';
		for (int k = 0; k < 4; k++)
			(void)snprintf(line + strlen(line), sizeof(line) - strlen(line),
			               "$ echo %zu%d >>%s\n", i, k, path);
		ids[i] = submit(&tenant, line);
	}
	for (int i = 0; i < 30; i++) {
		signal_backends(true, SIGTERM);
		(void)usleep(20000);
	}
	for (size_t i = 0; i < ARRAY_LEN(ids); i++)
		wait_state(&tenant, &ids[i], TURN_COMPLETED);
	f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		counts++;
	(void)fclose(f);
	assert_int_equal(counts, 24); /* each call once: nothing died but connections */
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(opens_the_store),
		CASE(text_comes_back),
		CASE(a_transcript_is_read_once),
		CASE(earlier_turns_are_bounded),
		CASE(queues_have_bounds),
		CASE(input_bytes_have_bounds),
		CASE(tenants_take_turns),
		CASE(a_tenant_has_its_share),
		CASE(cancel_in_every_state),
		CASE(cancel_of_a_deaf_sandbox_is_committed_in_time),
		CASE(cancel_against_the_end),
		CASE(cancel_against_an_answer),
		CASE(one_answer_wins),
		CASE(cancel_without_a_store),
		CASE(cut_connections),
		cmocka_unit_test(closes_the_store),
	};
	int result;

	fixture_begin();
	if (!mkdtemp(scratch))
		return 1;
	result = RUN_TESTS(tests);
	return fixture_end(remove_tree_at(scratch) < 0 ? 1 : result);
}
