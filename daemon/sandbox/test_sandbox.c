#include "daemon/sandbox/jobs.h"

/* Calls on sandboxes and their sudden ends, with the real guest as a child of the test. */

/* -- commands -------------------------------------------------------------------------------- */

static void test_results(void **state)
{
	struct job hello = { .shell = "printf abc; printf de >&2; exit 7" };
	struct job signal = { .shell = "kill -15 $$" };

	(void)state;
	begin(behave_real, START_MS, 60000);
	job_run(&hello);
	assert_int_equal(hello.status, 0);
	assert_int_equal(hello.r.reason, EXEC_EXITED);
	assert_int_equal(hello.r.code, 7);
	assert_int_equal(hello.r.stdout_bytes, 3);
	assert_int_equal(hello.r.stderr_bytes, 2);
	assert_int_equal(hello.head_len, 5);
	job_run(&signal);
	assert_int_equal(signal.status, 0);
	assert_int_equal(signal.r.code, -1);
	assert_int_equal(signal.r.signal, 15);
	end();
	assert_int_equal(fake.starts, 1);
	assert_int_equal(fake.kills, 0);
}

/* A guest that does not stand still ends it by itself. */
static uint64_t time_out(void)
{
	struct job j = { .shell = "sleep 30", .timeout_ms = 300 };
	bool late;

	begin(behave_real, START_MS, 60000);
	assert_works(0);
	job_run(&j);
	assert_reason(&j, EXEC_TIMEOUT);
	late = j.took_ms > CANCEL_GRACE_MS;
	assert_true(late || sandboxes_running(boxes) == 1);
	end();
	assert_true(late || fake.kills == 0);
	return j.took_ms;
}

static void test_timeout(void **state)
{
	(void)state;
	expect_within(time_out, 300, 1800);
}

static int run_spec(const struct exec_spec *spec, struct err *e)
{
	const struct uuid id = tenant(0);
	const struct sandbox_use use = { boxes, &id, NULL };
	struct exec_result r;

	return sandbox_exec(&use, spec, NULL, &r, e);
}

static void test_refusals(void **state)
{
	static const char *const nowhere[] = { "/no/such/program", NULL };
	static const char *const none[] = { NULL };
	static const char *const latin[] = { "caf\xe9", NULL };
	static char long_line[FRAME_CONTROL_MAX + 1];
	const struct {
		struct exec_spec spec;
		int code;
	} cases[] = {
		{ { .argv = nowhere, .cwd = "/" }, SANDBOX_NOT_FOUND },
		{ { .shell = "true", .cwd = "/no/such/directory" }, SANDBOX_NO_CWD },
		{ { .argv = none, .cwd = "/" }, SANDBOX_INVALID },
		{ { .argv = latin, .cwd = "/" }, SANDBOX_INVALID },
		{ { .cwd = "/" }, SANDBOX_INVALID },
		{ { .shell = "true" }, SANDBOX_INVALID },
		{ { .shell = "true", .argv = nowhere, .cwd = "/" }, SANDBOX_INVALID },
		{ { .shell = "true", .cwd = "/", .timeout_ms = 86400001 }, SANDBOX_INVALID },
		{ { .shell = long_line, .cwd = "/" }, SANDBOX_INVALID },
	};

	(void)state;
	memset(long_line, 'x', sizeof(long_line) - 1);
	begin(behave_real, START_MS, 60000);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct err e = ERR_INIT;

		assert_int_equal(run_spec(&cases[i].spec, &e), -1);
		assert_int_equal(e.code, cases[i].code);
	}
	assert_works(0);
	end();
	assert_int_equal(fake.kills, 0);
}

static uint64_t cancel_one(void)
{
	struct cancel cancel;
	struct err e = ERR_INIT;
	struct job j = { .shell = "trap '' TERM; sleep 30 & setsid sleep 30 & echo; wait",
		         .cancel = &cancel };
	struct job late = { .shell = "true", .cancel = &cancel };
	uint64_t began, took;

	assert_int_equal(cancel_init(&cancel, &e), 0);
	begin(behave_real, START_MS, 60000);
	job_start(&j);
	await_output(&j, 1);
	began = clock_mono_ms();
	cancel_fire(&cancel);
	job_join(&j);
	took = clock_mono_ms() - began;
	print_message("cancel took %u ms\n", (unsigned int)took);
	assert_reason(&j, EXEC_CANCELLED);
	job_run(&late);
	assert_int_equal(late.status, -1);
	assert_int_equal(late.e.code, SANDBOX_CANCELLED);
	assert_works(0);
	end();
	/* A guest that stood still for so long is given up. */
	assert_true(took >= CANCEL_GRACE_MS || (fake.starts == 1 && fake.kills == 0));
	cancel_release(&cancel);
	return took;
}

