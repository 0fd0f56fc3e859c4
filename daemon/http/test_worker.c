/* How parties share workers and queue: the pool alone, then a server with two tenants. */
#include "daemon/http/test_client.h"

#include "daemon/http/server.h"

#define A     (&parties[0])
#define B     (&parties[1])
#define OTHER "fedcba9876543210fedcba9876543210"
#define SLOW  "GET /v1/slow HTTP/1.1\r\n" AUTH "\r\n"
#define QUICK "GET /v1/quick HTTP/1.1\r\n" HOST "Authorization: Bearer " OTHER "\r\n\r\n"

/* Two that have the same uuid_hash(): they are two all the same. */
static const struct uuid parties[] = { { "01980000-0000-7000-8000-000000017828" },
	                               { "01980000-0000-7000-8000-0000000589db" } };

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER; /* held: nothing of A ends */
static atomic_int inside;                                /* handlers of A */
static bool gate_held;                                   /* by the test */
static struct worker_pool *pool;                         /* of the test that runs */
static struct http_server *server;                       /* likewise */

static void hold_gate(void)
{
	pthread_mutex_lock(&gate);
	gate_held = true;
}

static void open_gate(void)
{
	gate_held = false;
	pthread_mutex_unlock(&gate);
}

/* What a test that failed has left. */
static int tear_down(void **state)
{
	(void)state;
	if (gate_held)
		open_gate();
	if (pool)
		worker_stop(pool);
	worker_free(&pool);
	http_stop(&server);
	return 0;
}

/* -- the pool alone ---------------------------------------------------------------------- */

static pthread_mutex_t order_lock = PTHREAD_MUTEX_INITIALIZER;
static char order[64]; /* whose exchanges began, one letter each */
static atomic_int begun;

/* An exchange that goes to nobody: its server only takes it back. */
static struct http_server nobody = { .done_lock = PTHREAD_MUTEX_INITIALIZER, .event_fd = -1 };

static void note(const struct http_request *req, struct http_response *res, void *ctx)
{
	(void)res;
	(void)ctx;
	pthread_mutex_lock(&order_lock);
	order[atomic_load(&begun)] = req->path[0];
	atomic_fetch_add(&begun, 1);
	pthread_mutex_unlock(&order_lock);
	pthread_mutex_lock(&gate);
	pthread_mutex_unlock(&gate);
}

static char sizes[64]; /* of what was answered together, a digit each */

static void note_all(const struct http_request *const *reqs, struct http_response *const *res,
                     size_t n, void *ctx)
{
	(void)res;
	pthread_mutex_lock(&order_lock);
	sizes[strlen(sizes)] = "0123456789abcdefg"[n];
	pthread_mutex_unlock(&order_lock);
	for (size_t i = 0; i < n; i++)
		note(reqs[i], res[i], ctx);
}

static const struct http_route noted = { "GET", "/", note, 0 };
static const struct http_route together = { "GET", "/t", note, 0, note_all };

static struct http_exchange exchanges[32];
static size_t used;

static enum worker_answer submit_to(struct worker_pool *p, const struct uuid *party,
                                    const struct http_route *route)
{
	struct http_exchange *ex = &exchanges[used++];

	*ex = (struct http_exchange){ .server = &nobody, .route = route };
	ex->req.path = party == A ? "A" : "B";
	return worker_submit(p, party, ex);
}

static enum worker_answer submit(struct worker_pool *p, const struct uuid *party)
{
	return submit_to(p, party, &noted);
}

static struct worker_pool *start(unsigned int threads, unsigned int max_queued, bool shares)
{
	const struct worker_conf conf = { threads, max_queued, shares };
	struct err e = ERR_INIT;

	nobody.done = NULL;
	nobody.done_tail = &nobody.done;
	memset(order, 0, sizeof(order));
	memset(sizes, 0, sizeof(sizes));
	begun = 0;
	used = 0;
	assert_int_equal(worker_start(&conf, &pool, &e), 0);
	return pool;
}

