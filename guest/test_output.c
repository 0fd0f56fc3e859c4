#include "common/test.h"

#include "guest/test_guest.h"

#include "guest/exec.h"
#include "guest/spool.h"

#include <arpa/inet.h>

/* Starts line in the background; its id. */
static void start_background(struct guest *g, const char *line, char ret_id[64])
{
	auto_buf struct buf b = BUF_INIT(5000);
	struct result r;

	buf_addf(&b, "{\"op\":\"exec\",\"cwd\":\"/\",\"background\":true,\"shell\":\"%s\"}", line);
	guest_send(g, FRAME_START, g->next, b.data, b.len);
	guest_send(g, FRAME_END, g->next, "", 0);
	guest_finish(g, g->next++, &r);
	assert_string_equal(result_word(&r), "");
	(void)snprintf(ret_id, 64, "%s", json_str(json_get(r.exit, "output")));
	result_release(&r);
}

/* more: further JSON of the call. */
static void call_about(struct guest *g, const char *op, const char *id, const char *more,
                       struct result *r)
{
	auto_buf struct buf b = BUF_INIT(400000);

	buf_addf(&b, "{\"op\":\"%s\",\"id\":\"%s\"%s}", op, id, more);
	guest_call(g, b.data, r);
}

static void expect_about(struct guest *g, const char *op, const char *id, const char *more,
                         const char *word)
{
	struct result r;

	call_about(g, op, id, more, &r);
	assert_string_equal(result_word(&r), word);
	result_release(&r);
}

static bool is_running(const struct result *r)
{
	return json_bool(json_get(r->exit, "running"));
}

/* Reads from offset on, as often as it takes, until want is all of the output. */
static void wait_text(struct guest *g, const char *id, const char *want, struct result *r)
{
	for (;;) {
		char more[64];

		call_about(g, "output", id, "", r);
		if (strcmp(result_text(r, 0), want) == 0)
			return;
		assert_true(is_running(r));
		(void)snprintf(more, sizeof(more), ",\"offset\":%d,\"waitMs\":20000,\"limit\":0",
		               (int)r->out[0].len);
		result_release(r);
		call_about(g, "output", id, more, r);
		result_release(r);
	}
}

static void wait_end(struct guest *g, const char *id, struct result *r)
{
	call_about(g, "output", id, ",\"offset\":9000000000,\"limit\":0,\"waitMs\":20000", r);
	assert_false(is_running(r));
}

static void a_command_in_the_background(void **state)
{
	struct result r;
	struct guest g;
	char id[64];

	(void)state;
	guest_begin(&g);
	start_background(&g, "echo hello; read a; echo $a >&2; exit 3", id);
	wait_text(&g, id, "hello\n", &r);
	assert_true(is_running(&r));
	result_release(&r);
	expect_about(&g, "input", id, ",\"data\":\"wor\"", "");
	expect_about(&g, "input", id, ",\"data\":\"ld\\n\"", "");
	wait_end(&g, id, &r);
	assert_string_equal(result_word(&r), "exited");
	assert_int_equal(result_int(&r, "code"), 3);
	result_release(&r);
	call_about(&g, "output", id, ",\"offset\":3,\"limit\":7", &r);
	assert_string_equal(result_text(&r, 0), "lo\nworl");
	assert_int_equal(result_int(&r, "total"), 12);
	assert_int_equal(result_int(&r, "offset"), 3);
	assert_int_equal(result_int(&r, "bytes"), 7);
	result_release(&r);
	expect_about(&g, "input", id, ",\"data\":\"x\"", "invalid");
	expect_about(&g, "stop", id, "", "invalid");
	guest_end(&g);
}

static void its_input_ends(void **state)
{
	struct result r;
	struct guest g;
	char id[64];

	(void)state;
	guest_begin(&g);
	start_background(&g, "cat; echo end", id);
	expect_about(&g, "input", id, ",\"data\":\"x\",\"end\":true", "");
	expect_about(&g, "input", id, ",\"data\":\"y\"", "invalid");
	wait_end(&g, id, &r);
	result_release(&r);
	call_about(&g, "output", id, "", &r);
	assert_string_equal(result_text(&r, 0), "xend\n");
	result_release(&r);
	guest_end(&g);
}

