#include "common/test.h"

#include "common/sanitizer.h"
#include "guest/fault.h"
#include "guest/test_guest.h"

#include <ctype.h>

#define SHELL(line) "{\"op\":\"exec\",\"cwd\":\"/\",\"shell\":\"" line "\"}"
#define SHELL_FOR(ms, line) \
	"{\"op\":\"exec\",\"cwd\":\"/\",\"timeoutMs\":" #ms ",\"shell\":\"" line "\"}"
#define ARGV(words) "{\"op\":\"exec\",\"cwd\":\"/\",\"argv\":[" words "]}"

static uint64_t since(uint64_t start_ms)
{
	return clock_mono_ms() - start_ms;
}

static char mark[64]; /* in the environment of the command that was marked last */

/* A request for a command with a mark that no other has, also of this program run twice. */
static const char *marked(const char *name, const char *line)
{
	static char request[1000];

	(void)snprintf(mark, sizeof(mark), "MARK=%s-%d", name, (int)getpid());
	(void)snprintf(request, sizeof(request),
	               "{\"op\":\"exec\",\"cwd\":\"/\",\"env\":{\"MARK\":\"%s\"},\"shell\":\"%s\"}",
	               mark + strlen("MARK="), line);
	return request;
}

static bool has_mark(const char *pid)
{
	char path[64], text[4096];
	auto_close int fd = -1;
	ssize_t n;

	if (!isdigit((unsigned char)pid[0]))
		return false;
	(void)snprintf(path, sizeof(path), "/proc/%.20s/environ", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, text, sizeof(text));
	return n > 0 && memmem(text, (size_t)n, mark, strlen(mark));
}

/* Living processes that have the mark (a zombie has none). */
static int count_marked(void)
{
	auto_dir DIR *dir = opendir("/proc");
	struct dirent *d;
	int n = 0;

	while (dir && (d = readdir(dir)))
		n += has_mark(d->d_name);
	return n;
}

static void wait_marked(int wanted)
{
	uint64_t start = clock_mono_ms();
	int n;

	while ((n = count_marked()) != wanted && since(start) < ANSWER_MS)
		(void)usleep(2000);
	assert_int_equal(n, wanted);
}

static void test_output_and_codes(void **state)
{
	struct guest g;
	struct result r;

	(void)state;
	guest_begin(&g);
	guest_call(&g, SHELL("echo out; echo err >&2; exit 7"), &r);
	assert_string_equal(result_text(&r, 0), "out\n");
	assert_string_equal(result_text(&r, 1), "err\n");
	assert_string_equal(result_word(&r), "exited");
	assert_int_equal(result_int(&r, "code"), 7);
	assert_int_equal(result_int(&r, "signal"), -1);
	assert_int_equal(result_int(&r, "stdoutBytes"), 4);
	assert_int_equal(result_int(&r, "stderrBytes"), 4);
	assert_int_equal(result_int(&r, "survivors"), 0);
	result_release(&r);
	guest_call(&g, SHELL("kill -SEGV $$"), &r);
	assert_int_equal(result_int(&r, "signal"), SIGSEGV);
	assert_int_equal(result_int(&r, "code"), -1);
	result_release(&r);
	guest_end(&g);
}

static void test_failures_are_errors(void **state)
{
	struct guest g;
	struct result r;

	(void)state;
	guest_begin(&g);
	expect_word(&g, ARGV("\"no-such-program\""), "not_found");
	expect_word(&g, ARGV("\"/no/such/program\""), "not_found");
	expect_word(&g, ARGV("\"/etc/passwd\""), "not_executable");
	expect_word(&g, ARGV("\"/etc\""), "not_executable");
	expect_word(&g, "{\"op\":\"exec\",\"argv\":[\"true\"],\"cwd\":\"/no/where\"}", "no_cwd");
	expect_word(&g, "{\"op\":\"exec\",\"argv\":[\"true\"],\"cwd\":\"/etc/passwd\"}", "no_cwd");
	guest_call(&g, ARGV("\"/bin/sh\",\"-c\",\"exit 127\""), &r);
	assert_string_equal(result_word(&r), "exited");
	assert_int_equal(result_int(&r, "code"), 127);
	result_release(&r);
	guest_end(&g);
}

