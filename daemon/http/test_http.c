#include "daemon/http/test_client.h"

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER; /* held: /v1/slow does not end */
static atomic_int inside;                                /* handlers in /v1/slow */
static atomic_int sources_closed;

static void add_parameter(void *ctx, const char *name, const char *value)
{
	buf_addf(ctx, " %s=<%s>", name, value);
}

static void handle_echo(const struct http_request *req, struct http_response *res, void *ctx)
{
	(void)ctx;
	res->content_type = "text/plain";
	buf_addf(&res->body, "%s %s", req->method, req->path);
	for (size_t i = 0; i < HTTP_PARAMS_MAX && req->params[i]; i++)
		buf_addf(&res->body, " {%s}", req->params[i]);
	http_each_query(req, add_parameter, &res->body);
	if (http_header(req, "x-note"))
		buf_addf(&res->body, " note=%s", http_header(req, "X-Note"));
	buf_addf(&res->body, " as=%s", req->principal ? (const char *)req->principal : "nobody");
	buf_addf(&res->body, " body=%zu:", req->body_len);
	buf_add(&res->body, req->body, req->body_len);
}

static void handle_empty(const struct http_request *req, struct http_response *res, void *ctx)
{
	(void)req;
	(void)ctx;
	res->status = 204;
}

static void handle_slow(const struct http_request *req, struct http_response *res, void *ctx)
{
	atomic_fetch_add(&inside, 1);
	pthread_mutex_lock(&gate);
	pthread_mutex_unlock(&gate);
	handle_echo(req, res, ctx);
	atomic_fetch_sub(&inside, 1);
}

static void handle_wrong(const struct http_request *req, struct http_response *res, void *ctx)
{
	(void)ctx;
	http_set_header(res, "X-Note", "one\r\nSet-Cookie: two");
	http_error(req, res, 422, "some_code", "quote \" and bad byte \xff and\nline");
}

static void handle_huge(const struct http_request *req, struct http_response *res, void *ctx)
{
	(void)req;
	(void)ctx;
	res->body.max = 10;
	buf_adds(&res->body, "this does not fit");
}

static int no_next(void *ctx, const char **data, size_t *len)
{
	(void)ctx;
	*data = NULL;
	*len = 0;
	return 0;
}

static void count_close(void *ctx)
{
	(void)ctx;
	atomic_fetch_add(&sources_closed, 1);
}

static void handle_stream(const struct http_request *req, struct http_response *res, void *ctx)
{
	(void)req;
	(void)ctx;
	res->stream = (struct stream_source){ .next = no_next, .close = count_close };
}

static const struct http_route routes[] = {
	{ "GET", "/", handle_echo, HTTP_OPEN | HTTP_INLINE },
	{ "GET", "/healthz", handle_echo, HTTP_OPEN | HTTP_INLINE },
	{ "GET", "/v1/echo", handle_echo, 0 },
	{ "POST", "/v1/echo", handle_echo, 0 },
	{ "PATCH", "/v1/echo", handle_echo, HTTP_INLINE },
	{ "DELETE", "/v1/items/{id}", handle_empty, 0 },
	{ "GET", "/v1/items/fixed", handle_echo, 0 },
	{ "GET", "/v1/items/{id}", handle_echo, 0 },
	{ "GET", "/v1/items/{id}/parts/{part}", handle_echo, 0 },
	{ "GET", "/v1/slow", handle_slow, 0 },
	{ "GET", "/v1/wrong", handle_wrong, 0 },
	{ "GET", "/v1/huge", handle_huge, 0 },
	{ "POST", "/v1/work", handle_echo, HTTP_DRAINS },
	{ "GET", "/v1/events", handle_stream, HTTP_STREAM },
	{ "GET", "/v1/unmarked", handle_stream, 0 },
	{ 0 },
};

static struct http_server *server;

static int set_up(void **state)
{
	struct http_conf conf = test_conf(routes);

	(void)state;
	server = test_server(&conf);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	http_stop(&server);
	return server ? -1 : 0;
}

/* -- what is refused before anything else ------------------------------------------- */
#define SMUGGLED "GET /healthz HTTP/1.1\r\n" HOST "\r\n"
#define POST     "POST /v1/echo HTTP/1.1\r\n" AUTH "Content-Type: application/json\r\n"
#define BAD(text)                       \
	{                               \
		text, sizeof(text) - 1, \
	}

