#include "daemon/sandbox/jobs.h"

#include "daemon/sandbox/call.h"

/* How sandboxes start, fail to start, become idle and stop. */

#define STOP_MS 5000 /* a stop takes no longer */

/* -- start ----------------------------------------------------------------------------------- */

static atomic_bool go_on;

static void behave_slow_start(struct guest *g)
{
	while (!go_on)
		(void)usleep(1000);
	behave_real(g);
}

/* Calls that wait for the start of the first tenant's sandbox. */
static unsigned int count_waiting(void)
{
	const struct uuid id = tenant(0);
	unsigned int n = 0;

	pthread_mutex_lock(&boxes->lock);
	for (const struct call *c = pool_find(boxes, &id)->waiting; c; c = c->next)
		n++;
	pthread_mutex_unlock(&boxes->lock);
	return n;
}

static bool sixteen_wait(void)
{
	return count_waiting() == 16;
}

/* Who is cancelled does not wait for the start. */
static void test_single_flight(void **state)
{
	struct cancel cancel;
	struct err e = ERR_INIT;
	struct job jobs[16];

	(void)state;
	assert_int_equal(cancel_init(&cancel, &e), 0);
	go_on = false;
	begin(behave_slow_start, START_MS, 60000);
	for (int i = 0; i < 16; i++) {
		jobs[i] = (struct job){ .shell = "true", .cancel = i ? NULL : &cancel };
		job_start(&jobs[i]);
	}
	wait_for(sixteen_wait);
	cancel_fire(&cancel);
	job_join(&jobs[0]);
	go_on = true;
	for (int i = 1; i < 16; i++)
		job_join(&jobs[i]);
	assert_int_equal(jobs[0].status, -1);
	assert_int_equal(jobs[0].e.code, SANDBOX_CANCELLED);
	assert_true(jobs[0].took_ms < START_MS);
	for (int i = 1; i < 16; i++)
		assert_ok(&jobs[i]);
	end();
	assert_int_equal(fake.starts, 1);
	assert_int_equal(fake.kills, 0);
	cancel_release(&cancel);
}

static void behave_refuse(struct guest *g)
{
	g->status = -1;
	(void)snprintf(g->cause, sizeof(g->cause), "runsc is not installed; install it");
}

static void test_start_refused(void **state)
{
	struct job jobs[4];

	(void)state;
	begin(behave_refuse, START_MS, 60000);
	for (int i = 0; i < 4; i++) {
		jobs[i] = (struct job){ .shell = "true" };
		job_start(&jobs[i]);
	}
	for (int i = 0; i < 4; i++) {
		job_join(&jobs[i]);
		assert_int_equal(jobs[i].status, -1);
		assert_int_equal(jobs[i].e.code, SANDBOX_START_FAILED);
		assert_string_equal(jobs[i].e.text, "runsc is not installed; install it");
	}
	assert_true(none_runs());
	fake.behave = behave_real;
	assert_works(0);
	end();
}

/* STARTED, and then the runner ends by itself: its reason must arrive, not "end of file". */
static void behave_die_late(struct guest *g)
{
	struct frame f;

	guest_connect(g);
	(void)guest_hear(g, &f);
	fd_close(&g->out);
	(void)usleep(300000);
	(void)snprintf(g->cause, sizeof(g->cause), "the workspace has moved");
	g->status = 4;
}

/* True when the runner's reason came. */
static bool hears_the_cause(void)
{
	struct job j = { .shell = "true" };

	begin(behave_die_late, START_MS, 60000);
	job_run(&j);
	assert_int_equal(j.status, -1);
	assert_int_equal(j.e.code, SANDBOX_START_FAILED);
	end();
	return strstr(j.e.text, "the workspace has moved");
}

/* It is not waited for longer than a runner may stand still: then it is tried again. */
static void test_cause_is_awaited(void **state)
{
	int tries = 0;

	(void)state;
	while (!hears_the_cause())
		assert_true(++tries < 5);
}

static void behave_never_ready(struct guest *g)
{
	guest_connect(g);
	guest_wait_killed(g);
	(void)snprintf(g->cause, sizeof(g->cause), "killed");
}

