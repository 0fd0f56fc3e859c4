/* What is refused, who may ask, what is read and what is answered. */
#include "daemon/http/test_routes.h"

/* -- what is refused before anything else ------------------------------------------- */
#define SMUGGLED "GET /healthz HTTP/1.1\r\n" HOST "\r\n"
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
	BAD("GET\0 /healthz HTTP/1.1\r\n" HOST "\r\n" SMUGGLED),
	BAD("GET\0x /healthz HTTP/1.1\r\n" HOST "\r\n" SMUGGLED),
	BAD("GET\0\0\0\0 /healthz HTTP/1.1\r\n" HOST "\r\n" SMUGGLED),
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

/* Where the trailer of a body in chunks ends is not the same for everybody: nothing is read on. */
static void takes_nothing_behind_chunks(void **state)
{
	static const char *const ends[] = { "\r\n", "T: u\r\n\r\n", "T: u\r\r", "\r" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
		struct reply r = { 0 };
		int fd = dial(server);

		say(fd, POST "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n");
		say(fd, ends[i]);
		say(fd, SMUGGLED);
		last_reply(fd, &r);
		assert_int_equal(count_of(r.text, "HTTP/1.1 "), 1);
		assert_true(says(&r, "Connection: close"));
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		SERVED(refuses_smuggling),
		SERVED(answers_a_refusal_once),
		SERVED(takes_nothing_behind_chunks),
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
	};

	return RUN_TESTS(tests);
}
