#include "common/test.h"

#include "daemon/sandbox/fake_launcher.h"
#include "daemon/sandbox/sandbox.h"

#include <sys/mman.h>

/*
 * A guest that lies.  Every lie must end its sandbox once, with one line in the log that
 * names it, must never look like success, and must leave the next call unharmed.
 */

static struct fake fake;
static struct sandboxes *boxes;
static const struct uuid tenant = { "0191d2b4-0000-7000-8000-000000000001" };
static int real_stderr = -1, log_file = -1;

static unsigned int max_faults; /* of the next pool */

static void begin(void (*behave)(struct guest *g))
{
	struct sandboxes_conf conf = { .start_timeout_ms = 30000,
		                       .idle_ms = 60000,
		                       .max_active = 4,
		                       .max_faults = max_faults };
	struct err e = ERR_INIT;

	fake_begin(&fake, behave);
	conf.launcher_sock = fake.server_end;
	assert_int_equal(sandboxes_start(&conf, &boxes, &e), 0);
	log_file = memfd_create("log", MFD_CLOEXEC);
	real_stderr = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10);
	assert_true(log_file >= 0 && real_stderr >= 0);
	assert_true(dup2(log_file, STDERR_FILENO) >= 0);
}

static char log_text[65536];

static void end(void)
{
	ssize_t n;

	sandboxes_stop(&boxes);
	fake_end(&fake);
	assert_true(dup2(real_stderr, STDERR_FILENO) >= 0);
	n = pread(log_file, log_text, sizeof(log_text) - 1, 0);
	log_text[n < 0 ? 0 : n] = '\0';
	fd_close(&log_file);
	fd_close(&real_stderr);
	assert_false(fake.overlap);
}

/* What a test that failed has left. */
static int tear_down(void **state)
{
	(void)state;
	max_faults = 0;
	if (real_stderr >= 0)
		end();
	return 0;
}

/* How often the log says that something was ended because of a fault. */
static int faults_logged(void)
{
	int n = 0;

	for (const char *at = log_text; (at = strstr(at, "is ended: ")); at++)
		n++;
	return n;
}

static bool slow; /* the sink sleeps once, so that what it does not take piles up */

static void take(void *ctx, int stream, const char *data, size_t len)
{
	uint64_t *total = ctx;

	(void)stream;
	(void)data;
	if (slow && !*total)
		(void)usleep(300000);
	*total += len;
}

static const char *const command[] = { "true", NULL };

static int run(uint64_t timeout_ms, struct exec_result *ret, struct err *e)
{
	const struct sandbox_use use = { boxes, &tenant, NULL };
	const struct exec_spec spec = { .argv = command, .cwd = "/", .timeout_ms = timeout_ms };
	uint64_t total = 0;
	const struct output_sink sink = { take, &total };

	return sandbox_exec(&use, &spec, &sink, ret, e);
}

/* -- lies about a command -------------------------------------------------------------------- */

struct lie {
	const char *name;
	int type;                               /* of one frame for the open call, or 0 */
	const char *text;                       /* its payload */
	void (*tell)(struct guest *, uint64_t); /* instead of a frame */
	const char *logged;
};

static const struct lie *lie;

static void tell_flood(struct guest *g, uint64_t call)
{
	static const char data[65536];

	for (int i = 0; i < 64; i++)
		guest_say(g, FRAME_STDOUT, call, data, sizeof(data));
}

static void tell_mixed_flood(struct guest *g, uint64_t call)
{
	static const char data[32768];

	for (int i = 0; i < 64; i++)
		guest_say(g, i % 2 ? FRAME_STDERR : FRAME_STDOUT, call, data, sizeof(data));
}

static void tell_long_data(struct guest *g, uint64_t call)
{
	static const char data[65537];

	guest_say(g, FRAME_STDOUT, call, data, sizeof(data));
}

static void tell_long_exit(struct guest *g, uint64_t call)
{
	static char data[262145];

	memset(data, ' ', sizeof(data));
	guest_say(g, FRAME_EXIT, call, data, sizeof(data));
}

static void tell_huge_length(struct guest *g, uint64_t call)
{
	(void)call;
	guest_raw(g, "\xff\xff\xff\xff\x84\0\0\0\0\0\0\1\0", 13);
}

static void tell_half_frame(struct guest *g, uint64_t call)
{
	(void)call;
	guest_raw(g, "\0\0\0\x09\x82\0\0", 7);
	fd_close(&g->out);
}

static void tell_end(struct guest *g, uint64_t call)
{
	(void)call;
	fd_close(&g->out);
}

static void tell_unknown_call(struct guest *g, uint64_t call)
{
	guest_text(g, FRAME_STDOUT, call + 256, "x");
}