static void input_that_nobody_reads(void **state)
{
	auto_buf struct buf more = BUF_INIT(200000);
	struct guest g;
	char id[64];
	int n = 0;

	(void)state;
	buf_adds(&more, ",\"data\":\"");
	for (int i = 0; i < 100000; i++)
		buf_addc(&more, 'x');
	buf_addc(&more, '"');
	guest_begin(&g);
	start_background(&g, "sleep 1000", id);
	for (;; n++) {
		struct result r;
		bool busy;

		call_about(&g, "input", id, more.data, &r);
		busy = strcmp(result_word(&r), "busy") == 0;
		assert_true(busy || !*result_word(&r));
		result_release(&r);
		if (busy)
			break;
	}
	assert_in_range(n, 2, 10);
	expect_about(&g, "stop", id, "", "stopped");
	guest_end(&g);
}

/* With all that it started. */
static void a_command_is_stopped(void **state)
{
	struct result r;
	struct guest g;
	char id[64];
	pid_t child;

	(void)state;
	guest_begin(&g);
	start_background(&g, "setsid sleep 1000 & echo $!; wait", id);
	do {
		call_about(&g, "output", id, ",\"waitMs\":20000", &r);
		child = r.out[0].len ? (pid_t)strtol(result_text(&r, 0), NULL, 10) : 0;
		result_release(&r);
	} while (!child);
	assert_int_equal(kill(child, 0), 0);
	call_about(&g, "stop", id, "", &r);
	assert_string_equal(result_word(&r), "stopped");
	assert_false(is_running(&r));
	result_release(&r);
	assert_int_equal(kill(child, 0), -1);
	guest_end(&g);
}

static void they_have_a_deadline(void **state)
{
	struct result r;
	struct guest g;
	char id[64];

	(void)state;
	guest_begin(&g);
	guest_call(&g,
	           "{\"op\":\"exec\",\"cwd\":\"/\",\"background\":true,\"shell\":\"sleep 1000\","
	           "\"timeoutMs\":50}",
	           &r);
	(void)snprintf(id, sizeof(id), "%s", json_str(json_get(r.exit, "output")));
	result_release(&r);
	wait_end(&g, id, &r);
	assert_string_equal(result_word(&r), "timeout");
	result_release(&r);
	guest_end(&g);
}

static void what_cannot_run_says_so(void **state)
{
	struct result r;
	struct guest g;
	char id[64];

	(void)state;
	guest_begin(&g);
	guest_call(&g, "{\"op\":\"exec\",\"cwd\":\"/none\",\"background\":true,\"shell\":\"true\"}",
	           &r);
	(void)snprintf(id, sizeof(id), "%s", json_str(json_get(r.exit, "output")));
	result_release(&r);
	wait_end(&g, id, &r);
	assert_string_equal(result_word(&r), "no_cwd");
	result_release(&r);
	expect_about(&g, "output", "out_000000_1", "", "not_found");
	expect_about(&g, "output", "x", ",\"offset\":-1", "not_found");
	expect_about(&g, "output", id, ",\"offset\":-1", "invalid");
	expect_about(&g, "output", id, ",\"waitMs\":60001", "invalid");
	expect_about(&g, "output", "0123456789012345678901234567890x", "", "invalid");
	guest_end(&g);
}

static uint32_t busy_commands(struct guest *g)
{
	struct frame f;
	uint32_t n;

	guest_send(g, FRAME_PING, 99999, "", 0);
	do
		assert_true(guest_frame(g, &f));
	while (f.type != FRAME_PONG);
	memcpy(&n, f.payload, sizeof(n));
	return ntohl(n);
}

/* They keep the sandbox from being idle, and their number has a bound. */
static void commands_are_bounded(void **state)
{
	char ids[EXEC_BACKGROUND_MAX][64];
	const struct json *list;
	struct result r;
	struct guest g;

	(void)state;
	guest_begin(&g);
	assert_int_equal(busy_commands(&g), 0);
	for (int i = 0; i < EXEC_BACKGROUND_MAX; i++)
		start_background(&g, "sleep 1000", ids[i]);
	assert_int_equal(busy_commands(&g), EXEC_BACKGROUND_MAX);
	expect_word(&g, "{\"op\":\"exec\",\"cwd\":\"/\",\"background\":true,\"shell\":\"true\"}",
	            "busy");
	expect_about(&g, "stop", ids[3], "", "stopped");
	start_background(&g, "sleep 1000", ids[3]);
	guest_call(&g, "{\"op\":\"commands\"}", &r);
	list = json_get(r.exit, "commands");
	assert_int_equal(json_len(list), EXEC_BACKGROUND_MAX + 1);
	assert_string_equal(json_str(json_get(json_at(list, 0), "id")), ids[3]);
	assert_string_equal(json_str(json_get(json_at(list, 0), "command")), "sleep 1000");
	assert_true(json_bool(json_get(json_at(list, 0), "running")));
	result_release(&r);
	guest_end(&g);
}