static const struct {
	const char *text;
	size_t len;
} bad[] = {
	BAD(POST "Content-Length: 5\r\nContent-Length: 38\r\n\r\n12345" SMUGGLED),
	BAD(POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\n12345" SMUGGLED),
	BAD(POST "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" SMUGGLED),
	BAD(POST "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" SMUGGLED),
	BAD(POST "Content-Length : 38\r\n\r\n" SMUGGLED),
	BAD(POST "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" SMUGGLED),
	BAD(POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" SMUGGLED),
	BAD(POST "Transfer-Encoding: identity\r\n\r\n" SMUGGLED),
	BAD(POST
	    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" SMUGGLED),
	BAD("POST /v1/echo HTTP/1.0\r\n" AUTH
	    "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" SMUGGLED),
	BAD(POST "Content-Length: +5\r\n\r\n12345" SMUGGLED),
	BAD(POST "Content-Length: -1\r\n\r\n" SMUGGLED),
	BAD(POST "Content-Length: 5, 5\r\n\r\n12345" SMUGGLED),
	BAD(POST "Content-Length: 0x5\r\n\r\n12345" SMUGGLED),
	BAD(POST "Content-Length: \r\n\r\n" SMUGGLED),
	BAD("GET /healthz HTTP/1.1\r\n" HOST "X-Note: a\rContent-Length: 38\r\n\r\n" SMUGGLED),
	BAD("GET /healthz HTTP/1.1\r\n" HOST "X-Note: a\x01\r\n\r\n" SMUGGLED),
	BAD("GET /healthz HTTP/1.1\r\n" HOST "X Note: a\r\n\r\n" SMUGGLED),
	BAD("GET /healthz HTTP/1.1\r\n" HOST "X-N\xc3\xb6te: a\r\n\r\n" SMUGGLED),
	BAD("GET /healthz HTTP/1.1\r\n\r\n" SMUGGLED),
	BAD("GET /healthz HTTP/1.1\r\n" HOST HOST "\r\n" SMUGGLED),
	BAD("GET /healthz HTTP/1.0\r\n" HOST HOST "\r\n" SMUGGLED),
	BAD("GET /healthz HTTP/1.1\r\nHost: a b\r\n\r\n" SMUGGLED),
	BAD("GET /healthz HTTP/1.1\r\nHost: a/b\r\n\r\n" SMUGGLED),
	BAD("GET /healthz HTTP/1.1\r\nHost:\r\n\r\n" SMUGGLED),
	BAD("GET http://test/healthz HTTP/1.1\r\n" HOST "\r\n" SMUGGLED),
	BAD("OPTIONS * HTTP/1.1\r\n" HOST "\r\n" SMUGGLED),
	BAD("GET /healthz  HTTP/1.1\r\n" HOST "\r\n" SMUGGLED),
	BAD("GET /heal thz HTTP/1.1\r\n" HOST "\r\n" SMUGGLED),
	BAD("G\"T /healthz HTTP/1.1\r\n" HOST "\r\n" SMUGGLED),
	BAD("GET /healthz\0/more HTTP/1.1\r\n" HOST "\r\n" SMUGGLED),
	BAD("GET /healthz?a=b\0c HTTP/1.1\r\n" HOST "\r\n" SMUGGLED),
	BAD("GET /healthz HTTP/1.1\0 HTTP/1.0\r\n" HOST "\r\n" SMUGGLED),
	BAD("GET /healthz HTTP/1.1\r\n" HOST "X-Note: a\0b\r\nX-B: b\r\n\r\n" SMUGGLED),
	BAD("GET /healthz HTTP/1.1\r\n" HOST "X-Note: a\0\r\nX-B: b\r\n\r\n" SMUGGLED),
	BAD("GET /healthz HTTP/1.1\r\n" HOST "X-Note: \0b\r\nX-B: b\r\n\r\n" SMUGGLED),
	BAD("GET /healthz HTTP/1.1\r\n" HOST "X-Note: a\0b\r\n\r\n" SMUGGLED),
	BAD("GET /healthz HTTP/1.1\r\n" HOST "X-Note: a\0\r\n\r\n" SMUGGLED),
	BAD("GET /healthz HTTP/1.1\r\n" HOST "X-Note: a\0\0\0\0b\r\n\r\n" SMUGGLED),
	BAD("GET /v1/echo HTTP/1.1\r\n" HOST "Authorization: Bearer " TOKEN "\0x\r\n\r\n" SMUGGLED),
	BAD("GET /healthz HTTP/1.1\r\n" HOST "X-Note: a\r\n b\r\n\r\n" SMUGGLED),
	BAD("GET /healthz HTTP/1.1\r\n" HOST "X-Note: a\r\n\tb\r\nX-B: b\r\n\r\n" SMUGGLED),
	BAD("GET /healthz HTTP/1.1\r\n" HOST "X-Note: a\r\n \r\n\r\n" SMUGGLED),
	BAD("GET /healthz HTTP/1.1\r\n" HOST "X-Note:\r\n b\r\n\r\n" SMUGGLED),
	BAD("GET /healthz HTTP/1.1\r\n X-Note: a\r\n" HOST "\r\n" SMUGGLED),
	BAD(POST "Content-Lengt: 38\r\n h\r\n\r\n" SMUGGLED),
	BAD("GET /v1/echo HTTP/1.1\r\n" AUTH "Authorization: Bearer x\r\n\r\n" SMUGGLED),
	BAD("GET /v1/echo HTTP/1.1\r\n" AUTH "authorization: Bearer " TOKEN "\r\n\r\n" SMUGGLED),
};

static void refuses_smuggling(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct reply r = { 0 };
		int fd = dial(server);

		say_bytes(fd, bad[i].text, bad[i].len);
		last_reply(fd, &r);
		if (r.status != 400 || says(&r, " 200 ") || !says(&r, "Connection: close"))
			fail_msg("input %zu: %s -> %s", i, bad[i].text, r.text);
		close(fd);
		reply_free(&r);
	}
}

/* What is odd but means the same to everybody. */
static void takes_blanks_and_empty_values(void **state)
{
	(void)state;
	expect(server,
	       "GET /healthz HTTP/1.1\r\n" HOST "X-A:\r\nX-B: \r\nX-C:\t a \t\r\nX-D:\r\n\r\n", 200,
	       "/healthz");
	expect(server,
	       "\r\nGET /healthz?a=b&c=%20 HTTP/1.1\r\n" HOST "X-A:                    a\r\n\r\n",
	       200, "/healthz");
	expect(server,
	       "POST /v1/echo HTTP/1.1\r\n" AUTH "Content-Type: application/json\r\n"
	       "Content-Length: 4\r\n\r\nabcd",
	       200, "body=4:abcd");
}

/* Some answers are libmicrohttpd's own; where ours comes it must be whole and single. */
static void answers_a_refusal_once(void **state)
{
	struct reply r = { 0 };
	int fd = dial(server);

	(void)state;
	say_bytes(fd, bad[0].text, bad[0].len);
	last_reply(fd, &r);
	assert_int_equal(count_of(r.text, "HTTP/1.1 "), 1);
	assert_true(says(&r, "\"code\":\"bad_request\""));
	assert_int_equal(r.len, r.head_len + r.body_len);
	close(fd);
	reply_free(&r);
}

static void refuses_paths(void **state)
{
	static const char *const paths[] = {
		"//",        "/v1//echo",    "/v1/echo/",   "/v1/./echo",  "/v1/../healthz",
		"/%2e%2e/x", "/v1/%2E/echo", "/v1%2fecho",  "/v1%2Fecho",  "/healthz%00",
		"/a%0ab",    "/a%zz",        "/a%2",        "/a%",         "/a%5cb",
		"/a#b",      "/a\"b",        "/a\\b",       "/a\xc3\xa9",  "/a%ff",
		"/a%c0%af",  "/a%7f",        "/a%ed%a0%80", "/healthz/..", "/.",
	};
	char request[200];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		(void)snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\n" AUTH "\r\n",
		               paths[i]);
		expect(server, request, 400, "\"code\":\"bad_request\"");
	}
}