/* What a failure says of a program of this name, which is JSON without its quotes. */
static void expect_named(struct guest *g, const char *name, const char *shown)
{
	char request[1000], expected[1000];
	struct result r;

	(void)snprintf(request, sizeof(request),
	               "{\"op\":\"exec\",\"cwd\":\"/\",\"argv\":[\"%s\"]}", name);
	(void)snprintf(expected, sizeof(expected), "program \"%s: No such file or directory",
	               shown);
	guest_call(g, request, &r);
	assert_string_equal(json_str(json_get(json_get(r.exit, "error"), "message")), expected);
	result_release(&r);
}

static void test_failures_name_the_program(void **state)
{
	char name[104], shown[108];
	struct guest g;

	(void)state;
	guest_begin(&g);
	expect_named(&g, "no-such-program", "no-such-program\"");
	expect_named(&g, "a\\n\\u001b[1m\\\"", "a\\n\\u001b[1m\\\"\"");
	memset(name, 'n', 100);
	name[100] = '\0';
	(void)snprintf(shown, sizeof(shown), "%s\"", name);
	expect_named(&g, name, shown);
	memcpy(name + 100, "n", 2);
	(void)snprintf(shown, sizeof(shown), "%.100s\"...", name);
	expect_named(&g, name, shown);
	memcpy(name + 99, "\xc3\xa9", 3);
	(void)snprintf(shown, sizeof(shown), "%.99s\"...", name);
	expect_named(&g, name, shown);
	guest_end(&g);
}

/* Nothing of the guest leaks into a process: descriptors, signals, session, variables. */
static void test_clean_start(void **state)
{
	struct guest g;
	struct result r;

	(void)state;
	assert_int_equal(setenv("CLOISTER_LEAK", "1", 1), 0);
	guest_begin(&g);
	/* 3 is the shell's own look at the directory; glibc's spawn ignores its own 32 and 33. */
	guest_call(&g,
	           SHELL("echo /proc/self/fd/*; grep Sig[BI] /proc/self/status | cut -f2 | "
	                 "sed s/180000000$/000000000/; ps -o pid=,pgid=,sid= -p $$ | "
	                 "xargs -n 1 | sort -u | wc -l"),
	           &r);
	assert_string_equal(result_text(&r, 0),
	                    "/proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2 /proc/self/fd/3\n"
	                    "0000000000000000\n0000000000000000\n1\n");
	result_release(&r);
	guest_call(&g,
	           "{\"op\":\"exec\",\"argv\":[\"env\"],\"cwd\":\"/\",\"env\":{\"TERM\":\"xterm\","
	           "\"MORE\":\"a=b\"}}",
	           &r);
	assert_string_equal(
		result_text(&r, 0),
		"HOME=/state/home\nPATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/"
		"bin\nUSER=root\nLOGNAME=root\nTMPDIR=/tmp\nLANG=C.UTF-8\nTERM=xterm\nMORE=a=b\n");
	result_release(&r);
	guest_end(&g);
}

