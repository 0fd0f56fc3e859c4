#include "common/test.h"

#include "runner/deny.h"

#include <errno.h>
#include <stdlib.h>

#define IP(a, b, c, d) ((uint32_t)(a) << 24 | (uint32_t)(b) << 16 | (uint32_t)(c) << 8 | (d))

static void assert_sound(const struct deny *d)
{
	for (size_t i = 0; i < d->n; i++) {
		assert_true(d->spans[i].first <= d->spans[i].last);
		if (i > 0)
			assert_true((uint64_t)d->spans[i - 1].last + 1 < d->spans[i].first);
	}
}

static int add(struct deny *d, uint32_t first, uint32_t last)
{
	struct err e = ERR_INIT;
	int got = deny_add(d, first, last, &e);

	assert_sound(d);
	return got;
}

static void test_special_ranges(void **state)
{
	static const uint32_t denied[] = {
		IP(0, 0, 0, 0),        IP(0, 255, 255, 255),   IP(10, 0, 0, 0),
		IP(10, 255, 255, 255), IP(100, 64, 0, 0),      IP(100, 127, 255, 255),
		IP(127, 0, 0, 1),      IP(169, 254, 169, 254), IP(172, 16, 0, 0),
		IP(172, 31, 255, 255), IP(192, 0, 0, 255),     IP(192, 0, 2, 1),
		IP(192, 88, 99, 1),    IP(192, 168, 255, 255), IP(198, 18, 0, 0),
		IP(198, 19, 255, 255), IP(198, 51, 100, 9),    IP(203, 0, 113, 255),
		IP(224, 0, 0, 0),      IP(255, 255, 255, 255), IP(168, 63, 129, 16),
	};
	static const uint32_t public[] = {
		IP(1, 0, 0, 0),         IP(9, 255, 255, 255),   IP(11, 0, 0, 0),
		IP(100, 63, 255, 255),  IP(100, 128, 0, 0),     IP(126, 255, 255, 255),
		IP(128, 0, 0, 0),       IP(169, 253, 255, 255), IP(169, 255, 0, 0),
		IP(172, 15, 255, 255),  IP(172, 32, 0, 0),      IP(192, 0, 1, 0),
		IP(192, 0, 3, 0),       IP(192, 88, 98, 255),   IP(192, 88, 100, 0),
		IP(192, 167, 255, 255), IP(192, 169, 0, 0),     IP(198, 17, 255, 255),
		IP(198, 20, 0, 0),      IP(198, 41, 0, 4),      IP(198, 51, 99, 255),
		IP(198, 51, 101, 0),    IP(203, 0, 114, 0),     IP(223, 255, 255, 255),
		IP(168, 63, 129, 15),   IP(168, 63, 129, 17),
	};
	struct deny d;

	(void)state;
	deny_init_special(&d);
	assert_sound(&d);
	for (size_t i = 0; i < ARRAY_LEN(denied); i++)
		assert_true(deny_has(&d, denied[i]));
	for (size_t i = 0; i < ARRAY_LEN(public); i++)
		assert_false(deny_has(&d, public[i]));
}

/* What may be listed, and is refused all the same. */
static void test_metadata(void **state)
{
	static const uint32_t denied[] = {
		IP(169, 254, 0, 0),   IP(169, 254, 169, 254), IP(169, 254, 255, 255),
		IP(168, 63, 129, 16), IP(100, 100, 100, 200), IP(192, 0, 0, 192),
	};
	static const uint32_t others[] = {
		IP(169, 253, 255, 255), IP(169, 255, 0, 0),     IP(168, 63, 129, 15),
		IP(168, 63, 129, 17),   IP(100, 100, 100, 199), IP(100, 100, 100, 201),
		IP(192, 0, 0, 191),     IP(192, 0, 0, 193),     IP(10, 0, 0, 1),
	};
	struct deny d;

	(void)state;
	deny_init_metadata(&d);
	assert_sound(&d);
	for (size_t i = 0; i < ARRAY_LEN(denied); i++)
		assert_true(deny_has(&d, denied[i]));
	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		assert_false(deny_has(&d, others[i]));
}