static void tell_other_slot(struct guest *g, uint64_t call)
{
	guest_text(g, FRAME_EXIT, call + 1, EXIT_OK);
}

static void tell_call_0(struct guest *g, uint64_t call)
{
	(void)call;
	guest_text(g, FRAME_EXIT, 0, EXIT_OK);
}

static void tell_late_data(struct guest *g, uint64_t call)
{
	struct buf b = BUF_INIT(4096);

	/* In one write, and the data first: the EXIT must not save the call that has the lie. */
	frame_put(&b, FRAME_STDOUT, call + 256, "x", 1);
	frame_put(&b, FRAME_EXIT, call, EXIT_OK, strlen(EXIT_OK));
	guest_raw(g, b.data, b.len);
	buf_release(&b);
}

static void tell_credit(struct guest *g, uint64_t call)
{
	guest_say(g, FRAME_CREDIT, call, "\0\0\0\1", 4);
}

static void tell_no_credit(struct guest *g, uint64_t call)
{
	guest_say(g, FRAME_CREDIT, call, "\0\0\0\0", 4);
}

static void tell_output_then_not_found(struct guest *g, uint64_t call)
{
	guest_text(g, FRAME_STDOUT, call, "x");
	guest_text(g, FRAME_EXIT, call, "{\"error\":{\"code\":\"not_found\",\"message\":\"no\"}}");
}

static void tell_second_ready(struct guest *g, uint64_t call)
{
	(void)call;
	guest_text(g, FRAME_READY, 0, "{\"version\":1,\"pid\":1}");
}

static void tell_pong(struct guest *g, uint64_t call)
{
	(void)call;
	guest_say(g, FRAME_PONG, 0, "", 0);
}

static void tell_after_output(struct guest *g, uint64_t call, const char *exit)
{
	guest_text(g, FRAME_STDOUT, call, "abc");
	guest_text(g, FRAME_EXIT, call, exit);
}

static void tell_less(struct guest *g, uint64_t call)
{
	tell_after_output(g, call,
	                  "{\"reason\":\"exited\",\"code\":0,\"stdoutBytes\":2,\"stderrBytes\":0}");
}

static void tell_other_stream(struct guest *g, uint64_t call)
{
	tell_after_output(g, call,
	                  "{\"reason\":\"exited\",\"code\":0,\"stdoutBytes\":0,\"stderrBytes\":3}");
}

/* Empty objects take most: each has a table. */
static void tell_values(struct guest *g, uint64_t call, size_t n)
{
	struct buf b = BUF_INIT(FRAME_CONTROL_MAX);

	/* Colons, commas and brackets are counted, of which four come before the objects. */
	buf_adds(&b, "{\"x\":[0,0");
	for (size_t i = 4; i + 2 <= n; i += 2)
		buf_adds(&b, ",{}");
	buf_adds(&b, n % 2 ? ",0]}" : "]}");
	guest_say(g, FRAME_EXIT, call, b.data, b.len);
	buf_release(&b);
}

static void tell_values_at_the_bound(struct guest *g, uint64_t call)
{
	tell_values(g, call, FRAME_VALUES_MAX);
}

static void tell_values_past_it(struct guest *g, uint64_t call)
{
	tell_values(g, call, FRAME_VALUES_MAX + 1);
}

static void tell_nothing_but_values(struct guest *g, uint64_t call)
{
	tell_values(g, call, (size_t)FRAME_CONTROL_MAX / 3 * 2 - 10);
}

#define COUNTS ",\"stdoutBytes\":0,\"stderrBytes\":0"

