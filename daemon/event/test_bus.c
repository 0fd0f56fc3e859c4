#include "common/test.h"

#include "daemon/event/bus.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct uuid acme = { "0b0e6f1c-6f0d-7c3a-8f0a-000000000001" };
static const struct uuid globex = { "0b0e6f1c-6f0d-7c3a-8f0a-000000000002" };

static struct bus *new_bus(uint64_t generation, size_t events, size_t bytes, size_t subscribers)
{
	struct bus_conf conf = { generation, events, bytes, subscribers };
	struct bus *b = NULL;
	struct err e = ERR_INIT;

	assert_int_equal(bus_new(&conf, &b, &e), 0);
	return b;
}

static struct subscription *subscribe(struct bus *b, const struct uuid *tenant, int64_t last)
{
	struct subscription *s = NULL;
	struct err e = ERR_INIT;

	assert_int_equal(bus_subscribe(b, tenant, last, &s, &e), 0);
	return s;
}

static void publish(struct bus *b, const struct uuid *tenant, int n)
{
	struct bus_event event = { .type = "test.event", .data = json_new_object() };

	for (int i = 0; i < n; i++) {
		bus_publish(b, tenant, &event);
		event.data = json_new_object();
	}
	json_free(&event.data);
}

/* The id of the next event; 0 = none now, -1 = a reset. */
static int64_t next_id(struct subscription *s)
{
	const char *data;
	size_t len;

	if (!bus_next(s, &data, &len))
		return 0;
	if (len > 7 && memcmp(data, "event: ", 7) == 0) {
		assert_non_null(memmem(data, len, "replay.reset", 12));
		return -1;
	}
	assert_memory_equal(data, "id: ", 4);
	return strtoll(data + 4, NULL, 10);
}

static const int64_t gen3 = INT64_C(3) << 32;

static void ids_count_per_tenant(void **state)
{
	struct bus *b = new_bus(3, 10, 1 << 20, 4);
	struct subscription *a = subscribe(b, &acme, -1), *g = subscribe(b, &globex, -1);

	(void)state;
	publish(b, &acme, 2);
	publish(b, &globex, 1);
	assert_int_equal(next_id(a), gen3 + 1);
	assert_int_equal(next_id(a), gen3 + 2);
	assert_int_equal(next_id(a), 0);
	assert_int_equal(next_id(g), gen3 + 1);
	assert_int_equal(next_id(g), 0);
	bus_unsubscribe(a);
	bus_unsubscribe(g);
	bus_free(&b);
}

static void check_replay(int64_t last, const int64_t *want)
{
	struct bus *b = new_bus(3, 3, 1 << 20, 4);
	struct subscription *s;

	publish(b, &acme, 5); /* 3, 4, 5 are kept */
	s = subscribe(b, &acme, last);
	for (; *want; want++)
		assert_int_equal(next_id(s), *want);
	assert_int_equal(next_id(s), 0);
	bus_unsubscribe(s);
	bus_free(&b);
}

static void replay_starts_after_last_id(void **state)
{
	(void)state;
	check_replay(-1, (const int64_t[]){ 0 });
	check_replay(gen3 + 5, (const int64_t[]){ 0 });
	check_replay(gen3 + 4, (const int64_t[]){ gen3 + 5, 0 });
	check_replay(gen3 + 2, (const int64_t[]){ gen3 + 3, gen3 + 4, gen3 + 5, 0 });
}

static void a_gap_is_told(void **state)
{
	const int64_t all[] = { -1, gen3 + 3, gen3 + 4, gen3 + 5, 0 };

	(void)state;
	check_replay(gen3 + 1, all); /* one past the window */
	check_replay(gen3 + 6, all); /* newer than the newest */
	check_replay((INT64_C(2) << 32) + 5, all);
	check_replay((INT64_C(4) << 32) + 1, all);
	check_replay(0, all);
	check_replay(INT64_MAX, all);
}