static void bounds_the_path(void **state)
{
	char *request = calloc(1, 8192);

	(void)state;
	for (int over = 0; over < 2; over++) {
		char path[HTTP_PATH_MAX + 2];

		memset(path, 'a', sizeof(path));
		path[0] = '/';
		path[HTTP_PATH_MAX + over] = '\0';
		(void)snprintf(request, 8192, "GET %s HTTP/1.1\r\n" AUTH "\r\n", path);
		expect(server, request, over ? 414 : 404,
		       over ? "uri_too_long" : "route_not_found");
	}
	free(request);
}

static void bounds_the_head(void **state)
{
	char line[200];
	struct reply r = { 0 };
	int fd = dial(server);

	(void)state;
	say(fd, "GET /healthz HTTP/1.1\r\n" HOST);
	for (int i = 0; i < 60; i++) { /* about 6 KB */
		(void)snprintf(line, sizeof(line), "X-Filler-%d: %080d\r\n", i, i);
		say(fd, line);
	}
	say(fd, "\r\n");
	next_reply(fd, &r, false);
	assert_int_equal(r.status, 200);
	close(fd);
	reply_free(&r);
	fd = dial(server);
	say(fd, "GET /healthz HTTP/1.1\r\n" HOST);
	for (int i = 0; i < 1000; i++)
		say(fd, line);
	say(fd, "\r\n");
	last_reply(fd, &r);
	assert_int_equal(r.status, 431);
	assert_int_equal(count_of(r.text, "HTTP/1.1 "), 1);
	close(fd);
	reply_free(&r);
	expect(server, "GET /healthz HTTP/1.1\r\n" HOST "\r\n", 200, "/healthz");
}

