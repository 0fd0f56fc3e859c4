#include "daemon/sandbox/jobs.h"

#include "daemon/doctor/host.h"
#include "daemon/doctor/inside.h"
#include "daemon/doctor/leaf.h"
#include "daemon/doctor/net.h"
#include "daemon/doctor/report.h"

#include <fcntl.h>
#include <sys/mman.h>

/* -- what is printed ----------------------------------------------------------------------- */

static int printed = -1, standard_output = -1;

static void capture(void)
{
	(void)fflush(stdout);
	printed = memfd_create("printed", MFD_CLOEXEC);
	standard_output = dup(1);
	assert_true(printed >= 0 && standard_output >= 0);
	assert_int_equal(dup2(printed, 1), 1);
}

/* What was printed since capture(); the caller's. */
static char *release(void)
{
	struct err e = ERR_INIT;
	char *text = NULL;
	size_t len;

	(void)fflush(stdout);
	assert_int_equal(dup2(standard_output, 1), 1);
	assert_int_equal(lseek(printed, 0, SEEK_SET), 0);
	assert_int_equal(fd_read_all(printed, 1 << 16, &text, &len, &e), 0);
	fd_close(&printed);
	fd_close(&standard_output);
	return text;
}

static void test_lines(void **state)
{
	auto_free char *text = NULL;
	struct report *r = NULL;
	struct err e = ERR_INIT;
	pid_t pid;

	(void)state;
	assert_int_equal(report_open(&r, &e), 0);
	capture();
	report_ok(r, "one", "%d", 1);
	report_na(r, "two", "line\nbreak\033[0m");
	assert_int_equal(report_failures(r), 0);
	pid = fork();
	if (pid == 0) {
		report_failed(r, "three", "in a child; remedy");
		_exit(0);
	}
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	text = release();
	assert_string_equal(text, "ok      one                  1\n"
	                          "n/a     two                  line break [0m\n"
	                          "failed  three                in a child; remedy\n");
	assert_int_equal(report_failures(r), 1);
	assert_true(report_has(r, "one"));
	assert_true(report_has(r, "three"));
	assert_false(report_has(r, "four"));
	report_close(&r);
	assert_null(r);
}

/* -- judgements ------------------------------------------------------------------------------ */