static void stop(void)
{
	size_t back = 0;

	worker_stop(pool);
	worker_free(&pool);
	for (const struct http_exchange *ex = nobody.done; ex; ex = ex->next)
		back++;
	assert_int_equal(back, begun);
}

static void test_shares(void **state)
{
	(void)state;
	assert_int_equal(worker_share(1), 1);
	assert_int_equal(worker_share(2), 1);
	assert_int_equal(worker_share(3), 2);
	assert_int_equal(worker_share(8), 6);
	assert_int_equal(worker_share(512), 384);
}

/* Four threads: three for one party, however much it wants. */
static void test_threads(void **state)
{
	struct worker_pool *p = start(4, 16, true);

	(void)state;
	hold_gate();
	for (int i = 0; i < 8; i++)
		assert_int_equal(submit(p, A), WORKER_TAKEN);
	assert_int_equal(submit(p, B), WORKER_TAKEN);
	wait_for(&begun, 4);
	assert_int_equal(submit(p, B), WORKER_TAKEN);
	nap(50);
	assert_int_equal(begun, 4);
	assert_int_equal(strspn(order, "AB"), 4);
	assert_non_null(strchr(order, 'B'));
	open_gate();
	wait_for(&begun, 10);
	stop();
}

/* One thread, which is at work on a request of A until the gate is unlocked. */
static struct worker_pool *start_busy(unsigned int max_queued)
{
	struct worker_pool *p = start(1, max_queued, true);

	hold_gate();
	assert_int_equal(submit(p, A), WORKER_TAKEN);
	wait_for(&begun, 1);
	return p;
}

/* One thread: who waits behind many of another comes after one of them at most. */
static void test_turns(void **state)
{
	struct worker_pool *p = start_busy(16);

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(submit(p, A), WORKER_TAKEN);
	for (int i = 0; i < 2; i++)
		assert_int_equal(submit(p, B), WORKER_TAKEN);
	open_gate();
	wait_for(&begun, 7);
	stop();
	assert_string_equal(order, "ABABAAA");
}

static void test_queue(void **state)
{
	struct worker_pool *p = start_busy(4);

	(void)state;
	for (int i = 0; i < 3; i++)
		assert_int_equal(submit(p, A), WORKER_TAKEN);
	assert_int_equal(submit(p, A), WORKER_PARTY_FULL);
	assert_int_equal(submit(p, B), WORKER_TAKEN);
	assert_int_equal(submit(p, B), WORKER_FULL);
	open_gate();
	wait_for(&begun, 5);
	stop();
}

/* Alone, everything is one's own. */
static void test_without_shares(void **state)
{
	struct worker_pool *p = start(2, 2, false);

	(void)state;
	hold_gate();
	assert_int_equal(submit(p, A), WORKER_TAKEN);
	assert_int_equal(submit(p, A), WORKER_TAKEN);
	wait_for(&begun, 2);
	assert_int_equal(submit(p, A), WORKER_TAKEN);
	assert_int_equal(submit(p, A), WORKER_TAKEN);
	assert_int_equal(submit(p, A), WORKER_FULL);
	open_gate();
	wait_for(&begun, 4);
	stop();
}

/* Two of a party run, each alone; what came meanwhile comes together, up to the bound. */
static void test_together(void **state)
{
	struct worker_pool *p = start(8, 32, true);

	(void)state;
	hold_gate();
	for (int i = 0; i < 2; i++) {
		assert_int_equal(submit_to(p, A, &together), WORKER_TAKEN);
		wait_for(&begun, i + 1);
	}
	for (int i = 0; i < HTTP_BATCH_MAX + 3; i++)
		assert_int_equal(submit_to(p, A, &together), WORKER_TAKEN);
	nap(50);
	assert_int_equal(begun, 2);
	assert_int_equal(submit_to(p, B, &together), WORKER_TAKEN);
	wait_for(&begun, 3);
	open_gate();
	wait_for(&begun, HTTP_BATCH_MAX + 6);
	stop();
	/* Alone, one goes to the handler of one. */
	assert_int_equal(strlen(sizes), 2);
	assert_non_null(strchr(sizes, 'g'));
	assert_non_null(strchr(sizes, '3'));
}

