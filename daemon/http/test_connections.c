/* How long connections live, how many there may be, and how they end. */
#include "common/id.h"
#include "daemon/http/test_routes.h"

#include <fcntl.h>

/* -- connections ------------------------------------------------------------------------ */
static void keeps_connections(void **state)
{
	static const char *const requests[] = {
		"GET /healthz HTTP/1.1\r\n" HOST "\r\n",
		"GET /v1/echo HTTP/1.1\r\n" AUTH "\r\n",
		"GET /v1/echo HTTP/1.1\r\n" HOST "\r\n",
		"GET /v1/nothing HTTP/1.1\r\n" AUTH "\r\n",
		"PUT /v1/echo HTTP/1.1\r\n" AUTH "\r\n",
		"HEAD /v1/echo HTTP/1.1\r\n" AUTH "\r\n",
		"HEAD /healthz HTTP/1.1\r\n" AUTH "\r\n",
		"DELETE /v1/items/x HTTP/1.1\r\n" AUTH "\r\n",
		POST "Content-Length: 1\r\n\r\n1",
	};
	static const int status[] = { 200, 200, 401, 404, 405, 200, 200, 204, 200 };
	struct reply r = { 0 };
	int fd = dial(server);

	(void)state;
	for (size_t i = 0; i < 3 * ARRAY_LEN(requests); i++) {
		size_t n = i % ARRAY_LEN(requests);

		say(fd, requests[n]);
		next_reply(fd, &r, requests[n][0] == 'H');
		assert_int_equal(r.status, status[n]);
		assert_false(says(&r, "Connection: close"));
		assert_true(says(&r, "X-Request-ID: "));
		if (status[n] == 204)
			assert_false(says(&r, "\nContent-Type") || says(&r, "\nContent-Length"));
		if (requests[n][0] == 'H')
			assert_true(says(&r, "Content-Length: ") && r.len == r.head_len);
	}
	close(fd);
	reply_free(&r);
}

static void answers_pipelines_in_order(void **state)
{
	static const char *const order[] = { "/healthz as", "items/1 ",    "404 Not",
		                             "items/2 ",    "/healthz as", "body=2:{}" };
	struct reply r = { 0 };
	int fd = dial(server);

	(void)state;
	say(fd, "GET /healthz HTTP/1.1\r\n" HOST "\r\nGET /v1/items/1 HTTP/1.1\r\n" AUTH
	        "\r\nGET /v1/no HTTP/1.1\r\n" AUTH "\r\nGET /v1/items/2 HTTP/1.1\r\n" AUTH
	        "\r\nGET /healthz HTTP/1.1\r\n" HOST "\r\n" POST "Content-Length: 2\r\n\r\n{}");
	for (size_t i = 0; i < ARRAY_LEN(order); i++) {
		next_reply(fd, &r, false);
		assert_true(says(&r, order[i]));
	}
	close(fd);
	reply_free(&r);
}

/* With others connected: a lone connection would be visited early by luck. */
static void answers_clients_that_half_close(void **state)
{
	static const char *const requests[] = {
		"GET /healthz HTTP/1.1\r\n" HOST "\r\n",
		"GET /v1/echo HTTP/1.1\r\n" AUTH "\r\n",
		"GET /v1/echo HTTP/1.1\r\n" AUTH "\r\nGET /v1/echo HTTP/1.1\r\n" AUTH "\r\n",
	};
	uint64_t best[ARRAY_LEN(requests)] = { PATIENCE, PATIENCE, PATIENCE };
	int others[5];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		others[i] = dial(server);
	for (size_t i = 0; i < 150; i++) {
		struct reply r = { 0 };
		int fd = dial(server);
		uint64_t begin = clock_mono_ms();

		say(fd, requests[i % 3]);
		shutdown(fd, SHUT_WR);
		last_reply(fd, &r); /* none waits for a time limit */
		assert_int_equal(count_of(r.text, "HTTP/1.1 200"), i % 3 == 2 ? 2 : 1);
		if (clock_mono_ms() - begin < best[i % 3])
			best[i % 3] = clock_mono_ms() - begin;
		close(fd);
		reply_free(&r);
	}
	for (size_t i = 0; i < ARRAY_LEN(best); i++)
		assert_in_range(best[i], 0, 1000);
	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		close(others[i]);
}

