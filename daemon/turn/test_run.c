#include "daemon/turn/test_world.h"

#include "daemon/sandbox/pool.h"
#include "daemon/tool/tools.h"

static atomic_bool lock_held; /* an earlier runner is alive and holds the tenant's lock */

/* -- questions -------------------------------------------------------------------------------- */

#define SOON_S 4 /* longer than this program may stand still */
#define ASK    "@ask_user {\"question\":\"go?\",\"options\":[\"yes\"],\"expiresInSeconds\":%d}"

static struct uuid ask(const struct uuid *tenant, int seconds)
{
	char line[200];

	(void)snprintf(line, sizeof(line), ASK, seconds);
	return submit(tenant, line);
}

static struct request get_request(const struct uuid *tenant, const struct uuid *id)
{
	struct request q;

	assert_ok(request_get(store, tenant, id, &q, &e));
	request_release(&q);
	return q;
}

static void an_answer_in_time(void **state)
{
	const struct uuid tenant = new_tenant();
	struct uuid id, request;
	struct request q;

	(void)state;
	begin(&usual, behave_real);
	id = ask(&tenant, 3600);
	request = request_of(&tenant, &id);
	q = get_request(&tenant, &request);
	assert_int_equal(q.expires_ms, q.created_ms + 3600000);
	wait_idle(); /* it holds no slot */
	assert_code(answer(&tenant, &request, "no", &e), TURNS_BAD_DECISION);
	assert_code(answer(&tenant, &request, "custom", &e), TURNS_BAD_DECISION);
	assert_ok(answer(&tenant, &request, "yes", &e));
	wait_state(&tenant, &id, TURN_COMPLETED);
	assert_result(&tenant, &id, "yes");
	assert_code(answer(&tenant, &request, "yes", &e), STORE_CONFLICT);
	end();
}

static void a_request_expires(void **state)
{
	const struct uuid tenant = new_tenant();
	struct uuid id, request;
	struct request q;

	(void)state;
	begin(&usual, behave_real);
	id = ask(&tenant, SOON_S);
	request = request_of(&tenant, &id);
	wait_state(&tenant, &id, TURN_COMPLETED);
	assert_result(&tenant, &id, "error: expired:");
	q = get_request(&tenant, &request);
	assert_int_equal(q.state, REQUEST_EXPIRED);
	assert_int_equal(q.answered_ms, 0);
	assert_code(answer(&tenant, &request, "yes", &e), STORE_CONFLICT);
	assert_true(clock_wall_ms() >= q.expires_ms);
	end();
}

static void a_request_expires_while_no_daemon_runs(void **state)
{
	const struct uuid tenant = new_tenant(), other = new_tenant();
	struct uuid id, request, open, open_request;

	(void)state;
	begin(&usual, behave_real);
	open = ask(&other, 3600);
	open_request = request_of(&other, &open);
	id = ask(&tenant, SOON_S); /* last, so that the daemon is stopped before it expires */
	request = request_of(&tenant, &id);
	turns_stop(&turns);
	while (clock_wall_ms() < get_request(&tenant, &request).expires_ms)
		(void)usleep(50000);
	assert_int_equal(get_request(&tenant, &request).state, REQUEST_OPEN);
	start_turns(&usual);
	/* Too late, although the daemon did not see it expire. */
	assert_code(answer(&tenant, &request, "yes", &e), STORE_CONFLICT);
	wait_state(&tenant, &id, TURN_COMPLETED);
	assert_int_equal(get_request(&tenant, &request).state, REQUEST_EXPIRED);
	assert_ok(answer(&other, &open_request, "yes", &e));
	wait_state(&other, &open, TURN_COMPLETED);
	end();
}

struct late {
	const struct uuid *tenant, *request;
	struct err e;
	int rc;
};

static void *answer_late(void *arg)
{
	struct late *l = arg;

	l->rc = answer(l->tenant, l->request, "yes", &l->e);
	return NULL;
}