static void test_input(void **state)
{
	auto_buf struct buf text = BUF_INIT(1U << 20);
	struct guest g;
	struct result r;
	uint64_t call;

	(void)state;
	for (int i = 0; i < 60000; i++)
		buf_addc(&text, (char)('a' + i % 26));
	guest_begin(&g);
	call = guest_start(&g, ARGV("\"cat\""));
	guest_send(&g, FRAME_INPUT, call, text.data, text.len);
	guest_send(&g, FRAME_INPUT, call, "end", 3);
	guest_send(&g, FRAME_END, call, "", 0);
	guest_finish(&g, call, &r);
	assert_int_equal(r.out[0].len, text.len + 3);
	assert_memory_equal(r.out[0].data, text.data, text.len);
	result_release(&r);
	/* A process that does not read its input does no harm, and credit comes back. */
	call = guest_start(&g, SHELL("exec <&-; sleep 0.1; echo done"));
	for (int i = 0; i < 4; i++)
		guest_send(&g, FRAME_INPUT, call, text.data, text.len);
	guest_finish(&g, call, &r);
	assert_string_equal(result_text(&r, 0), "done\n");
	result_release(&r);
	guest_end(&g);
}

/* The whole window is taken while nobody reads; one byte more is a breach. */
static void test_input_beyond_credit(void **state)
{
	static char block[FRAME_DATA_MAX];
	uint32_t granted = 0;
	bool answered = false;
	struct guest g;
	struct frame f;
	uint64_t call;

	(void)state;
	guest_begin(&g);
	call = guest_start(&g, ARGV("\"sleep\",\"100\""));
	for (int i = 0; i < FRAME_WINDOW / FRAME_DATA_MAX; i++)
		guest_send(&g, FRAME_INPUT, call, block, sizeof(block));
	guest_send(&g, FRAME_PING, 9, "", 0);
	while (!answered || granted < 65536) {
		assert_true(guest_frame(&g, &f));
		if (f.type == FRAME_PONG)
			answered = true;
		else
			granted += frame_number(&f);
	}
	assert_int_equal(granted, 65536); /* what the pipe took */
	guest_send(&g, FRAME_INPUT, call, block, sizeof(block));
	guest_send(&g, FRAME_INPUT, call, block, 1);
	while (guest_frame(&g, &f))
		;
	assert_int_equal(guest_wait(&g), GUEST_EXIT_PROTOCOL);
}

static void test_input_after_end(void **state)
{
	struct guest g;
	struct frame f;
	uint64_t call;

	(void)state;
	guest_begin(&g);
	call = guest_start(&g, ARGV("\"sleep\",\"9\""));
	guest_send(&g, FRAME_END, call, "", 0);
	guest_send(&g, FRAME_END, call, "", 0);
	guest_send(&g, FRAME_INPUT, call, "x", 1);
	while (guest_frame(&g, &f))
		;
	assert_int_equal(guest_wait(&g), GUEST_EXIT_PROTOCOL);
}

static void test_large_output(void **state)
{
	struct guest g;
	struct result r;

	(void)state;
	guest_begin(&g);
	guest_call(&g, SHELL("head -c 10000000 /dev/zero; head -c 1000000 /dev/zero >&2"), &r);
	assert_int_equal(r.out[0].len, 10000000);
	assert_int_equal(r.out[1].len, 1000000);
	assert_int_equal(result_int(&r, "stdoutBytes"), 10000000);
	assert_int_equal(result_int(&r, "stderrBytes"), 1000000);
	result_release(&r);
	guest_end(&g);
}

/* Without credit the guest sends the window and not a byte more; other calls go on. */
static void test_output_credit(void **state)
{
	size_t got = 0;
	struct guest g;
	struct result r;
	struct frame f;
	uint64_t call;

	(void)state;
	guest_begin(&g);
	call = guest_start(&g, SHELL("head -c 1000000 /dev/zero; echo e >&2"));
	while (got < FRAME_WINDOW) {
		assert_true(guest_frame(&g, &f));
		assert_int_equal(f.type, FRAME_STDOUT);
		got += f.len;
	}
	assert_int_equal(got, FRAME_WINDOW);
	guest_call(&g, SHELL("echo other"), &r); /* skips, so count below proves the stop */
	assert_string_equal(result_text(&r, 0), "other\n");
	result_release(&r);
	guest_credit(&g, call, 1000);
	assert_true(guest_frame(&g, &f));
	assert_int_equal(f.call, call);
	assert_int_equal(f.len, 1000);
	guest_credit(&g, call, 10000000);
	guest_finish(&g, call, &r);
	assert_int_equal(r.out[0].len, 1000000 - FRAME_WINDOW - 1000);
	assert_string_equal(result_text(&r, 1), "e\n");
	result_release(&r);
	guest_end(&g);
}