static void a_slow_reader_gets_one_reset_and_goes_on(void **state)
{
	struct bus *b = new_bus(3, 3, 1 << 20, 4);
	struct subscription *s = subscribe(b, &acme, -1);

	(void)state;
	publish(b, &acme, 1);
	assert_int_equal(next_id(s), gen3 + 1);
	publish(b, &acme, 9);
	assert_int_equal(next_id(s), -1);
	assert_int_equal(next_id(s), gen3 + 8);
	assert_int_equal(next_id(s), gen3 + 9);
	assert_int_equal(next_id(s), gen3 + 10);
	assert_int_equal(next_id(s), 0);
	bus_unsubscribe(s);
	bus_free(&b);
}

static void bytes_bound_the_window_too(void **state)
{
	struct bus *b = new_bus(3, 100, 1, 4); /* nothing fits: only the newest is kept */
	struct subscription *s = subscribe(b, &acme, -1);

	(void)state;
	publish(b, &acme, 4);
	assert_int_equal(next_id(s), -1);
	assert_int_equal(next_id(s), gen3 + 4);
	assert_int_equal(next_id(s), 0);
	bus_unsubscribe(s);
	bus_free(&b);
}

static void the_tenant_limit_holds(void **state)
{
	struct bus *b = new_bus(3, 3, 1 << 20, 2);
	struct subscription *one = subscribe(b, &acme, -1), *two = subscribe(b, &acme, -1), *none;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(bus_subscribe(b, &acme, -1, &none, &e), -1);
	assert_int_equal(e.code, BUS_TENANT_LIMIT);
	bus_unsubscribe(subscribe(b, &globex, -1));
	bus_unsubscribe(one);
	one = subscribe(b, &acme, -1);
	bus_unsubscribe(one);
	bus_unsubscribe(two);
	bus_free(&b);
}

static void generations_are_bounded(void **state)
{
	struct bus_conf conf = { (UINT64_C(1) << 21) - 1, 1, 1, 1 };
	struct bus *b = NULL;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(bus_new(&conf, &b, &e), 0);
	bus_free(&b);
	conf.generation++;
	assert_int_equal(bus_new(&conf, &b, &e), -1);
}

static void count_wake(void *ctx)
{
	(*(int *)ctx)++;
}

static void a_wake_comes_once_per_sleep(void **state)
{
	struct bus *b = new_bus(3, 3, 1 << 20, 2);
	struct subscription *s = subscribe(b, &acme, -1);
	int wakes = 0;

	(void)state;
	bus_on_wake(s, count_wake, &wakes);
	publish(b, &acme, 1);
	assert_int_equal(wakes, 0); /* it has not slept yet */
	assert_int_equal(next_id(s), gen3 + 1);
	assert_int_equal(next_id(s), 0);
	publish(b, &acme, 2);
	assert_int_equal(wakes, 1);
	bus_unsubscribe(s);
	publish(b, &acme, 1);
	assert_int_equal(wakes, 1);
	bus_free(&b);
}

static void *publish_many(void *ctx)
{
	publish(ctx, &acme, 20000);
	return NULL;
}

static void a_reader_beside_writers_sees_every_number_or_a_reset(void **state)
{
	struct bus *b = new_bus(3, 64, 1 << 20, 2);
	struct subscription *s = subscribe(b, &acme, -1);
	int64_t last = gen3, id;
	pthread_t threads[2];
	bool gap = false;

	(void)state;
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, publish_many, b), 0);
	while (last < gen3 + 40000) {
		id = next_id(s);
		if (id > 0) {
			assert_true(gap ? id > last : id == last + 1);
			last = id;
		}
		gap = id < 0;
	}
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	bus_unsubscribe(s);
	bus_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ids_count_per_tenant),
		cmocka_unit_test(replay_starts_after_last_id),
		cmocka_unit_test(a_gap_is_told),
		cmocka_unit_test(a_slow_reader_gets_one_reset_and_goes_on),
		cmocka_unit_test(bytes_bound_the_window_too),
		cmocka_unit_test(the_tenant_limit_holds),
		cmocka_unit_test(generations_are_bounded),
		cmocka_unit_test(a_wake_comes_once_per_sleep),
		cmocka_unit_test(a_reader_beside_writers_sees_every_number_or_a_reset),
	};

	return RUN_TESTS(tests);
}