/* Around the moment of expiry either the answer wins or the expiry, never both or none. */
static void an_answer_against_the_expiry(void **state)
{
	const struct uuid tenant = new_tenant();
	struct uuid ids[6], requests[6];
	pthread_t threads[6];
	struct late late[6];

	(void)state;
	begin(&usual, behave_real);
	for (int i = 0; i < 6; i++) {
		ids[i] = ask(&tenant, SOON_S);
		requests[i] = request_of(&tenant, &ids[i]);
		late[i] = (struct late){ &tenant, &requests[i], ERR_INIT, 0 };
	}
	for (int i = 0; i < 6; i++) {
		uint64_t at = get_request(&tenant, &requests[i]).expires_ms;

		while (clock_wall_ms() + 6 < at + (uint64_t)i * 2)
			(void)usleep(500);
		pthread_create(&threads[i], NULL, answer_late, &late[i]);
	}
	for (int i = 0; i < 6; i++) {
		pthread_join(threads[i], NULL);
		wait_state(&tenant, &ids[i], TURN_COMPLETED);
		assert_true(late[i].rc == 0 || late[i].e.code == STORE_CONFLICT);
		assert_result(&tenant, &ids[i], late[i].rc == 0 ? "yes" : "error: expired:");
	}
	end();
}

static void expiry_is_checked(void **state)
{
	static const int bad[] = { 0, -1, 2592001 };
	const struct uuid tenant = new_tenant();
	struct uuid id;

	(void)state;
	begin(&usual, behave_real);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		id = ask(&tenant, bad[i]);
		wait_state(&tenant, &id, TURN_COMPLETED);
		assert_result(&tenant, &id, "error: invalid_arguments: expiresInSeconds");
	}
	id = ask(&tenant, 2592000);
	(void)request_of(&tenant, &id);
	end();
}

static void waiting_turns_have_a_bound(void **state)
{
	const struct uuid tenant = new_tenant(), other = new_tenant();
	struct turns_conf conf = usual;
	struct uuid ids[2], extra, request;

	(void)state;
	conf.max_waiting_tenant = 2;
	begin(&conf, behave_real);
	for (int i = 0; i < 2; i++) {
		ids[i] = ask(&tenant, 3600);
		request = request_of(&tenant, &ids[i]);
	}
	extra = ask(&tenant, 3600);
	wait_failed(&tenant, &extra, "waiting_turn_limit");
	extra = ask(&other, 3600);
	(void)request_of(&other, &extra);
	/* The count survives a restart, and what stops waiting makes room. */
	turns_stop(&turns);
	start_turns(&conf);
	extra = ask(&tenant, 3600);
	wait_failed(&tenant, &extra, "waiting_turn_limit");
	assert_ok(answer(&tenant, &request, "yes", &e));
	wait_state(&tenant, &ids[1], TURN_COMPLETED);
	extra = ask(&tenant, 3600);
	(void)request_of(&tenant, &extra);
	cancel_ok(&tenant, &extra);
	extra = ask(&tenant, 3600);
	(void)request_of(&tenant, &extra);
	end();
}

/* -- after a restart --------------------------------------------------------------------------- */

/* What a killed daemon leaves: a running turn with one call started and one pending. */
static struct uuid leave_started(const struct uuid *tenant, const char *first, const char *second)
{
	const struct session s = session_here(tenant);
	struct turn t = { .id = uuid_new(), .session = s.id, .input = strdup("x") };
	struct item items[2] = { 0 };
	struct turn_step step = { .items = items, .count = 2 };
	bool existing;

	t.created_ms = clock_wall_ms();
	assert_ok(turn_insert(store, tenant, &t, &existing, &e));
	assert_ok(turn_mark_running(store, tenant, &t.id, clock_wall_ms(), &e));
	for (int i = 0; i < 2; i++) {
		items[i] = (struct item){ .kind = ITEM_TOOL_CALL,
			                  .call_state = CALL_PENDING,
			                  .tool = "shell" };
		(void)snprintf(items[i].call_id, sizeof(items[i].call_id), "call-%d", i);
		items[i].body = strdup(i ? second : first);
		items[i].body_len = strlen(i ? second : first);
	}
	assert_ok(turn_append(store, tenant, &t.id, &step, &e));
	assert_ok(turn_start_call(store, tenant, &t.id, 1, &e));
	free(items[0].body);
	free(items[1].body);
	turn_release(&t);
	return t.id;
}