static void test_cancel(void **state)
{
	(void)state;
	expect_within(cancel_one, 0, 1500);
}

#define MANY 64

static void test_many_calls(void **state)
{
	static struct job jobs[MANY];

	(void)state;
	begin(behave_real, START_MS, 60000);
	for (int i = 0; i < MANY; i++) {
		jobs[i] = (struct job){ .shell = "head -c 1000000 /dev/zero; sleep 0.2" };
		job_start(&jobs[i]);
	}
	for (int i = 0; i < MANY; i++) {
		job_join(&jobs[i]);
		assert_ok(&jobs[i]);
		assert_int_equal(jobs[i].r.stdout_bytes, 1000000);
	}
	end();
	assert_int_equal(fake.starts, 1);
	assert_int_equal(fake.kills, 0);
}

static void test_many_sandboxes(void **state)
{
	static struct job jobs[MANY];

	(void)state;
	begin(behave_real, START_MS, 60000);
	for (int i = 0; i < MANY; i++) {
		jobs[i] = (struct job){ .tenant = i % 8, .shell = "echo $PPID" };
		job_start(&jobs[i]);
	}
	for (int i = 0; i < MANY; i++) {
		job_join(&jobs[i]);
		assert_ok(&jobs[i]);
	}
	assert_int_equal(sandboxes_running(boxes), 8);
	end();
	assert_int_equal(fake.starts, 8);
	assert_int_equal(fake.kills, 0);
}

static long memory_kib(const char *field)
{
	char line[128];
	long kib = 0;
	auto_file FILE *f = fopen("/proc/self/status", "re");

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, field, strlen(field)))
			kib = strtol(line + strlen(field), NULL, 10);
	assert_true(kib > 0);
	return kib;
}

/* From now on VmHWM is the peak since now.  Returns what is resident. */
static long watch_memory(void)
{
	auto_close int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);

	assert_int_equal(write(fd, "5", 1), 1);
	return memory_kib("VmRSS:");
}

static void assert_bounded(long before)
{
	long grown = memory_kib("VmHWM:") - before;

	print_message("memory grew by %ld KiB\n", grown);
	if (!SANITIZED)
		assert_in_range(grown + 1024, 0, 4096 + 1024);
}

static void test_much_output(void **state)
{
	struct job j = { .shell = "head -c 104857600 /dev/zero" };
	long before;

	(void)state;
	begin(behave_real, START_MS, 60000);
	assert_works(0);
	before = watch_memory();
	job_run(&j);
	print_message("100 MiB in %u ms\n", (unsigned int)j.took_ms);
	assert_bounded(before);
	assert_ok(&j);
	assert_int_equal(j.r.stdout_bytes, 104857600);
	end();
}

/* Output that nobody takes stops at the credit. */
static void test_slow_sink(void **state)
{
	struct job j = { .shell = "head -c 3000000 /dev/zero", .sink_delay_ms = 20 };
	long before = watch_memory();

	(void)state;
	begin(behave_real, START_MS, 60000);
	job_run(&j);
	assert_ok(&j);
	assert_int_equal(j.r.stdout_bytes, 3000000);
	assert_bounded(before);
	end();
}

/* One sandbox that floods as fast as it may does not slow another one. */
static void test_flood(void **state)
{
	struct cancel cancel;
	struct err e = ERR_INIT;
	struct job flood[4];
	int late = 0;

	(void)state;
	assert_int_equal(cancel_init(&cancel, &e), 0);
	begin(behave_real, START_MS, 60000);
	for (int i = 0; i < 4; i++) {
		flood[i] = (struct job){ .tenant = 1,
			                 .shell = "exec cat /dev/zero",
			                 .cancel = &cancel };
		job_start(&flood[i]);
	}
	for (int i = 0; i < 4; i++)
		while (flood[i].taken < 1000000)
			(void)usleep(1000);
	for (int i = 0; i < 20; i++) {
		struct job j = { .tenant = 2, .shell = "true" };

		job_run(&j);
		assert_ok(&j);
		late += j.took_ms > 1500;
	}
	assert_true(late < (SANITIZED ? 10 : 5)); /* a machine that stands still delays some */
	cancel_fire(&cancel);
	for (int i = 0; i < 4; i++) {
		job_join(&flood[i]);
		assert_reason(&flood[i], EXEC_CANCELLED);
		assert_int_equal(flood[i].r.stdout_bytes, flood[i].taken);
	}
	end();
	cancel_release(&cancel);
}

