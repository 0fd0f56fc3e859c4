/* What is told when a sandbox ends under its calls, and when too many run. */
#include "daemon/sandbox/jobs.h"

#include "common/buf.h"
#include "daemon/metrics/metrics.h"

/* -- guests that end -------------------------------------------------------------------- */

/* How the next guest ends, once as many calls are open as the test wants. */
static struct {
	unsigned int calls;
	int32_t status;         /* of its runner */
	bool half;              /* in the middle of a frame */
	bool answer;            /* the first call gets its result before */
	bool lie;               /* with a frame that must not be */
	bool stay;              /* the runner does not end before it is killed */
	bool deaf;              /* its input closes as well */
	unsigned int runner_ms; /* from the end of the guest to that of its runner */
} end_as;

static atomic_bool guest_ended;

/* Until the guest has closed its output, and the link thread has seen it. */
static void wait_guest_end(void)
{
	while (!guest_ended)
		(void)usleep(1000);
	await_open(0);
}

static void behave_end(struct guest *g)
{
	uint64_t first = 0;

	guest_shake(g);
	for (unsigned int i = 0; i < end_as.calls; i++) {
		uint64_t call = guest_next(g);

		first = first ? first : call;
	}
	if (end_as.answer)
		guest_text(
			g, FRAME_EXIT, first,
			"{\"reason\":\"exited\",\"code\":0,\"stdoutBytes\":0,\"stderrBytes\":0}");
	if (end_as.lie)
		guest_text(g, FRAME_PONG, 0, "");
	if (end_as.half)
		guest_raw(g, "\0\0", 2);
	g->status = end_as.status;
	fd_close(&g->out);
	guest_ended = true;
	if (end_as.deaf)
		fd_close(&g->in);
	(void)usleep(end_as.runner_ms * 1000);
	if (end_as.stay) {
		guest_wait_killed(g);
		g->status = 128 + SIGKILL;
	}
}

#define END_AS(...) memcpy(&end_as, &(__typeof__(end_as)){ __VA_ARGS__ }, sizeof(end_as))

static void begin_end(void)
{
	guest_ended = false;
	begin(behave_end, START_MS, 60000);
}

/* One call under which the sandbox ends. */
static void expect_loss(enum exec_reason reason)
{
	struct job j = { .shell = "sleep 60" };

	begin_end();
	job_run(&j);
	assert_reason(&j, reason);
	assert_true(j.took_ms < LOSS_WAIT_MS);
	assert_int_equal(fake_kills(&fake, end_as.lie), end_as.lie);
	fake.behave = behave_honest;
	assert_works(0);
	end();
}

static void test_reasons(void **state)
{
	(void)state;
	END_AS(.calls = 1, .status = RUNNER_OOM, .runner_ms = 300);
	expect_loss(EXEC_OOM);
	END_AS(.calls = 1, .status = RUNNER_OOM);
	expect_loss(EXEC_OOM);
	END_AS(.calls = 1, .status = RUNNER_OOM, .half = true, .runner_ms = 300);
	expect_loss(EXEC_OOM);
	END_AS(.calls = 1, .status = RUNNER_PIDS, .runner_ms = 300);
	expect_loss(EXEC_PIDS);
	END_AS(.calls = 1, .status = RUNNER_PIDS, .deaf = true, .runner_ms = 300);
	expect_loss(EXEC_PIDS);
	END_AS(.calls = 1, .status = RUNNER_NO_ROOM, .runner_ms = 300);
	expect_loss(EXEC_DISK_FULL);
	END_AS(.calls = 1, .status = 3, .runner_ms = 300);
	expect_loss(EXEC_LOST);
	END_AS(.calls = 1, .status = 6);
	expect_loss(EXEC_LOST);
	END_AS(.calls = 1, .status = 0);
	expect_loss(EXEC_LOST);
	END_AS(.calls = 1, .status = 128 + SIGKILL);
	expect_loss(EXEC_LOST);
	/* The reason is what the host says of the end; this one was our doing. */
	END_AS(.calls = 1, .status = RUNNER_OOM, .lie = true, .runner_ms = 100);
	expect_loss(EXEC_LOST);
}