static const struct lie lies[] = {
	{ "unknown type", 0x55, "", NULL, "unknown frame type 0x55" },
	{ "unknown type 0", 0, "", NULL, "unknown frame type 0x00" },
	{ "too long data", 0, NULL, tell_long_data, "65537 bytes" },
	{ "too long exit", 0, NULL, tell_long_exit, "262145 bytes" },
	{ "4 GiB frame", 0, NULL, tell_huge_length, "4294967295 bytes" },
	{ "data beyond credit", 0, NULL, tell_flood, "of credit" },
	{ "both streams beyond credit", 0, NULL, tell_mixed_flood, "of credit" },
	{ "data without data", FRAME_STDOUT, "", NULL, "without data" },
	{ "an id of an output that is none", FRAME_EXIT,
	  "{\"reason\":\"exited\",\"code\":0" COUNTS ",\"output\":\"a/b\"}", NULL, "output" },
	{ "half a frame", 0, NULL, tell_half_frame, "middle of a frame" },
	{ "end", 0, NULL, tell_end, "the guest ended" },
	{ "a call of the future", 0, NULL, tell_unknown_call, "which is not open" },
	{ "a call that never was", 0, NULL, tell_other_slot, "which is not open" },
	{ "call 0", 0, NULL, tell_call_0, "which is not open" },
	{ "a lie and an exit at once", 0, NULL, tell_late_data, "which is not open" },
	{ "credit for nothing", 0, NULL, tell_credit, "for 0 bytes sent" },
	{ "credit of 0", 0, NULL, tell_no_credit, "credit of 0 bytes" },
	{ "credit of 3 bytes", FRAME_CREDIT, "abc", NULL, "credit of 0 bytes" },
	{ "second READY", 0, NULL, tell_second_ready, "second READY" },
	{ "PONG", 0, NULL, tell_pong, "PONG without" },
	{ "HELLO", FRAME_HELLO, "{}", NULL, "only the daemon sends" },
	{ "START", FRAME_START, "{}", NULL, "only the daemon sends" },
	{ "INPUT", FRAME_INPUT, "x", NULL, "only the daemon sends" },
	{ "END", FRAME_END, "", NULL, "only the daemon sends" },
	{ "CANCEL", FRAME_CANCEL, "", NULL, "only the daemon sends" },
	{ "PING", FRAME_PING, "", NULL, "only the daemon sends" },
	{ "empty exit", FRAME_EXIT, "", NULL, "protocol error" },
	{ "no JSON", FRAME_EXIT, "exit 0", NULL, "line 1" },
	{ "an array", FRAME_EXIT, "[]", NULL, "protocol error" },
	{ "null", FRAME_EXIT, "null", NULL, "protocol error" },
	{ "as many values as there may be", 0, NULL, tell_values_at_the_bound, "x: unknown field" },
	{ "one value too many", 0, NULL, tell_values_past_it, "more than 1024 values" },
	{ "nothing but values", 0, NULL, tell_nothing_but_values, "more than 1024 values" },
	{ "duplicate key", FRAME_EXIT, "{\"reason\":\"exited\",\"code\":1,\"code\":0" COUNTS "}",
	  NULL, "duplicate key" },
	{ "unknown field", FRAME_EXIT, "{\"reason\":\"exited\",\"code\":0,\"x\":1" COUNTS "}", NULL,
	  "x: " },
	{ "no reason", FRAME_EXIT, "{\"code\":0" COUNTS "}", NULL, "reason" },
	{ "no counts", FRAME_EXIT, "{\"reason\":\"exited\",\"code\":0}", NULL, "stdoutBytes" },
	{ "code -1", FRAME_EXIT, "{\"reason\":\"exited\",\"code\":-1" COUNTS "}", NULL,
	  "negative" },
	{ "code 256", FRAME_EXIT, "{\"reason\":\"exited\",\"code\":256" COUNTS "}", NULL,
	  "above 255" },
	{ "code 0.5", FRAME_EXIT, "{\"reason\":\"exited\",\"code\":0.5" COUNTS "}", NULL, "code" },
	{ "code in text", FRAME_EXIT, "{\"reason\":\"exited\",\"code\":\"0\"" COUNTS "}", NULL,
	  "code" },
	{ "code and signal", FRAME_EXIT,
	  "{\"reason\":\"exited\",\"code\":0,\"signal\":9" COUNTS "}", NULL, "code and signal" },
	{ "neither", FRAME_EXIT, "{\"reason\":\"exited\"" COUNTS "}", NULL, "neither" },
	{ "signal 0", FRAME_EXIT, "{\"reason\":\"exited\",\"signal\":0" COUNTS "}", NULL,
	  "does not exist" },
	{ "signal 65", FRAME_EXIT, "{\"reason\":\"exited\",\"signal\":65" COUNTS "}", NULL,
	  "does not exist" },
	{ "negative count", FRAME_EXIT,
	  "{\"reason\":\"exited\",\"code\":0,\"stdoutBytes\":-1,\"stderrBytes\":0}", NULL,
	  "negative" },
	{ "more than was sent", FRAME_EXIT,
	  "{\"reason\":\"exited\",\"code\":0,\"stdoutBytes\":1,\"stderrBytes\":0}", NULL,
	  "other counts" },
	{ "less than was sent", 0, NULL, tell_less, "other counts" },
	{ "sent elsewhere", 0, NULL, tell_other_stream, "other counts" },
	{ "survivors", FRAME_EXIT,
	  "{\"reason\":\"exited\",\"code\":0,\"survivors\":9007199254740991" COUNTS "}", NULL,
	  "survivors" },
	{ "lost", FRAME_EXIT, "{\"reason\":\"lost\"" COUNTS "}", NULL, "cannot claim" },
	{ "oom", FRAME_EXIT, "{\"reason\":\"oom\"" COUNTS "}", NULL, "cannot claim" },
	{ "pids", FRAME_EXIT, "{\"reason\":\"pids\"" COUNTS "}", NULL, "cannot claim" },
	{ "timeout of nothing", FRAME_EXIT, "{\"reason\":\"timeout\"" COUNTS "}", NULL,
	  "cannot claim" },
	{ "cancelled by nobody", FRAME_EXIT, "{\"reason\":\"cancelled\"" COUNTS "}", NULL,
	  "cannot claim" },
	{ "error and reason", FRAME_EXIT,
	  "{\"error\":{\"code\":\"io\",\"message\":\"m\"},\"reason\":\"exited\"}", NULL, "reason" },
	{ "unknown error", FRAME_EXIT, "{\"error\":{\"code\":\"ok\",\"message\":\"m\"}}", NULL,
	  "unknown error" },
	{ "error without message", FRAME_EXIT, "{\"error\":{\"code\":\"io\"}}", NULL, "message" },
	{ "error cancelled", FRAME_EXIT, "{\"error\":{\"code\":\"cancelled\",\"message\":\"m\"}}",
	  NULL, "nobody did" },
	{ "output, then not found", 0, NULL, tell_output_then_not_found, "never run" },
};