/* -- output of other commands ----------------------------------------------------------------- */

static void run_kept(struct guest *g, const char *line, int keep, char ret_id[64])
{
	auto_buf struct buf b = BUF_INIT(5000);
	const struct json *id;
	struct result r;

	buf_addf(&b, "{\"op\":\"exec\",\"cwd\":\"/\",\"keep\":%d,\"shell\":\"%s\"}", keep, line);
	guest_call(g, b.data, &r);
	assert_string_equal(result_word(&r), "exited");
	id = json_get(r.exit, "output");
	(void)snprintf(ret_id, 64, "%s", id ? json_str(id) : "");
	result_release(&r);
}

static void long_output_is_kept(void **state)
{
	struct result r;
	struct guest g;
	char id[64];

	(void)state;
	guest_begin(&g);
	run_kept(&g, "printf 12345", 5, id);
	assert_string_equal(id, "");
	run_kept(&g, "printf 123; printf 456 >&2", 5, id);
	call_about(&g, "output", id, "", &r);
	assert_int_equal(r.out[0].len, 6); /* of two pipes, in the order in which it came */
	assert_false(is_running(&r));
	result_release(&r);
	guest_end(&g);
}

/* Bytes that say where they are: numbers of seven digits, a line each. */
static void check_lines(const struct result *r, uint64_t offset)
{
	for (uint64_t at = (offset + 7) / 8 * 8; at + 8 <= offset + r->out[0].len; at += 8) {
		char want[16];

		(void)snprintf(want, sizeof(want), "%07d\n", (int)(at / 8));
		assert_memory_equal(r->out[0].data + (at - offset), want, 8);
	}
}

static void head_and_tail_are_kept(void **state)
{
	const uint64_t total = 8 * (uint64_t)1200000; /* more than both together */
	struct result r;
	struct guest g;
	char id[64];

	(void)state;
	guest_begin(&g);
	run_kept(&g, "seq -f %07.0f 0 1199999", 0, id);
	call_about(&g, "output", id, "", &r);
	assert_int_equal(result_int(&r, "total"), total);
	assert_int_equal(result_int(&r, "gapFrom"), SPOOL_HEAD);
	assert_int_equal(result_int(&r, "gapTo"), total - SPOOL_TAIL);
	assert_int_equal(r.out[0].len, SPOOL_HEAD);
	check_lines(&r, 0);
	result_release(&r);
	call_about(&g, "output", id, ",\"offset\":2097160", &r); /* within the gap */
	assert_int_equal(result_int(&r, "offset"), total - SPOOL_TAIL);
	assert_int_equal(r.out[0].len, SPOOL_TAIL);
	check_lines(&r, total - SPOOL_TAIL);
	result_release(&r);
	guest_end(&g);
}

/* The oldest goes when all together are too large, or too many. */
static void the_sum_is_bounded(void **state)
{
	char first[64], second[64], id[64];
	struct guest g;

	(void)state;
	guest_begin(&g);
	run_kept(&g, "head -c 9600000 /dev/zero", 0, first);
	for (int i = 0; i < (int)(SPOOL_SUM / (SPOOL_HEAD + SPOOL_TAIL)) - 1; i++)
		run_kept(&g, "head -c 9600000 /dev/zero", 0, i ? id : second);
	expect_about(&g, "output", first, ",\"limit\":1", "");
	run_kept(&g, "echo one more", 0, id);
	expect_about(&g, "output", first, ",\"limit\":1", "not_found");
	expect_about(&g, "output", second, ",\"limit\":1", "");
	expect_about(&g, "output", id, "", "");
	for (int i = 0; i < SPOOL_OUTPUTS - 1; i++)
		run_kept(&g, "echo", 0, i ? id : first);
	expect_about(&g, "output", second, ",\"limit\":1", "not_found");
	expect_about(&g, "output", first, ",\"limit\":1", "");
	guest_end(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_command_in_the_background),
		cmocka_unit_test(its_input_ends),
		cmocka_unit_test(input_that_nobody_reads),
		cmocka_unit_test(a_command_is_stopped),
		cmocka_unit_test(they_have_a_deadline),
		cmocka_unit_test(what_cannot_run_says_so),
		cmocka_unit_test(commands_are_bounded),
		cmocka_unit_test(long_output_is_kept),
		cmocka_unit_test(head_and_tail_are_kept),
		cmocka_unit_test(the_sum_is_bounded),
	};

	return RUN_TESTS(tests);
}
