/* What is counted comes out, in lines that Prometheus reads; many threads lose nothing. */
#include "common/test.h"

#include "daemon/metrics/metrics.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 8
#define EACH    20000

static char *text;

static const char *read_all(void)
{
	struct buf out = BUF_INIT(1 << 20);

	free(text);
	metrics_write(&out);
	assert_false(buf_failed(&out));
	text = buf_take(&out);
	assert_non_null(text);
	return text;
}

static int end(void **state)
{
	(void)state;
	free(text);
	text = NULL;
	return 0;
}

/* The value of the line that begins with that, or -1. */
static double value_of(const char *sample)
{
	size_t len = strlen(sample);

	for (const char *at = read_all(); at; at = strchr(at, '\n')) {
		at += *at == '\n';
		if (strncmp(at, sample, len) == 0 && at[len] == ' ')
			return strtod(at + len, NULL);
	}
	return -1;
}

static void *count(void *arg)
{
	(void)arg;
	for (int i = 0; i < EACH; i++) {
		metric_count(METRIC_EVENTS, 0);
		metric_add(METRIC_EXEC_BYTES, 1, 3);
		metric_request(0, i % 2 ? 200 : 299, 700);
	}
	return NULL;
}

static void threads_lose_nothing(void **state)
{
	pthread_t threads[THREADS];

	(void)state;
	metric_route(0, "GET", "/a/{id}");
	for (size_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, count, NULL), 0);
	for (size_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_true(value_of("cloister_events_total") == THREADS * EACH);
	assert_true(value_of("cloister_exec_output_bytes_total{stream=\"stderr\"}") ==
	            3.0 * THREADS * EACH);
	assert_true(
		value_of("cloister_http_requests_total{route=\"GET /a/{id}\",status=\"200\"}") ==
		0.5 * THREADS * EACH);
	assert_true(
		value_of("cloister_http_requests_total{route=\"GET /a/{id}\",status=\"other\"}") ==
		0.5 * THREADS * EACH);
	assert_true(value_of("cloister_http_request_seconds_count{route=\"GET /a/{id}\"}") ==
	            THREADS * EACH);
	assert_true(value_of("cloister_http_request_seconds_sum{route=\"GET /a/{id}\"}") == 112);
}

/* A value lies in the first bucket that is not below it. */
static void buckets_have_edges(void **state)
{
	static const struct {
		const char *le;
		double n;
	} rows[] = { { "0.1", 1 }, { "0.25", 2 }, { "300", 2 }, { "600", 3 }, { "+Inf", 4 } };
	char sample[96];

	(void)state;
	metric_time(METRIC_TIME_START, 100000);
	metric_time(METRIC_TIME_START, 100001);
	metric_time(METRIC_TIME_START, 600000000);
	metric_time(METRIC_TIME_START, 600000001);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		(void)snprintf(sample, sizeof(sample),
		               "cloister_sandbox_start_seconds_bucket{le=\"%s\"}", rows[i].le);
		if (value_of(sample) != rows[i].n)
			fail_msg("%s: %g", sample, value_of(sample));
	}
	assert_true(value_of("cloister_sandbox_start_seconds_count") == 4);
}

static void what_has_no_number_has_a_place(void **state)
{
	(void)state;
	metric_request(METRIC_ROUTES, 404, 1);
	metric_request(SIZE_MAX, 404, 1);
	metric_route(METRIC_ROUTES - 1, "GET", "/one-too-many");
	metric_add(METRIC_EXEC, METRIC_VALUES, 1);
	assert_true(value_of("cloister_http_requests_total{route=\"none\",status=\"404\"}") == 2);
	assert_null(strstr(read_all(), "one-too-many"));
}

static void values_are_escaped(void **state)
{
	struct buf out = BUF_INIT(1024);

	(void)state;
	metrics_sample(&out, "n", "l", "a\"b\\c\nd", 7);
	assert_string_equal(out.data, "n{l=\"a\\\"b\\\\c\\nd\"} 7\n");
	buf_release(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(threads_lose_nothing, end),
		cmocka_unit_test_teardown(buckets_have_edges, end),
		cmocka_unit_test_teardown(what_has_no_number_has_a_place, end),
		cmocka_unit_test_teardown(values_are_escaped, end),
	};

	return RUN_TESTS(tests);
}
