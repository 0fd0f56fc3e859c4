#include "common/test.h"

#include "common/attr.h"
#include "common/clock.h"
#include "common/id.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CANONICAL "01234567-89ab-7def-8123-456789abcdef"

static void test_version_and_variant(void **state)
{
	(void)state;
	for (int i = 0; i < 1000; i++) {
		struct uuid id = uuid_new();

		assert_true(uuid_valid(id.text, strlen(id.text)));
		assert_int_equal(id.text[14], '7');
		assert_non_null(strchr("89ab", id.text[19]));
	}
}

static uint64_t time_of(const struct uuid *id)
{
	char digits[13];

	memcpy(digits, id->text, 8);
	memcpy(digits + 8, id->text + 9, 4);
	digits[12] = '\0';
	return strtoull(digits, NULL, 16);
}

static void test_carries_the_time(void **state)
{
	uint64_t before = clock_wall_ms();
	struct uuid id = uuid_new();
	uint64_t after = clock_wall_ms();

	(void)state;
	assert_in_range(time_of(&id), before, after);
}

static unsigned int fraction_of(const struct uuid *id)
{
	return (unsigned int)strtoul(id->text + 15, NULL, 16);
}

/* A counter would begin anew with every millisecond, and say by how much others moved it. */
static void test_counts_nothing(void **state)
{
	unsigned int low = 0, zero = 0;

	(void)state;
	for (int i = 0; i < 200; i++) {
		struct uuid id;

		(void)usleep(1000 + 37 * (unsigned int)i % 1000);
		id = uuid_new();
		zero += fraction_of(&id) == 0;
		low += fraction_of(&id) < 2048;
	}
	assert_true(zero < 20);
	assert_in_range(low, 20, 180);
}

/* The fraction is that of the clock. */
static void test_carries_the_fraction(void **state)
{
	(void)state;
	for (int i = 0; i < 100; i++) {
		uint64_t before = clock_wall_ns();
		struct uuid id = uuid_new();
		uint64_t after = clock_wall_ns();
		uint64_t part = (uint64_t)fraction_of(&id) * 1000000 / 4096;

		assert_in_range(time_of(&id) * 1000000 + part, before - 1000, after + 1000);
		(void)usleep(137);
	}
}

/* As fast as they can be made, from one thread. */
static void test_grows(void **state)
{
	struct uuid last = uuid_new();

	(void)state;
	for (int i = 0; i < 50000; i++) {
		struct uuid next = uuid_new();

		assert_true(strcmp(last.text, next.text) < 0);
		last = next;
	}
}

#define PER_THREAD 5000
#define THREADS    4

static struct uuid made[THREADS][PER_THREAD];

static void *make_many(void *into)
{
	struct uuid *ids = into;

	for (int i = 0; i < PER_THREAD; i++)
		ids[i] = uuid_new();
	return NULL;
}

static int compare(const void *a, const void *b)
{
	return strcmp(((const struct uuid *)a)->text, ((const struct uuid *)b)->text);
}

static void test_threads_never_share_one(void **state)
{
	pthread_t threads[THREADS];
	struct uuid *all = made[0];

	(void)state;
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, make_many, made[i]), 0);
	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		for (int k = 1; k < PER_THREAD; k++)
			assert_true(compare(&made[i][k - 1], &made[i][k]) < 0);
	}
	qsort(all, (size_t)THREADS * PER_THREAD, sizeof(*all), compare);
	/* Equal time would be a broken lock, whatever the random part says. */
	for (int i = 1; i < THREADS * PER_THREAD; i++)
		assert_true(strncmp(all[i - 1].text, all[i].text, 18) < 0);
}

static void test_canonical_form(void **state)
{
	static const char *const bad[] = {
		"",
		"01234567-89ab-7def-8123-456789abcde",
		"01234567-89ab-7def-8123-456789abcdef0",
		"01234567-89AB-7def-8123-456789abcdef",
		"01234567-89ab-7def-8123-456789abcdeg",
		"012345678-9ab-7def-8123-456789abcdef",
		"0123456789ab-7def--8123-456789abcdef",
		"{1234567-89ab-7def-8123-456789abcde}",
		" 1234567-89ab-7def-8123-456789abcdef",
		"01234567-89ab-7def-8123-456789abcde\n",
		"../../../-89ab-7def-8123-456789abcde",
		"01234567_89ab_7def_8123_456789abcdef",
	};
	struct uuid id = { "untouched" };

	(void)state;
	assert_true(uuid_valid(CANONICAL, UUID_TEXT_LEN));
	assert_false(uuid_valid(CANONICAL, UUID_TEXT_LEN - 1));
	assert_false(uuid_valid(CANONICAL, UUID_TEXT_LEN + 1));
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		assert_false(uuid_valid(bad[i], strlen(bad[i])));
		assert_false(uuid_parse(bad[i], &id));
	}
	assert_string_equal(id.text, "untouched");
	assert_true(uuid_parse(CANONICAL, &id));
	assert_string_equal(id.text, CANONICAL);
}

static void test_hex_and_equal(void **state)
{
	struct uuid a, b;
	char hex[33];

	(void)state;
	assert_true(uuid_parse(CANONICAL, &a));
	b = a;
	assert_true(uuid_equal(&a, &b));
	b.text[UUID_TEXT_LEN - 1] = '0';
	assert_false(uuid_equal(&a, &b));
	uuid_hex(&a, hex);
	assert_string_equal(hex, "0123456789ab7def8123456789abcdef");
}

static void test_random_fills_all(void **state)
{
	unsigned char seen[1000] = { 0 }, bytes[1001];

	(void)state;
	bytes[1000] = 0xa5;
	for (int round = 0; round < 16; round++) {
		random_bytes(bytes, 1000);
		for (int i = 0; i < 1000; i++)
			seen[i] |= bytes[i];
	}
	for (int i = 0; i < 1000; i++)
		assert_int_not_equal(seen[i], 0);
	assert_int_equal(bytes[1000], 0xa5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_version_and_variant),
		cmocka_unit_test(test_carries_the_time),
		cmocka_unit_test(test_counts_nothing),
		cmocka_unit_test(test_carries_the_fraction),
		cmocka_unit_test(test_grows),
		cmocka_unit_test(test_threads_never_share_one),
		cmocka_unit_test(test_canonical_form),
		cmocka_unit_test(test_hex_and_equal),
		cmocka_unit_test(test_random_fills_all),
	};

	return RUN_TESTS(tests);
}