static void survives_clients_that_vanish(void **state)
{
	struct linger reset = { .l_onoff = 1 };

	(void)state;
	hold_gate();
	for (int i = 0; i < 40; i++) {
		int fd = dial(server);

		say(fd, i % 2 ? "GET /v1/slow HTTP/1.1\r\n" AUTH "\r\n"
		              : "POST /v1/echo HTTP/1.1\r\n" AUTH "Content-Length: 9\r\n\r\n1234");
		if (i % 4 < 2)
			setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
		close(fd);
	}
	wait_for(&inside, 2);
	open_gate();
	expect(server, "GET /v1/echo HTTP/1.1\r\n" AUTH "\r\n", 200, "as=tenant");
}

/* -- bounds of time and number ------------------------------------------------------------ */
#define REQUEST_MS 4000 /* longer than this program may stand still */

static void cuts_slow_requests(void **state)
{
	static const struct {
		const char *begin, *drip;
		int status;
	} cases[] = {
		{ "GET /heal", "X", 408 },
		{ "GET /healthz HTTP/1.1\r\n" HOST, "X-A: b\r\n", 408 },
		{ POST "Content-Length: 60000\r\n\r\n", "1", 408 },
		{ POST "Transfer-Encoding: chunked\r\n\r\n", "1\r\n1\r\n", 408 },
	};
	struct http_conf conf = test_conf(routes);
	int fds[ARRAY_LEN(cases)];
	uint64_t begin;

	(void)state;
	conf.request_ms = REQUEST_MS;
	server = test_server(&conf);
	begin = clock_mono_ms();
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		fds[i] = dial(server);
		say(fds[i], cases[i].begin);
	}
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct reply r = { .text = calloc(1, REPLY_MAX) };

		/* Those that were cut meanwhile keep what they were told. */
		while (hear(fds[i], r.text, REPLY_MAX - 1, 20) < 0) {
			for (size_t k = i; k < ARRAY_LEN(cases); k++)
				say(fds[k], cases[k].drip);
			assert_true(clock_mono_ms() - begin < REQUEST_MS + PATIENCE);
		}
		assert_true(clock_mono_ms() - begin >= REQUEST_MS);
		assert_int_equal(has_head(&r) ? r.status : 0, cases[i].status);
		close(fds[i]);
		reply_free(&r);
	}
}

/* Also on a connection that has proven itself with one good request. */
static void cuts_slow_second_requests(void **state)
{
	struct http_conf conf = test_conf(routes);
	struct reply r = { 0 };
	uint64_t begin;
	char c;
	int fd;

	(void)state;
	conf.request_ms = REQUEST_MS;
	conf.idle_ms = 3000;
	server = test_server(&conf);
	fd = dial(server);
	begin = clock_mono_ms();
	say(fd, "GET /healthz HTTP/1.1\r\n" HOST "\r\n");
	next_reply(fd, &r, false);
	while (hear(fd, &c, 1, 20) < 0) {
		say(fd, "G");
		assert_true(clock_mono_ms() - begin < REQUEST_MS + PATIENCE);
	}
	assert_true(clock_mono_ms() - begin >= REQUEST_MS + conf.idle_ms);
	close(fd);
	reply_free(&r);
}

static void closes_idle_connections(void **state)
{
	struct http_conf conf = test_conf(routes);
	struct reply r = { 0 };
	uint64_t begin;
	char c;
	int fd;

	(void)state;
	conf.idle_ms = 3000;
	server = test_server(&conf);
	fd = dial(server);
	begin = clock_mono_ms();
	say(fd, "GET /healthz HTTP/1.1\r\n" HOST "\r\n");
	next_reply(fd, &r, false);
	assert_int_equal(hear(fd, &c, 1, PATIENCE), 0);
	assert_true(clock_mono_ms() - begin >= 2500); /* libmicrohttpd may count in seconds */
	close(fd);
	reply_free(&r);
}