static void decodes_once(void **state)
{
	(void)state;
	expect(server, "GET /v1/items/a%20%C3%A9%2525b HTTP/1.1\r\n" AUTH "\r\n", 200,
	       "GET /v1/items/a \xc3\xa9%25b {a \xc3\xa9%25b}");
	expect(server, "GET /v1/items/...%2B+ HTTP/1.1\r\n" AUTH "\r\n", 200, "{...++}");
	expect(server, "GET /v1/echo?a=%26x+y%2B&&b&c=d=e&f=/?%C3%A9 HTTP/1.1\r\n" AUTH "\r\n", 200,
	       "GET /v1/echo a=<&x y+> b=<> c=<d=e> f=</?\xc3\xa9> as=tenant");
}

static void refuses_queries(void **state)
{
	static const char *const queries[] = {
		"a=%00",   "a=%zz",     "a=%f", "a=%ff",      "=b",
		"a=1&a=2", "a=1&%61=2", "a=#",  "a=\xc3\xa9", "a&b&c&d&e&f&g&h&i&j&k&l&m&n&o&p&q",
	};
	char request[200];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(queries); i++) {
		(void)snprintf(request, sizeof(request), "GET /v1/echo?%s HTTP/1.1\r\n" AUTH "\r\n",
		               queries[i]);
		expect(server, request, 400, "\"code\":\"invalid_query\"");
	}
	expect(server, "GET /v1/echo?a&b&c&d&e&f&g&h&i&j&k&l&m&n&o&p HTTP/1.1\r\n" AUTH "\r\n", 200,
	       " p=<>");
}

/* -- who asks, and for what ----------------------------------------------------------- */
static void authenticates(void **state)
{
	static const char *const wrong[] = {
		"",
		"Authorization: Bearer\r\n",
		"Authorization: Bearer \r\n",
		"Authorization: Bearer" TOKEN "\r\n",
		"Authorization: Basic " TOKEN "\r\n",
		"Authorization: " TOKEN "\r\n",
		"Authorization: Bearer " TOKEN "x\r\n",
		"Authorization: Bearer " TOKEN " x\r\n",
	};
	char request[300];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		(void)snprintf(request, sizeof(request), "GET /v1/echo HTTP/1.1\r\n" HOST "%s\r\n",
		               wrong[i]);
		expect(server, request, 401, "WWW-Authenticate: Bearer\r\n");
	}
	expect(server, "GET /v1/echo?access_token=" TOKEN " HTTP/1.1\r\n" HOST "\r\n", 401,
	       "\"code\":\"unauthorized\"");
	expect(server, "GET /v1/echo HTTP/1.1\r\n" HOST "Authorization: bEARER   " TOKEN "\r\n\r\n",
	       200, "as=tenant");
	expect(server, "GET /healthz HTTP/1.1\r\n" AUTH "\r\n", 200, "as=nobody");
}

