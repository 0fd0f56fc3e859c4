#include "common/test.h"

#include "guest/fault.h"
#include "guest/test_guest.h"

static void expect_end(struct guest *g, int code)
{
	struct frame f;

	while (guest_frame(g, &f))
		;
	assert_int_equal(guest_wait(g), code);
}

static void expect_bad_hello(enum frame_type type, uint64_t call, const char *payload)
{
	struct guest g;

	guest_run(&g);
	guest_send(&g, type, call, payload, strlen(payload));
	expect_end(&g, GUEST_EXIT_HANDSHAKE);
}

static void test_hello(void **state)
{
	(void)state;
	struct guest g;

	guest_begin(&g);
	guest_end(&g);
	expect_bad_hello(FRAME_HELLO, 0, "{\"version\":2,\"new\":true}");
	expect_bad_hello(FRAME_HELLO, 0, "{\"version\":1}");
	expect_bad_hello(FRAME_HELLO, 0, "{\"version\":1,\"tenant\":\"x\",\"processes\":512}");
	expect_bad_hello(FRAME_HELLO, 0, "[]");
	expect_bad_hello(FRAME_HELLO, 0, "not json");
	expect_bad_hello(FRAME_HELLO, 7, "{\"version\":1}");
	expect_bad_hello(FRAME_PING, 0, "");
}

static void test_end_without_hello(void **state)
{
	(void)state;
	struct guest g;

	guest_run(&g);
	guest_end(&g);
}

static void test_malformed_frames(void **state)
{
	static const char unknown[13] = { 0, 0, 0, 0, 0x55 };
	static const char huge[13] = { 0x7f, 0, 0, 0, FRAME_START };
	static const char long_ping[14] = { 0, 0, 0, 1, FRAME_PING };
	const char *const frames[] = { unknown, huge, long_ping };
	struct guest g;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(frames); i++) {
		guest_begin(&g);
		guest_raw(&g, frames[i], i == 2 ? sizeof(long_ping) : sizeof(unknown));
		expect_end(&g, GUEST_EXIT_PROTOCOL);
	}
}

static void test_frames_out_of_place(void **state)
{
	static const enum frame_type types[] = { FRAME_HELLO,  FRAME_READY, FRAME_STDOUT,
		                                 FRAME_STDERR, FRAME_EXIT,  FRAME_PONG };
	struct guest g;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		guest_begin(&g);
		guest_send(&g, types[i], 1, "", 0);
		expect_end(&g, GUEST_EXIT_PROTOCOL);
	}
}

static void test_call_id_in_use(void **state)
{
	(void)state;
	struct guest g;

	guest_begin(&g);
	(void)guest_start(&g, "{\"op\":\"exec\",\"shell\":\"sleep 9\",\"cwd\":\"/\"}");
	g.next = 1;
	(void)guest_start(&g, "{\"op\":\"exec\",\"shell\":\"sleep 9\",\"cwd\":\"/\"}");
	expect_end(&g, GUEST_EXIT_PROTOCOL);
	guest_begin(&g);
	g.next = 0;
	(void)guest_start(&g, "{\"op\":\"exec\",\"shell\":\"sleep 9\",\"cwd\":\"/\"}");
	expect_end(&g, GUEST_EXIT_PROTOCOL);
}

static void test_ping_and_byte_by_byte(void **state)
{
	auto_buf struct buf b = BUF_INIT(100);
	struct guest g;
	struct frame f;

	(void)state;
	guest_begin(&g);
	frame_put(&b, FRAME_PING, 77, "", 0);
	for (size_t i = 0; i < b.len; i++)
		guest_raw(&g, b.data + i, 1);
	assert_true(guest_frame(&g, &f));
	assert_int_equal(f.type, FRAME_PONG);
	assert_int_equal(f.call, 77);
	guest_end(&g);
}

static void test_unknown_calls_are_ignored(void **state)
{
	struct guest g;
	struct frame f;

	(void)state;
	guest_begin(&g);
	guest_send(&g, FRAME_INPUT, 99, "x", 1);
	guest_send(&g, FRAME_END, 99, "", 0);
	guest_send(&g, FRAME_CANCEL, 99, "", 0);
	guest_credit(&g, 99, 5);
	guest_send(&g, FRAME_PING, 1, "", 0);
	assert_true(guest_frame(&g, &f));
	assert_int_equal(f.type, FRAME_PONG);
	guest_end(&g);
}