/* The first that is answered, of which there is only one. */
static size_t first_answered(const int *fds, size_t n)
{
	struct pollfd p[16];
	size_t at = 0;

	assert_true(n <= ARRAY_LEN(p));
	for (size_t i = 0; i < n; i++)
		p[i] = (struct pollfd){ .fd = fds[i], .events = POLLIN };
	assert_int_equal(poll(p, n, PATIENCE), 1);
	while (!p[at].revents)
		at++;
	return at;
}

/* Two run, three wait, and when one was refused, all of these are there. */
static void bounds_the_queue(void **state)
{
	struct http_conf conf = test_conf(routes);
	struct reply r = { 0 };
	size_t refused;
	int fds[6];

	(void)state;
	conf.workers = 2;
	conf.max_queued = 3;
	server = test_server(&conf);
	hold_gate();
	for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
		fds[i] = dial(server);
		say(fds[i], "GET /v1/slow HTTP/1.1\r\n" AUTH "\r\n");
		if (i == 1)
			wait_for(&inside, 2);
	}
	refused = first_answered(fds, ARRAY_LEN(fds));
	expect(server, "GET /v1/echo HTTP/1.1\r\n" AUTH "\r\n", 503, "\"code\":\"busy\"");
	expect(server, "GET /v1/echo HTTP/1.1\r\n" AUTH "\r\n", 503, "Retry-After: 1\r\n");
	expect(server, "GET /healthz HTTP/1.1\r\n" HOST "\r\n", 200, "/healthz");
	open_gate();
	for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
		next_reply(fds[i], &r, false);
		assert_int_equal(r.status, i == refused ? 503 : 200);
		reply_free(&r);
		close(fds[i]);
	}
}

static void bounds_connections(void **state)
{
	struct http_conf conf = test_conf(routes);
	struct reply r = { 0 };
	int a, b, c;
	char byte;

	(void)state;
	conf.max_connections = 2;
	server = test_server(&conf);
	a = dial(server);
	b = dial(server);
	c = dial(server);
	say(c, "GET /healthz HTTP/1.1\r\n" HOST "\r\n");
	assert_int_equal(hear(c, &byte, 1, 200), -1);
	close(a);
	next_reply(c, &r, false);
	assert_int_equal(r.status, 200);
	close(b);
	close(c);
	reply_free(&r);
}

#define CROWD   64 /* connections that there may be; two places are spare */
#define HEALTHZ "GET /healthz HTTP/1.1\r\n" HOST "\r\n"
#define ECHO    "GET /v1/echo HTTP/1.1\r\n" AUTH "\r\n"
#define CALLERS 200
#define SHARE   42 /* three quarters of seven eighths */

static struct http_server *crowded(void)
{
	struct http_conf conf = test_conf(routes);

	conf.max_connections = CROWD;
	server = test_server(&conf);
	return server;
}

/* A connection on which something was answered. */
static int acquaint(const struct http_server *s, const char *request)
{
	struct reply r = { 0 };
	int fd = dial(s);

	say(fd, request);
	next_reply(fd, &r, false);
	reply_free(&r);
	return fd;
}

/* So many connect, say that, and stay; NULL = they say nothing. */
static void call_in(const struct http_server *s, int fds[CALLERS], const char *what)
{
	for (int i = 0; i < CALLERS; i++) {
		fds[i] = dial(s);
		if (what)
			say(fds[i], what);
	}
}

static void hang_up(const int *fds, int n)
{
	for (int i = 0; i < n; i++)
		close(fds[i]);
}

/* Before the time of any of the others is over. */
static void expect_soon(const struct http_server *s, const char *request)
{
	uint64_t begin = clock_mono_ms();

	expect(s, request, 200, "HTTP/1.1 200");
	assert_in_range(clock_mono_ms() - begin, 0, PATIENCE);
}