static uint64_t time_out(void)
{
	uint64_t start, took;
	struct guest g;
	struct result r;

	guest_begin(&g);
	start = clock_mono_ms();
	guest_call(&g, SHELL_FOR(300, "trap '' TERM; echo before; sleep 100"), &r);
	took = since(start);
	assert_string_equal(result_word(&r), "timeout");
	assert_int_equal(result_int(&r, "signal"), SIGKILL);
	assert_int_equal(result_int(&r, "survivors"), -1);
	/* Who stood still may have come to nothing. */
	assert_true(took > 1000 || strcmp(result_text(&r, 0), "before\n") == 0);
	result_release(&r);
	guest_end(&g);
	return took;
}

static void test_timeout(void **state)
{
	struct guest g;
	struct result r;

	(void)state;
	expect_within(time_out, 300, 1000);
	guest_begin(&g);
	guest_call(&g, SHELL_FOR(5000, "exit 4"), &r);
	assert_string_equal(result_word(&r), "exited");
	assert_int_equal(result_int(&r, "code"), 4);
	result_release(&r);
	guest_end(&g);
}

static uint64_t cancel_a_tree(void)
{
	struct guest g;
	struct result r;
	uint64_t call, other, start, took;

	guest_begin(&g);
	other = guest_start(&g, SHELL("read x; echo $x"));
	call = guest_start(&g, marked("guest-test-cancel",
	                              "trap '' TERM HUP INT; setsid sleep 100 & (setsid "
	                              "sh -c 'sleep 100 & sleep 100' &); (sleep 100 &); "
	                              "sleep 100"));
	wait_marked(6);
	start = clock_mono_ms();
	guest_send(&g, FRAME_CANCEL, call, "", 0);
	guest_finish(&g, call, &r);
	took = since(start);
	assert_int_equal(count_marked(), 0);
	assert_string_equal(result_word(&r), "cancelled");
	assert_int_equal(result_int(&r, "signal"), SIGKILL);
	result_release(&r);
	guest_send(&g, FRAME_INPUT, other, "still here\n", 11);
	guest_finish(&g, other, &r);
	assert_string_equal(result_text(&r, 0), "still here\n");
	result_release(&r);
	guest_end(&g);
	return took;
}

static void test_cancel_kills_the_tree(void **state)
{
	(void)state;
	expect_within(cancel_a_tree, 0, 1000);
}

/*
 * Eight sessions that fork all the time, each process in a session of its own.
 * Paced and bounded, so that a guest that fails does not take the machine along.
 */
static void test_cancel_kills_a_bomb(void **state)
{
	struct guest g;
	struct result r;
	uint64_t call;
	int n = 0;

	(void)state;
	guest_begin(&g);
	call = guest_start(&g, marked("guest-test-bomb",
	                              "for j in 1 2 3 4 5 6 7 8; do (setsid sh -c 'while :; do "
	                              "(setsid sleep 2 &); sleep 0.05; done' &); done; sleep 100"));
	for (int i = 0; i < 2000 && n <= 20; i++) {
		(void)usleep(10000);
		n = count_marked();
	}
	assert_true(n > 20);
	guest_send(&g, FRAME_CANCEL, call, "", 0);
	guest_finish(&g, call, &r); /* or the guest had ended, for want of time */
	assert_string_equal(result_word(&r), "cancelled");
	assert_int_equal(count_marked(), 0);
	result_release(&r);
	guest_end(&g);
}

