#include "daemon/sandbox/jobs.h"

#include <sys/resource.h>

/* What becomes of calls and starts while there are no descriptors left. */

static struct rlimit before;

/* None can be opened, whatever is closed meanwhile, but for the standard ones. */
static void take_all(void)
{
	struct rlimit none;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = before;
	none.rlim_cur = STDERR_FILENO + 1; /* less would make poll(2) refuse to wait */
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
}

static void give_back(void)
{
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

static void test_a_call_waits(void **state)
{
	struct cancel cancel, other;
	struct err e = ERR_INIT;
	struct job first = { .shell = "true", .cancel = &cancel };
	struct job second = { .shell = "true", .cancel = &other };

	(void)state;
	assert_int_equal(cancel_init(&cancel, &e), 0);
	assert_int_equal(cancel_init(&other, &e), 0);
	begin(behave_honest, START_MS, 60000);
	take_all();
	job_start(&first);
	job_start(&second);
	(void)usleep(100000);
	assert_int_equal(fake.starts, 0);
	cancel_fire(&cancel);
	job_join(&first);
	assert_int_equal(first.status, -1);
	assert_int_equal(first.e.code, SANDBOX_CANCELLED);
	give_back();
	job_join(&second);
	assert_ok(&second);
	end();
	assert_int_equal(fake.starts, 1);
	cancel_release(&cancel);
	cancel_release(&other);
}

/* Who cannot be told to stop does not wait. */
static void test_a_call_without_a_cancel(void **state)
{
	struct job job = { .shell = "true" };

	(void)state;
	begin(behave_honest, START_MS, 60000);
	take_all();
	job_start(&job);
	job_join(&job);
	give_back();
	assert_int_equal(job.status, -1);
	assert_int_equal(job.e.code, ERR_SHORTAGE);
	end();
}

/* The pipes to the first guest cannot be taken. */
static void behave_untaken(struct guest *g)
{
	int to[2], from[2];

	if (g->generation > 1) {
		behave_honest(g);
		return;
	}
	if (pipe2(to, O_CLOEXEC) < 0 || pipe2(from, O_CLOEXEC) < 0)
		abort();
	g->in = to[0];
	g->out = from[1];
	take_all();
	fake_send(g, LAUNCHER_STARTED, (int[2]){ to[1], from[0] });
	fd_close(&to[1]);
	fd_close(&from[0]);
	guest_wait_killed(g);
	give_back();
}

static void test_pipes_that_cannot_be_taken(void **state)
{
	struct job job = { .shell = "true" }, next = { .shell = "true" };
	struct cancel cancel;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(cancel_init(&cancel, &e), 0);
	next.cancel = &cancel; /* the guest may not have given back yet */
	begin(behave_untaken, START_MS, 60000);
	job_start(&job);
	job_join(&job);
	assert_int_equal(job.status, -1);
	assert_int_equal(job.e.code, SANDBOX_START_FAILED);
	assert_non_null(strstr(job.e.text, "no descriptors are left"));
	/* The launcher is believed as before. */
	job_start(&next);
	job_join(&next);
	assert_ok(&next);
	end();
	assert_int_equal(fake.starts, 2);
	assert_int_equal(messages, 0);
	cancel_release(&cancel);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_call_waits),
		cmocka_unit_test(test_a_call_without_a_cancel),
		cmocka_unit_test(test_pipes_that_cannot_be_taken),
	};

	return RUN_TESTS(tests);
}