static void strangers_leave_room(void **state)
{
	static const char *const words[] = {
		NULL,
		"GET /healthz HTTP/1.1\r\nHost:",
		HEALTHZ,
		"GET /healthz HTTP/1.1\r\n" HOST "Content-Length: 9\r\n\r\n1",
		"GET /v1/echo HTTP/1.1\r\n" HOST "\r\n",
	};

	(void)state;
	(void)crowded();
	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		int fds[CALLERS];

		call_in(server, fds, words[i]);
		expect_soon(server, HEALTHZ);
		expect_soon(server, ECHO);
		hang_up(fds, CALLERS);
	}
}

/* One that is idle, one whose answer is being made, and a stream. */
static void who_is_known_stays(void **state)
{
	int idle = acquaint(crowded(), ECHO);
	int stream = acquaint(server, "GET /v1/events HTTP/1.1\r\n" AUTH "\r\n");
	int slow = dial(server), fds[CALLERS];
	struct reply r = { 0 };
	char c;

	(void)state;
	hold_gate();
	say(slow, "GET /v1/slow HTTP/1.1\r\n" AUTH "\r\n");
	wait_for(&inside, 1);
	call_in(server, fds, NULL);
	expect_soon(server, HEALTHZ);
	assert_int_equal(hear(fds[0], &c, 1, PATIENCE), 0);
	open_gate();
	next_reply(slow, &r, false);
	assert_int_equal(r.status, 200);
	say(idle, ECHO);
	next_reply(idle, &r, false);
	assert_int_equal(r.status, 200);
	while (hear(stream, &c, 1, 100) > 0) /* the comment at its beginning */
		;
	assert_int_equal(hear(stream, &c, 1, 100), -1);
	hang_up(fds, CALLERS);
	hang_up((const int[]){ idle, slow, stream }, 3);
	reply_free(&r);
}

/* Or whoever once had a token, which was revoked since, would keep the places of who has it now. */
static void a_token_counts_for_one_request(void **state)
{
	int once = acquaint(crowded(), ECHO), still = acquaint(server, ECHO), fds[CALLERS];
	struct reply r = { 0 };
	char c;

	(void)state;
	say(once, HEALTHZ);
	next_reply(once, &r, false);
	assert_int_equal(r.status, 200);
	call_in(server, fds, NULL);
	assert_int_equal(hear(once, &c, 1, PATIENCE), 0);
	say(still, ECHO);
	next_reply(still, &r, false);
	assert_int_equal(r.status, 200);
	hang_up(fds, CALLERS);
	hang_up((const int[]){ once, still }, 2);
	reply_free(&r);
}

/* Whoever sent a part hears why; who sent nothing, or had its answer, is not spoken to. */
static void who_has_to_go_is_told(void **state)
{
	int silent = dial(crowded()), had = acquaint(server, HEALTHZ), part = dial(server);
	int fds[CALLERS];
	struct reply r = { 0 };
	char c;

	(void)state;
	say(part, "GET /healthz HTTP/1.1\r\n");
	call_in(server, fds, NULL);
	last_reply(part, &r);
	assert_int_equal(r.status, 503);
	assert_true(says(&r, "\"code\":\"busy\"") && says(&r, "Retry-After: 1\r\n"));
	assert_int_equal(hear(silent, &c, 1, PATIENCE), 0);
	assert_int_equal(hear(had, &c, 1, PATIENCE), 0);
	hang_up(fds, CALLERS);
	hang_up((const int[]){ part, had, silent }, 3);
	reply_free(&r);
}

static const struct uuid *one_party(void *ctx, const void *principal)
{
	static const struct uuid id = { .text = "0191d2b4-0000-7000-8000-000000000001" };

	(void)ctx, (void)principal;
	return &id;
}