/* An exec ends with its process; a daemon that it leaves is counted, lives on, dies at the end. */
static void test_survivors(void **state)
{
	struct guest g;
	struct result r;
	uint64_t start = clock_mono_ms();

	(void)state;
	guest_begin(&g);
	guest_call(&g, marked("guest-test-daemon", "(setsid sh -c 'sleep 100' &); yes & echo left"),
	           &r);
	assert_true(since(start) < ANSWER_MS);
	assert_string_equal(result_word(&r), "exited");
	assert_int_equal(result_int(&r, "code"), 0);
	assert_in_range(result_int(&r, "survivors"), 2, 3);
	assert_non_null(strstr(result_text(&r, 0), "left\n"));
	assert_int_equal(result_int(&r, "stdoutBytes"), r.out[0].len);
	result_release(&r);
	expect_word(&g, ARGV("\"true\""), "exited");
	assert_in_range(count_marked(), 2, 3);
	guest_end(&g);
	wait_marked(0);
}

/* Leaves one that lives until it is killed; its process id. */
static pid_t leave_one(struct guest *g)
{
	struct result r;
	pid_t pid;

	guest_call(g, SHELL("sleep 100 & echo $!"), &r);
	assert_int_equal(result_int(&r, "survivors"), 1);
	pid = (pid_t)strtol(result_text(&r, 0), NULL, 10);
	assert_true(pid > 1);
	result_release(&r);
	return pid;
}

/* A supervisor that keeps survivors is not free, and the limit on them is an error. */
static void test_process_limit(void **state)
{
	uint64_t start;
	struct guest g;
	struct result r;
	bool ran = false;
	pid_t pids[2];

	(void)state;
	guest_begin_with(&g, 2);
	for (int i = 0; i < 2; i++)
		pids[i] = leave_one(&g);
	expect_word(&g, SHELL("exit 0"), "again");
	for (int i = 0; i < 2; i++)
		assert_int_equal(kill(pids[i], SIGKILL), 0);
	start = clock_mono_ms();
	while (!ran && since(start) < ANSWER_MS) {
		guest_call(&g, SHELL("exit 0"), &r);
		ran = strcmp(result_word(&r), "exited") == 0;
		assert_true(ran || strcmp(result_word(&r), "again") == 0);
		result_release(&r);
	}
	assert_true(ran);
	guest_end(&g);
}

/* Neither by unshare(2) nor by clone(2), nor by who was started by somebody else. */
static void test_no_namespaces(void **state)
{
	static const char *const ways[] = {
		SHELL("unshare -U true 2>/dev/null && exit 1; exit 0"),
		SHELL("unshare -m true 2>/dev/null && exit 1; exit 0"),
		SHELL("unshare -n true 2>/dev/null && exit 1; exit 0"),
		SHELL("unshare -Ur sh -c 'exit 0' 2>/dev/null && exit 1; exit 0"),
		SHELL("setsid sh -c 'unshare -U true' 2>/dev/null && exit 1; exit 0"),
	};
	struct guest g;
	struct result r;

	(void)state;
	guest_begin(&g);
	for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
		guest_call(&g, ways[i], &r);
		assert_int_equal(result_int(&r, "code"), 0);
		result_release(&r);
	}
	guest_end(&g);
}

static void test_many_at_once(void **state)
{
	int ended = 0;
	struct guest g;
	struct frame f;

	(void)state;
	guest_begin(&g);
	for (int i = 0; i < 100; i++)
		(void)guest_start(&g, SHELL("echo x; exit 5"));
	while (ended < 100) {
		assert_true(guest_frame(&g, &f));
		if (f.type != FRAME_EXIT)
			continue;
		ended++;
		assert_non_null(strstr(f.payload, "\"code\":5"));
	}
	guest_end(&g);
}

static uint64_t end_of_input(void)
{
	uint64_t start, took;
	struct guest g;

	guest_begin(&g);
	(void)guest_start(&g, marked("guest-test-end", "trap '' TERM; (setsid sleep 100 &); yes"));
	wait_marked(2);
	start = clock_mono_ms();
	guest_end(&g);
	took = since(start);
	wait_marked(0);
	return took;
}

