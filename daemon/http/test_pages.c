#include "daemon/http/test_client.h"

#define PIECE   "0123456789abcdef"
#define PIECE_4 PIECE PIECE PIECE PIECE

static void handle_body(const struct http_request *req, struct http_response *res, void *ctx)
{
	(void)ctx;
	buf_addf(&res->body, "{\"len\":%zu}", req->body_len);
}

static const struct http_route routes[] = {
	{ "GET", "/healthz", handle_body, HTTP_OPEN | HTTP_INLINE },
	{ "POST", "/v1/echo", handle_body, 0 },
	{ 0 },
};

static struct http_server *server;

static int set_up(void **state)
{
	struct http_conf conf = test_conf(routes);

	*state = server = test_server(&conf);
	return 0;
}

static int tear_down(void **state)
{
	*state = NULL;
	http_stop(&server);
	return 0;
}

/* The answer is one whole page of ours, and the end of the connection. */
static void expect_page(const struct reply *r, int status, const char *code, const char *what)
{
	static const char *const parts[] = {
		"\r\nX-Request-ID: ",
		"\r\nConnection: close\r\n",
		"\r\nContent-Type: application/json\r\n",
		"\r\nCache-Control: no-store\r\n",
		"\r\nX-Content-Type-Options: nosniff\r\n",
		"\r\nContent-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n",
		"\r\nReferrer-Policy: no-referrer\r\n",
		"\r\nCross-Origin-Resource-Policy: same-origin\r\n",
		"\"message\":\"",
	};
	char named[80];

	(void)snprintf(named, sizeof(named), "{\"error\":{\"code\":\"%s\"", code);
	if (r->status != status || !says(r, named))
		fail_msg("%.60s -> %s (wanted %d %s)", what, r->text, status, code);
	for (size_t i = 0; i < ARRAY_LEN(parts); i++)
		if (count_of(r->text, parts[i]) != 1)
			fail_msg("%.60s -> %s (no %s)", what, r->text, parts[i]);
	assert_int_equal(r->len, r->head_len + r->body_len);
}

/* What comes behind it is not taken for a request. */
static void expect_refusal(const char *text, size_t len, int status, const char *code)
{
	static const char next[] = "GET /healthz HTTP/1.1\r\n" HOST "\r\n";
	struct reply r = { 0 };
	int fd = dial(server);

	say_bytes(fd, text, len);
	say_bytes(fd, next, sizeof(next) - 1);
	last_reply(fd, &r);
	expect_page(&r, status, code, text);
	close(fd);
	reply_free(&r);
}

#define GET          "GET /healthz HTTP/1.1\r\n" HOST
#define POST         "POST /v1/echo HTTP/1.1\r\n" AUTH "Content-Type: application/json\r\n"
#define CHUNKS(text) POST "Transfer-Encoding: chunked\r\n\r\n" text
#define CASE(status, code, text)                      \
	{                                             \
		text, sizeof(text) - 1, status, code, \
	}

