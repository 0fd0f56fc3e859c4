#include "daemon/sandbox/call.h"
#include "daemon/sandbox/jobs.h"
#include "daemon/sandbox/stream.h"

/* Calls that run while no other does, and standard input. */

static char place[64]; /* a directory where commands tell how far they are */

static int set_up(void **state)
{
	(void)state;
	(void)snprintf(place, sizeof(place), "/tmp/alone-XXXXXX");
	return mkdtemp(place) ? 0 : -1;
}

static int tear_down(void **state)
{
	char line[128];
	struct job j = { .shell = line };

	(void)state;
	(void)snprintf(line, sizeof(line), "rm -r %s", place);
	begin(behave_real, START_MS, 60000);
	job_run(&j);
	end();
	return 0;
}

static bool there(const char *name)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/%s", place, name);
	return access(path, F_OK) == 0;
}

static void make(const char *name)
{
	char path[128];
	FILE *f;

	(void)snprintf(path, sizeof(path), "%s/%s", place, name);
	f = fopen(path, "we");
	assert_non_null(f);
	(void)fclose(f);
}

static bool a_runs(void)
{
	return there("a");
}

static bool b_runs(void)
{
	return there("b");
}

static struct sandbox *box(int n)
{
	const struct uuid id = tenant(n);

	return pool_find(boxes, &id);
}

static bool one_wants_to_be_alone(void)
{
	bool wanted;

	pthread_mutex_lock(&boxes->lock);
	wanted = box(0)->alone;
	pthread_mutex_unlock(&boxes->lock);
	return wanted;
}

static bool one_waits_behind(void)
{
	bool waits;

	pthread_mutex_lock(&boxes->lock);
	waits = box(0)->waiting && (box(0)->waiting->next || box(0)->waiting != box(0)->alone);
	pthread_mutex_unlock(&boxes->lock);
	return waits;
}

/* Says that it runs, waits until it may end, and says that it ends. */
static const char *line(char *room, size_t size, const char *name)
{
	(void)snprintf(room, size,
	               "cd %s && ls && : >%s && until [ -e %s.go ]; do sleep 0.01; done; "
	               ": >%s.over",
	               place, name, name, name);
	return room;
}

/* The first runs, the second wants to be alone, and the third waits behind that. */
static void begin_three(struct job *a, struct job *b, struct job *c)
{
	begin(behave_real, START_MS, 60000);
	job_start(a);
	wait_for(a_runs);
	job_start(b);
	wait_for(one_wants_to_be_alone);
	job_start(c);
	wait_for(one_waits_behind);
}

static void test_waits_for_others_and_they_for_it(void **state)
{
	char lines[3][200];
	struct job a = { .shell = line(lines[0], sizeof(lines[0]), "a") };
	struct job b = { .shell = line(lines[1], sizeof(lines[1]), "b"), .alone = true };
	struct job c = { .shell = line(lines[2], sizeof(lines[2]), "c") };

	(void)state;
	begin_three(&a, &b, &c);
	make("c.go");
	assert_false(there("b") || there("c"));
	make("a.go");
	wait_for(b_runs);
	job_join(&a);
	wait_for(one_waits_behind);
	make("b.go");
	job_join(&b);
	job_join(&c);
	assert_ok(&a);
	assert_ok(&b);
	assert_ok(&c);
	/* What each saw when it began. */
	assert_null(strstr(a.head, "b"));
	assert_non_null(strstr(b.head, "a.over"));
	assert_null(strstr(b.head, "c\n"));
	assert_non_null(strstr(c.head, "b.over"));
	assert_works(0);
	end();
}

static void test_gives_up_and_lets_others_in(void **state)
{
	char text[200];
	struct cancel cancel;
	struct err e = ERR_INIT;
	struct job a = { .shell = line(text, sizeof(text), "a") };
	struct job b = { .shell = "true", .alone = true, .cancel = &cancel };
	struct job c = { .shell = "true" };

	(void)state;
	assert_int_equal(cancel_init(&cancel, &e), 0);
	begin_three(&a, &b, &c);
	cancel_fire(&cancel);
	job_join(&b);
	assert_int_equal(b.status, -1);
	assert_int_equal(b.e.code, SANDBOX_CANCELLED);
	job_join(&c); /* while a still runs */
	assert_ok(&c);
	make("a.go");
	job_join(&a);
	assert_ok(&a);
	end();
	cancel_release(&cancel);
}

/* Until nobody is called that any more. */
static void await_end_of(pid_t pid)
{
	for (int i = 0; i < 6000 && kill(pid, 0) == 0; i++)
		(void)usleep(10000);
	assert_int_equal(kill(pid, 0), -1);
}