static void a_tenant_leaves_room(void **state)
{
	struct http_conf conf = test_conf(routes);
	int kept = 0, fds[CALLERS];
	char c;

	(void)state;
	conf.max_connections = CROWD;
	conf.party = one_party;
	server = test_server(&conf);
	for (int i = 0; i < CALLERS; i++)
		fds[i] = acquaint(server, ECHO);
	expect_soon(server, HEALTHZ);
	for (int i = 0; i < SHARE; i++)
		kept += hear(fds[i], &c, 1, i ? 0 : 100) < 0;
	assert_int_equal(kept, SHARE);
	assert_int_equal(hear(fds[SHARE], &c, 1, PATIENCE), 0);
	hang_up(fds, CALLERS);
}

/* From now on no descriptor can be had: the limit is the lowest free one. */
static void leave_none(int known)
{
	struct rlimit tight;
	int lowest = dup(known);

	assert_true(lowest >= 0);
	close(lowest);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &tight), 0);
	tight.rlim_cur = (rlim_t)lowest;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
}

/* The sockets that stand for the clients are made before there are no descriptors left. */
static void says_later_without_descriptors(void **state)
{
	struct rlimit old;
	int known = dial(server), fds[3];
	struct reply r = { 0 };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	say(known, "GET /healthz HTTP/1.1\r\n" HOST "\r\n");
	next_reply(known, &r, false);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	leave_none(known);
	for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
		const struct sockaddr_in to = { .sin_family = AF_INET,
			                        .sin_port = htons(http_port(server)),
			                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

		assert_int_equal(connect(fds[i], (const struct sockaddr *)&to, sizeof(to)), 0);
		reply_free(&r);
		last_reply(fds[i], &r);
		assert_int_equal(r.status, 503);
		assert_true(says(&r, "\"code\":\"busy\"") && says(&r, "Retry-After: 1"));
		assert_true(says(&r, "X-Request-ID: "));
		close(fds[i]);
		/* Who is connected already is served, but for what needs a descriptor. */
		say(known, "GET /v1/echo HTTP/1.1\r\n" AUTH "\r\n");
		next_reply(known, &r, false);
		assert_int_equal(r.status, 200);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
		leave_none(known);
		say(known, "GET /v1/events HTTP/1.1\r\n" AUTH "\r\n");
		next_reply(known, &r, false);
		assert_int_equal(r.status, 503);
	}
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	expect(server, "GET /v1/echo HTTP/1.1\r\n" AUTH "\r\n", 200, "as=tenant");
	assert_int_equal(atomic_exchange(&sources_closed, 0), ARRAY_LEN(fds));
	close(known);
	reply_free(&r);
}

/* -- start and stop ------------------------------------------------------------------------ */
static void names_what_is_wrong_at_start(void **state)
{
	struct http_conf conf = test_conf(routes);
	struct http_server *s = NULL;
	struct err e = ERR_INIT;

	(void)state;
	conf.port = http_port(server);
	assert_int_equal(http_start(&conf, &s, &e), -1);
	assert_non_null(strstr(e.text, "listen on 127.0.0.1 port "));
	conf.port = 0;
	conf.host = "localhost";
	assert_int_equal(http_start(&conf, &s, &e), -1);
	assert_non_null(strstr(e.text, "localhost: not an IPv4 or IPv6 address"));
	conf.host = "127.0.0.1";
	conf.max_connections = 4000000;
	assert_int_equal(http_start(&conf, &s, &e), -1);
	assert_non_null(strstr(e.text, "ulimit -n"));
	conf.max_connections = 0;
	assert_int_equal(http_start(&conf, &s, &e), -1);
	assert_null(s);
}

static void drains(void **state)
{
	(void)state;
	expect(server, "POST /v1/work HTTP/1.1\r\n" AUTH "\r\n", 200, "as=tenant");
	http_drain(server);
	expect(server, "POST /v1/work HTTP/1.1\r\n" AUTH "\r\n", 503, "server_stopping");
	expect(server, "POST /v1/work HTTP/1.1\r\n" AUTH "\r\n", 503, "Retry-After: 1\r\n");
	expect(server, "POST /v1/work HTTP/1.1\r\n" HOST "\r\n", 401, "unauthorized");
	expect(server, "GET /v1/echo HTTP/1.1\r\n" AUTH "\r\n", 200, "as=tenant");
}