static const struct {
	const char *text;
	size_t len;
	int status;
	const char *code;
} cases[] = {
	CASE(400, "bad_request", "GET\r\n\r\n"),
	CASE(400, "bad_request", "GET /healthz\r\n\r\n"),
	CASE(400, "bad_request", "\x16\x03\x01\x02\n\r\n"),
	CASE(400, "bad_request", "GET /healthz HTTX/1.1\r\n" HOST "\r\n"),
	CASE(400, "bad_request", "GET /healthz HTTP/1.11\r\n" HOST "\r\n"),
	CASE(400, "bad_request", "GET /healthz http/1.1\r\n" HOST "\r\n"),
	CASE(400, "bad_request", "GET /heal thz HTTP/1.1\r\n" HOST "\r\n"),
	CASE(400, "bad_request", "GET /healthz\0 HTTP/1.1\r\n" HOST "\r\n"),
	CASE(400, "bad_request", GET "no colon\r\n\r\n"),
	CASE(400, "bad_request", GET "X-A: a\r\nno colon\r\nX-B: b\r\n\r\n"),
	CASE(400, "bad_request", GET "X-A: a\0b\r\n\r\n"),
	CASE(400, "bad_request", GET "X-\0A: a\r\n\r\n"),
	CASE(400, "bad_request", GET "\0\r\n\r\n"),
	CASE(400, "bad_request", GET " X-A: folded\r\n\r\n"),
	CASE(400, "bad_request", POST "Content-Length: x\r\n\r\n"),
	CASE(400, "bad_request", POST "Content-Length: -1\r\n\r\n"),
	CASE(400, "bad_request", POST "Content-Length: 2, 2\r\n\r\n{}"),
	CASE(400, "bad_request", POST "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"),
	CASE(413, "request_too_large", POST "Content-Length: 99999999999999999999\r\n\r\n"),
	CASE(505, "http_version_not_supported", "GET / HTTP/0.9\r\n\r\n"),
	CASE(505, "http_version_not_supported", "GET / HTTP/1.2\r\n" HOST "\r\n"),
	CASE(505, "http_version_not_supported", "GET / HTTP/3.0\r\n" HOST "\r\n"),
	CASE(505, "http_version_not_supported", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
	CASE(400, "bad_request", CHUNKS("x\r\n{}\r\n0\r\n\r\n")),
	CASE(400, "bad_request", CHUNKS("2 \r\n{}\r\n0\r\n\r\n")),
	CASE(400, "bad_request", CHUNKS("-2\r\n{}\r\n0\r\n\r\n")),
	CASE(400, "bad_request", CHUNKS("\r\n{}\r\n0\r\n\r\n")),
	CASE(400, "bad_request", CHUNKS("1\r\n{}\r\n0\r\n\r\n")),
	CASE(400, "bad_request", CHUNKS("2\r\n{}\r\n;\r\n\r\n")),
	CASE(400, "bad_request", CHUNKS("2\r\n{}\r\n0\r\nno colon\r\n\r\n")),
	CASE(413, "request_too_large", CHUNKS("fffffffffffffffff\r\n{}\r\n")),
};

static void refuses_what_cannot_be_parsed(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		expect_refusal(cases[i].text, cases[i].len, cases[i].status, cases[i].code);
}

/* The same when every byte comes by itself. */
static void refuses_what_drips_in(void **state)
{
	static const char head[] = "GET / HTTP/3.0\r\n" HOST;
	struct reply r = { 0 };
	int fd = dial(server);

	(void)state;
	for (size_t i = 0; i < sizeof(head) - 1; i++)
		say_bytes(fd, head + i, 1);
	last_reply(fd, &r);
	expect_page(&r, 505, "http_version_not_supported", head);
	close(fd);
	reply_free(&r);
}

/* times pieces between before and after. */
static void expect_large(const char *before, const char *piece, size_t times, const char *after,
                         int status, const char *code)
{
	auto_buf struct buf text = BUF_INIT(1 << 20);

	buf_adds(&text, before);
	for (size_t i = 0; i < times; i++)
		buf_adds(&text, piece);
	buf_adds(&text, after);
	assert_false(buf_failed(&text));
	expect_refusal(text.data, text.len, status, code);
}

static void refuses_what_is_too_large(void **state)
{
	static const size_t times[] = { 500, 5000 };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(times); i++) {
		size_t n = times[i];

		expect_large("GET /", PIECE_4, n, " HTTP/1.1\r\n" HOST "\r\n", 414, "uri_too_long");
		expect_large(GET "X-A: ", PIECE_4, n, "\r\n\r\n", 431, "header_too_large");
		expect_large(GET PIECE, PIECE_4, n, ": a\r\n\r\n", 431, "header_too_large");
		expect_large(GET, "X-A: " PIECE_4 "\r\n", n, "\r\n", 431, "header_too_large");
		expect_large(GET, "a: b\r\n", n, "\r\n", 431, "header_too_large");
		expect_large(GET "Cookie: ", "a=b; ", n * 8, "\r\n\r\n", 431, "header_too_large");
	}
}

/*
 * What libmicrohttpd takes or refuses as it was built: it is answered as it was meant, or
 * with our page, never as something else.
 */
