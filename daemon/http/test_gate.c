/* Origins, Host in local mode, preflights, and streams whose principal is denied. */
#include "daemon/http/test_client.h"

#define GOOD  "Origin: https://app.example\r\n"
#define OTHER "Origin: http://localhost:3000\r\n"
#define EVIL  "Origin: https://app.example.evil.example\r\n"

static atomic_int admitted, released, handled, closed;
static atomic_bool revoked;

static const void *admit(void *ctx, const char *token, size_t len)
{
	const void *principal = test_authenticate(ctx, token, len);

	if (principal)
		atomic_fetch_add(&admitted, 1);
	return principal;
}

static const void *admit_anyone(void *ctx, const char *token, size_t len)
{
	(void)ctx;
	(void)len;
	atomic_fetch_add(&admitted, 1);
	return token ? "somebody" : "anyone";
}

static void release(void *ctx, const void *principal)
{
	(void)ctx;
	assert_non_null(principal);
	atomic_fetch_add(&released, 1);
}

static bool still(void *ctx, const void *principal)
{
	(void)ctx;
	(void)principal;
	return !atomic_load(&revoked);
}

static void handle(const struct http_request *req, struct http_response *res, void *ctx)
{
	(void)ctx;
	atomic_fetch_add(&handled, 1);
	buf_addf(&res->body, "\"%s\"", req->principal ? (const char *)req->principal : "nobody");
}

static int nothing(void *ctx, const char **data, size_t *len)
{
	(void)ctx;
	*data = NULL;
	*len = 0;
	return 0;
}

static void count_close(void *ctx)
{
	(void)ctx;
	atomic_fetch_add(&closed, 1);
}

static void handle_stream(const struct http_request *req, struct http_response *res, void *ctx)
{
	(void)req;
	(void)ctx;
	res->stream = (struct stream_source){ .next = nothing, .close = count_close };
}

static const struct http_route routes[] = {
	{ "GET", "/healthz", handle, HTTP_OPEN | HTTP_INLINE },
	{ "GET", "/v1/things", handle, 0 },
	{ "POST", "/v1/things", handle, 0 },
	{ "GET", "/v1/events", handle_stream, HTTP_STREAM },
	{ 0 },
};

static const char *const origins[] = { "http://localhost:3000", "https://app.example" };

static struct http_server *server;

static void start(size_t origin_count, bool local,
                  const void *(*authenticate)(void *, const char *, size_t))
{
	struct http_conf conf = test_conf(routes);

	atomic_store(&admitted, 0);
	atomic_store(&released, 0);
	atomic_store(&handled, 0);
	atomic_store(&closed, 0);
	atomic_store(&revoked, false);
	conf.origins = origins;
	conf.origin_count = origin_count;
	conf.local_hosts = local;
	conf.authenticate = authenticate;
	conf.release = release;
	conf.still = still;
	server = test_server(&conf);
}

static int stop(void **state)
{
	(void)state;
	http_stop(&server);
	return atomic_load(&admitted) == atomic_load(&released) ? 0 : -1;
}

/* -- origins ------------------------------------------------------------------------------ */

static void refuse(const char *request, int status, const char *code)
{
	struct reply r = ask(server, request);

	if (r.status != status || !says(&r, code) || says(&r, "Access-Control"))
		fail_msg("%s -> %s (wanted %d %s)", request, r.text, status, code);
	reply_free(&r);
}