static void test_bad_requests(void **state)
{
	static const char *const requests[] = {
		"",
		"nonsense",
		"[]",
		"{}",
		"{\"op\":1}",
		"{\"op\":\"reboot\"}",
		"{\"op\":\"exec\",\"cwd\":\"/\"}",
		"{\"op\":\"exec\",\"shell\":\"true\"}",
		"{\"op\":\"exec\",\"shell\":\"true\",\"cwd\":\"tmp\"}",
		"{\"op\":\"exec\",\"shell\":\"true\",\"argv\":[\"true\"],\"cwd\":\"/\"}",
		"{\"op\":\"exec\",\"argv\":[],\"cwd\":\"/\"}",
		"{\"op\":\"exec\",\"argv\":[\"\"],\"cwd\":\"/\"}",
		"{\"op\":\"exec\",\"argv\":[1],\"cwd\":\"/\"}",
		"{\"op\":\"exec\",\"argv\":\"true\",\"cwd\":\"/\"}",
		"{\"op\":\"exec\",\"shell\":\"true\",\"cwd\":\"/\",\"cwd\":\"/\"}",
		"{\"op\":\"exec\",\"shell\":\"true\",\"cwd\":\"/\",\"pty\":true}",
		"{\"op\":\"exec\",\"shell\":\"true\",\"cwd\":\"/\",\"env\":{\"A=B\":\"c\"}}",
		"{\"op\":\"exec\",\"shell\":\"true\",\"cwd\":\"/\",\"env\":{\"A\":1}}",
		"{\"op\":\"exec\",\"shell\":\"true\",\"cwd\":\"/\",\"timeoutMs\":0}",
		"{\"op\":\"exec\",\"shell\":\"true\",\"cwd\":\"/\",\"timeoutMs\":86400001}",
		"{\"op\":\"exec\",\"shell\":\"true\",\"cwd\":\"/\",\"timeoutMs\":1.5}",
		"{\"op\":\"exec\",\"shell\":\"a\\u0000b\",\"cwd\":\"/\"}",
		"{\"op\":\"read\"}",
		"{\"op\":\"read\",\"path\":\"etc/passwd\"}",
		"{\"op\":\"read\",\"path\":\"/etc/passwd\",\"offset\":-1}",
		"{\"op\":\"read\",\"path\":\"/etc/passwd\",\"limit\":1099511627777}",
		"{\"op\":\"read\",\"path\":\"/etc/passwd\",\"mode\":1}",
		"{\"op\":\"list\",\"path\":\"/\",\"limit\":0}",
		"{\"op\":\"list\",\"path\":\"/\",\"limit\":10001}",
		"{\"op\":\"write\",\"path\":\"/tmp/x\",\"mode\":512}",
		"{\"op\":\"write\",\"path\":\"/tmp/x\",\"mode\":-1}",
	};
	struct guest g;

	(void)state;
	guest_begin(&g);
	for (size_t i = 0; i < ARRAY_LEN(requests); i++)
		expect_word(&g, requests[i], "invalid");
	guest_end(&g);
}

static void test_bounds_of_a_request(void **state)
{
	auto_buf struct buf b = BUF_INIT(FRAME_CONTROL_MAX);
	struct guest g;
	struct result r;

	(void)state;
	guest_begin(&g);
	for (int n = 1024; n <= 1025; n++) {
		buf_reset(&b);
		buf_adds(&b, "{\"op\":\"exec\",\"cwd\":\"/\",\"argv\":[\"echo\"");
		for (int i = 1; i < n; i++)
			buf_adds(&b, ",\"a\"");
		buf_adds(&b, "]}");
		expect_word(&g, b.data, n == 1024 ? "exited" : "invalid");
	}
	for (int n = 256; n <= 257; n++) {
		buf_reset(&b);
		buf_adds(
			&b,
			"{\"op\":\"exec\",\"cwd\":\"/\",\"shell\":\"echo $V255\",\"env\":{\"V0\":\"\"");
		for (int i = 1; i < n; i++)
			buf_addf(&b, ",\"V%d\":\"v\"", i);
		buf_adds(&b, "}}");
		guest_call(&g, b.data, &r);
		assert_string_equal(result_text(&r, 0), n == 256 ? "v\n" : "");
		assert_string_equal(result_word(&r), n == 256 ? "exited" : "invalid");
		result_release(&r);
	}
	guest_end(&g);
}

/* 256 calls may be open; the next is refused, and room comes back when one ends. */
static void test_257th_call(void **state)
{
	static const char request[] = "{\"op\":\"write\",\"path\":\"/tmp/guest-calls-never\"}";
	struct guest g;
	struct result r;

	(void)state;
	guest_begin(&g);
	for (int i = 0; i < FRAME_CALLS_MAX; i++)
		(void)guest_start(&g, request);
	expect_word(&g, request, "busy");
	guest_send(&g, FRAME_CANCEL, 9, "", 0);
	guest_finish(&g, 9, &r);
	assert_string_equal(result_word(&r), "cancelled");
	result_release(&r);
	(void)guest_start(&g, request);
	expect_word(&g, request, "busy");
	guest_end(&g);
	assert_int_equal(access("/tmp/guest-calls-never", F_OK), -1);
}

/* A guest whose answers nobody reads stops reading, and goes on where it was. */
static void test_full_pipe(void **state)
{
	auto_buf struct buf pings = BUF_INIT(8U << 20);
	struct guest g;
	struct frame f;
	size_t sent = 0, answers = 0, n = 300000;

	(void)state;
	guest_begin(&g);
	for (size_t i = 0; i < n; i++)
		frame_put(&pings, FRAME_PING, i + 1, "", 0);
	assert_int_equal(fcntl(g.in, F_SETFL, O_NONBLOCK), 0);
	for (int idle = 0; idle < 20 && sent < pings.len;) {
		ssize_t w = write(g.in, pings.data + sent, pings.len - sent);

		sent += w > 0 ? (size_t)w : 0;
		idle = w > 0 ? 0 : idle + 1;
		if (w <= 0)
			(void)usleep(5000);
	}
	assert_true(sent < pings.len);
	while (answers < n) {
		ssize_t w = write(g.in, pings.data + sent, pings.len - sent);

		sent += w > 0 ? (size_t)w : 0;
		assert_true(guest_frame(&g, &f));
		assert_int_equal(f.type, FRAME_PONG);
		assert_int_equal(f.call, ++answers);
	}
	guest_end(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hello),
		cmocka_unit_test(test_end_without_hello),
		cmocka_unit_test(test_malformed_frames),
		cmocka_unit_test(test_frames_out_of_place),
		cmocka_unit_test(test_call_id_in_use),
		cmocka_unit_test(test_ping_and_byte_by_byte),
		cmocka_unit_test(test_unknown_calls_are_ignored),
		cmocka_unit_test(test_bad_requests),
		cmocka_unit_test(test_bounds_of_a_request),
		cmocka_unit_test(test_257th_call),
		cmocka_unit_test(test_full_pipe),
	};

	return RUN_TESTS(tests);
}
