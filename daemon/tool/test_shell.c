#include "common/test.h"

#include "daemon/tool/test_tool.h"

/* What follows prefix in the latest result, up to the end of the word. */
static void word_after(const char *prefix, char ret[64])
{
	const char *at = strstr(last.result.body, prefix);
	size_t n;

	assert_non_null(at);
	at += strlen(prefix);
	n = strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789_");
	assert_in_range(n, 1, 63);
	memcpy(ret, at, n);
	ret[n] = '\0';
}

static const char *with_id(const char *id, const char *more)
{
	static char text[500];

	(void)snprintf(text, sizeof(text), "{\"id\":\"%s\"%s}", id, more);
	return text;
}

static void start(const char *line, char ret_id[64])
{
	char text[500];

	(void)snprintf(text, sizeof(text), "{\"background\":true,\"command\":\"%s\"}", line);
	BEGINS("shell", text, "started in the background as out_");
	word_after("background as ", ret_id);
}

/* What the first look shows; on a machine that stands still it may come too early. */
static void start_and_see(const char *arguments, const char *words)
{
	for (int tries = 0; tries < 5; tries++) {
		BEGINS("shell", arguments, "started in the background as out_");
		if (strstr(last.result.body, words))
			return;
	}
	has(words);
}

/* -- output that was cut ---------------------------------------------------------------------- */

static void cut_output_stays_readable(void **state)
{
	char id[64];

	(void)state;
	BEGINS("shell", "{\"command\":\"seq -f %05.0f 1 10922; printf abcd\"}", "00001\n");
	assert_false(last.result.truncated); /* 65,536 bytes */
	assert_null(strstr(last.result.body, "read_output"));
	BEGINS("shell", "{\"command\":\"seq -f %05.0f 1 20000; exit 2\"}", "00001\n");
	assert_true(last.result.truncated);
	has(" bytes cut]\n");
	has("\n20000\n[exit code 2]\n[more of it: read_output with id out_");
	word_after("with id ", id);
	assert_string_equal(json_str(json_get(last.details, "outputId")), id);
	BEGINS("read_output", with_id(id, ",\"line\":10000,\"lines\":2"),
	       "10000\n10001\n[lines 10000 to 10001 of 20000]");
	BEGINS("read_output", with_id(id, ",\"offset\":59994,\"limit\":6"),
	       "10000\n[bytes 59994 to 60000 of 120000; go on with offset 60000]");
	BEGINS("read_output", with_id(id, ",\"contains\":\"777\""), "4656: 00777\n");
	has("\n106662: 17778\n");
	has("\n[38 lines, each after its offset]");
	BEGINS("read_output", with_id(id, ",\"contains\":\"77\",\"lines\":1"),
	       "456: 00077\n[1 lines");
	has("there may be more]");
	BEGINS("read_output", with_id(id, ",\"contains\":\"x\""), "[no line contains it]");
	BEGINS("read_output", with_id(id, ",\"line\":20001"), "[the output has 20000 lines]");
	BEGINS("read_output", with_id(id, ",\"offset\":120000"),
	       "[bytes 120000 to 120000 of 120000");
	BEGINS("read_output", with_id(id, ""), "00001\n");
	has("; go on with offset 65536]");
}

static void what_is_not_kept(void **state)
{
	char id[64];

	(void)state;
	BEGINS("shell", "{\"command\":\"seq -f %07.0f 0 1199999\"}", "0000000\n");
	word_after("with id ", id);
	BEGINS("read_output", with_id(id, ",\"offset\":2097144"),
	       "0262143\n[bytes 2097144 to 2097152");
	has("[bytes 2097152 to 3308543 are not kept]");
	BEGINS("read_output", with_id(id, ",\"offset\":3000000,\"limit\":8"), "0413568\n");
	BEGINS("read_output", with_id(id, ",\"line\":262144,\"lines\":2"),
	       "0262143\n[lines 262144");
	has("are not kept]");
	BEGINS("read_output", with_id(id, ",\"contains\":\"0413568\""), "3308544: 0413568\n");
	BEGINS("read_output", with_id(id, ",\"contains\":\"0262144\""),
	       "[no line contains it]\n[bytes");
	BEGINS("read_output", "{\"id\":\"out_000000_1\"}", "error: not_found: ");
	BEGINS("read_output", "{\"id\":\"../../etc\"}", "error: not_found: ");
	BEGINS("read_output", with_id(id, ",\"line\":1,\"offset\":1"),
	       "error: invalid_arguments: ");
	BEGINS("read_output", with_id(id, ",\"line\":1,\"contains\":\"x\""),
	       "error: invalid_arguments: ");
	BEGINS("read_output", with_id(id, ",\"offset\":-1"), "error: invalid_arguments: offset");
}

/* -- in the background ------------------------------------------------------------------------ */