static void finds_routes_after_authentication(void **state)
{
	(void)state;
	expect(server, "GET /v1/nothing HTTP/1.1\r\n" HOST "\r\n", 401, "unauthorized");
	expect(server, "PUT /v1/echo HTTP/1.1\r\n" HOST "\r\n", 401, "unauthorized");
	expect(server, "GET /v1/nothing HTTP/1.1\r\n" AUTH "\r\n", 404, "route_not_found");
	expect(server, "get /v1/echo HTTP/1.1\r\n" AUTH "\r\n", 405,
	       "Allow: GET, HEAD, POST, PATCH\r\n");
	expect(server, "PUT /v1/items/x HTTP/1.1\r\n" AUTH "\r\n", 405,
	       "Allow: DELETE, GET, HEAD\r\n");
	expect(server, "POST /healthz HTTP/1.1\r\n" HOST "\r\n", 405, "Allow: GET, HEAD\r\n");
	expect(server, "HEAD /v1/events HTTP/1.1\r\n" AUTH "\r\n", 405, "Allow: GET\r\n");
	expect(server, "GET /v1/items/fixed HTTP/1.1\r\n" AUTH "\r\n", 200, "items/fixed as=");
	expect(server, "GET /v1/items/a/parts/b HTTP/1.1\r\n" AUTH "\r\n", 200, "{a} {b}");
	expect(server, "GET /v1/items HTTP/1.1\r\n" AUTH "\r\n", 404, "route_not_found");
	expect(server, "GET / HTTP/1.1\r\n" HOST "\r\n", 200, "GET / as=nobody");
	expect(server, "GET / HTTP/1.0\r\n\r\n", 200, "GET / as=nobody");
}

static void unknown_and_refused_look_alike(void **state)
{
	struct reply a = ask(server, "GET /v1/x HTTP/1.1\r\n" AUTH "X-Request-ID: r\r\n\r\n");
	struct reply b = ask(server, "POST /x/y HTTP/1.1\r\n" AUTH "X-Request-ID: r\r\n\r\n");

	(void)state;
	/* All but the Date, which may tick between the two. */
	*strstr(a.text, "Date: ") = *strstr(b.text, "Date: ") = '\0';
	assert_string_equal(a.text, b.text);
	assert_string_equal(a.text + a.head_len, b.text + b.head_len);
	reply_free(&a);
	reply_free(&b);
}

static void names_requests(void **state)
{
	char request[400], id[HTTP_REQUEST_ID_MAX + 2];
	struct reply r;

	(void)state;
	for (int over = 0; over < 2; over++) {
		memset(id, 'x', sizeof(id));
		id[HTTP_REQUEST_ID_MAX + over] = '\0';
		(void)snprintf(request, sizeof(request),
		               "GET /v1/wrong HTTP/1.1\r\n" AUTH "X-Request-ID: %s\r\n\r\n", id);
		r = ask(server, request);
		assert_int_equal(says(&r, id), !over);
		assert_int_equal(count_of(r.text, "X-Request-ID: "), 1);
		reply_free(&r);
	}
	r = ask(server, "GET /healthz HTTP/1.1\r\n" HOST "X-Request-ID: a b\r\n\r\n");
	assert_false(says(&r, "a b"));
	assert_int_equal(strspn(strstr(r.text, "X-Request-ID: ") + 14, "0123456789abcdef-"), 36);
	assert_int_equal(strstr(r.text, "X-Request-ID: ")[14 + 14], '7');
	reply_free(&r);
	r = ask(server, "GET /healthz HTTP/1.1\r\n" HOST "X-Request-ID: first\r\nX-Request-ID: "
	                "second\r\n\r\n");
	assert_false(says(&r, "first") || says(&r, "second"));
	reply_free(&r);
}

static void renders_errors(void **state)
{
	struct reply r = ask(server, "GET /v1/wrong HTTP/1.1\r\n" AUTH "X-Request-ID: r-1\r\n\r\n");

	(void)state;
	assert_int_equal(r.status, 422);
	assert_string_equal(
		r.text + r.head_len,
		"{\"error\":{\"code\":\"some_code\",\"message\":\"quote \\\" and bad byte "
		"\xef\xbf\xbd and\\nline\",\"requestId\":\"r-1\"}}");
	assert_true(says(&r, "X-Note: one??Set-Cookie: two\r\n"));
	assert_true(says(&r, "Content-Type: application/json\r\n"));
	reply_free(&r);
	expect(server, "GET /v1/huge HTTP/1.1\r\n" AUTH "\r\n", 500, "\"code\":\"internal_error\"");
	expect(server, "GET /v1/unmarked HTTP/1.1\r\n" AUTH "\r\n", 500, "internal_error");
	assert_int_equal(atomic_exchange(&sources_closed, 0), 1);
}