static void behave_lie(struct guest *g)
{
	uint64_t call;

	guest_shake(g);
	call = guest_next(g);
	if (lie->tell)
		lie->tell(g, call);
	else
		guest_text(g, lie->type, call, lie->text);
	guest_drain(g);
}

static void check_lie(void)
{
	struct exec_result r;
	unsigned int expected;
	struct err e = ERR_INIT;
	int status;

	begin(behave_lie);
	slow = true;
	status = run(0, &r, &e);
	slow = false;
	fake.behave = behave_honest;
	assert_int_equal(status, 0);
	assert_int_equal(r.reason, EXEC_LOST);
	assert_int_equal(r.code, -1);
	assert_int_equal(r.signal, 0);
	assert_int_equal(run(0, &r, &e), 0);
	assert_int_equal(r.reason, EXEC_EXITED);
	assert_int_equal(r.code, 0);
	assert_int_equal(r.stdout_bytes, 3);
	/* One that is gone needs no KILL when its runner ends by itself. */
	expected = lie->tell == tell_end || lie->tell == tell_half_frame ? 0 : 1;
	assert_int_equal(fake_kills(&fake, expected), expected);
	assert_int_equal(fake.starts, 2);
	end();
	assert_int_equal(faults_logged(), 1);
	assert_non_null(strstr(log_text, lie->logged));
}

static void test_lies(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
		lie = &lies[i];
		print_message("lie: %s\n", lie->name);
		check_lie();
	}
}

/* Who lies without an end waits between the lies; nothing is sent to the launcher meanwhile. */
static void test_lies_without_end(void **state)
{
	uint64_t begun = clock_mono_ms();
	struct exec_result r;
	struct err e = ERR_INIT;
	int lied = 0;

	(void)state;
	max_faults = 3;
	lie = &lies[0];
	begin(behave_lie);
	for (int i = 0; i < 20; i++)
		lied += run(0, &r, &e) == 0 && r.reason == EXEC_LOST;
	assert_in_range(lied, 3, 3 + (clock_mono_ms() - begun) / 1000);
	assert_int_equal(fake.starts, lied);
	assert_int_equal(e.code, SANDBOX_START_FAILED);
	assert_non_null(strstr(e.text, "too often"));
	fake.behave = behave_honest;
	(void)usleep(1100000);
	assert_int_equal(run(0, &r, &e), 0);
	assert_int_equal(r.reason, EXEC_EXITED);
	end();
	max_faults = 0;
	assert_int_equal(faults_logged(), lied);
	assert_non_null(strstr(log_text, "does not start: it ended by faults too often"));
}

/* -- lies at the start ----------------------------------------------------------------------- */

static const struct lie start_lies[] = {
	{ "version 2", FRAME_READY, "{\"version\":2,\"pid\":1}", NULL, "version 2" },
	{ "version in text", FRAME_READY, "{\"version\":\"1\",\"pid\":1}", NULL, "version" },
	{ "extra field", FRAME_READY, "{\"version\":1,\"pid\":1,\"x\":1}", NULL, "x: " },
	{ "no JSON", FRAME_READY, "ready", NULL, "line 1" },
	{ "empty", FRAME_READY, "", NULL, "READY" },
	{ "a result first", FRAME_EXIT, EXIT_OK, NULL, "before READY" },
	{ "a pong first", FRAME_PONG, "", NULL, "before READY" },
	{ "unknown type", 0x99, "", NULL, "0x99" },
	{ "end", 0, NULL, tell_end, "the guest ended" },
	{ "half a frame", 0, NULL, tell_half_frame, "middle of a frame" },
};