static void test_end_of_input_kills(void **state)
{
	(void)state;
	expect_within(end_of_input, 0, SANITIZED ? 5000 : 1000); /* supervisors count leaks */
}

/* A guest that is killed takes its processes along, through its supervisors. */
static void test_killed_guest(void **state)
{
	struct guest g;

	(void)state;
	guest_begin(&g);
	(void)guest_start(&g, marked("guest-test-kill", "(setsid sleep 100 &); sleep 100"));
	wait_marked(2);
	assert_int_equal(kill(g.pid, SIGKILL), 0);
	assert_int_equal(guest_wait(&g), -SIGKILL);
	wait_marked(0);
}

/* A command that kills the supervisor of its own exec cannot pass for one that ended well. */
static void test_killed_supervisor(void **state)
{
	struct guest g;
	struct frame f;

	(void)state;
	guest_begin(&g);
	(void)guest_start(&g, SHELL("kill -9 $PPID; exit 0"));
	while (guest_frame(&g, &f))
		assert_int_not_equal(f.type, FRAME_EXIT);
	assert_int_equal(guest_wait(&g), GUEST_EXIT_TREE);
}

static bool is_stopped(pid_t pid)
{
	char path[64], text[512] = "";
	auto_close int fd = -1;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 && strstr(text, ") T ");
}

/* Until one of the supervisors of the guest is. */
static void wait_stopped(const struct guest *g)
{
	uint64_t start = clock_mono_ms();
	char path[64], line[4096];
	bool stopped = false;

	(void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)g->pid, (int)g->pid);
	while (!stopped) {
		auto_file FILE *children = fopen(path, "re");
		char *at = line;

		assert_true(since(start) < ANSWER_MS);
		(void)usleep(2000);
		if (!children || !fgets(line, sizeof(line), children))
			continue;
		for (pid_t pid; !stopped && (pid = (pid_t)strtol(at, &at, 10)) > 0;)
			stopped = is_stopped(pid);
	}
}

/* Signals that can be blocked do not reach the supervisor; a stopped one is woken to kill. */
static void test_stopped_supervisor(void **state)
{
	struct guest g;
	struct result r;
	uint64_t call;

	(void)state;
	guest_begin(&g);
	guest_call(&g, SHELL("kill -TERM $PPID; kill -INT $PPID; exit 3"), &r);
	assert_int_equal(result_int(&r, "code"), 3);
	result_release(&r);
	call = guest_start(&g, SHELL("kill -STOP $PPID; sleep 100"));
	wait_stopped(&g);
	guest_send(&g, FRAME_CANCEL, call, "", 0);
	guest_finish(&g, call, &r);
	assert_string_equal(result_word(&r), "cancelled");
	result_release(&r);
	guest_end(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_output_and_codes),
		cmocka_unit_test(test_failures_are_errors),
		cmocka_unit_test(test_failures_name_the_program),
		cmocka_unit_test(test_clean_start),
		cmocka_unit_test(test_input),
		cmocka_unit_test(test_input_beyond_credit),
		cmocka_unit_test(test_input_after_end),
		cmocka_unit_test(test_large_output),
		cmocka_unit_test(test_output_credit),
		cmocka_unit_test(test_timeout),
		cmocka_unit_test(test_cancel_kills_the_tree),
		cmocka_unit_test(test_cancel_kills_a_bomb),
		cmocka_unit_test(test_survivors),
		cmocka_unit_test(test_process_limit),
		cmocka_unit_test(test_no_namespaces),
		cmocka_unit_test(test_many_at_once),
		cmocka_unit_test(test_end_of_input_kills),
		cmocka_unit_test(test_killed_guest),
		cmocka_unit_test(test_killed_supervisor),
		cmocka_unit_test(test_stopped_supervisor),
	};

	return RUN_TESTS(tests);
}