/* A runner that finds the lock held, as long as it is. */
static void behave_locked(struct guest *g)
{
	if (!lock_held) {
		behave_real(g);
		return;
	}
	g->status = 2;
	(void)snprintf(g->cause, sizeof(g->cause),
	               "another runner holds the lock: this tenant's "
	               "sandbox runs already");
}

static size_t count_items(const struct uuid *tenant, const struct uuid *id)
{
	struct item_list list;
	size_t n;

	assert_ok(turn_items(store, tenant, id, &list, &e));
	n = list.count;
	item_list_release(&list);
	return n;
}

static void a_started_call_waits_for_the_end_of_the_old_sandbox(void **state)
{
	const struct uuid tenant = new_tenant();
	struct item_list list;
	struct uuid id;

	(void)state;
	lock_held = true;
	id = leave_started(&tenant, "{\"command\":\"exit 7\"}", "{\"command\":\"echo second\"}");
	begin(&usual, behave_locked);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(count_items(&tenant, &id), 3);
		assert_int_equal(state_of(&tenant, &id, NULL), TURN_RUNNING);
		(void)usleep(100000);
	}
	for (int i = 0; i < 12000 && fake.starts < 2; i++)
		(void)usleep(1000);
	assert_true(fake.starts >= 2);
	lock_held = false;
	wait_state(&tenant, &id, TURN_COMPLETED);
	assert_ok(turn_items(store, &tenant, &id, &list, &e));
	assert_int_equal(list.count, 6);
	assert_memory_equal(list.items[3].body, "error: interrupted:", 19);
	assert_string_equal(list.items[4].body, "second\n");
	item_list_release(&list);
	end();
}

static void an_old_sandbox_that_does_not_end(void **state)
{
	const struct uuid tenant = new_tenant();
	struct turns_conf conf = usual;
	struct uuid id;
	struct turn t;

	(void)state;
	conf.proof_ms = 700;
	lock_held = true;
	id = leave_started(&tenant, "{\"command\":\"exit 7\"}", "{\"command\":\"exit 8\"}");
	begin(&conf, behave_locked);
	wait_failed(&tenant, &id, "sandbox_unavailable");
	assert_int_equal(count_items(&tenant, &id), 3);
	assert_ok(turn_get(store, &tenant, &id, &t, &e));
	assert_non_null(strstr(t.error, "may still be alive"));
	turn_release(&t);
	end();
}

static void a_turn_that_waits_for_the_proof_is_cancelled(void **state)
{
	const struct uuid tenant = new_tenant();
	struct uuid id;

	(void)state;
	lock_held = true;
	id = leave_started(&tenant, "{\"command\":\"exit 7\"}", "{\"command\":\"exit 8\"}");
	begin(&usual, behave_locked);
	(void)usleep(300000);
	cancel_ok(&tenant, &id);
	end();
}

static void a_cancel_survives_a_restart(void **state)
{
	const struct uuid tenant = new_tenant();
	struct uuid waiting, left;

	(void)state;
	begin(&usual, behave_real);
	waiting = ask(&tenant, 3600);
	(void)request_of(&tenant, &waiting);
	turns_stop(&turns);
	left = leave_started(&tenant, "{\"command\":\"exit 7\"}", "{\"command\":\"exit 8\"}");
	assert_ok(turn_request_cancel(store, &tenant, &waiting, &e));
	assert_ok(turn_request_cancel(store, &tenant, &left, &e));
	start_turns(&usual);
	wait_state(&tenant, &waiting, TURN_CANCELLED);
	wait_state(&tenant, &left, TURN_CANCELLED);
	assert_int_equal(fake.starts, 0);
	end();
}