static void unlisted_origins_are_refused_first(void **state)
{
	static const char *const requests[] = {
		"GET /healthz HTTP/1.1\r\n" HOST EVIL "\r\n",
		"GET /v1/things HTTP/1.1\r\n" AUTH EVIL "\r\n",
		"GET /v1/things HTTP/1.1\r\n" HOST EVIL "\r\n",
		"GET /nowhere HTTP/1.1\r\n" AUTH EVIL "\r\n",
		"GET /v1//things HTTP/1.1\r\n" AUTH EVIL "\r\n",
		"PUT /v1/things HTTP/1.1\r\n" AUTH EVIL "\r\n",
		"OPTIONS /v1/things HTTP/1.1\r\n" HOST EVIL "\r\n",
		"POST /v1/things HTTP/1.1\r\n" AUTH EVIL "Content-Length: 99999999\r\n\r\n",
		"GET /v1/events HTTP/1.1\r\n" AUTH EVIL "\r\n",
		"GET /v1/things HTTP/1.1\r\n" AUTH "Origin: null\r\n\r\n",
		"GET /v1/things HTTP/1.1\r\n" AUTH "Origin:\r\n\r\n",
		"GET /v1/things HTTP/1.1\r\n" AUTH "Origin: https://APP.example\r\n\r\n",
		"GET /v1/things HTTP/1.1\r\n" AUTH "Origin: https://app.example:443\r\n\r\n",
		"GET /v1/things HTTP/1.1\r\n" AUTH "Origin: https://app.exampl\r\n\r\n",
		"GET /v1/things HTTP/1.1\r\n" AUTH "origin: http://app.example\r\n\r\n",
		"GET /v1/things HTTP/1.1\r\n" AUTH "Origin: *\r\n\r\n",
	};

	(void)state;
	for (size_t listed = 0; listed < 3; listed += 2) {
		start(listed, false, admit);
		for (size_t i = 0; i < ARRAY_LEN(requests); i++)
			refuse(requests[i], 403, "\"origin_not_allowed\"");
		assert_int_equal(atomic_load(&handled), 0);
		assert_int_equal(atomic_load(&admitted), 0);
		if (!listed) /* and then none is */
			refuse("GET /healthz HTTP/1.1\r\n" HOST GOOD "\r\n", 403,
			       "\"origin_not_allowed\"");
		http_stop(&server);
	}
}

static void two_origins_are_malformed(void **state)
{
	(void)state;
	start(2, false, admit);
	refuse("GET /healthz HTTP/1.1\r\n" HOST GOOD GOOD "\r\n", 400, "\"bad_request\"");
}

static void expect_readable(const char *request, int status, const char *origin)
{
	struct reply r = ask(server, request);
	char line[100];

	(void)snprintf(line, sizeof(line), "\r\nAccess-Control-Allow-Origin: %s\r\n", origin);
	if (r.status != status || !says(&r, line))
		fail_msg("%s -> %s (wanted %d)", request, r.text, status);
	assert_int_equal(count_of(r.text, "Access-Control-Allow-Origin"), 1);
	assert_true(says(&r, "\r\nVary: Origin\r\n"));
	assert_true(says(&r, "\r\nAccess-Control-Allow-Methods: GET, POST, PATCH, DELETE, "
	                     "OPTIONS\r\n"));
	assert_true(says(&r, "\r\nAccess-Control-Allow-Headers: Authorization, Content-Type, "
	                     "Last-Event-ID\r\n"));
	assert_true(says(&r, "\r\nAccess-Control-Max-Age: 600\r\n"));
	assert_false(says(&r, "Access-Control-Allow-Credentials"));
	reply_free(&r);
}

static void listed_origins_may_read_every_answer(void **state)
{
	(void)state;
	start(2, false, admit);
	expect_readable("GET /healthz HTTP/1.1\r\n" HOST GOOD "\r\n", 200, "https://app.example");
	expect_readable("GET /v1/things HTTP/1.1\r\n" AUTH OTHER "\r\n", 200,
	                "http://localhost:3000");
	expect_readable("GET /v1/things HTTP/1.1\r\n" HOST GOOD "\r\n", 401, "https://app.example");
	expect_readable("GET /nowhere HTTP/1.1\r\n" AUTH GOOD "\r\n", 404, "https://app.example");
	expect_readable("PUT /v1/things HTTP/1.1\r\n" AUTH GOOD "\r\n", 405, "https://app.example");
	expect_readable("GET /v1//things HTTP/1.1\r\n" AUTH GOOD "\r\n", 400,
	                "https://app.example");
	expect_readable("GET / HTTP/1.1\r\n" AUTH GOOD
	                "Content-Length: 1\r\nContent-Length: 1\r\n\r\n",
	                400, "https://app.example");
	expect_readable("POST /v1/things HTTP/1.1\r\n" AUTH GOOD "Content-Length: 99999999\r\n\r\n",
	                413, "https://app.example");
}

