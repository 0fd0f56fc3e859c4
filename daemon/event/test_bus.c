#include "common/test.h"

#include "daemon/event/bus.h"

#include <errno.h>
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

	assert_int_equal(bus_subscribe(b, tenant, &(struct bus_wish){ .last_id = last }, &s, &e),
	                 0);
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
	assert_int_equal(bus_subscribe(b, &acme, &(struct bus_wish){ .last_id = -1 }, &none, &e),
	                 -1);
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

static int give_next(void *ctx, uint64_t *ret, struct err *e)
{
	uint64_t *next = ctx;

	if (!*next)
		return err_set(e, EAGAIN, "not now");
	*ret = *next;
	return 0;
}

static int64_t id_of(int64_t generation, int64_t counter)
{
	return generation << 32 | counter;
}

/* Three events in a generation: the fourth begins another one, behind a gap. */
static void a_used_up_counter(void **state)
{
	uint64_t next = 9;
	struct bus_conf conf = { .generation = 5,
		                 .replay_events = 10,
		                 .replay_bytes = 10000,
		                 .tenant_subscribers = 4,
		                 .counter_max = 3,
		                 .next_generation = give_next,
		                 .ctx = &next };
	struct subscription *live, *late, *back;
	struct bus *b = NULL;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(bus_new(&conf, &b, &e), 0);
	live = subscribe(b, &acme, -1);
	late = subscribe(b, &acme, -1);
	publish(b, &globex, 1);
	publish(b, &acme, 3);
	for (int i = 1; i <= 3; i++)
		assert_int_equal(next_id(live), id_of(5, i));
	assert_int_equal(next_id(live), 0);
	publish(b, &acme, 1);
	assert_int_equal(next_id(live), -1);
	assert_int_equal(next_id(live), id_of(9, 1));
	assert_int_equal(next_id(late), -1); /* what it has not seen is gone */
	assert_int_equal(next_id(late), id_of(9, 1));
	back = subscribe(b, &acme, id_of(5, 3));
	assert_int_equal(next_id(back), -1);
	assert_int_equal(next_id(back), id_of(9, 1));
	bus_unsubscribe(back);
	back = subscribe(b, &globex, id_of(5, 0)); /* nobody else is concerned */
	publish(b, &globex, 1);
	assert_int_equal(next_id(back), id_of(5, 1));
	assert_int_equal(next_id(back), id_of(5, 2));
	bus_unsubscribe(back);
	bus_unsubscribe(late);
	bus_unsubscribe(live);
	bus_free(&b);
}