static void *write_file(void *arg)
{
	struct job *j = arg;
	const struct uuid id = tenant(j->tenant);
	const struct sandbox_use use = { boxes, &id, NULL };

	j->status = sandbox_write(&use, "/f", "text", 4, &j->e);
	return NULL;
}

/* Every call in flight of that sandbox, and no call of another one. */
static void every_call(int32_t status, enum exec_reason reason, int file_code)
{
	struct job jobs[5] = { { .shell = "sleep 60" }, { .shell = "sleep 60" } };
	struct job file = { .tenant = 0 }, other = { .tenant = 1, .shell = "true" };

	END_AS(.calls = 6, .status = status, .runner_ms = 200);
	begin(behave_honest, START_MS, 60000);
	assert_works(1);
	fake.behave = behave_end;
	for (int i = 0; i < 5; i++) {
		jobs[i].shell = "sleep 60";
		job_start(&jobs[i]);
	}
	assert_int_equal(pthread_create(&file.thread, NULL, write_file, &file), 0);
	for (int i = 0; i < 5; i++)
		job_join(&jobs[i]);
	job_join(&file);
	for (int i = 0; i < 5; i++)
		assert_reason(&jobs[i], reason);
	assert_int_equal(file.status, -1);
	assert_int_equal(file.e.code, file_code);
	job_run(&other);
	assert_ok(&other);
	assert_int_equal(fake.starts, 2); /* the other one runs on */
	end();
}

static void test_every_call_in_flight(void **state)
{
	(void)state;
	every_call(RUNNER_OOM, EXEC_OOM, SANDBOX_OOM);
	every_call(RUNNER_PIDS, EXEC_PIDS, SANDBOX_PIDS);
	every_call(RUNNER_NO_ROOM, EXEC_DISK_FULL, SANDBOX_DISK_FULL);
	every_call(3, EXEC_LOST, SANDBOX_LOST);
}

/* A result that was given stays given. */
static void test_result_before_the_end(void **state)
{
	struct job first = { .shell = "true" }, second = { .shell = "sleep 60" };

	(void)state;
	END_AS(.calls = 2, .status = RUNNER_OOM, .answer = true, .runner_ms = 200);
	begin_end();
	job_start(&first);
	await_open(1); /* the first call is the first one there */
	job_start(&second);
	job_join(&first);
	job_join(&second);
	assert_ok(&first);
	assert_reason(&second, EXEC_OOM);
	end();
}

/* A runner that says nothing is waited for, but not for long, and then killed. */
static uint64_t lose_without_reason(void)
{
	struct job j = { .shell = "sleep 60" };

	END_AS(.calls = 1, .status = RUNNER_OOM, .stay = true);
	begin_end();
	job_run(&j);
	assert_reason(&j, EXEC_LOST);
	wait_for(none_runs);
	fake.behave = behave_honest;
	assert_works(0);
	assert_int_equal(fake_kills(&fake, 1), 1);
	end();
	return j.took_ms;
}

static void test_reason_that_does_not_come(void **state)
{
	(void)state;
	expect_within(lose_without_reason, LOSS_WAIT_MS - 100, LOSS_WAIT_MS + 1500);
}

static void test_cancelled_meanwhile(void **state)
{
	struct cancel cancel;
	struct job j = { .shell = "sleep 60", .cancel = &cancel };
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(cancel_init(&cancel, &e), 0);
	END_AS(.calls = 1, .status = RUNNER_OOM, .stay = true);
	begin_end();
	job_start(&j);
	wait_guest_end();
	cancel_fire(&cancel);
	job_join(&j);
	assert_reason(&j, EXEC_CANCELLED); /* who asked does not wait for the reason */
	assert_true(j.took_ms < LOSS_WAIT_MS);
	end();
	cancel_release(&cancel);
}

/* Its time ends while the reason is awaited: memory it was. */
static void test_timeout_meanwhile(void **state)
{
	struct job j = { .shell = "sleep 60", .timeout_ms = 200 };

	(void)state;
	END_AS(.calls = 1, .status = RUNNER_OOM, .runner_ms = 600);
	begin_end();
	job_run(&j);
	assert_reason(&j, EXEC_OOM);
	end();
}