/* Answered past libmicrohttpd, so its headers take another way. */
static void listed_origins_may_read_an_early_end(void **state)
{
	char *request = calloc(2, MAX_BODY);
	int n;

	(void)state;
	start(2, false, admit);
	n = snprintf(request, 1000,
	             "POST /v1/things HTTP/1.1\r\n" AUTH GOOD "Transfer-Encoding: chunked\r\n\r\n"
	             "%x\r\n",
	             MAX_BODY + 1);
	memset(request + n, 'x', MAX_BODY + 1);
	expect_readable(request, 413, "https://app.example");
	free(request);
}

static void without_origin_nothing_is_said_of_it(void **state)
{
	struct reply r;

	(void)state;
	start(2, false, admit);
	r = ask(server, "GET /healthz HTTP/1.1\r\n" HOST "\r\n");
	assert_int_equal(r.status, 200);
	assert_false(says(&r, "Access-Control"));
	assert_true(says(&r, "\r\nVary: Origin\r\n")); /* with one it would be another answer */
	reply_free(&r);
	(void)stop(NULL);
	start(0, false, admit);
	r = ask(server, "GET /healthz HTTP/1.1\r\n" HOST "\r\n");
	assert_false(says(&r, "Vary"));
	reply_free(&r);
}

static void preflights_need_no_token(void **state)
{
	static const char *const paths[] = { "/v1/things", "/v1/events", "/healthz", "/nowhere" };
	char request[300];

	(void)state;
	start(2, false, admit);
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		(void)snprintf(request, sizeof(request),
		               "OPTIONS %s HTTP/1.1\r\n" HOST GOOD
		               "Access-Control-Request-Method: POST\r\n\r\n",
		               paths[i]);
		expect_readable(request, 204, "https://app.example");
	}
	assert_int_equal(atomic_load(&handled), 0);
	assert_int_equal(atomic_load(&admitted), 0);
	/* The method alone is no preflight. */
	expect(server, "OPTIONS /v1/things HTTP/1.1\r\n" AUTH "\r\n", 405, "method_not_allowed");
	expect(server, "OPTIONS /v1/things HTTP/1.1\r\n" HOST "\r\n", 401, "unauthorized");
}

static void preflights_keep_the_connection(void **state)
{
	struct reply r = { 0 };
	int fd;

	(void)state;
	start(2, false, admit);
	fd = dial(server);
	say(fd, "OPTIONS /v1/things HTTP/1.1\r\n" HOST GOOD "\r\n");
	next_reply(fd, &r, true);
	assert_int_equal(r.status, 204);
	say(fd, "GET /v1/things HTTP/1.1\r\n" AUTH GOOD "\r\n");
	next_reply(fd, &r, false);
	assert_int_equal(r.status, 200);
	reply_free(&r);
	close(fd);
}

/* -- Host ------------------------------------------------------------------------------------ */

static void expect_host(const char *host, bool port, int status, const char *part)
{
	char request[300];

	(void)snprintf(request, sizeof(request), "GET /healthz HTTP/1.1\r\nHost: %s", host);
	if (port)
		(void)snprintf(request + strlen(request), 20, ":%u", http_port(server));
	(void)snprintf(request + strlen(request), 10, "\r\n\r\n");
	expect(server, request, status, part);
}

static void local_mode_knows_its_own_names_only(void **state)
{
	static const char *const good[] = { "127.0.0.1", "localhost", "LocalHost", "[::1]" };
	static const char *const bad[] = {
		"127.0.0.2", "0.0.0.0", "::1",        "[::]",     "localhost.", "evil.example",
		"test",      "127.1",   "localhost:", "[0:0::1]", "2130706433",
	};

	(void)state;
	start(2, true, admit_anyone);
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		expect_host(good[i], true, 200, "nobody");
		expect_host(good[i], false, 403, "\"invalid_host\"");
	}
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		expect_host(bad[i], true, 403, "\"invalid_host\"");
	expect_host("127.0.0.1:1", false, 403, "\"invalid_host\"");
	expect(server, "GET /healthz HTTP/1.0\r\n\r\n", 403, "\"invalid_host\"");
	/* Before route, token and preflight; after the origin. */
	expect(server, "GET /nowhere HTTP/1.1\r\n" HOST "\r\n", 403, "\"invalid_host\"");
	expect(server, "OPTIONS /v1/things HTTP/1.1\r\n" HOST GOOD "\r\n", 403, "\"invalid_host\"");
	expect(server, "GET /v1/things HTTP/1.1\r\n" HOST EVIL "\r\n", 403,
	       "\"origin_not_allowed\"");
}