/* -- files ----------------------------------------------------------------------------------- */

static void add(void *ctx, int stream, const char *data, size_t len)
{
	(void)stream;
	buf_add(ctx, data, len);
}

static void test_files(void **state)
{
	char dir[] = "/tmp/sandbox-test-XXXXXX", path[64];
	const struct uuid id = tenant(0);
	static char data[5000001];
	const size_t len = sizeof(data);
	auto_buf struct buf got = BUF_INIT(len), lines = BUF_INIT(4096);
	const struct output_sink to_got = { add, &got }, to_lines = { add, &lines };
	struct file_range range = { .limit = 1 << 30 };
	struct file_listing listing = { .limit = 100 };
	struct sandbox_use use;
	struct err e = ERR_INIT;

	(void)state;
	assert_non_null(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/file", dir);
	for (size_t i = 0; i < len; i++)
		data[i] = (char)(i * 2654435761U >> 13);
	begin(behave_real, START_MS, 60000);
	use = (struct sandbox_use){ boxes, &id, NULL };
	assert_int_equal(sandbox_write(&use, path, data, len, &e), 0);
	assert_int_equal(sandbox_read(&use, path, &range, &to_got, &e), 0);
	assert_int_equal(range.size, len);
	assert_int_equal(range.bytes, len);
	assert_int_equal(got.len, len);
	assert_memory_equal(got.data, data, len);
	range = (struct file_range){ .offset = 4999999, .limit = 1 };
	buf_reset(&got);
	assert_int_equal(sandbox_read(&use, path, &range, &to_got, &e), 0);
	assert_int_equal(range.bytes, 1);
	assert_int_equal(got.data[0], data[4999999]);
	assert_int_equal(sandbox_write(&use, path, "", 0, &e), 0);
	assert_int_equal(sandbox_list(&use, dir, &listing, &to_lines, &e), 0);
	assert_int_equal(listing.entries, 1);
	assert_int_equal(listing.total, 1);
	assert_non_null(strstr(lines.data, "\"name\":\"file\""));
	assert_non_null(strstr(lines.data, "\"size\":0"));
	assert_int_equal(sandbox_read(&use, "/no/such/file", &range, &to_got, &e), -1);
	assert_int_equal(e.code, SANDBOX_NOT_FOUND);
	assert_int_equal(sandbox_list(&use, path, &listing, &to_lines, &e), -1);
	assert_int_equal(e.code, SANDBOX_NOT_A_DIRECTORY);
	listing.limit = 10001;
	assert_int_equal(sandbox_list(&use, dir, &listing, &to_lines, &e), -1);
	assert_int_equal(e.code, SANDBOX_INVALID);
	end();
	assert_int_equal(fake.kills, 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(dir), 0);
}

static void *fire_soon(void *cancel)
{
	while (!has_open(1))
		(void)usleep(1000);
	(void)usleep(200000);
	cancel_fire(cancel);
	return NULL;
}

static uint64_t write_to_the_deaf(void)
{
	static const char data[8 << 20];
	const struct uuid id = tenant(0);
	struct cancel cancel;
	struct sandbox_use use;
	struct err e = ERR_INIT;
	pthread_t t;
	uint64_t began, took;

	assert_int_equal(cancel_init(&cancel, &e), 0);
	begin(behave_deaf, START_MS, 60000);
	use = (struct sandbox_use){ boxes, &id, &cancel };
	began = clock_mono_ms();
	assert_int_equal(pthread_create(&t, NULL, fire_soon, &cancel), 0);
	assert_int_equal(sandbox_write(&use, "/f", data, sizeof(data), &e), -1);
	took = clock_mono_ms() - began;
	assert_int_equal(e.code, SANDBOX_CANCELLED);
	pthread_join(t, NULL);
	fake.behave = behave_real;
	assert_works(0);
	end();
	assert_int_equal(fake_kills(&fake, 1), 1);
	cancel_release(&cancel);
	return took;
}

static void test_deaf_guest(void **state)
{
	(void)state;
	expect_within(write_to_the_deaf, 2000, 3000);
}

/* -- death ----------------------------------------------------------------------------------- */

static void test_guest_killed(void **state)
{
	struct job jobs[8];
	struct job other = { .tenant = 2, .shell = "sleep 1" };

	(void)state;
	begin(behave_real, START_MS, 60000);
	assert_works(1);
	job_start(&other);
	for (int i = 0; i < 8; i++) {
		jobs[i] = (struct job){ .tenant = 1, .shell = "echo started; sleep 30" };
		job_start(&jobs[i]);
	}
	for (int i = 0; i < 8; i++)
		await_output(&jobs[i], strlen("started\n"));
	assert_int_equal(kill(fake.guests[0].pid, SIGKILL), 0);
	for (int i = 0; i < 8; i++) {
		job_join(&jobs[i]);
		assert_reason(&jobs[i], EXEC_LOST);
		assert_string_equal(jobs[i].head, "started\n");
	}
	assert_works(1);
	job_join(&other);
	assert_ok(&other);
	end();
	assert_int_equal(fake.starts, 3);
}

/*
 * The whole sandbox stands still: a cancel ends it within 2 s, and nobody else notices.  How long
 * the cancel took, or much too long when somebody else did notice.
 */
static uint64_t cancel_in_a_wedged_one(void)
{
	struct cancel cancel;
	struct err e = ERR_INIT;
	struct job cancelled = { .tenant = 1, .shell = "echo; sleep 30", .cancel = &cancel };
	struct job beside = { .tenant = 1, .shell = "echo; sleep 30" };
	uint64_t began, took, delay = 0;

	assert_int_equal(cancel_init(&cancel, &e), 0);
	begin(behave_real, START_MS, 60000);
	assert_works(1);
	assert_works(2);
	job_start(&cancelled);
	job_start(&beside);
	await_output(&cancelled, 1);
	await_output(&beside, 1);
	assert_int_equal(kill(fake.guests[0].pid, SIGSTOP), 0);
	began = clock_mono_ms();
	cancel_fire(&cancel);
	while (clock_mono_ms() - began < 1500) {
		struct job other = { .tenant = 2, .shell = "true" };

		job_run(&other);
		assert_ok(&other);
		delay = other.took_ms > delay ? other.took_ms : delay;
	}
	job_join(&cancelled);
	took = clock_mono_ms() - began;
	print_message("wedged: cancel took %u ms\n", (unsigned int)took);
	assert_reason(&cancelled, EXEC_CANCELLED);
	job_join(&beside);
	assert_reason(&beside, EXEC_LOST);
	assert_works(1);
	end();
	assert_int_equal(fake_kills(&fake, 1), 1);
	cancel_release(&cancel);
	return delay > 1000 ? UINT64_MAX : took;
}

static void test_wedged_guest(void **state)
{
	(void)state;
	expect_within(cancel_in_a_wedged_one, 1900, 2500);
}

/* Without a cancel and without a deadline the silence itself is noticed. */
#define PONG_MS 4000 /* longer than a guest may stand still here */

static uint64_t lose_a_silent_guest(void)
{
	struct job j = { .shell = "echo; sleep 30" }, quiet = { .shell = "sleep 1" };

	begin(behave_real, START_MS, 60000);
	pthread_mutex_lock(&boxes->lock);
	boxes->ping_after_ms = 100;
	boxes->pong_ms = PONG_MS;
	pthread_mutex_unlock(&boxes->lock);
	job_run(&quiet);
	assert_ok(&quiet);
	assert_int_equal(fake.kills, 0);
	job_start(&j);
	await_output(&j, 1);
	assert_int_equal(kill(fake.guests[0].pid, SIGSTOP), 0);
	job_join(&j);
	assert_reason(&j, EXEC_LOST);
	assert_works(0);
	end();
	assert_int_equal(fake_kills(&fake, 1), 1);
	return j.took_ms;
}

static void test_ping(void **state)
{
	(void)state;
	expect_within(lose_a_silent_guest, PONG_MS, PONG_MS + 2000);
}

/* A guest that ignores the deadline of a command. */
static uint64_t ignore_a_deadline(void)
{
	struct job j = { .shell = "true", .timeout_ms = 100 };

	begin(behave_deaf, START_MS, 60000);
	job_run(&j);
	assert_reason(&j, EXEC_TIMEOUT);
	end();
	assert_int_equal(fake_kills(&fake, 1), 1);
	return j.took_ms;
}

static void test_backstop(void **state)
{
	(void)state;
	expect_within(ignore_a_deadline, 2000, 2800);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_results),      cmocka_unit_test(test_timeout),
		cmocka_unit_test(test_refusals),     cmocka_unit_test(test_cancel),
		cmocka_unit_test(test_many_calls),   cmocka_unit_test(test_many_sandboxes),
		cmocka_unit_test(test_much_output),  cmocka_unit_test(test_slow_sink),
		cmocka_unit_test(test_flood),        cmocka_unit_test(test_files),
		cmocka_unit_test(test_deaf_guest),   cmocka_unit_test(test_guest_killed),
		cmocka_unit_test(test_wedged_guest), cmocka_unit_test(test_ping),
		cmocka_unit_test(test_backstop),
	};

	return RUN_TESTS(tests);
}