/* -- bodies ----------------------------------------------------------------------------- */
static void checks_media_types(void **state)
{
	static const struct {
		const char *request;
		int status;
	} cases[] = {
		{ "POST /v1/echo HTTP/1.1\r\n" AUTH "Content-Length: 2\r\n\r\n{}", 415 },
		{ "POST /v1/echo HTTP/1.1\r\n" AUTH "Content-Length: 0\r\n\r\n", 200 },
		{ "POST /v1/echo HTTP/1.1\r\n" AUTH "\r\n", 200 },
		{ "POST /v1/echo HTTP/1.1\r\n" AUTH
		  "Content-Type: application/jsonp\r\nContent-Length: 2\r\n\r\n{}",
		  415 },
		{ "PATCH /v1/echo HTTP/1.1\r\n" AUTH
		  "Content-Type: text/plain; application/json\r\nContent-Length: 2\r\n\r\n{}",
		  415 },
		{ "PATCH /v1/echo HTTP/1.1\r\n" AUTH
		  "Content-Type:  Application/JSON ; charset=x\r\nContent-Length: 2\r\n\r\n{}",
		  200 },
		{ "GET /v1/echo HTTP/1.1\r\n" AUTH "Content-Length: 2\r\n\r\n{}", 200 },
		{ "POST /v1/echo HTTP/1.1\r\n" AUTH
		  "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
		  415 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		expect(server, cases[i].request, cases[i].status, "");
}

static char *text_of(size_t len)
{
	char *text = malloc(len + 1);

	assert_non_null(text);
	memset(text, 'x', len);
	text[len] = '\0';
	return text;
}

static void bounds_declared_bodies(void **state)
{
	auto_free char *body = text_of(MAX_BODY + 1);
	char head[400];

	(void)state;
	for (size_t over = 0; over < 2; over++) {
		struct reply r = { 0 };
		int fd = dial(server);

		(void)snprintf(head, sizeof(head), POST "Content-Length: %zu\r\n\r\n",
		               MAX_BODY + over);
		say(fd, head);
		if (!over)
			say_bytes(fd, body, MAX_BODY); /* one past is refused before it is sent */
		next_reply(fd, &r, false);
		assert_int_equal(r.status, over ? 413 : 200);
		if (over)
			assert_true(says(&r, "request_too_large") && says(&r, "Connection: close"));
		else
			assert_int_equal(count_of(r.text + r.head_len, "x"), MAX_BODY);
		close(fd);
		reply_free(&r);
	}
}

static void bounds_chunked_bodies(void **state)
{
	auto_free char *body = text_of(1000);
	char size[32];

	(void)state;
	for (size_t over = 0; over < 2; over++) {
		struct reply r = { 0 };
		int fd = dial(server);

		say(fd, POST "Transfer-Encoding: chunked\r\n\r\n");
		for (size_t sent = 0; sent < MAX_BODY + over;) {
			size_t n = MAX_BODY + over - sent < 1000 ? MAX_BODY + over - sent : 1000;

			(void)snprintf(size, sizeof(size), "%zx\r\n", n);
			say(fd, size);
			say_bytes(fd, body, n);
			say(fd, "\r\n");
			sent += n;
		}
		if (!over) /* one past is refused without waiting for the end */
			say(fd, "0\r\nX-Trailer: 1\r\n\r\n");
		next_reply(fd, &r, false);
		assert_int_equal(r.status, over ? 413 : 200);
		assert_true(says(&r, over ? "request_too_large" : "body=70000:"));
		close(fd);
		reply_free(&r);
	}
}

/* A client that reads the answer only after it has written everything still gets it. */
static void refusal_survives_a_client_that_goes_on_writing(void **state)
{
	auto_free char *body = text_of(1 << 20);

	(void)state;
	for (int i = 0; i < 20; i++) {
		struct reply r = { 0 };
		int fd = dial(server);

		say(fd, POST "Content-Length: 1048576\r\n\r\n");
		nap(2);
		say_bytes(fd, body, 1 << 20);
		last_reply(fd, &r);
		assert_int_equal(r.status, 413);
		close(fd);
		reply_free(&r);
	}
}

static void refuses_bodies_of_strangers_at_once(void **state)
{
	struct reply r = { 0 };
	int fd = dial(server);

	(void)state;
	say(fd, "POST /v1/echo HTTP/1.1\r\n" HOST "Content-Length: 1000\r\n"
	        "Expect: 100-continue\r\n\r\n");
	last_reply(fd, &r);
	assert_int_equal(r.status, 401);
	assert_false(says(&r, "100 Continue"));
	close(fd);
	reply_free(&r);
}

static void continues_when_asked(void **state)
{
	struct reply r = { 0 };
	int fd = dial(server);

	(void)state;
	say(fd, POST "Content-Length: 4\r\nExpect: 100-continue\r\n\r\n");
	next_reply(fd, &r, true);
	assert_int_equal(r.status, 100);
	say(fd, "\"ab\"");
	next_reply(fd, &r, false);
	assert_int_equal(r.status, 200);
	assert_true(says(&r, "body=4:\"ab\""));
	close(fd);
	reply_free(&r);
}

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
		last_reply(fd, &r);
		assert_int_equal(count_of(r.text, "HTTP/1.1 200"), i % 3 == 2 ? 2 : 1);
		assert_true(clock_mono_ms() - begin < 2000);
		close(fd);
		reply_free(&r);
	}
	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		close(others[i]);
}

