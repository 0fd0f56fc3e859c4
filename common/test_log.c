#include "common/test.h"

#include "common/clock.h"
#include "common/log.h"

static void one_line_and_then_silence(void **state)
{
	struct log_pace pace = { 0 };
	unsigned int left_out = 99;

	(void)state;
	assert_true(log_paced(&pace, &left_out));
	assert_int_equal(left_out, 0);
	for (int i = 0; i < 1000; i++)
		assert_false(log_paced(&pace, &left_out));
}

static void what_was_left_out_is_counted(void **state)
{
	struct log_pace pace = { 0 };
	unsigned int left_out;

	(void)state;
	assert_true(log_paced(&pace, &left_out));
	for (int i = 0; i < 5; i++)
		assert_false(log_paced(&pace, &left_out));
	atomic_store(&pace.next_ms, clock_mono_ms()); /* its time has come */
	assert_true(log_paced(&pace, &left_out));
	assert_int_equal(left_out, 5);
	atomic_store(&pace.next_ms, clock_mono_ms());
	assert_true(log_paced(&pace, &left_out));
	assert_int_equal(left_out, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_line_and_then_silence),
		cmocka_unit_test(what_was_left_out_is_counted),
	};

	return RUN_TESTS(tests);
}