static void behave_start_lie(struct guest *g)
{
	struct frame f;

	(void)snprintf(g->cause, sizeof(g->cause), "the runner says so");
	guest_connect(g);
	(void)guest_hear(g, &f);
	if (lie->tell)
		lie->tell(g, 0);
	else
		guest_text(g, lie->type, 0, lie->text);
	guest_drain(g);
}

static void test_start_lies(void **state)
{
	struct exec_result r;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(start_lies); i++) {
		struct err e = ERR_INIT;

		lie = &start_lies[i];
		print_message("start lie: %s\n", lie->name);
		begin(behave_start_lie);
		assert_int_equal(run(0, &r, &e), -1);
		assert_int_equal(e.code, SANDBOX_START_FAILED);
		assert_non_null(strstr(e.text, lie->logged));
		assert_non_null(strstr(e.text, "the runner says so"));
		fake.behave = behave_honest;
		assert_int_equal(run(0, &r, &e), 0);
		assert_int_equal(r.code, 0);
		end();
		assert_int_equal(faults_logged(), 1);
	}
}

static void behave_ready_of_call(struct guest *g)
{
	guest_connect(g);
	guest_text(g, FRAME_READY, 256, "{\"version\":1,\"pid\":1}");
	guest_drain(g);
}

static void test_ready_with_an_id(void **state)
{
	struct exec_result r;
	struct err e = ERR_INIT;

	(void)state;
	begin(behave_ready_of_call);
	assert_int_equal(run(0, &r, &e), -1);
	assert_int_equal(e.code, SANDBOX_START_FAILED);
	assert_non_null(strstr(e.text, "READY of call 256"));
	end();
}

/* -- an exit for one call, a lie for the others ---------------------------------------------- */

static void behave_exit_twice(struct guest *g)
{
	uint64_t first, second;

	guest_shake(g);
	first = guest_next(g);
	second = guest_next(g);
	(void)second;
	for (int i = 0; i < 2; i++)
		guest_text(g, FRAME_EXIT, first, "{\"reason\":\"exited\",\"code\":0" COUNTS "}");
	guest_drain(g);
}

static void *run_one(void *arg)
{
	struct err e = ERR_INIT;

	if (run(0, arg, &e) < 0)
		((struct exec_result *)arg)->code = -2;
	return NULL;
}

static void test_exit_twice(void **state)
{
	struct exec_result r[2];
	pthread_t t[2];

	(void)state;
	begin(behave_exit_twice);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&t[i], NULL, run_one, &r[i]), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	/* One has its result, the other one is lost. */
	assert_int_equal(r[0].code + r[1].code, -1);
	assert_int_equal(r[0].reason + r[1].reason, EXEC_EXITED + EXEC_LOST);
	end();
	assert_int_equal(fake_kills(&fake, 1), 1);
	assert_int_equal(faults_logged(), 1);
	assert_non_null(strstr(log_text, "which is not open"));
}

/* -- lies about files ------------------------------------------------------------------------ */

struct file_lie {
	const char *op; /* see run_file() */
	const char *data;
	const char *exit;
	const char *logged;
	int stream;
};

#define ENTRY "{\"name\":\"a\",\"type\":\"file\",\"size\":1,\"mtimeMs\":1}\n"

#define OUTPUT(offset, bytes, from, to)                                          \
	"{\"running\":true,\"total\":9,\"offset\":" #offset ",\"bytes\":" #bytes \
	",\"gapFrom\":" #from ",\"gapTo\":" #to "}"