static void survives_clients_that_vanish(void **state)
{
	struct linger reset = { .l_onoff = 1 };

	(void)state;
	pthread_mutex_lock(&gate);
	for (int i = 0; i < 40; i++) {
		int fd = dial(server);

		say(fd, i % 2 ? "GET /v1/slow HTTP/1.1\r\n" AUTH "\r\n"
		              : "POST /v1/echo HTTP/1.1\r\n" AUTH "Content-Length: 9\r\n\r\n1234");
		if (i % 4 < 2)
			setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
		close(fd);
	}
	wait_for(&inside, 2);
	pthread_mutex_unlock(&gate);
	expect(server, "GET /v1/echo HTTP/1.1\r\n" AUTH "\r\n", 200, "as=tenant");
}

/* -- bounds of time and number ------------------------------------------------------------ */
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
	struct http_server *s;

	(void)state;
	conf.request_ms = 300;
	s = test_server(&conf);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		uint64_t begin = clock_mono_ms();
		struct reply r = { .text = calloc(1, REPLY_MAX) };
		int fd = dial(s);

		say(fd, cases[i].begin);
		while (hear(fd, r.text, REPLY_MAX - 1, 20) < 0) {
			say(fd, cases[i].drip);
			assert_true(clock_mono_ms() - begin < 5000);
		}
		assert_true(clock_mono_ms() - begin >= 290);
		assert_int_equal(has_head(&r) ? r.status : 0, cases[i].status);
		close(fd);
		reply_free(&r);
	}
	http_stop(&s);
}

/* Also on a connection that has proven itself with one good request. */
static void cuts_slow_second_requests(void **state)
{
	struct http_conf conf = test_conf(routes);
	struct reply r = { 0 };
	struct http_server *s;
	uint64_t begin;
	char c;
	int fd;

	(void)state;
	conf.request_ms = 200;
	conf.idle_ms = 1000;
	s = test_server(&conf);
	fd = dial(s);
	say(fd, "GET /healthz HTTP/1.1\r\n" HOST "\r\n");
	next_reply(fd, &r, false);
	begin = clock_mono_ms();
	while (hear(fd, &c, 1, 20) < 0) {
		say(fd, "G");
		assert_true(clock_mono_ms() - begin < 5000);
	}
	assert_in_range(clock_mono_ms() - begin, 1100, 2500);
	close(fd);
	reply_free(&r);
	http_stop(&s);
}

static void closes_idle_connections(void **state)
{
	struct http_conf conf = test_conf(routes);
	struct reply r = { 0 };
	struct http_server *s;
	char c;
	int fd;

	(void)state;
	conf.idle_ms = 1000;
	s = test_server(&conf);
	fd = dial(s);
	say(fd, "GET /healthz HTTP/1.1\r\n" HOST "\r\n");
	next_reply(fd, &r, false);
	assert_int_equal(hear(fd, &c, 1, 500), -1);
	assert_int_equal(hear(fd, &c, 1, PATIENCE), 0);
	close(fd);
	reply_free(&r);
	http_stop(&s);
}