static void test_merging(void **state)
{
	struct deny d = { .n = 0 };

	(void)state;
	assert_int_equal(add(&d, 100, 200), 1);
	assert_int_equal(add(&d, 100, 200), 0);
	assert_int_equal(add(&d, 150, 160), 0);
	assert_int_equal(add(&d, 202, 300), 1);
	assert_int_equal(d.n, 2);
	assert_int_equal(add(&d, 201, 201), 1); /* closes the gap */
	assert_int_equal(d.n, 1);
	assert_int_equal(d.spans[0].first, 100);
	assert_int_equal(d.spans[0].last, 300);
	assert_int_equal(add(&d, 10, 20), 1);
	assert_int_equal(add(&d, 400, 500), 1);
	assert_int_equal(add(&d, 21, 99), 1); /* touches both neighbours */
	assert_int_equal(d.n, 2);
	assert_int_equal(add(&d, 5, 450), 1);
	assert_int_equal(d.n, 1);
	assert_int_equal(d.spans[0].first, 5);
	assert_int_equal(d.spans[0].last, 500);
}

static void test_ends_of_the_range(void **state)
{
	struct err e = ERR_INIT;
	struct deny d = { .n = 0 };

	(void)state;
	assert_int_equal(deny_add_prefix(&d, UINT32_MAX, 32, &e), 1);
	assert_int_equal(add(&d, 0, 0), 1);
	assert_int_equal(d.n, 2);
	assert_int_equal(add(&d, UINT32_MAX - 1, UINT32_MAX), 1);
	assert_int_equal(d.n, 2);
	assert_int_equal(d.spans[1].first, UINT32_MAX - 1);
	assert_int_equal(add(&d, UINT32_MAX, UINT32_MAX), 0);
	assert_int_equal(deny_add_prefix(&d, 0x7f000001, 0, &e), 1);
	assert_int_equal(d.n, 1);
	assert_int_equal(d.spans[0].first, 0);
	assert_int_equal(d.spans[0].last, UINT32_MAX);
	assert_int_equal(deny_add_prefix(&d, 0x08080808, 32, &e), 0);
}

static void test_prefix_ignores_host_bits(void **state)
{
	struct err e = ERR_INIT;
	struct deny d = { .n = 0 };

	(void)state;
	assert_int_equal(deny_add_prefix(&d, IP(8, 8, 8, 8), 24, &e), 1);
	assert_int_equal(d.spans[0].first, IP(8, 8, 8, 0));
	assert_int_equal(d.spans[0].last, IP(8, 8, 8, 255));
}

static void test_bound(void **state)
{
	struct err e = ERR_INIT;
	struct deny d = { .n = 0 };

	(void)state;
	for (uint32_t i = 0; i < DENY_MAX; i++)
		assert_int_equal(deny_add(&d, 10 + i * 2, 10 + i * 2, &e), 1);
	assert_int_equal(d.n, DENY_MAX);
	assert_int_equal(add(&d, 5, 5), -1);
	assert_int_equal(deny_add(&d, 5, 5, &e), -1);
	assert_int_equal(e.code, ENOSPC);
	assert_int_equal(d.n, DENY_MAX);
	/* What merges still fits. */
	assert_int_equal(add(&d, 11, 11), 1);
	assert_int_equal(d.n, DENY_MAX - 1);
	assert_int_equal(add(&d, 5, 5), 1);
}

/* Against a bitmap of a small range, with many overlaps. */
static void test_random(void **state)
{
	(void)state;
	srandom(4);
	for (int round = 0; round < 300; round++) {
		struct deny d = { .n = 0 };
		bool bitmap[512] = { false };

		for (int k = 0; k < 40; k++) {
			uint32_t first = (uint32_t)random() % 512;
			uint32_t last = first + (uint32_t)random() % 12;
			bool grows = false;

			last = last > 511 ? 511 : last;
			for (uint32_t a = first; a <= last; a++) {
				grows |= !bitmap[a];
				bitmap[a] = true;
			}
			assert_int_equal(add(&d, first, last), grows);
		}
		for (uint32_t a = 0; a < 512; a++)
			assert_int_equal(deny_has(&d, a), bitmap[a]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_special_ranges),
		cmocka_unit_test(test_metadata),
		cmocka_unit_test(test_merging),
		cmocka_unit_test(test_ends_of_the_range),
		cmocka_unit_test(test_prefix_ignores_host_bits),
		cmocka_unit_test(test_bound),
		cmocka_unit_test(test_random),
	};

	return RUN_TESTS(tests);
}