static const struct file_lie file_lies[] = {
	{ "r", "12345678901", "{\"size\":11,\"bytes\":11}", "more of a file", 0 },
	{ "r", "123", "{\"size\":3,\"bytes\":4}", "another count", 0 },
	{ "r", "123", "{\"size\":3,\"bytes\":2}", "another count", 0 },
	{ "r", "123", "{\"size\":-3,\"bytes\":3}", "negative", 0 },
	{ "r", "123", "{\"bytes\":3}", "size", 0 },
	{ "r", "123", "{\"size\":3,\"bytes\":3}", "does not have", FRAME_STDERR },
	{ "w", NULL, "{\"bytes\":3}", "another count", 0 },
	{ "w", NULL, "{}", "bytes", 0 },
	{ "w", "x", "{\"bytes\":4}", "does not have", 0 },
	{ "l", ENTRY ENTRY ENTRY, "{\"entries\":3,\"total\":3}", "more entries", 0 },
	{ "l", ENTRY, "{\"entries\":2,\"total\":2}", "another count", 0 },
	{ "l", ENTRY, "{\"entries\":1,\"total\":0}", "another count", 0 },
	{ "l", "{\"name\":\"a\"", "{\"entries\":0,\"total\":0}", "another count", 0 },
	{ "l", "nonsense\n", "{\"entries\":1,\"total\":1}", "entry of a directory", 0 },
	{ "l", "\n", "{\"entries\":1,\"total\":1}", "entry of a directory", 0 },
	{ "l", "{\"name\":\"../a\",\"type\":\"file\",\"size\":1,\"mtimeMs\":1}\n",
	  "{\"entries\":1,\"total\":1}", "cannot be", 0 },
	{ "l", "{\"name\":\"a\",\"type\":\"fifo\",\"size\":1,\"mtimeMs\":1}\n",
	  "{\"entries\":1,\"total\":1}", "cannot be", 0 },
	{ "l", "{\"name\":\"a\",\"type\":\"file\",\"size\":1,\"mtimeMs\":1,\"x\":1}\n",
	  "{\"entries\":1,\"total\":1}", "x: ", 0 },
	{ "l", NULL, "{\"error\":{\"code\":\"cancelled\",\"message\":\"m\"}}", "nobody did", 0 },
	{ "change", NULL, "{\"files\":1,\"bytes\":5}", "other counts", 0 },
	{ "change", NULL, "{\"files\":2,\"bytes\":4}", "other counts", 0 },
	{ "change", NULL, "{\"files\":1}", "bytes", 0 },
	{ "change", "x", "{\"files\":1,\"bytes\":4}", "does not have", 0 },
	{ "background", NULL, "{\"output\":\"../x\"}", "id of an output", 0 },
	{ "background", NULL, "{\"output\":\"\"}", "id of an output", 0 },
	{ "background", NULL,
	  "{\"output\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}",
	  "id of an output", 0 },
	{ "background", NULL, "{}", "output", 0 },
	{ "background", "x", "{\"output\":\"a\"}", "does not have", 0 },
	{ "input", NULL, "{\"bytes\":3}", "another count", 0 },
	{ "input", NULL, "{\"bytes\":-1}", "negative", 0 },
	{ "stop", NULL, "{\"running\":false,\"total\":-1}", "negative", 0 },
	{ "stop", NULL, "{\"running\":false,\"total\":1,\"reason\":\"No\"}", "for no reason", 0 },
	{ "stop", NULL, "{\"running\":false,\"total\":1,\"code\":256}", "does not exist", 0 },
	{ "stop", NULL, "{\"running\":false,\"total\":1,\"signal\":65}", "does not exist", 0 },
	{ "stop", NULL, "{\"running\":7,\"total\":1}", "running", 0 },
	{ "output", "12345678901", OUTPUT(0, 11, 0, 0), "more of an output", 0 },
	{ "output", "123", OUTPUT(4, 2, 0, 0), "another count", 0 },
	{ "output", "123", OUTPUT(3, 3, 0, 0), "places that cannot be", 0 },
	{ "output", "123", OUTPUT(4, 3, 2, 1), "places that cannot be", 0 },
	{ "output", "123", OUTPUT(4, 3, -1, 0), "negative", 0 },
	{ "output", "123", "{\"running\":true,\"total\":3}", "offset", 0 },
	{ "output", "123", OUTPUT(4, 3, 0, 0), "does not have", FRAME_STDERR },
	{ "commands", NULL, "{\"commands\":[7]}", "other fields", 0 },
	{ "commands", NULL, "{\"commands\":[{\"id\":\"a\",\"command\":\"b\"}]}", "other fields",
	  0 },
	{ "commands", NULL,
	  "{\"commands\":[{\"id\":\"A\",\"command\":\"b\",\"running\":true,\"total\":0}]}",
	  "cannot have", 0 },
	{ "commands", NULL, "{\"commands\":{}}", "commands", 0 },
	{ "commands", "x", "{\"commands\":[]}", "does not have", 0 },
};

static const struct file_lie *file_lie;

static void behave_file_lie(struct guest *g)
{
	uint64_t call;

	guest_shake(g);
	call = guest_next(g);
	if (file_lie->data)
		guest_text(g, file_lie->stream ? file_lie->stream : FRAME_STDOUT, call,
		           file_lie->data);
	guest_text(g, FRAME_EXIT, call, file_lie->exit);
	guest_drain(g);
}

static void take_command(void *ctx, const char *id, const char *name,
                         const struct command_state *state)
{
	(void)ctx, (void)id, (void)name, (void)state;
	fail();
}

