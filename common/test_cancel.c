#include "common/test.h"

#include "common/cancel.h"

#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

static bool readable(const struct cancel *c)
{
	struct pollfd p = { .fd = c->fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

static void test_fired_stays_fired(void **state)
{
	struct cancel c;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(cancel_init(&c, &e), 0);
	assert_false(cancel_fired(&c) || readable(&c));
	for (int i = 0; i < 3; i++) {
		cancel_fire(&c);
		assert_true(cancel_fired(&c) && readable(&c));
	}
	cancel_release(&c);
}

/* One that only waits in a queue is cancelled all the same, and whoever polls it later sees it. */
static void test_fired_before_it_is_open(void **state)
{
	struct cancel c = CANCEL_INIT;
	struct err e = ERR_INIT;

	(void)state;
	assert_false(cancel_fired(&c));
	cancel_fire(&c);
	assert_true(cancel_fired(&c));
	assert_int_equal(c.fd, -1);
	assert_int_equal(cancel_open(&c, &e), 0);
	assert_true(cancel_fired(&c) && readable(&c));
	assert_int_equal(cancel_open(&c, &e), 0); /* the same one */
	cancel_release(&c);
}

static void test_no_descriptor(void **state)
{
	struct cancel c = CANCEL_INIT;
	struct rlimit old, tight;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	tight = old;
	tight.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
	assert_int_equal(cancel_open(&c, &e), -1);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(e.code, ERR_SHORTAGE);
	assert_int_equal(c.fd, -1);
	assert_false(cancel_fired(&c));
	assert_int_equal(cancel_open(&c, &e), 0);
	assert_false(readable(&c));
	cancel_release(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fired_stays_fired),
		cmocka_unit_test(test_fired_before_it_is_open),
		cmocka_unit_test(test_no_descriptor),
	};

	return RUN_TESTS(tests);
}