/* Without one, events are lost, and no number is ever given twice. */
static void no_generation_to_be_had(void **state)
{
	uint64_t next = 0;
	struct bus_conf conf = { .generation = 5,
		                 .replay_events = 10,
		                 .replay_bytes = 10000,
		                 .tenant_subscribers = 4,
		                 .counter_max = 2,
		                 .next_generation = give_next,
		                 .ctx = &next };
	struct subscription *s;
	struct bus *b = NULL;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(bus_new(&conf, &b, &e), 0);
	s = subscribe(b, &acme, -1);
	publish(b, &acme, 4);
	assert_int_equal(next_id(s), id_of(5, 1));
	assert_int_equal(next_id(s), id_of(5, 2));
	assert_int_equal(next_id(s), 0);
	next = 5; /* the one that is used up */
	publish(b, &acme, 1);
	next = UINT64_C(1) << 21;
	publish(b, &acme, 1);
	assert_int_equal(next_id(s), 0);
	next = 6;
	publish(b, &acme, 1);
	assert_int_equal(next_id(s), -1);
	assert_int_equal(next_id(s), id_of(6, 1));
	bus_unsubscribe(s);
	bus_free(&b);
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

static const struct uuid turns[] = { { "0b0e6f1c-6f0d-7c3a-8f0a-000000000011" },
	                             { "0b0e6f1c-6f0d-7c3a-8f0a-000000000012" } };
static const struct uuid sessions[] = { { "0b0e6f1c-6f0d-7c3a-8f0a-000000000021" },
	                                { "0b0e6f1c-6f0d-7c3a-8f0a-000000000022" } };

static void publish_of(struct bus *b, int turn, bool ends)
{
	bus_publish(b, &acme,
	            &(struct bus_event){ .type = "test.event",
	                                 .turn = &turns[turn],
	                                 .session = &sessions[turn],
	                                 .ends_turn = ends });
}

static struct subscription *subscribe_turn(struct bus *b, int turn, int64_t last)
{
	const struct bus_wish wish = { .last_id = last, .turn = &turns[turn] };
	struct subscription *s = NULL;
	struct err e = ERR_INIT;

	assert_int_equal(bus_subscribe(b, &acme, &wish, &s, &e), 0);
	return s;
}

static int end_of(struct subscription *s)
{
	const char *data;
	size_t len;

	return bus_next(s, &data, &len);
}

static void a_turn_alone_and_its_end(void **state)
{
	struct bus *b = new_bus(3, 10, 1 << 20, 4);
	struct subscription *live = subscribe_turn(b, 0, -1), *again;
	int wakes = 0;

	(void)state;
	bus_on_wake(live, count_wake, &wakes);
	publish_of(b, 1, false);
	publish_of(b, 0, false);
	publish_of(b, 1, true);
	assert_int_equal(next_id(live), gen3 + 2);
	assert_int_equal(next_id(live), 0);
	assert_false(bus_has_end(live));
	publish_of(b, 1, false);
	publish(b, &acme, 1);
	assert_int_equal(wakes, 0); /* these are not for it */
	publish_of(b, 0, true);
	assert_int_equal(wakes, 1);
	assert_true(bus_has_end(live));
	publish_of(b, 0, false);
	assert_int_equal(next_id(live), gen3 + 6);
	assert_int_equal(end_of(live), -1);
	assert_int_equal(end_of(live), -1);
	again = subscribe_turn(b, 0, gen3 + 1);
	assert_true(bus_has_end(again));
	assert_int_equal(next_id(again), gen3 + 2);
	assert_int_equal(next_id(again), gen3 + 6);
	assert_int_equal(end_of(again), -1);
	bus_unsubscribe(again);
	again = subscribe_turn(b, 0, gen3 + 6);
	assert_false(bus_has_end(again));
	bus_unsubscribe(again);
	bus_unsubscribe(live);
	bus_free(&b);
}

/* What others published while it slept is no gap to it; what it missed of its own is. */
static void a_sleeper_is_reset_for_its_own_only(void **state)
{
	struct bus *b = new_bus(3, 4, 1 << 20, 4);
	struct subscription *asleep = subscribe_turn(b, 0, -1), *slow = subscribe_turn(b, 0, -1);

	(void)state;
	assert_int_equal(next_id(asleep), 0);
	for (int i = 0; i < 20; i++)
		publish_of(b, 1, false);
	assert_int_equal(next_id(asleep), 0);
	publish_of(b, 0, false);
	assert_int_equal(next_id(asleep), gen3 + 21);
	for (int i = 0; i < 4; i++)
		publish_of(b, 1, false);
	/* It never slept, so nobody can say what it missed; its end may be gone as well. */
	assert_false(bus_has_end(slow));
	assert_int_equal(next_id(slow), -1);
	assert_int_equal(end_of(slow), -1);
	bus_unsubscribe(asleep);
	bus_unsubscribe(slow);
	bus_free(&b);
}

static void a_session_alone(void **state)
{
	struct bus *b = new_bus(3, 10, 1 << 20, 4);
	const struct bus_wish wish = { .last_id = 0, .session = &sessions[1] };
	struct subscription *s = NULL;
	struct err e = ERR_INIT;

	(void)state;
	publish_of(b, 1, false);
	assert_int_equal(bus_subscribe(b, &acme, &wish, &s, &e), 0);
	publish_of(b, 0, false);
	publish_of(b, 1, true);
	publish_of(b, 1, false);
	assert_int_equal(next_id(s), -1); /* an id of another generation */
	assert_int_equal(next_id(s), gen3 + 1);
	assert_int_equal(next_id(s), gen3 + 3);
	assert_int_equal(next_id(s), gen3 + 4);
	assert_int_equal(next_id(s), 0);
	bus_unsubscribe(s);
	bus_free(&b);
}

static void what_is_told_again_is_marked(void **state)
{
	auto_buf struct buf out = BUF_INIT(1000);
	const struct bus_event event = { .type = "turn.queued", .turn = &turns[0] };

	(void)state;
	bus_rebuilt(&out, &event, 1);
	bus_rebuilt(&out, &event, 0);
	buf_addc(&out, '\0');
	assert_string_equal(
		out.data, "event: turn.queued\ndata: {\"id\":null,\"type\":\"turn.queued\","
			  "\"turnId\":\"0b0e6f1c-6f0d-7c3a-8f0a-000000000011\",\"sessionId\":null,"
			  "\"data\":{},\"at\":\"1970-01-01T00:00:00.001Z\",\"rebuilt\":true}\n\n"
			  "event: turn.queued\ndata: {\"id\":null,\"type\":\"turn.queued\","
			  "\"turnId\":\"0b0e6f1c-6f0d-7c3a-8f0a-000000000011\",\"sessionId\":null,"
			  "\"data\":{},\"at\":null,\"rebuilt\":true}\n\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_turn_alone_and_its_end),
		cmocka_unit_test(a_sleeper_is_reset_for_its_own_only),
		cmocka_unit_test(a_session_alone),
		cmocka_unit_test(what_is_told_again_is_marked),
		cmocka_unit_test(ids_count_per_tenant),
		cmocka_unit_test(replay_starts_after_last_id),
		cmocka_unit_test(a_gap_is_told),
		cmocka_unit_test(a_slow_reader_gets_one_reset_and_goes_on),
		cmocka_unit_test(bytes_bound_the_window_too),
		cmocka_unit_test(the_tenant_limit_holds),
		cmocka_unit_test(generations_are_bounded),
		cmocka_unit_test(a_used_up_counter),
		cmocka_unit_test(no_generation_to_be_had),
		cmocka_unit_test(a_wake_comes_once_per_sleep),
		cmocka_unit_test(a_reader_beside_writers_sees_every_number_or_a_reset),
	};

	return RUN_TESTS(tests);
}