/* Calls about commands and what they wrote; 'i', 's', 'o', 'b' and 'c'. */
static int run_command(char op, const struct sandbox_use *use, const struct output_sink *sink,
                       struct err *e)
{
	const struct exec_spec spec = { .argv = command, .cwd = "/" };
	struct output_range output = { .offset = 4, .limit = 10 };
	struct command_state state;
	char id[SANDBOX_OUTPUT_ID];

	switch (op) {
	case 'i':
		return sandbox_input(use, "a", "abcd", false, e);
	case 's':
		return sandbox_stop_command(use, "a", &state, e);
	case 'o':
		return sandbox_output(use, "a", &output, sink, e);
	case 'b':
		return sandbox_background(use, &spec, id, e);
	default:
		return sandbox_commands(use, take_command, NULL, e);
	}
}

static int run_file(const char *op, void *total, struct err *e)
{
	const struct file_change change = { .path = "/f", .data = "abcd", .len = 4 };
	const struct sandbox_use use = { boxes, &tenant, NULL };
	const struct output_sink sink = { take, total };
	struct file_range range = { .limit = 10 };
	struct file_listing listing = { .limit = 2 };

	if (strcmp(op, "change") == 0)
		return sandbox_change(&use, &change, 1, e);
	switch (*op) {
	case 'r':
		return sandbox_read(&use, "/f", &range, &sink, e);
	case 'w':
		return sandbox_write(&use, "/f", "abcd", 4, e);
	case 'l':
		return sandbox_list(&use, "/", &listing, &sink, e);
	default:
		return run_command(*op, &use, &sink, e);
	}
}

static void test_file_lies(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(file_lies); i++) {
		struct err e = ERR_INIT;
		uint64_t total = 0;

		file_lie = &file_lies[i];
		print_message("%s, lie %zu: %s\n", file_lie->op, i, file_lie->logged);
		begin(behave_file_lie);
		assert_int_equal(run_file(file_lie->op, &total, &e), -1);
		assert_int_equal(e.code, SANDBOX_LOST);
		assert_true(total <= 2 * strlen(ENTRY));
		end();
		assert_int_equal(fake_kills(&fake, 1), 1);
		assert_int_equal(faults_logged(), 1);
		assert_non_null(strstr(log_text, file_lie->logged));
	}
}

/* -- the longest truth ----------------------------------------------------------------------- */

#define ENDED                                                                                     \
	"{\"id\":\"a\",\"command\":\"[{,:\",\"running\":false,\"total\":2,\"reason\":\"exited\"," \
	"\"code\":0,\"signal\":9,\"message\":\"m\",\"stdoutBytes\":1,\"stderrBytes\":1,"          \
	"\"survivors\":1}"

/* As many commands as may be told of, each with every field that one can have. */
static void behave_full(struct guest *g)
{
	struct buf b = BUF_INIT(FRAME_CONTROL_MAX);
	uint64_t call;

	guest_shake(g);
	call = guest_next(g);
	buf_adds(&b, "{\"commands\":[" ENDED);
	for (int i = 1; i < 32; i++)
		buf_adds(&b, "," ENDED);
	buf_adds(&b, "]}");
	guest_say(g, FRAME_EXIT, call, b.data, b.len);
	guest_drain(g);
	buf_release(&b);
}

static void count_command(void *ctx, const char *id, const char *name,
                          const struct command_state *state)
{
	(void)id, (void)name, (void)state;
	++*(int *)ctx;
}

static void test_the_longest_truth(void **state)
{
	struct err e = ERR_INIT;
	int n = 0;

	(void)state;
	begin(behave_full);
	assert_int_equal(sandbox_commands(&(struct sandbox_use){ boxes, &tenant, NULL },
	                                  count_command, &n, &e),
	                 0);
	end();
	assert_int_equal(n, 32);
	assert_int_equal(faults_logged(), 0);
}

static void behave_long_line(struct guest *g)
{
	static char data[65536];
	uint64_t call;

	memset(data, 'a', sizeof(data));
	guest_shake(g);
	call = guest_next(g);
	guest_say(g, FRAME_STDOUT, call, data, sizeof(data));
	guest_drain(g);
}

static void test_endless_line(void **state)
{
	struct err e = ERR_INIT;
	uint64_t total = 0;

	(void)state;
	begin(behave_long_line);
	assert_int_equal(run_file("l", &total, &e), -1);
	assert_int_equal(e.code, SANDBOX_LOST);
	assert_int_equal(total, 0);
	end();
	assert_non_null(strstr(log_text, "too long"));
}

/* Credit for file content that was not sent. */
static void behave_generous(struct guest *g)
{
	uint64_t call;

	guest_shake(g);
	call = guest_next(g);
	guest_say(g, FRAME_CREDIT, call, "\0\0\1\0", 4);
	guest_drain(g);
}