static void a_stop_leaves_turns_as_they_are(void **state)
{
	const struct uuid tenant = new_tenant();
	struct turns_conf conf = usual;
	struct uuid running, queued, id;
	struct session s;

	(void)state;
	conf.max_running = 1;
	begin(&conf, behave_real);
	running = submit(&tenant, "$ sleep 100");
	wait_started(&tenant, &running, 1);
	queued = submit(&tenant, "later");
	s = session_here(&tenant);
	assert_false(turns_drain(turns, 1));
	assert_code(submit_in(&tenant, &s, "x", &id), TURNS_STOPPING);
	turns_stop(&turns);
	assert_int_equal(state_of(&tenant, &running, NULL), TURN_RUNNING);
	assert_int_equal(state_of(&tenant, &queued, NULL), TURN_QUEUED);
	start_turns(&conf);
	wait_state(&tenant, &running, TURN_COMPLETED);
	wait_state(&tenant, &queued, TURN_COMPLETED);
	assert_result(&tenant, &running, "error: interrupted:");
	end();
}

static void behave_never_ready(struct guest *g)
{
	guest_connect(g);
	guest_wait_killed(g);
}

/* As a kill of the whole daemon does, whose server may live for a moment longer. */
static void without_a_launcher_turns_are_left_as_they_are(void **state)
{
	static void (*const behaves[])(struct guest * g) = { behave_real, behave_never_ready };
	struct turns_conf conf = usual;

	(void)state;
	conf.max_running = 1;
	for (size_t i = 0; i < sizeof(behaves) / sizeof(behaves[0]); i++) {
		const struct uuid tenant = new_tenant();
		struct uuid running, queued;

		begin(&conf, behaves[i]);
		running = submit(&tenant, "$ sleep 100");
		queued = submit(&tenant, "later");
		while (fake.starts < 1)
			(void)usleep(1000);
		(void)usleep(300000); /* so that the command of the first one runs */
		fake_break(&fake);
		wait_none_runs();
		assert_int_equal(state_of(&tenant, &running, NULL), TURN_RUNNING);
		assert_int_equal(state_of(&tenant, &queued, NULL), TURN_QUEUED);
		end();
	}
}

static unsigned int count_without_waiter(void)
{
	unsigned int waiting = 0;

	pthread_mutex_lock(&boxes->lock);
	for (size_t i = 0; i < POOL_BUCKETS; i++)
		for (const struct sandbox *sb = boxes->buckets[i]; sb; sb = sb->next_in_bucket)
			waiting += sb->waiting != NULL;
	pthread_mutex_unlock(&boxes->lock);
	return !waiting;
}

/* One that asks for a sandbox before anybody has read the launcher's end. */
static void a_launcher_whose_end_is_unread_ends_no_turn(void **state)
{
	const struct launcher_message drain = { .op = LAUNCHER_DRAIN };
	const struct uuid tenant = new_tenant();
	struct uuid id;

	(void)state;
	begin(&usual, behave_real);
	wait_idle(); /* what others have left goes on first */
	holds = true;
	assert_ok(launcher_send(fake.sock, &drain, NULL, &e));
	while (!held)
		(void)usleep(1000);
	fake_break(&fake);
	id = submit(&tenant, "$ true");
	wait_none(count_without_waiter);
	(void)usleep(100000);
	assert_int_equal(state_of(&tenant, &id, NULL), TURN_RUNNING);
	holds = held = false;
	wait_none_runs();
	assert_int_equal(state_of(&tenant, &id, NULL), TURN_RUNNING);
	end();
}

/* -- bounds ----------------------------------------------------------------------------------- */