static uint64_t refuse_never_ready(void)
{
	struct job j = { .shell = "true" };

	begin(behave_never_ready, 400, 60000);
	job_run(&j);
	assert_int_equal(j.status, -1);
	assert_int_equal(j.e.code, SANDBOX_START_FAILED);
	assert_int_equal(fake_kills(&fake, 1), 1);
	end();
	/* Without the end of who stood still, it comes later still. */
	if (j.took_ms <= 900)
		assert_string_equal(j.e.text, "not ready within 400 ms (killed)");
	return j.took_ms;
}

static void test_never_ready(void **state)
{
	(void)state;
	expect_within(refuse_never_ready, 400, 900);
}

/* The launcher never says that the runner is gone: a named error, no second sandbox. */
static void behave_never_gone(struct guest *g)
{
	while (!g->fake->release)
		(void)usleep(10000);
}

static uint64_t refuse_never_gone(void)
{
	struct job first = { .shell = "true" }, second = { .shell = "true" };

	begin(behave_never_gone, 200, 60000);
	job_run(&first);
	assert_int_equal(first.e.code, SANDBOX_START_FAILED);
	assert_string_equal(first.e.text, "not ready within 200 ms");
	job_run(&second);
	assert_int_equal(second.e.code, SANDBOX_START_FAILED);
	assert_string_equal(second.e.text, "the sandbox before this one has not ended yet");
	assert_int_equal(fake.starts, 1);
	fake.release = true;
	assert_int_equal(fake_kills(&fake, 1), 1);
	end();
	return first.took_ms;
}

static void test_never_gone(void **state)
{
	(void)state;
	expect_within(refuse_never_gone, 200 + CAUSE_WAIT_MS, 3000);
}

/* -- idleness, bounds and ends --------------------------------------------------------------- */

static void test_idle(void **state)
{
	struct job longer = { .shell = "sleep 1" };

	(void)state;
	begin(behave_real, START_MS, 300);
	job_run(&longer);
	assert_ok(&longer);
	assert_int_equal(fake.starts, 1);
	wait_for(none_runs);
	assert_works(0);
	assert_int_equal(fake.starts, 2);
	wait_for(none_is_left);
	end();
	assert_int_equal(fake.kills, 0);
}

/* Work in the background is work; when it ends, so does the sandbox. */
static void test_background_keeps_alive(void **state)
{
	struct job job = { .shell = "sleep 6 & exit 0" };

	(void)state;
	begin(behave_real, START_MS, 300);
	job_run(&job);
	assert_ok(&job);
	(void)usleep(1200000);
	assert_false(none_runs());
	wait_for(none_is_left);
	assert_int_equal(fake.starts, 1);
	end();
	assert_int_equal(fake.kills, 0);
}

static void behave_hold(struct guest *g)
{
	guest_shake(g);
	guest_drain(g);
}

static void test_too_many_calls(void **state)
{
	static struct job jobs[FRAME_CALLS_MAX];
	struct job excess = { .shell = "true" };

	(void)state;
	begin(behave_hold, START_MS, 60000);
	for (int i = 0; i < FRAME_CALLS_MAX; i++) {
		jobs[i] = (struct job){ .shell = "true" };
		job_start(&jobs[i]);
	}
	await_open(FRAME_CALLS_MAX);
	job_run(&excess);
	assert_int_equal(excess.status, -1);
	assert_int_equal(excess.e.code, SANDBOX_BUSY);
	sandboxes_stop(&boxes);
	for (int i = 0; i < FRAME_CALLS_MAX; i++) {
		job_join(&jobs[i]);
		assert_reason(&jobs[i], EXEC_LOST);
	}
	end();
}

static void behave_read_nothing(struct guest *g)
{
	guest_shake(g);
	guest_wait_killed(g);
}

/* From now on so many bytes wait for it, behind a pipe that is full. */
static void set_backlog(size_t wanted)
{
	const struct uuid id = tenant(0);
	struct sandbox *sb;

	pthread_mutex_lock(&boxes->lock);
	sb = pool_find(boxes, &id);
	while (sandbox_backlog(sb) < wanted) {
		size_t n = wanted - sandbox_backlog(sb);

		memset(buf_extend(&sb->out, n), 0, n);
		sandbox_flush(sb);
	}
	buf_truncate(&sb->out, sb->out_done + wanted);
	pthread_mutex_unlock(&boxes->lock);
}