static void test_credit_for_unsent_input(void **state)
{
	struct err e = ERR_INIT;
	uint64_t total = 0;

	(void)state;
	begin(behave_generous);
	assert_int_equal(run_file("w", &total, &e), -1);
	assert_int_equal(e.code, SANDBOX_LOST);
	end();
	assert_non_null(strstr(log_text, "credit of 256 bytes"));
}

/* -- what is odd but allowed ----------------------------------------------------------------- */

static void behave_tiny_frames(struct guest *g)
{
	uint64_t call;

	guest_shake(g);
	call = guest_next(g);
	for (int i = 0; i < 100000; i++)
		guest_say(g, i % 2 ? FRAME_STDERR : FRAME_STDOUT, call, "x", 1);
	guest_text(g, FRAME_EXIT, call,
	           "{\"reason\":\"exited\",\"code\":3,\"stdoutBytes\":50000,"
	           "\"stderrBytes\":50000}");
	guest_drain(g);
}

static void test_tiny_frames(void **state)
{
	struct exec_result r;
	struct err e = ERR_INIT;

	(void)state;
	begin(behave_tiny_frames);
	assert_int_equal(run(0, &r, &e), 0);
	end();
	assert_int_equal(r.reason, EXEC_EXITED);
	assert_int_equal(r.code, 3);
	assert_int_equal(r.stdout_bytes, 50000);
	assert_int_equal(r.stderr_bytes, 50000);
	assert_int_equal(faults_logged(), 0);
}

/* A result in pieces of one byte. */
static void behave_dribble(struct guest *g)
{
	struct buf b = BUF_INIT(4096);
	uint64_t call;

	guest_shake(g);
	call = guest_next(g);
	frame_put(&b, FRAME_STDOUT, call, "hi\n", 3);
	frame_put(&b, FRAME_EXIT, call, EXIT_OK, strlen(EXIT_OK));
	for (size_t i = 0; i < b.len; i++) {
		guest_raw(g, b.data + i, 1);
		(void)usleep(500);
	}
	buf_release(&b);
	guest_drain(g);
}

static void test_dribble(void **state)
{
	struct exec_result r;
	struct err e = ERR_INIT;

	(void)state;
	begin(behave_dribble);
	assert_int_equal(run(0, &r, &e), 0);
	end();
	assert_int_equal(r.code, 0);
	assert_int_equal(r.stdout_bytes, 3);
}

static unsigned int timeout_after_ms;

/* A timeout that says code 0 is a timeout. */
static void behave_timeout_with_code(struct guest *g)
{
	uint64_t call;

	guest_shake(g);
	call = guest_next(g);
	(void)usleep(timeout_after_ms * 1000);
	guest_text(g, FRAME_EXIT, call, "{\"reason\":\"timeout\",\"code\":0" COUNTS "}");
	guest_drain(g);
}

static void test_timeout_with_code(void **state)
{
	struct exec_result r;
	struct err e = ERR_INIT;

	(void)state;
	timeout_after_ms = 60;
	begin(behave_timeout_with_code);
	assert_int_equal(run(50, &r, &e), 0);
	end();
	assert_int_equal(r.reason, EXEC_TIMEOUT);
	assert_int_equal(r.code, -1);
}

/* One that comes before its time is a lie. */
static void test_early_timeout(void **state)
{
	struct exec_result r;
	struct err e = ERR_INIT;

	(void)state;
	timeout_after_ms = 0;
	begin(behave_timeout_with_code);
	(void)run(60000, &r, &e);
	end();
	assert_int_equal(r.reason, EXEC_LOST);
	assert_int_equal(faults_logged(), 1);
	assert_non_null(strstr(log_text, "cannot claim"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_lies, tear_down),
		cmocka_unit_test_teardown(test_lies_without_end, tear_down),
		cmocka_unit_test_teardown(test_start_lies, tear_down),
		cmocka_unit_test_teardown(test_ready_with_an_id, tear_down),
		cmocka_unit_test_teardown(test_exit_twice, tear_down),
		cmocka_unit_test_teardown(test_file_lies, tear_down),
		cmocka_unit_test_teardown(test_the_longest_truth, tear_down),
		cmocka_unit_test_teardown(test_endless_line, tear_down),
		cmocka_unit_test_teardown(test_credit_for_unsent_input, tear_down),
		cmocka_unit_test_teardown(test_tiny_frames, tear_down),
		cmocka_unit_test_teardown(test_dribble, tear_down),
		cmocka_unit_test_teardown(test_timeout_with_code, tear_down),
		cmocka_unit_test_teardown(test_early_timeout, tear_down),
	};

	return RUN_TESTS(tests);
}