static void test_judge(void **state)
{
	static const struct {
		struct exec_result result;
		const char *output;
		enum inside_reach reach;
	} cases[] = {
		{ { .reason = EXEC_EXITED, .code = 0 }, "", REACHED },
		/* What it says besides does not matter once it got through. */
		{ { .reason = EXEC_EXITED, .code = 0 }, "Connection refused", REACHED },
		{ { .reason = EXEC_EXITED, .code = 1 },
		  "bash: connect: Connection refused",
		  REFUSED },
		{ { .reason = EXEC_EXITED, .code = 1 }, "connect: No route to host", REFUSED },
		{ { .reason = EXEC_EXITED, .code = 1 },
		  "connect: Network is unreachable",
		  REFUSED },
		{ { .reason = EXEC_EXITED, .code = 1 }, "Connection timed out", SILENT },
		{ { .reason = EXEC_TIMEOUT, .code = -1 }, "", SILENT },
		{ { .reason = EXEC_TIMEOUT, .code = -1 }, "Connection refused", SILENT },
		{ { .reason = EXEC_EXITED, .code = 1 }, "", BROKEN },
		{ { .reason = EXEC_EXITED, .code = 127 }, "bash: not found", BROKEN },
		{ { .reason = EXEC_EXITED, .code = -1, .signal = 9 }, "refused", BROKEN },
		{ { .reason = EXEC_LOST, .code = -1 }, "refused", BROKEN },
		{ { .reason = EXEC_OOM, .code = -1 }, "", BROKEN },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		if (inside_judge(&cases[i].result, cases[i].output) != cases[i].reach)
			fail_msg("case %zu", i);
}

static void test_probe(void **state)
{
	static const struct {
		const char *json, *text;
		bool good;
	} cases[] = {
		{ "{\"version\":\"2\",\"usable\":true,\"missing\":[]}", "gVisor 2, usable", true },
		{ "{\"version\":\"2\",\"usable\":false,\"missing\":[\"platform\"]}",
		  "gVisor 2 does not know platform", false },
		{ "{\"version\":\"2\",\"missing\":[]}", "gVisor 2 does not know what is needed",
		  false },
		{ "{\"usable\":true}", "not understood", false },
		{ "{\"version\":2,\"usable\":true}", "not understood", false },
		{ "{\"version\":\"2\",\"usable\":\"true\"}", "does not know", false },
		{ "usable", "not understood", false },
		{ "", "not understood", false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char text[300];

		assert_int_equal(
			host_judge_probe(cases[i].json, strlen(cases[i].json), text, sizeof(text)),
			cases[i].good);
		assert_non_null(strstr(text, cases[i].text));
	}
}

static void test_userns_remedy(void **state)
{
	(void)state;
	assert_non_null(strstr(kernel_userns_remedy(ENOSPC, false), "max_user_namespaces"));
	assert_non_null(strstr(kernel_userns_remedy(EPERM, true),
	                       "kernel.apparmor_restrict_unprivileged_userns=0"));
	assert_non_null(strstr(kernel_userns_remedy(EPERM, false), "sysctl"));
}

/* -- the cgroup of a sandbox ------------------------------------------------------------------ */

static char leaf[64];

static void put(const char *name, const char *text)
{
	char path[128];
	auto_close int fd = -1;
	struct err e = ERR_INIT;

	(void)snprintf(path, sizeof(path), "%s/%s", leaf, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, strlen(text), &e), 0);
}

static const struct {
	const char *name, *good, *bad, *other; /* two values that are faults */
} files[] = {
	{ "cgroup.procs", "7\n", "", "" },
	{ "memory.max", "536870912\n", "max\n", "536870913\n" },
	{ "memory.swap.max", "0\n", "max\n", "1\n" },
	{ "memory.oom.group", "1\n", "0\n", "" },
	{ "cpu.max", "200000 100000\n", "max 100000\n", "200001 100000\n" },
	{ "pids.max", "1600\n", "max\n", "511\n" },
};

static void test_leaf(void **state)
{
	const struct limits limits = { .cpus = 200, .memory = 512 << 20, .processes = 512 };
	char fault[200], path[128];

	(void)state;
	(void)snprintf(leaf, sizeof(leaf), "/tmp/leaf-XXXXXX");
	assert_non_null(mkdtemp(leaf));
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		put(files[i].name, files[i].good);
	assert_false(leaf_fault(leaf, &limits, fault, sizeof(fault)));
	put("cpu.max", "100000 50000\n"); /* the same share */
	assert_false(leaf_fault(leaf, &limits, fault, sizeof(fault)));
	put("pids.max", "512\n");
	assert_false(leaf_fault(leaf, &limits, fault, sizeof(fault)));
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		put(files[i].name, files[i].bad);
		assert_true(leaf_fault(leaf, &limits, fault, sizeof(fault)));
		put(files[i].name, files[i].other);
		assert_true(leaf_fault(leaf, &limits, fault, sizeof(fault)));
		(void)snprintf(path, sizeof(path), "%s/%s", leaf, files[i].name);
		assert_int_equal(unlink(path), 0);
		assert_true(leaf_fault(leaf, &limits, fault, sizeof(fault)));
		put(files[i].name, files[i].good);
		assert_false(leaf_fault(leaf, &limits, fault, sizeof(fault)));
	}
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", leaf, files[i].name);
		assert_int_equal(unlink(path), 0);
	}
	assert_int_equal(rmdir(leaf), 0);
	assert_true(leaf_fault(leaf, &limits, fault, sizeof(fault)));
}

/* -- listeners --------------------------------------------------------------------------------- */

static void test_listeners(void **state)
{
	struct net_listener l[NET_ADDRESSES];
	size_t n = net_listen(l, NET_ADDRESSES);
	uint16_t port;

	(void)state;
	assert_in_range(n, 1, NET_ADDRESSES);
	assert_string_equal(l[n - 1].address, "127.0.0.1");
	for (size_t i = 0; i < n; i++) {
		assert_false(net_reached(&l[i]));
		assert_true(net_connects(l[i].address, l[i].port, 1000));
		assert_true(net_reached(&l[i]));
		assert_false(net_reached(&l[i]));
	}
	port = l[n - 1].port;
	net_close(l, n);
	assert_false(net_connects("127.0.0.1", port, 1000));
	n = net_listen(l, 1); /* room for loopback alone */
	assert_int_equal(n, 1);
	assert_string_equal(l[0].address, "127.0.0.1");
	net_close(l, n);
}

/* -- sandboxes that are not what they should be -------------------------------------------------
 */