/* Commands that a guest does not read pile up to a bound. */
static void test_backlog(void **state)
{
	struct job first = { .shell = "true" }, refused = first, let_in = first;

	(void)state;
	begin(behave_read_nothing, START_MS, 60000);
	job_start(&first);
	await_open(1);
	set_backlog(OUT_START_MAX + 1);
	job_run(&refused);
	assert_int_equal(refused.status, -1);
	assert_int_equal(refused.e.code, SANDBOX_BUSY);
	set_backlog(OUT_START_MAX);
	job_start(&let_in);
	await_open(2);
	sandboxes_stop(&boxes);
	job_join(&first);
	job_join(&let_in);
	assert_reason(&let_in, EXEC_LOST);
	end();
}

static void test_stop_with_calls(void **state)
{
	struct job j = { .shell = "echo; sleep 30" };
	uint64_t began;

	(void)state;
	begin(behave_real, START_MS, 60000);
	job_start(&j);
	await_output(&j, 1);
	began = clock_mono_ms();
	sandboxes_stop(&boxes);
	assert_true(clock_mono_ms() - began < STOP_MS);
	job_join(&j);
	assert_reason(&j, EXEC_LOST);
	end();
	assert_int_equal(fake.kills, 0);
}

static uint64_t stop_during_start(void)
{
	struct job j = { .shell = "true" };
	uint64_t began, took;

	begin(behave_never_ready, START_MS, 60000);
	job_start(&j);
	wait_for(one_started);
	began = clock_mono_ms();
	sandboxes_stop(&boxes);
	took = clock_mono_ms() - began;
	job_join(&j);
	assert_int_equal(j.status, -1);
	assert_int_equal(j.e.code, SANDBOX_STOPPING);
	end();
	assert_int_equal(fake_kills(&fake, 1), 1);
	return took;
}

static void test_stop_during_start(void **state)
{
	(void)state;
	expect_within(stop_during_start, 0, 1000);
}

/* Nothing answers: the stop is bounded all the same. */
static uint64_t stop_without_answer(void)
{
	struct job j = { .shell = "true" };
	uint64_t began, took;

	begin(behave_never_gone, START_MS, 60000);
	job_start(&j);
	wait_for(one_started);
	began = clock_mono_ms();
	sandboxes_stop(&boxes);
	took = clock_mono_ms() - began;
	job_join(&j);
	assert_int_equal(j.e.code, SANDBOX_STOPPING);
	end();
	return took;
}

static void test_stop_is_bounded(void **state)
{
	(void)state;
	expect_within(stop_without_answer, STOP_MS - 500, STOP_MS + 1000);
}

static bool message_came(void)
{
	return messages == 1;
}

static void test_launcher_gone(void **state)
{
	struct job open = { .shell = "sleep 30" }, after = { .shell = "true" };

	(void)state;
	begin(behave_real, START_MS, 60000);
	job_start(&open);
	await_open(1);
	fake_break(&fake);
	job_join(&open);
	assert_reason(&open, EXEC_LOST);
	assert_true(message_came()); /* before the call was lost */
	assert_int_equal(last_message, 0);
	job_run(&after);
	assert_int_equal(after.status, -1);
	assert_int_equal(after.e.code, SANDBOX_START_FAILED);
	assert_non_null(strstr(after.e.text, "the launcher is gone"));
	end();
	assert_int_equal(messages, 1);
}

/* From now on the link thread reads nothing, and the launcher's end is there to be read. */
static void break_unread(void)
{
	const struct launcher_message m = { .op = LAUNCHER_DRAIN };
	struct err e = ERR_INIT;

	held = true;
	assert_int_equal(launcher_send(fake.sock, &m, NULL, &e), 0);
	wait_for(message_came);
	fake_break(&fake);
}

static bool two_wait(void)
{
	return count_waiting() == 2;
}