static void takes_or_refuses(void **state)
{
	static const struct {
		const char *text, *meant;
	} texts[] = {
		{ "GET /healthz HTTP/1.1\nHost: test\nX-A: a\nConnection: close\n\n",
		  "{\"len\":0}" },
		{ "\r\n\r\nGET /healthz HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n",
		  "{\"len\":0}" },
		{ POST "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
		       "2;ext=1\r\n{}\r\n0\r\n\r\n",
		  "{\"len\":2}" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		struct reply r = { 0 };
		int fd = dial(server);

		say(fd, texts[i].text);
		last_reply(fd, &r);
		if (r.status == 200)
			assert_string_equal(r.text + r.head_len, texts[i].meant);
		else
			expect_page(&r, 400, "bad_request", texts[i].text);
		close(fd);
		reply_free(&r);
	}
}

/* The page names the request when its head was understood. */
static void names_the_request(void **state)
{
	static const char text[] =
		"POST /v1/echo HTTP/1.1\r\n" AUTH
		"X-Request-ID: mine-1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n";
	struct reply r = { 0 };
	int fd = dial(server);

	(void)state;
	say(fd, text);
	last_reply(fd, &r);
	expect_page(&r, 400, "bad_request", text);
	assert_true(says(&r, "\r\nX-Request-ID: mine-1\r\n"));
	assert_true(says(&r, "\"requestId\":\"mine-1\""));
	close(fd);
	reply_free(&r);
}

/* Listed pages may read it too, as soon as the head says that they ask. */
static void is_read_by_listed_pages(void **state)
{
	static const char *const origins[] = { "https://app.example" };
	static const struct {
		const char *rest;
		int status;
		const char *code;
	} ends[] = {
		{ "Transfer-Encoding: chunked\r\n\r\nx\r\n", 400, "bad_request" },
		{ "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", 413,
		  "request_too_large" },
		{ "Content-Length: 3\r\n\r\n{", 408, "request_timeout" },
	};
	struct http_conf conf = test_conf(routes);
	struct http_server *s;

	(void)state;
	conf.origins = origins;
	conf.origin_count = ARRAY_LEN(origins);
	conf.request_ms = 4000; /* longer than this program may stand still */
	s = test_server(&conf);
	for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
		struct reply r = { 0 };
		int fd = dial(s);

		say(fd, POST "Origin: https://app.example\r\n");
		say(fd, ends[i].rest);
		last_reply(fd, &r);
		expect_page(&r, ends[i].status, ends[i].code, ends[i].rest);
		assert_int_equal(
			count_of(r.text,
		                 "\r\nAccess-Control-Allow-Origin: https://app.example\r\n"),
			1);
		assert_true(says(&r, "\r\nVary: Origin\r\n"));
		close(fd);
		reply_free(&r);
	}
	http_stop(&s);
}

static void says_nothing_behind_a_head(void **state)
{
	struct reply r = { 0 };
	int fd = dial(server);

	(void)state;
	say(fd, "HEAD /healthz HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nx\r\n");
	last_reply(fd, &r);
	assert_int_equal(r.status, 400);
	assert_int_equal(r.len, r.head_len);
	close(fd);
	reply_free(&r);
}

/* What was asked for before is answered before. */
static void answers_in_order(void **state)
{
	struct reply r = { 0 };
	int fd = dial(server);
	char *bad;

	(void)state;
	say(fd, POST "Content-Length: 2\r\n\r\n{}" POST "Content-Length: 3\r\n\r\n{ }"
	             "GET /healthz\r\n\r\n");
	last_reply(fd, &r);
	assert_int_equal(count_of(r.text, "HTTP/1.1 "), 3);
	bad = strstr(r.text, "HTTP/1.1 400 ");
	assert_non_null(bad);
	assert_int_equal(count_of(bad, "HTTP/1.1 "), 1);
	assert_true(strstr(r.text, "{\"len\":2}") < strstr(r.text, "{\"len\":3}"));
	assert_true(strstr(r.text, "{\"len\":3}") < bad);
	close(fd);
	reply_free(&r);
}

/* Whoever says nothing is told nothing. */
static void is_silent_to_the_silent(void **state)
{
	struct reply r = { 0 };
	int fd = dial(server);

	(void)state;
	assert_int_equal(shutdown(fd, SHUT_WR), 0);
	last_reply(fd, &r);
	assert_int_equal(r.len, 0);
	close(fd);
	reply_free(&r);
}

/* A head that stops in its middle is told so when its time is over. */
static void tells_a_head_that_it_is_late(void **state)
{
	struct http_conf conf = test_conf(routes);
	struct http_server *s;
	struct reply r = { 0 };
	int fd;

	(void)state;
	conf.request_ms = 4000; /* longer than this program may stand still */
	s = test_server(&conf);
	fd = dial(s);
	say(fd, GET "X-A: a\r\nX-B");
	last_reply(fd, &r);
	expect_page(&r, 408, "request_timeout", "half a head");
	close(fd);
	reply_free(&r);
	http_stop(&s);
}

static void knows_that_pages_are_ours(void **state)
{
	(void)state;
	assert_true(http_check_pages());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refuses_what_cannot_be_parsed),
		cmocka_unit_test(refuses_what_drips_in),
		cmocka_unit_test(refuses_what_is_too_large),
		cmocka_unit_test(takes_or_refuses),
		cmocka_unit_test(names_the_request),
		cmocka_unit_test(is_read_by_listed_pages),
		cmocka_unit_test(says_nothing_behind_a_head),
		cmocka_unit_test(answers_in_order),
		cmocka_unit_test(is_silent_to_the_silent),
		cmocka_unit_test(tells_a_head_that_it_is_late),
		cmocka_unit_test(knows_that_pages_are_ours),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