/* Another route in between is neither part of it nor overtaken. */
static void test_together_in_order(void **state)
{
	struct worker_pool *p = start_busy(16);

	(void)state;
	for (int i = 0; i < 6; i++)
		assert_int_equal(submit_to(p, A, i == 2 ? &noted : &together), WORKER_TAKEN);
	open_gate();
	wait_for(&begun, 7);
	stop();
	assert_string_equal(sizes, "23");
}

/* Whom nobody knows may be several tenants: what one asks is not answered with another's. */
static void test_never_together_unknown(void **state)
{
	struct worker_pool *p = start_busy(16);

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(submit_to(p, NULL, &together), WORKER_TAKEN);
	open_gate();
	wait_for(&begun, 5);
	stop();
	assert_string_equal(sizes, "");
}

/* -- the server ---------------------------------------------------------------------------- */

static void handle_slow(const struct http_request *req, struct http_response *res, void *ctx)
{
	(void)req;
	(void)ctx;
	atomic_fetch_add(&inside, 1);
	pthread_mutex_lock(&gate);
	pthread_mutex_unlock(&gate);
	buf_adds(&res->body, "{}");
}

static void handle_quick(const struct http_request *req, struct http_response *res, void *ctx)
{
	(void)req;
	(void)ctx;
	buf_adds(&res->body, "{}");
}

static const struct http_route routes[] = {
	{ "GET", "/v1/slow", handle_slow, 0 },
	{ "GET", "/v1/quick", handle_quick, 0 },
	{ "GET", "/open", handle_quick, HTTP_OPEN },
	{ 0 },
};

static const void *authenticate(void *ctx, const char *token, size_t len)
{
	if (len == strlen(OTHER) && memcmp(token, OTHER, len) == 0)
		return "other";
	return test_authenticate(ctx, token, len);
}

static const struct uuid *party(void *ctx, const void *principal)
{
	(void)ctx;
	return *(const char *)principal == 'o' ? B : A;
}

/* While one tenant has all that it can have, another one does not notice. */
static void test_a_greedy_tenant(void **state)
{
	struct http_conf conf = test_conf(routes);
	struct reply r = { 0 };
	int fds[10];

	(void)state;
	conf.workers = 4;
	conf.max_queued = 8;
	conf.authenticate = authenticate;
	conf.party = party;
	server = test_server(&conf);
	hold_gate();
	for (size_t i = 0; i < 9; i++) { /* three run, six wait */
		fds[i] = dial(server);
		say(fds[i], SLOW);
		if (i == 2)
			wait_for(&inside, 3);
	}
	fds[9] = dial(server);
	for (int i = 0; i < 50; i++)
		expect(server, QUICK, 200, "{}");
	expect(server, "GET /open HTTP/1.1\r\n" HOST "\r\n", 200, "{}");
	say(fds[9], SLOW);
	next_reply(fds[9], &r, false);
	assert_int_equal(r.status, 503);
	assert_true(says(&r, "\"code\":\"busy\"") && says(&r, "of this tenant"));
	assert_int_equal(inside, 3);
	open_gate();
	close(fds[9]);
	for (size_t i = 0; i < 9; i++) {
		reply_free(&r);
		next_reply(fds[i], &r, false);
		assert_int_equal(r.status, 200);
		close(fds[i]);
	}
	reply_free(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_shares, tear_down),
		cmocka_unit_test_teardown(test_threads, tear_down),
		cmocka_unit_test_teardown(test_turns, tear_down),
		cmocka_unit_test_teardown(test_queue, tear_down),
		cmocka_unit_test_teardown(test_together, tear_down),
		cmocka_unit_test_teardown(test_together_in_order, tear_down),
		cmocka_unit_test_teardown(test_without_shares, tear_down),
		cmocka_unit_test_teardown(test_a_greedy_tenant, tear_down),
		cmocka_unit_test_teardown(test_never_together_unknown, tear_down),
	};

	if (uuid_hash(A) != uuid_hash(B))
		return 1;
	return RUN_TESTS(tests);
}