static void start_two(struct job jobs[2])
{
	for (int i = 0; i < 2; i++) {
		jobs[i] = (struct job){ .shell = "true" };
		job_start(&jobs[i]);
	}
	wait_for(two_wait);
}

/* Nobody is refused by it before it is said to be gone. */
static void test_launcher_gone_unread(void **state)
{
	struct job jobs[2];

	(void)state;
	begin(behave_real, START_MS, 60000);
	break_unread();
	start_two(jobs);
	(void)usleep(100000);
	assert_true(two_wait());
	assert_int_equal(messages, 1);
	held = false;
	for (int i = 0; i < 2; i++) {
		job_join(&jobs[i]);
		assert_int_equal(jobs[i].status, -1);
		assert_int_equal(jobs[i].e.code, SANDBOX_START_FAILED);
		assert_non_null(strstr(jobs[i].e.text, "the launcher is gone"));
		assert_in_range(jobs[i].took_ms, 100, START_MS - 1); /* not for want of time */
	}
	assert_int_equal(messages, 2);
	assert_int_equal(last_message, 0);
	end();
}

static void *stop_main(void *arg)
{
	(void)arg;
	sandboxes_stop(&boxes);
	return NULL;
}

/* The link thread of a server that stops may end without having read it. */
static void test_stop_with_launcher_gone_unread(void **state)
{
	struct job jobs[2];
	pthread_t thread;

	(void)state;
	begin(behave_real, START_MS, 60000);
	break_unread();
	start_two(jobs);
	assert_int_equal(pthread_create(&thread, NULL, stop_main, NULL), 0);
	for (int i = 0; i < 2; i++) {
		job_join(&jobs[i]);
		assert_int_equal(jobs[i].e.code, SANDBOX_STOPPING);
		assert_true(jobs[i].took_ms < START_MS);
	}
	held = false;
	pthread_join(thread, NULL);
	end();
}

static void test_drain_message(void **state)
{
	const struct launcher_message m = { .op = LAUNCHER_DRAIN };
	struct err e = ERR_INIT;

	(void)state;
	begin(behave_real, START_MS, 60000);
	assert_int_equal(launcher_send(fake.sock, &m, NULL, &e), 0);
	wait_for(message_came);
	assert_int_equal(last_message, LAUNCHER_DRAIN);
	end();
}

/* A late EXITED and a late STARTED of a generation that is over change nothing. */
static void test_late_messages(void **state)
{
	struct launcher_message m = { .op = LAUNCHER_EXITED, .generation = 999 };
	struct err e = ERR_INIT;
	int pair[2];

	(void)state;
	begin(behave_real, START_MS, 60000);
	assert_works(0);
	m.tenant = tenant(0);
	assert_int_equal(launcher_send(fake.sock, &m, NULL, &e), 0);
	assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
	m.op = LAUNCHER_STARTED;
	m.processes = 1;
	assert_int_equal(launcher_send(fake.sock, &m, pair, &e), 0);
	m.generation = fake_last(&fake)->generation;
	assert_int_equal(launcher_send(fake.sock, &m, pair, &e), 0);
	fd_close(&pair[0]);
	fd_close(&pair[1]);
	for (int i = 0; i < 5; i++)
		assert_works(0);
	end();
	assert_int_equal(fake.starts, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_single_flight),
		cmocka_unit_test(test_start_refused),
		cmocka_unit_test(test_cause_is_awaited),
		cmocka_unit_test(test_never_ready),
		cmocka_unit_test(test_never_gone),
		cmocka_unit_test(test_idle),
		cmocka_unit_test(test_background_keeps_alive),
		cmocka_unit_test(test_too_many_calls),
		cmocka_unit_test(test_backlog),
		cmocka_unit_test(test_stop_with_calls),
		cmocka_unit_test(test_stop_during_start),
		cmocka_unit_test(test_stop_is_bounded),
		cmocka_unit_test(test_launcher_gone),
		cmocka_unit_test(test_launcher_gone_unread),
		cmocka_unit_test(test_stop_with_launcher_gone_unread),
		cmocka_unit_test(test_drain_message),
		cmocka_unit_test(test_late_messages),
	};

	return RUN_TESTS(tests);
}