static void a_background_command(void **state)
{
	static const char line[] =
		"echo ready; while read a; do echo got $a; done; echo bye; exit 4";
	char id[64];

	(void)state;
	start(line, id);
	for (int tries = 0; tries < 5 && !strstr(last.result.body, "\nready\n[running]"); tries++) {
		BEGINS("shell_stop", with_id(id, ""), id);
		start(line, id);
	}
	has("\nready\n[running]");
	BEGINS("shell_write", with_id(id, ",\"text\":\"one\\n\""), "wrote 4 bytes");
	BEGINS("shell_read", with_id(id, ",\"offset\":6,\"waitMs\":20000"), "got one\n");
	has("\n[bytes 6 to 14 of 14; go on with offset 14]\n[running]");
	BEGINS("shell_read", "{}", id);
	has(": echo ready; while read a; do echo got $a; done; echo bye; exit 4\n[running]\n");
	BEGINS("shell_write", with_id(id, ",\"text\":\"two\",\"end\":true"),
	       "wrote 3 bytes and ended its input");
	BEGINS("shell_read", with_id(id, ",\"waitMs\":20000"), "ready\ngot one\n");
	has("bye\n[exit code 4]");
	assert_int_equal(json_int(json_get(last.details, "exitCode")), 4);
	BEGINS("shell_read", with_id(id, ",\"limit\":4"), "bye\n[bytes 14 to 18 of 18");
	BEGINS("shell_write", with_id(id, ",\"text\":\"x\""), "error: invalid: ");
	BEGINS("shell_stop", with_id(id, ""), "error: invalid: ");
	BEGINS("read_output", with_id(id, ",\"line\":2,\"lines\":1"),
	       "got one\n[lines 2 to 2 of 3]");
}

static void it_is_stopped(void **state)
{
	char id[64];

	(void)state;
	start("sleep 1000", id);
	has("\n[running]");
	BEGINS("shell_stop", with_id(id, ""), id);
	has("\n[ended: stopped]");
	BEGINS("shell_read", with_id(id, ""), "[ended: stopped]");
}

static void what_does_not_start(void **state)
{
	char id[8][64];

	(void)state;
	start_and_see("{\"background\":true,\"command\":\"true\",\"cwd\":\"none\"}",
	              "[not run: no_cwd: working directory: ");
	start_and_see("{\"background\":true,\"command\":\"echo oops >&2; exit 1\"}",
	              "oops\n[exit code 1]");
	start_and_see("{\"background\":true,\"timeoutMs\":50,\"command\":\"sleep 1000\"}",
	              "[ended: timeout]");
	for (int i = 0; i < 8; i++)
		start("sleep 1000", id[i]);
	BEGINS("shell", "{\"background\":true,\"command\":\"true\"}", "error: busy: 8 commands");
	BEGINS("shell", "{\"command\":\"echo still\"}", "still");
	BEGINS("shell_read", "{\"id\":\"x\",\"waitMs\":60001}",
	       "error: invalid_arguments: waitMs: ");
	BEGINS("shell_read", "{\"id\":\"x\"}", "error: not_found: ");
	BEGINS("shell_write", "{\"id\":\"x\",\"text\":\"y\"}", "error: not_found: ");
	BEGINS("shell_stop", "{\"id\":\"x\"}", "error: not_found: ");
}

/* Starts every command, and knows of none. */
static void behave_forgetful(struct guest *g)
{
	struct frame f;

	guest_shake(g);
	while (guest_hear(g, &f)) {
		if (f.type == FRAME_PING)
			guest_say(g, FRAME_PONG, 0, "\0\0\0\0", 4);
		else if (f.type == FRAME_START && memmem(f.payload, f.len, "\"exec\"", 6))
			guest_text(g, FRAME_EXIT, f.call, "{\"output\":\"out_a_1\"}");
		else if (f.type == FRAME_START)
			guest_text(g, FRAME_EXIT, f.call,
			           "{\"error\":{\"code\":\"not_found\",\"message\":\"gone\"}}");
	}
}

/* Whatever comes of the first look: it was started, and has to be found again. */
static void its_id_is_told_in_any_case(void **state)
{
	(void)state;
	fake.behave = behave_forgetful;
	BEGINS("shell", "{\"background\":true,\"command\":\"true\"}",
	       "started in the background as out_a_1\n[what it has written is not known: ");
	has("gone");
	assert_string_equal(json_str(json_get(last.details, "outputId")), "out_a_1");
	assert_string_equal(json_str(json_get(last.details, "reason")), "running");
}

static void *fire_soon(void *arg)
{
	(void)usleep(200000);
	cancel_fire(arg);
	return NULL;
}

/* A call that waits ends at once; the command that it waits for goes on. */
static void a_wait_is_cancelled(void **state)
{
	struct cancel cancel;
	struct err e = ERR_INIT;
	pthread_t thread;
	uint64_t begun;
	char id[64];

	(void)state;
	start("sleep 1000", id);
	assert_int_equal(cancel_init(&cancel, &e), 0);
	cancel_by = &cancel;
	begun = clock_mono_ms();
	assert_int_equal(pthread_create(&thread, NULL, fire_soon, &cancel), 0);
	assert_int_equal(use_tool("shell_read", with_id(id, ",\"waitMs\":60000"), &e), -1);
	assert_int_equal(e.code, SANDBOX_CANCELLED);
	assert_true(clock_mono_ms() - begun < 30000);
	assert_int_equal(pthread_join(thread, NULL), 0);
	cancel_by = NULL;
	cancel_release(&cancel);
	BEGINS("shell_read", with_id(id, ""), "[running]");
}

#define IN_ROOT(test) cmocka_unit_test_setup_teardown(test, enter, leave)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_ROOT(cut_output_stays_readable),
		IN_ROOT(what_is_not_kept),
		IN_ROOT(its_id_is_told_in_any_case),
		IN_ROOT(a_background_command),
		IN_ROOT(it_is_stopped),
		IN_ROOT(what_does_not_start),
		IN_ROOT(a_wait_is_cancelled),
	};

	return RUN_TESTS(tests);
}