static atomic_int stopper_id;

static void *stop_server(void *arg)
{
	atomic_store(&stopper_id, gettid());
	http_stop(arg);
	return NULL;
}

/* Until it waits for handlers that run: then all knows that the server stops. */
static void wait_for_stopper(void)
{
	uint64_t deadline = clock_mono_ms() + PATIENCE;
	char path[64], stat[256] = "";

	while (!strstr(stat, ") S ")) {
		auto_close int fd = -1;

		assert_true(clock_mono_ms() < deadline);
		nap(1);
		(void)snprintf(path, sizeof(path), "/proc/self/task/%d/stat",
		               atomic_load(&stopper_id));
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd >= 0 && read(fd, stat, sizeof(stat) - 1) < 0)
			stat[0] = '\0';
	}
}

static void stops_with_everything_in_flight(void **state)
{
	struct http_conf conf = test_conf(routes);
	struct reply r = { 0 };
	int run[2], wait[4], part[3], stream;
	pthread_t stopper;
	char c;

	(void)state;
	conf.workers = 2;
	server = test_server(&conf);
	stream = dial(server);
	say(stream, "GET /v1/events HTTP/1.1\r\n" AUTH "\r\n");
	next_reply(stream, &r, false);
	for (size_t i = 0; i < ARRAY_LEN(part); i++) {
		part[i] = dial(server);
		say(part[i], i ? POST "Content-Length: 9\r\n\r\n12" : "GET /");
	}
	hold_gate();
	for (size_t i = 0; i < 6; i++) {
		int *fd = i < 2 ? &run[i] : &wait[i - 2];

		*fd = dial(server);
		say(*fd, "GET /v1/slow HTTP/1.1\r\n" AUTH "\r\n");
		if (i == 1)
			wait_for(&inside, 2);
	}
	/* Connections are taken in their order: what was said before the first is read. */
	for (int i = 0; i < 2; i++)
		expect(server, HEALTHZ, 200, "/healthz");
	atomic_store(&stopper_id, 0);
	assert_int_equal(pthread_create(&stopper, NULL, stop_server, &server), 0);
	wait_for_stopper();
	open_gate();
	pthread_join(stopper, NULL);
	assert_null(server);
	for (size_t i = 0; i < 6; i++) {
		int fd = i < 2 ? run[i] : wait[i - 2];

		reply_free(&r);
		last_reply(fd, &r);
		assert_int_equal(r.status, i < 2 ? 200 : 503);
		close(fd);
	}
	for (size_t i = 0; i < ARRAY_LEN(part); i++) {
		assert_int_equal(hear(part[i], &c, 1, PATIENCE), 0);
		close(part[i]);
	}
	while (hear(stream, &c, 1, PATIENCE) > 0)
		;
	close(stream);
	reply_free(&r);
	assert_int_equal(atomic_exchange(&sources_closed, 0), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SERVED(keeps_connections),
		SERVED(answers_pipelines_in_order),
		SERVED(answers_clients_that_half_close),
		SERVED(survives_clients_that_vanish),
		ALONE(cuts_slow_requests),
		ALONE(cuts_slow_second_requests),
		ALONE(closes_idle_connections),
		ALONE(bounds_the_queue),
		ALONE(bounds_connections),
		ALONE(strangers_leave_room),
		ALONE(who_is_known_stays),
		ALONE(a_token_counts_for_one_request),
		ALONE(who_has_to_go_is_told),
		ALONE(a_tenant_leaves_room),
		SERVED(says_later_without_descriptors),
		SERVED(names_what_is_wrong_at_start),
		SERVED(drains),
		ALONE(stops_with_everything_in_flight),
	};

	return RUN_TESTS(tests);
}