/* What an earlier call left behind is not there any more, and the call after it is no reason. */
static void test_has_a_fresh_sandbox(void **state)
{
	struct job left = { .shell = "sleep 1000 >/dev/null 2>&1 & echo $!" };
	struct job a = { .shell = "true", .alone = true };
	pid_t pid;

	(void)state;
	begin(behave_real, START_MS, 60000);
	job_run(&left);
	assert_ok(&left);
	pid = (pid_t)strtol(left.head, NULL, 10);
	assert_true(pid > 1);
	assert_int_equal(kill(pid, 0), 0);
	job_run(&a);
	assert_ok(&a);
	assert_int_equal(fake.starts, 2);
	await_end_of(pid);
	assert_works(0);
	assert_int_equal(fake.starts, 2);
	end();
}

static void test_an_unused_sandbox_is_fresh(void **state)
{
	struct job a = { .shell = "true", .alone = true };

	(void)state;
	begin(behave_real, START_MS, 60000);
	job_run(&a);
	assert_ok(&a);
	assert_int_equal(fake.starts, 1);
	job_run(&a); /* which another one has used */
	assert_ok(&a);
	assert_int_equal(fake.starts, 2);
	end();
}

/* A command that rests is no work to be waited for, and ends with the sandbox. */
static void test_ends_one_that_rests(void **state)
{
	const struct uuid id = tenant(0);
	struct sandbox_use use = { .tenant = &id };
	const struct exec_spec spec = { .shell = "exec cat", .cwd = "/" };
	struct job a = { .shell = "true", .alone = true };
	struct exec_result result;
	struct stream *s = NULL;
	struct err e = ERR_INIT;

	(void)state;
	begin(behave_real, START_MS, 60000);
	use.sandboxes = boxes;
	assert_int_equal(stream_open(&use, &spec, &s, &e), 0);
	stream_rest(s, true);
	job_run(&a);
	assert_ok(&a);
	assert_int_equal(fake.starts, 2);
	while (stream_take(s, NULL))
		assert_int_equal(stream_wait(s, NULL, 5000), 0);
	assert_int_equal(stream_result(s, &result, &e), 0);
	assert_int_equal(result.reason, EXEC_LOST);
	stream_close(&s);
	end();
}

/* Another tenant has another sandbox. */
static void test_is_alone_in_its_own_sandbox(void **state)
{
	char text[200];
	struct job a = { .shell = line(text, sizeof(text), "a"), .alone = true };

	(void)state;
	begin(behave_real, START_MS, 60000);
	job_start(&a);
	wait_for(a_runs);
	assert_works(1);
	make("a.go");
	job_join(&a);
	assert_ok(&a);
	end();
}

static void test_lost_with_its_sandbox(void **state)
{
	char text[200];
	struct job a = { .shell = line(text, sizeof(text), "a"), .alone = true };
	struct job c = { .shell = "true" };

	(void)state;
	begin(behave_real, START_MS, 60000);
	job_start(&a);
	wait_for(a_runs);
	job_start(&c);
	wait_for(one_waits_behind);
	assert_int_equal(kill(fake.guests[0].pid, SIGKILL), 0);
	job_join(&a);
	assert_reason(&a, EXEC_LOST);
	job_join(&c);
	assert_ok(&c);
	assert_int_equal(fake.starts, 2);
	make("a.go"); /* for the orphan */
	end();
}

static void test_input(void **state)
{
	struct job j = { .shell = "read -r a; read -r b; echo \"$b-$a\"; wc -c",
		         .input = "one\ntwo\nthree" };

	(void)state;
	begin(behave_real, START_MS, 60000);
	job_run(&j);
	assert_ok(&j);
	assert_string_equal(j.head, "two-one\n5\n");
	/* Nobody has to read it. */
	j = (struct job){ .shell = "true", .input = "one" };
	job_run(&j);
	assert_ok(&j);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_waits_for_others_and_they_for_it, set_up,
		                                tear_down),
		cmocka_unit_test_setup_teardown(test_gives_up_and_lets_others_in, set_up,
		                                tear_down),
		cmocka_unit_test_setup_teardown(test_is_alone_in_its_own_sandbox, set_up,
		                                tear_down),
		cmocka_unit_test_setup_teardown(test_lost_with_its_sandbox, set_up, tear_down),
		cmocka_unit_test(test_has_a_fresh_sandbox),
		cmocka_unit_test(test_an_unused_sandbox_is_fresh),
		cmocka_unit_test(test_ends_one_that_rests),
		cmocka_unit_test(test_input),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