static uint64_t stop_meanwhile(void)
{
	struct job j = { .shell = "sleep 60" };
	uint64_t began, took;

	END_AS(.calls = 1, .status = RUNNER_OOM, .stay = true);
	begin_end();
	job_start(&j);
	wait_guest_end();
	began = clock_mono_ms();
	sandboxes_stop(&boxes);
	took = clock_mono_ms() - began;
	job_join(&j);
	assert_reason(&j, EXEC_LOST);
	fake_end(&fake);
	return took;
}

static void test_stop_meanwhile(void **state)
{
	(void)state;
	expect_within(stop_meanwhile, 0, 4000);
}

/* -- how ends are counted ----------------------------------------------------------------- */

static uint64_t counted(const char *cause)
{
	auto_buf struct buf text = BUF_INIT(1 << 20);
	char name[80];
	const char *at;

	(void)snprintf(name, sizeof(name), "cloister_sandbox_ends_total{cause=\"%s\"} ", cause);
	metrics_write(&text);
	assert_false(buf_failed(&text));
	at = strstr(text.data, name);
	assert_non_null(at);
	return strtoull(at + strlen(name), NULL, 10);
}

static void test_each_end_is_counted_by_its_cause(void **state)
{
	static const struct {
		int32_t status;
		const char *cause;
	} ends[] = {
		{ RUNNER_OOM, "oom" }, { RUNNER_PIDS, "pids" }, { RUNNER_NO_ROOM, "disk_full" },
		{ 0, "ended" },        { 3, "lost" },           { 128 + SIGKILL, "lost" },
	};
	static const char *const causes[] = { "ended", "oom", "pids", "disk_full", "lost" };
	uint64_t before[5];

	(void)state;
	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		struct job j = { .shell = "sleep 60" };

		END_AS(.calls = 1, .status = ends[i].status);
		begin_end();
		for (size_t c = 0; c < 5; c++)
			before[c] = counted(causes[c]);
		job_run(&j);
		for (size_t c = 0; c < 5; c++)
			assert_int_equal(counted(causes[c]),
			                 before[c] + (strcmp(causes[c], ends[i].cause) == 0));
		end();
	}
}

/* Of a start, memory is a cause like any other. */
static void behave_no_memory(struct guest *g)
{
	g->status = RUNNER_OOM;
	(void)snprintf(g->cause, sizeof(g->cause), "the memory limit ended it");
	guest_connect(g);
}

static void test_start_that_ends(void **state)
{
	struct job j = { .shell = "true" };

	(void)state;
	begin(behave_no_memory, START_MS, 60000);
	job_run(&j);
	assert_int_equal(j.status, -1);
	assert_int_equal(j.e.code, SANDBOX_START_FAILED);
	assert_non_null(strstr(j.e.text, "the memory limit ended it"));
	end();
}

static void behave_no_room(struct guest *g)
{
	g->status = RUNNER_NO_ROOM;
	(void)snprintf(g->cause, sizeof(g->cause), "the disk is full");
}

/* Not the fault of what is started: who asks may ask again. */
static void test_start_without_room(void **state)
{
	struct job j = { .shell = "true" };

	(void)state;
	begin(behave_no_room, START_MS, 60000);
	job_run(&j);
	assert_int_equal(j.status, -1);
	assert_int_equal(j.e.code, SANDBOX_NO_ROOM);
	assert_string_equal(j.e.text, "the disk is full");
	fake.behave = behave_honest;
	assert_works(0);
	end();
}

/* -- how many run ----------------------------------------------------------------------- */

#define IDLE_MS 4000 /* longer than this program may stand still */

static bool one_is_left(void)
{
	struct sandbox_view two[2];

	return sandboxes_view(boxes, two, 2) == 1;
}

static void expect_limit(int n)
{
	struct job j = { .tenant = n, .shell = "true" };

	job_run(&j);
	assert_int_equal(j.status, -1);
	assert_int_equal(j.e.code, SANDBOX_LIMIT);
	assert_non_null(strstr(j.e.text, "2 sandboxes run"));
	assert_non_null(strstr(j.e.text, "--max-active-sandboxes"));
	assert_true(j.took_ms < START_MS);
}

