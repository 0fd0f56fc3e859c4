/* Inside the courier: what becomes of an answer, which this test gives on a port of its own. */
#include "common/test.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/test_net.h"
#include "daemon/model/courier_client.h"
#include "daemon/model/courier_request.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define KEY         "a-secret"
#define GENEROUS_MS 20000 /* for what happens at once, on a slow machine too */

static struct courier courier;
static struct courier_request *request;
static int listener = -1;
static int server = -1; /* the connection of the request */
static int asker = -1;  /* who waits for its answer */

/* -- a request that was sent ---------------------------------------------------------------------
 */

/* Let curl do what there is to do now; true when it is done with the request. */
static bool go_on(void)
{
	int running, ready, left;
	const CURLMsg *m;

	assert_int_equal(curl_multi_perform(courier.multi, &running), CURLM_OK);
	assert_int_equal(curl_multi_poll(courier.multi, NULL, 0, 10, &ready), CURLM_OK);
	m = curl_multi_info_read(courier.multi, &left);
	if (m)
		courier_request_done(request, m->data.result);
	return m != NULL;
}

/* Until that is so, which is not the end of it. */
static void go_on_until(bool (*met)(void))
{
	uint64_t deadline = clock_mono_ms() + GENEROUS_MS;

	while (!met()) {
		assert_false(go_on());
		assert_true(clock_mono_ms() < deadline);
	}
}

static void go_on_to_the_end(void)
{
	uint64_t deadline = clock_mono_ms() + GENEROUS_MS;

	while (!go_on())
		assert_true(clock_mono_ms() < deadline);
}

static bool is_readable(int fd)
{
	return poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, 0) == 1;
}

static bool is_connected(void)
{
	return is_readable(listener);
}

static bool is_asked(void)
{
	return is_readable(server);
}

static bool has_status(void)
{
	long status = 0;

	return curl_easy_getinfo(request->easy, CURLINFO_RESPONSE_CODE, &status) == CURLE_OK &&
	       status;
}

static bool has_body(void)
{
	return request->out.len > 2 * sizeof(struct courier_piece) + sizeof(struct courier_head);
}

static bool is_paused(void)
{
	return request->paused;
}

static int begin(void **state)
{
	static struct endpoint place = { .local = true };
	static const struct courier_conf conf = { .mcp = &place, .mcp_count = 1 };
	const struct courier_ask ask = { .len = 2, .to = COURIER_TO_MCP };
	char text[4096];
	int ends[2];

	(void)state;
	listener = open_port(1, &place.port);
	(void)snprintf(place.url, sizeof(place.url), "http://127.0.0.1:%u/", place.port);
	(void)snprintf(courier.mcp_keys[0], sizeof(courier.mcp_keys[0]), "%s", KEY);
	courier.conf = &conf;
	courier.multi = curl_multi_init();
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	asker = ends[0];
	request = courier_request_new(&courier, ends[1]);
	assert_int_equal(send(asker, &ask, sizeof(ask), 0), sizeof(ask));
	courier_request_read(request);
	assert_int_equal(send(asker, "{}", 2, 0), 2);
	courier_request_read(request);
	go_on_until(is_connected);
	server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	go_on_until(is_asked);
	assert_true(recv(server, text, sizeof(text), 0) > 0);
	return 0;
}

static int end(void **state)
{
	(void)state;
	courier_request_free(&request);
	assert_int_equal(curl_multi_cleanup(courier.multi), CURLM_OK);
	fd_close(&listener);
	fd_close(&server);
	fd_close(&asker);
	return 0;
}

static void answer(const char *text)
{
	assert_int_equal(send(server, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static void hear(struct courier_reply *ret)
{
	const struct cancel nobody = { .fd = -1 };
	const struct courier_wait w = { &nobody, clock_mono_ms() + GENEROUS_MS };
	struct err e = ERR_INIT;

	assert_int_equal(courier_next(asker, &w, ret, &e), 0);
}

/* -- bounds --------------------------------------------------------------------------------------
 */

static void expect_session(size_t len, bool unfit)
{
	auto_free struct courier_reply *reply = malloc(sizeof(*reply));
	char text[400];

	assert_non_null(reply);
	(void)snprintf(text, sizeof(text),
	               "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nMcp-Session-Id: %0*d\r\n\r\n",
	               (int)len, 0);
	answer(text);
	go_on_to_the_end();
	hear(reply);
	assert_int_equal(reply->piece.kind, COURIER_HEAD);
	assert_int_equal(reply->head.session_unfit, unfit);
	assert_int_equal(strlen(reply->head.session), unfit ? 0 : len);
}

static void the_longest_name_of_a_session(void **state)
{
	(void)state;
	expect_session(COURIER_SESSION_MAX, false);
}

static void a_name_that_is_too_long(void **state)
{
	(void)state;
	expect_session(COURIER_SESSION_MAX + 1, true);
}

/* Of a body of so many bytes, once the key in it is replaced by what is two bytes longer. */
static void expect_pieces(size_t len, size_t first, size_t second)
{
	auto_free struct courier_reply *reply = malloc(sizeof(*reply));
	char body[COURIER_PIECE_MAX + 1] = KEY;

	assert_non_null(reply);
	memset(body + strlen(KEY), 'x', len - strlen(REDACTED));
	answer("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
	go_on_until(has_status);
	answer(body);
	go_on_until(has_body);
	courier_request_write(request);
	hear(reply); /* the head */
	hear(reply);
	assert_int_equal(reply->piece.kind, COURIER_BODY);
	assert_int_equal(reply->piece.len, first);
	assert_memory_equal(reply->body, REDACTED, strlen(REDACTED));
	assert_int_equal(shutdown(server, SHUT_WR), 0);
	go_on_to_the_end();
	hear(reply);
	assert_int_equal(reply->piece.kind, second ? COURIER_BODY : COURIER_END);
	if (second)
		assert_int_equal(reply->piece.len, second);
}

static void the_longest_piece(void **state)
{
	(void)state;
	expect_pieces(COURIER_PIECE_MAX, COURIER_PIECE_MAX, 0);
}

static void more_than_a_piece(void **state)
{
	(void)state;
	expect_pieces(COURIER_PIECE_MAX + 1, COURIER_PIECE_MAX, 1);
}

/* Nobody has taken so many bytes yet, and there is one more. */
static void answer_behind(size_t waiting)
{
	memset(buf_extend(&request->out, waiting), 0, waiting);
	answer("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx");
}

static void what_waits_below_the_bound(void **state)
{
	(void)state;
	answer_behind(COURIER_OUT_MAX - 1);
	go_on_to_the_end();
}

static void what_waits_holds_up_the_provider(void **state)
{
	char taken[4096];

	(void)state;
	answer_behind(COURIER_OUT_MAX);
	go_on_until(is_paused);
	assert_int_equal(request->out.len, COURIER_OUT_MAX);
	while (request->paused) {
		courier_request_write(request);
		assert_true(recv(asker, taken, sizeof(taken), 0) > 0);
	}
	go_on_to_the_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_longest_name_of_a_session, begin, end),
		cmocka_unit_test_setup_teardown(a_name_that_is_too_long, begin, end),
		cmocka_unit_test_setup_teardown(the_longest_piece, begin, end),
		cmocka_unit_test_setup_teardown(more_than_a_piece, begin, end),
		cmocka_unit_test_setup_teardown(what_waits_below_the_bound, begin, end),
		cmocka_unit_test_setup_teardown(what_waits_holds_up_the_provider, begin, end),
	};

	return RUN_TESTS(tests);
}