/* Also the answer with which the turn would end. */
static void an_answer_is_bounded_by_what_is_left(void **state)
{
	const struct uuid tenant = new_tenant();
	struct turns_conf conf = usual;
	char text[1002];
	struct uuid id;

	(void)state;
	conf.max_turn_bytes = 1000;
	begin(&conf, behave_real);
	memset(text, 'x', sizeof(text));
	text[1001] = '\0';
	id = submit(&tenant, text);
	wait_failed(&tenant, &id, "turn_too_large");
	assert_int_equal(count_items(&tenant, &id), 1);
	text[1000] = '\0';
	id = submit(&tenant, text);
	wait_state(&tenant, &id, TURN_COMPLETED);
	end();
}

static void answers_are_counted(void **state)
{
	const struct uuid tenant = new_tenant();
	struct turns_conf conf = usual;
	struct uuid id;

	(void)state;
	conf.max_turn_steps = 1;
	begin(&conf, behave_real);
	id = submit(&tenant, "in one");
	wait_state(&tenant, &id, TURN_COMPLETED);
	id = submit(&tenant, "$ true");
	wait_failed(&tenant, &id, "turn_step_limit");
	assert_int_equal(count_items(&tenant, &id), 3); /* what was begun is done */
	end();
}

/* The parent's call, the child's call, the child's words, the parent's words. */
static void answers_of_a_child_are_counted(void **state)
{
	static const char *const results[] = { "error: task_limit: ", "[exit code 3]" };
	const struct uuid tenant = new_tenant();
	struct turns_conf conf = usual;

	(void)state;
	for (unsigned int most = 2; most <= 4; most++) {
		struct item_list list;
		struct uuid id;

		conf.max_turn_steps = most;
		begin(&conf, behave_real);
		id = submit(&tenant, "@task {\"prompt\":\"$ exit 3\"}");
		if (most < 4)
			wait_failed(&tenant, &id, "turn_step_limit");
		else
			wait_state(&tenant, &id, TURN_COMPLETED);
		assert_ok(turn_items(store, &tenant, &id, &list, &e));
		assert_int_equal(list.count, most < 4 ? 3 : 4);
		assert_non_null(strstr(list.items[2].body, results[most > 2]));
		item_list_release(&list);
		end();
	}
}

static void a_loop_ends_the_turn(void **state)
{
	const struct uuid tenant = new_tenant();
	struct uuid id;

	(void)state;
	begin(&usual, behave_real);
	id = submit(&tenant, "$ exit 3\n$ exit 3\n$ exit 3\n$ exit 3\n$ exit 3");
	wait_failed(&tenant, &id, "loop_detected");
	id = submit(&tenant, "$ exit 3\n$ exit 3\n$ exit 3\n$ exit 3\n$ exit 4");
	wait_state(&tenant, &id, TURN_COMPLETED);
	end();
}

/* -- the store --------------------------------------------------------------------------------- */

/* A rule of the schema that an item breaks must end the turn, not leave it running. */
static void an_item_that_cannot_be_stored(void **state)
{
	const struct uuid tenant = new_tenant();
	struct uuid id;

	(void)state;
	begin(&usual, behave_real);
	id = submit(&tenant, "x");
	wait_state(&tenant, &id, TURN_COMPLETED);
	take_items_only_if(&tenant, "body <> 'forbidden'::bytea OR kind <> 'tool_result'");
	id = submit(&tenant, "$ printf forbidden");
	wait_failed(&tenant, &id, "internal_error");
	end();
}

/* The commit of a submit is lost between the database and us: the turn runs all the same. */
static void a_turn_whose_insert_was_not_heard_of(void **state)
{
	const struct uuid tenant = new_tenant();
	const struct uuid id = uuid_new();
	struct session s;
	struct lane *l;
	struct turn t;
	bool existing;

	(void)state;
	begin(&usual, behave_real);
	s = session_here(&tenant);
	t = (struct turn){ .id = id, .session = s.id, .input = strdup("lost"), .created_ms = 1 };
	assert_ok(turn_insert(store, &tenant, &t, &existing, &e));
	turn_release(&t);
	pthread_mutex_lock(&turns->lock);
	l = lane_of(turns, &tenant);
	turns_doubt(turns, l); /* as turns_submit() does when the store is unavailable */
	pthread_mutex_unlock(&turns->lock);
	wait_state(&tenant, &id, TURN_COMPLETED);
	end();
}