static void whoever_has_no_token_is_asked_about(void **state)
{
	char request[300];

	(void)state;
	start(0, true, admit_anyone);
	(void)snprintf(request, sizeof(request),
	               "GET /v1/things HTTP/1.1\r\nHost: localhost:%u\r\n\r\n", http_port(server));
	expect(server, request, 200, "\"anyone\"");
	(void)snprintf(request, sizeof(request),
	               "GET /v1/things HTTP/1.1\r\nHost: localhost:%u\r\n"
	               "Authorization: Bearer " TOKEN "\r\n\r\n",
	               http_port(server));
	expect(server, request, 200, "\"somebody\"");
}

/* -- principals -------------------------------------------------------------------------------- */

static int open_stream(void)
{
	char text[2048] = "";
	size_t len = 0;
	int fd = dial(server);

	say(fd, "GET /v1/events HTTP/1.1\r\n" AUTH GOOD "\r\n");
	while (!strstr(text, ": ok\n\n")) {
		ssize_t n = hear(fd, text + len, sizeof(text) - 1 - len, PATIENCE);

		assert_true(n > 0);
		len += (size_t)n;
		text[len] = '\0';
	}
	assert_non_null(strstr(text, "\r\nAccess-Control-Allow-Origin: https://app.example\r\n"));
	assert_non_null(strstr(text, "\r\nX-Content-Type-Options: nosniff\r\n"));
	return fd;
}

static void denied_streams_end(void **state)
{
	char c;
	int fds[8];

	(void)state;
	start(2, false, admit);
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		fds[i] = open_stream();
	http_recheck(server); /* nobody is denied yet */
	assert_int_equal(hear(fds[0], &c, 1, 200), -1);
	assert_int_equal(atomic_load(&closed), 0);
	assert_int_equal(atomic_load(&released), 0);
	atomic_store(&revoked, true);
	http_recheck(server);
	for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
		assert_int_equal(hear(fds[i], &c, 1, PATIENCE), 0);
		close(fds[i]);
	}
	wait_for(&closed, ARRAY_LEN(fds));
	wait_for(&released, ARRAY_LEN(fds));
}

/* Let in before, begun after: nobody looks at the list any more. */
static void denied_streams_do_not_begin(void **state)
{
	char text[2048];
	ssize_t n;
	int fd;

	(void)state;
	start(2, false, admit);
	atomic_store(&revoked, true);
	fd = dial(server);
	say(fd, "GET /v1/events HTTP/1.1\r\n" AUTH "\r\n");
	while ((n = hear(fd, text, sizeof(text), PATIENCE)) > 0)
		;
	assert_int_equal(n, 0);
	close(fd);
	wait_for(&closed, 1);
	wait_for(&released, 1);
}

static void principals_are_given_back(void **state)
{
	(void)state;
	start(2, false, admit);
	expect(server, "GET /v1/things HTTP/1.1\r\n" AUTH "\r\n", 200, "tenant");
	expect(server, "GET /nowhere HTTP/1.1\r\n" AUTH "\r\n", 404, "route_not_found");
	wait_for(&admitted, 2);
	wait_for(&released, 2);
	close(open_stream());
	wait_for(&released, 3);
	(void)open_stream(); /* still there when the server stops: stop() counts */
}

#define TEST(fn) cmocka_unit_test_teardown(fn, stop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(unlisted_origins_are_refused_first),
		TEST(two_origins_are_malformed),
		TEST(listed_origins_may_read_every_answer),
		TEST(listed_origins_may_read_an_early_end),
		TEST(without_origin_nothing_is_said_of_it),
		TEST(preflights_need_no_token),
		TEST(preflights_keep_the_connection),
		TEST(local_mode_knows_its_own_names_only),
		TEST(whoever_has_no_token_is_asked_about),
		TEST(denied_streams_end),
		TEST(denied_streams_do_not_begin),
		TEST(principals_are_given_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