static void test_limit(void **state)
{
	(void)state;
	max_active = 2;
	begin(behave_honest, START_MS, IDLE_MS);
	assert_works(0);
	assert_works(1);
	expect_limit(2);
	expect_limit(3);
	assert_works(0); /* those that run are not concerned */
	assert_works(1);
	assert_int_equal(fake.starts, 2);
	wait_for(none_is_left); /* idle */
	assert_works(2);
	assert_works(0);
	expect_limit(1);
	end();
	max_active = 64;
}

/* One that has been told to end is still there. */
static void behave_slow_end(struct guest *g)
{
	behave_honest(g);
	while (!g->fake->release)
		(void)usleep(10000);
}

static void test_ending_counts(void **state)
{
	(void)state;
	max_active = 2;
	begin(behave_slow_end, START_MS, IDLE_MS);
	assert_works(0);
	fake.behave = behave_honest;
	assert_works(1);
	wait_for(none_runs);
	wait_for(one_is_left); /* the second one is gone, the first one is not */
	assert_works(2);
	expect_limit(3);
	fake.release = true;
	wait_for(one_is_left);
	assert_works(3);
	end();
	max_active = 64;
}

static void test_limit_of_one(void **state)
{
	struct job j = { .tenant = 1, .shell = "true" };

	(void)state;
	max_active = 1;
	begin(behave_honest, START_MS, 60000);
	assert_works(0);
	job_run(&j);
	assert_int_equal(j.e.code, SANDBOX_LIMIT);
	end();
	max_active = 64;
}

/* -- one that is stuck -------------------------------------------------------------------- */

/* Neither reads, nor answers, nor goes away when killed, as one whose sentry was stopped. */
static void behave_stuck(struct guest *g)
{
	guest_shake(g);
	while (!g->fake->release)
		(void)usleep(10000);
}

static void test_stuck_delays_nobody(void **state)
{
	struct cancel cancel;
	struct job stuck = { .shell = "true", .cancel = &cancel };
	struct err e = ERR_INIT;
	int late = 0;

	(void)state;
	assert_int_equal(cancel_init(&cancel, &e), 0);
	begin(behave_stuck, START_MS, 60000);
	job_start(&stuck);
	wait_for(one_runs);
	fake.behave = behave_honest;
	for (int n = 1; n < 20; n++) {
		struct job j = { .tenant = n, .shell = "true" };

		job_run(&j);
		assert_ok(&j);
		late += j.took_ms >= 500;
		if (n == 10)
			cancel_fire(&cancel);
	}
	assert_true(late < 5); /* a machine that stands still delays some */
	job_join(&stuck);
	assert_reason(&stuck, EXEC_CANCELLED);
	fake.release = true;
	assert_works(0);
	end();
	cancel_release(&cancel);
}

/* -- what the guest is told --------------------------------------------------------------- */

static char hello[300];
static atomic_bool heard;

static bool was_heard(void)
{
	return heard;
}

static void behave_listen(struct guest *g)
{
	struct frame f;

	guest_connect(g);
	if (guest_hear(g, &f) && f.len < sizeof(hello))
		memcpy(hello, f.payload, f.len);
	heard = true;
	guest_text(g, FRAME_READY, 0, "{\"version\":1,\"pid\":1}");
	guest_drain(g);
}

/* The launcher knows how many processes the tenant may have; the guest is told. */
static void test_processes(void **state)
{
	struct job j = { .shell = "true" };

	(void)state;
	begin(behave_listen, START_MS, 60000);
	job_start(&j);
	wait_for(was_heard);
	assert_non_null(strstr(hello, "\"processes\":77}"));
	end();
	job_join(&j);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reasons),
		cmocka_unit_test(test_every_call_in_flight),
		cmocka_unit_test(test_result_before_the_end),
		cmocka_unit_test(test_reason_that_does_not_come),
		cmocka_unit_test(test_cancelled_meanwhile),
		cmocka_unit_test(test_timeout_meanwhile),
		cmocka_unit_test(test_stop_meanwhile),
		cmocka_unit_test(test_each_end_is_counted_by_its_cause),
		cmocka_unit_test(test_start_that_ends),
		cmocka_unit_test(test_start_without_room),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_ending_counts),
		cmocka_unit_test(test_limit_of_one),
		cmocka_unit_test(test_stuck_delays_nobody),
		cmocka_unit_test(test_processes),
	};

	return RUN_TESTS(tests);
}