/* How often what the subscription has to give says text. */
static size_t told(struct subscription *s, const char *text)
{
	const char *data;
	size_t len, n = 0;

	while (bus_next(s, &data, &len) > 0)
		n += memmem(data, len, text, strlen(text)) != NULL;
	return n;
}

/* The commit of an answer or an expiry happened, and nobody heard of it: it is told. */
static void a_reply_that_was_not_heard_of(const char *decision, const char *status)
{
	const struct uuid tenant = new_tenant();
	const struct bus_wish wish = { .last_id = 0 };
	struct item result = { .kind = ITEM_TOOL_RESULT, .call_id = "c", .tool = "ask_user" };
	struct request_decision d = { .decision = decision, .result = &result };
	struct subscription *sub;
	struct uuid id, request;
	size_t replies;

	begin(&usual, behave_real);
	id = ask(&tenant, 3600);
	request = request_of(&tenant, &id);
	wait_idle();
	result.body = strdup("yes");
	result.body_len = 3;
	d.now_ms = clock_wall_ms() + (decision ? 0 : 3600000);
	assert_ok(request_answer(store, &tenant, &request, &d, &e));
	free(result.body);
	pthread_mutex_lock(&turns->lock);
	turns_doubt(turns, lane_of(turns, &tenant)); /* as whoever could not commit does */
	pthread_mutex_unlock(&turns->lock);
	wait_state(&tenant, &id, TURN_COMPLETED);
	wait_idle();
	assert_ok(bus_subscribe(bus, &tenant, &wish, &sub, &e));
	replies = told(sub, status);
	bus_unsubscribe(sub);
	assert_int_equal(replies, 1);
	assert_int_equal(lane_of(turns, &tenant)->waiting, 0);
	end();
}

static void an_answer_that_was_not_heard_of(void **state)
{
	(void)state;
	a_reply_that_was_not_heard_of("yes", "\"status\":\"answered\"");
}

static void an_expiry_that_was_not_heard_of(void **state)
{
	(void)state;
	a_reply_that_was_not_heard_of(NULL, "\"status\":\"expired\"");
}

/* A look at the store that is older than the question does not end the wait. */
static void an_old_look_does_not_end_a_wait(void **state)
{
	const struct uuid tenant = new_tenant();
	struct uuid id, request;
	struct request q;
	struct job *job;

	(void)state;
	begin(&usual, behave_real);
	id = ask(&tenant, SOON_S);
	request = request_of(&tenant, &id);
	wait_idle();
	q = get_request(&tenant, &request);
	job = job_new(turns, &tenant, &id, &q.session, &e);
	assert_non_null(job);
	job->resumed = true;
	pthread_mutex_lock(&turns->lock);
	job_add(job);
	job_queue(job);
	pthread_mutex_unlock(&turns->lock);
	wait_state(&tenant, &id, TURN_COMPLETED); /* it still expires in time */
	assert_result(&tenant, &id, "error: expired:");
	end();
}

/* Ten seconds without a database, in the middle of turns. */
static void ten_seconds_without_a_store(void **state)
{
	const struct uuid tenant = new_tenant();
	struct session s;
	struct uuid ids[4], id, waiting, request;

	(void)state;
	begin(&usual, behave_real);
	waiting = ask(&tenant, 3600);
	request = request_of(&tenant, &waiting);
	s = session_here(&tenant);
	for (int i = 0; i < 4; i++)
		ids[i] = submit(&tenant, "$ sleep 0.2\n$ sleep 0.2\n$ echo done");
	(void)kill(cluster.pid, SIGSTOP);               /* nobody new gets in */
	for (int i = 0, left = 1; i < 3 || left; i++) { /* and who was in, or just coming, is out */
		(void)usleep(50000);
		left = signal_backends(true, SIGTERM);
	}
	(void)usleep(500000);
	assert_code(submit_in(&tenant, &s, "x", &id), STORE_UNAVAILABLE);
	assert_code(answer(&tenant, &request, "yes", &e), STORE_UNAVAILABLE);
	(void)usleep(500000);
	(void)kill(cluster.pid, SIGCONT);
	for (int i = 0; i < 4; i++) {
		wait_state(&tenant, &ids[i], TURN_COMPLETED);
		assert_result(&tenant, &ids[i], "done\n");
	}
	assert_ok(answer(&tenant, &request, "yes", &e));
	wait_state(&tenant, &waiting, TURN_COMPLETED);
	end();
}