static void bounds_the_queue(void **state)
{
	struct http_conf conf = test_conf(routes);
	struct http_server *s;
	struct reply r = { 0 };
	int fds[5];

	(void)state;
	conf.workers = 2;
	conf.max_queued = 3;
	s = test_server(&conf);
	pthread_mutex_lock(&gate);
	for (size_t i = 0; i < 5; i++) { /* two run, three wait */
		fds[i] = dial(s);
		say(fds[i], "GET /v1/slow HTTP/1.1\r\n" AUTH "\r\n");
		if (i == 1)
			wait_for(&inside, 2);
	}
	nap(100);
	expect(s, "GET /v1/echo HTTP/1.1\r\n" AUTH "\r\n", 503, "\"code\":\"busy\"");
	expect(s, "GET /v1/echo HTTP/1.1\r\n" AUTH "\r\n", 503, "Retry-After: 1\r\n");
	expect(s, "GET /healthz HTTP/1.1\r\n" HOST "\r\n", 200, "/healthz");
	pthread_mutex_unlock(&gate);
	for (size_t i = 0; i < 5; i++) {
		next_reply(fds[i], &r, false);
		assert_int_equal(r.status, 200);
		reply_free(&r);
		close(fds[i]);
	}
	http_stop(&s);
}

static void bounds_connections(void **state)
{
	struct http_conf conf = test_conf(routes);
	struct http_server *s;
	struct reply r = { 0 };
	int a, b, c;
	char byte;

	(void)state;
	conf.max_connections = 2;
	s = test_server(&conf);
	a = dial(s);
	b = dial(s);
	c = dial(s);
	say(c, "GET /healthz HTTP/1.1\r\n" HOST "\r\n");
	assert_int_equal(hear(c, &byte, 1, 200), -1);
	close(a);
	next_reply(c, &r, false);
	assert_int_equal(r.status, 200);
	close(b);
	close(c);
	reply_free(&r);
	http_stop(&s);
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

static void *stop_server(void *arg)
{
	http_stop(arg);
	return NULL;
}

static void stops_with_everything_in_flight(void **state)
{
	struct http_conf conf = test_conf(routes);
	struct reply r = { 0 };
	struct http_server *s;
	int run[2], wait[4], part[3], stream;
	pthread_t stopper;
	char c;

	(void)state;
	conf.workers = 2;
	s = test_server(&conf);
	stream = dial(s);
	say(stream, "GET /v1/events HTTP/1.1\r\n" AUTH "\r\n");
	next_reply(stream, &r, false);
	for (size_t i = 0; i < ARRAY_LEN(part); i++) {
		part[i] = dial(s);
		say(part[i], i ? POST "Content-Length: 9\r\n\r\n12" : "GET /");
	}
	pthread_mutex_lock(&gate);
	for (size_t i = 0; i < 6; i++) {
		int *fd = i < 2 ? &run[i] : &wait[i - 2];

		*fd = dial(s);
		say(*fd, "GET /v1/slow HTTP/1.1\r\n" AUTH "\r\n");
		if (i == 1)
			wait_for(&inside, 2);
	}
	nap(100);
	pthread_create(&stopper, NULL, stop_server, &s);
	nap(150);
	pthread_mutex_unlock(&gate);
	pthread_join(stopper, NULL);
	assert_null(s);
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
#define SERVED(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		SERVED(refuses_smuggling),
		SERVED(answers_a_refusal_once),
		SERVED(takes_blanks_and_empty_values),
		SERVED(refuses_paths),
		SERVED(bounds_the_path),
		SERVED(bounds_the_head),
		SERVED(decodes_once),
		SERVED(refuses_queries),
		SERVED(authenticates),
		SERVED(finds_routes_after_authentication),
		SERVED(unknown_and_refused_look_alike),
		SERVED(names_requests),
		SERVED(renders_errors),
		SERVED(checks_media_types),
		SERVED(bounds_declared_bodies),
		SERVED(bounds_chunked_bodies),
		SERVED(refusal_survives_a_client_that_goes_on_writing),
		SERVED(refuses_bodies_of_strangers_at_once),
		SERVED(continues_when_asked),
		SERVED(keeps_connections),
		SERVED(answers_pipelines_in_order),
		SERVED(answers_clients_that_half_close),
		SERVED(survives_clients_that_vanish),
		cmocka_unit_test(cuts_slow_requests),
		cmocka_unit_test(cuts_slow_second_requests),
		cmocka_unit_test(closes_idle_connections),
		cmocka_unit_test(bounds_the_queue),
		cmocka_unit_test(bounds_connections),
		SERVED(names_what_is_wrong_at_start),
		SERVED(drains),
		cmocka_unit_test(stops_with_everything_in_flight),
	};

	return RUN_TESTS(tests);
}