/* What every command ends with, and prints. */
static const char *claim_exit, *claim_text;

static void behave_claim(struct guest *g)
{
	struct frame f;

	guest_shake(g);
	while (guest_hear(g, &f)) {
		if (f.type != FRAME_START)
			continue;
		if (memmem(f.payload, f.len, "\"write\"", 7)) {
			while (f.type != FRAME_END && guest_hear(g, &f))
				;
			guest_text(g, FRAME_EXIT, f.call, "{\"bytes\":23}");
			continue;
		}
		if (*claim_text)
			guest_text(g, FRAME_STDOUT, f.call, claim_text);
		guest_text(g, FRAME_EXIT, f.call, claim_exit);
	}
}

static char *examine(void)
{
	struct inside in = { .tenant = tenant(0), .workspace = "/nonexistent" };
	struct err e = ERR_INIT;
	char *text;

	begin(behave_claim, START_MS, 60000);
	in.sandboxes = boxes;
	assert_int_equal(report_open(&in.report, &e), 0);
	capture();
	inside_check(&in);
	text = release();
	end();
	report_close(&in.report);
	return text;
}

static void expect_line(const char *text, const char *verdict, const char *name, const char *part)
{
	char begin_of_line[40];
	const char *line;

	(void)snprintf(begin_of_line, sizeof(begin_of_line), "%-7s %-20s ", verdict, name);
	line = strstr(text, begin_of_line);
	if (!line)
		fail_msg("no '%s' in:\n%s", begin_of_line, text);
	else if (!memmem(line, strcspn(line, "\n"), part, strlen(part)))
		fail_msg("no '%s' in: %s", part, line);
}

/* Everything works there, connecting too. */
static void test_open_sandbox(void **state)
{
	auto_free char *text = NULL;

	(void)state;
	claim_exit = "{\"reason\":\"exited\",\"code\":0,\"stdoutBytes\":0,\"stderrBytes\":0}";
	claim_text = "";
	text = examine();
	expect_line(text, "ok", "sandbox", "answered");
	expect_line(text, "failed", "workspace", "/nonexistent/probe");
	expect_line(text, "failed", "egress-host", "was reached from the sandbox");
	expect_line(text, "failed", "egress-private", "10.255.255.1 port 80 was reached");
	expect_line(text, "failed", "egress-metadata", "169.254.169.254 port 80 was reached");
	expect_line(text, "failed", "egress-ipv6", "was reached");
	expect_line(text, "n/a", "limits", "development");
	expect_line(text, "n/a", "memory-limit", "development");
}

/* Nothing works there; that nothing can be reached is no comfort. */
static void test_broken_sandbox(void **state)
{
	auto_free char *text = NULL;

	(void)state;
	claim_exit = "{\"reason\":\"exited\",\"code\":127,\"stdoutBytes\":4,\"stderrBytes\":0}";
	claim_text = "none";
	text = examine();
	expect_line(text, "failed", "sandbox", "code 127");
	assert_null(strstr(text, "egress"));
}

static void test_limits_that_do_not_hold(void **state)
{
	const struct limits limits = { .cpus = 200, .memory = 512 << 20, .processes = 512 };
	struct inside in = { .tenant = tenant(0),
		             .workspace = "/nonexistent",
		             .limits = &limits,
		             .leaf = "/nonexistent" };
	auto_free char *text = NULL;
	struct err e = ERR_INIT;

	(void)state;
	claim_exit = "{\"reason\":\"exited\",\"code\":0,\"stdoutBytes\":0,\"stderrBytes\":0}";
	claim_text = "";
	begin(behave_claim, START_MS, 60000);
	in.sandboxes = boxes;
	assert_int_equal(report_open(&in.report, &e), 0);
	capture();
	inside_check(&in);
	text = release();
	end();
	expect_line(text, "failed", "limits", "no process of the sandbox is in it");
	expect_line(text, "failed", "memory-limit", "ended with \"exited\", not \"oom\"");
	report_close(&in.report);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_judge),
		cmocka_unit_test(test_probe),
		cmocka_unit_test(test_userns_remedy),
		cmocka_unit_test(test_leaf),
		cmocka_unit_test(test_listeners),
		cmocka_unit_test(test_open_sandbox),
		cmocka_unit_test(test_broken_sandbox),
		cmocka_unit_test(test_limits_that_do_not_hold),
	};

	return RUN_TESTS(tests);
}