#define NAMES 600

/* Escaped, each is six times as long as it is: all of them do not fit into a result. */
static void make_names(const char *dir, bool there)
{
	char path[512], name[256];

	for (int i = 0; i < NAMES; i++) {
		memset(name, 1, 200);
		(void)snprintf(name + 200, sizeof(name) - 200, "%d", i);
		(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
		if (there)
			assert_int_equal(mkdir(path, 0700), 0);
		else
			(void)rmdir(path);
	}
}

static void a_listing_that_is_too_long_is_marked(void **state)
{
	struct uuid tenant = new_tenant();
	struct item call = { .kind = ITEM_TOOL_CALL, .tool = "list_files" };
	struct tool_context use = { .tenant = &tenant, .cwd = "/" };
	struct tool_outcome outcome;
	char dir[] = "/tmp/test-list-XXXXXX", body[128], mark[64];
	size_t lines = 0;

	(void)state;
	assert_non_null(mkdtemp(dir));
	make_names(dir, true);
	begin(&usual, behave_real);
	use.sandboxes = boxes;
	(void)snprintf(body, sizeof(body), "{\"path\":\"%s\",\"limit\":1000}", dir);
	call.body = body;
	call.body_len = strlen(body);
	assert_ok(tool_run(&use, &call, &outcome, &e));
	assert_true(outcome.result.truncated);
	for (const char *at = outcome.result.body; (at = strchr(at, '\n')); at++)
		lines++;
	assert_true(lines > 300 && lines < NAMES);
	(void)snprintf(mark, sizeof(mark), "\n[%zu of %d entries]", lines, NAMES);
	assert_non_null(strstr(outcome.result.body, mark));
	assert_int_equal(outcome.result.body_len, strlen(outcome.result.body));
	tool_outcome_release(&outcome);
	end();
	make_names(dir, false);
	assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(opens_the_store),
		CASE(an_answer_in_time),
		CASE(a_request_expires),
		CASE(a_request_expires_while_no_daemon_runs),
		CASE(an_answer_against_the_expiry),
		CASE(expiry_is_checked),
		CASE(waiting_turns_have_a_bound),
		CASE(a_started_call_waits_for_the_end_of_the_old_sandbox),
		CASE(an_old_sandbox_that_does_not_end),
		CASE(a_turn_that_waits_for_the_proof_is_cancelled),
		CASE(a_cancel_survives_a_restart),
		CASE(a_stop_leaves_turns_as_they_are),
		CASE(without_a_launcher_turns_are_left_as_they_are),
		CASE(a_launcher_whose_end_is_unread_ends_no_turn),
		CASE(an_answer_is_bounded_by_what_is_left),
		CASE(answers_are_counted),
		CASE(answers_of_a_child_are_counted),
		CASE(a_loop_ends_the_turn),
		CASE(an_item_that_cannot_be_stored),
		CASE(a_turn_whose_insert_was_not_heard_of),
		CASE(an_answer_that_was_not_heard_of),
		CASE(an_expiry_that_was_not_heard_of),
		CASE(an_old_look_does_not_end_a_wait),
		CASE(ten_seconds_without_a_store),
		CASE(a_listing_that_is_too_long_is_marked),
		cmocka_unit_test(closes_the_store),
	};
	int result;

	fixture_begin();
	result = RUN_TESTS(tests);
	return fixture_end(result);
}
