/*
 * This process stands where the server stands: the launcher starts the runner, and what
 * is asked of the sandbox goes through the same code as a tenant's calls.  What comes out
 * of the sandbox is a claim; where the machine can look for itself (the workspace, a
 * listener, the cgroup) it is the machine that decides.
 */
#include "daemon/doctor/inside.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/log.h"
#include "daemon/doctor/leaf.h"
#include "daemon/doctor/net.h"
#include "daemon/launcher/message.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define START_TIMEOUT_MS 60000
#define CALL_TIMEOUT_MS  30000
#define TRY_TIMEOUT_MS   20000
#define AT_ONCE_MS       2000 /* on top of some starts of a shell, which may take seconds */
#define HOST_TIMEOUT_MS  2000
#define HOG_TIMEOUT_MS   120000
#define LOOPBACK_ALIAS   "10.0.2.2" /* what slirp4netns would make the machine's loopback */
#define NAME             "example.com"

/* -- calls -------------------------------------------------------------------------------- */

struct output {
	char text[2000];
	size_t len;
};

static void take(void *ctx, int stream, const char *data, size_t len)
{
	struct output *o = ctx;
	size_t room = sizeof(o->text) - 1 - o->len;

	(void)stream;
	len = len < room ? len : room;
	memcpy(o->text + o->len, data, len);
	o->len += len;
	o->text[o->len] = '\0';
}

/* Run in the sandbox; -1 when nothing was run.  Output of both kinds goes to o. */
static int run(const struct inside *in, const char *const *argv, uint64_t timeout_ms,
               struct output *o, struct exec_result *ret, struct err *e)
{
	const struct sandbox_use use = { in->sandboxes, &in->tenant, NULL };
	const struct exec_spec spec = { .argv = argv, .cwd = "/", .timeout_ms = timeout_ms };
	const struct output_sink sink = { take, o };

	o->len = 0;
	o->text[0] = '\0';
	if (sandbox_exec(&use, &spec, &sink, ret, e) < 0)
		return -1;
	o->text[strcspn(o->text, "\n")] = '\0';
	return 0;
}

static bool ended_well(const struct exec_result *r)
{
	return r->reason == EXEC_EXITED && r->code == 0;
}

/* -- sandbox and workspace ---------------------------------------------------------------- */

static bool check_sandbox(const struct inside *in)
{
	static const char *const argv[] = { "uname", "-srm", NULL };
	uint64_t began = clock_mono_ms();
	struct exec_result result;
	struct output o;
	struct err e = ERR_INIT;

	if (run(in, argv, CALL_TIMEOUT_MS, &o, &result, &e) < 0) {
		report_failed(in->report, "sandbox",
		              "%s; --log-level debug shows what the runner and gVisor say", e.text);
		return false;
	}
	if (!ended_well(&result)) {
		report_failed(in->report, "sandbox",
		              "uname ended: %s, code %d, \"%.100s\"; the root filesystem must be "
		              "complete",
		              exec_reason_name(result.reason), result.code, o.text);
		return false;
	}
	report_ok(in->report, "sandbox", "started and answered in %" PRIu64 " ms: %.100s",
	          clock_mono_ms() - began, o.text);
	return true;
}

/* The file on the machine holds just that. */
static bool holds(const char *path, const char *text)
{
	auto_close int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	auto_free char *found = NULL;
	struct err e = ERR_INIT;
	size_t len;

	return fd >= 0 && fd_read_all(fd, strlen(text), &found, &len, &e) == 0 &&
	       strcmp(found, text) == 0;
}

static void check_workspace(const struct inside *in)
{
	static const char text[] = "written in the sandbox\n";
	const struct sandbox_use use = { in->sandboxes, &in->tenant, NULL };
	char path[4200];
	struct err e = ERR_INIT;

	(void)snprintf(path, sizeof(path), "%s/probe", in->workspace);
	if (sandbox_write(&use, "/workspace/probe", text, strlen(text), &e) < 0)
		report_failed(in->report, "workspace",
		              "cannot be written in the sandbox: %s; see the file system of the "
		              "state directory",
		              e.text);
	else if (holds(path, text))
		report_ok(in->report, "workspace", "written in the sandbox, read on the machine");
	else
		report_failed(in->report, "workspace",
		              "what was written in the sandbox is not in %.300s; the runner mounts "
		              "something else there",
		              path);
}

/* -- network ------------------------------------------------------------------------------- */

enum inside_reach inside_judge(const struct exec_result *result, const char *output)
{
	static const char *const refusals[] = { "refused",      "unreachable",   "No route",
		                                "denied",       "not permitted", "Cannot assign",
		                                "not supported" };

	if (result->reason == EXEC_TIMEOUT)
		return SILENT;
	if (result->reason != EXEC_EXITED || result->signal)
		return BROKEN;
	if (result->code == 0)
		return REACHED;
	if (strstr(output, "timed out"))
		return SILENT;
	for (size_t i = 0; i < ARRAY_LEN(refusals); i++)
		if (strstr(output, refusals[i]))
			return REFUSED;
	return BROKEN;
}

struct attempt {
	enum inside_reach reach;
	uint64_t ms;
	char text[200]; /* what it said */
};

static void try_connect(const struct inside *in, const char *address, uint16_t port,
                        struct attempt *ret)
{
	char number[8];
	const char *const argv[] = { "bash",  "-c",   "exec 3<>\"/dev/tcp/$0/$1\"",
		                     address, number, NULL };
	uint64_t began = clock_mono_ms();
	struct exec_result result;
	struct output o;
	struct err e = ERR_INIT;

	(void)snprintf(number, sizeof(number), "%u", port);
	if (run(in, argv, TRY_TIMEOUT_MS, &o, &result, &e) < 0) {
		ret->reach = BROKEN;
		(void)snprintf(ret->text, sizeof(ret->text), "%.190s", e.text);
	} else {
		ret->reach = inside_judge(&result, o.text);
		(void)snprintf(ret->text, sizeof(ret->text), "%s: %.150s",
		               exec_reason_name(result.reason), o.text);
	}
	ret->ms = clock_mono_ms() - began;
}

static const char packets_remedy[] =
	"no tenant is safe here: keep the service off, and report it with the runner's log "
	"(--log-level debug)";

static const char late_remedy[] = "programs of tenants would hang; see the runner's log "
				  "(--log-level debug)";

/* True when the address is refused at once; else the line is written. */
static bool expect_refused(const struct inside *in, const char *name, const char *address,
                           uint16_t port)
{
	struct attempt a;

	try_connect(in, address, port, &a);
	if (a.reach == REFUSED && a.ms < AT_ONCE_MS + 3 * in->shell_ms)
		return true;
	if (a.reach == REACHED)
		report_failed(in->report, name, "%s port %u was reached from the sandbox; %s",
		              address, port, packets_remedy);
	else if (a.reach == BROKEN)
		report_failed(in->report, name,
		              "connecting to %s could not be tried: %s; the root filesystem needs "
		              "bash",
		              address, a.text);
	else
		report_failed(in->report, name,
		              "%s port %u was not refused at once, but after %" PRIu64 " ms (%s); "
		              "%s",
		              address, port, a.ms, a.text, late_remedy);
	return false;
}

static void check_denied(const struct inside *in, const char *name, const char *const *addresses)
{
	char list[200] = "";
	size_t len = 0;

	for (size_t i = 0; addresses[i]; i++) {
		if (!expect_refused(in, name, addresses[i], 80))
			return;
		len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%s", i ? ", " : "",
		                        addresses[i]);
	}
	report_ok(in->report, name, "refused: %s", list);
}

/* The machine's own addresses, each with a listener that would answer. */
static bool check_listeners(const struct inside *in, const struct net_listener *l, size_t n)
{
	static const char name[] = "egress-host";

	for (size_t i = 0; i < n; i++) {
		bool loopback = strcmp(l[i].address, "127.0.0.1") == 0;
		const char *address = loopback ? LOOPBACK_ALIAS : l[i].address;

		if (!expect_refused(in, name, address, l[i].port))
			return false;
		if (net_reached(&l[i])) {
			report_failed(in->report, name,
			              "a connection came from the sandbox to %s; %s", l[i].address,
			              packets_remedy);
			return false;
		}
	}
	return true;
}

static void check_host(const struct inside *in)
{
	struct net_listener l[NET_ADDRESSES];
	size_t n = net_listen(l, NET_ADDRESSES);

	if (n == 0)
		report_na(in->report, "egress-host", "this machine has no address to listen on");
	else if (check_listeners(in, l, n))
		report_ok(in->report, "egress-host",
		          "%zu of this machine's own addresses refused, loopback among them", n);
	net_close(l, n);
}

static void check_public(const struct inside *in)
{
	static const struct {
		const char *address;
		uint16_t port;
	} targets[] = { { "1.1.1.1", 443 }, { "1.1.1.1", 80 }, { "8.8.8.8", 443 } };
	static const char name[] = "egress-public";
	struct attempt a;
	size_t i = 0;

	while (i < ARRAY_LEN(targets) &&
	       !net_connects(targets[i].address, targets[i].port, HOST_TIMEOUT_MS))
		i++;
	if (i == ARRAY_LEN(targets)) {
		report_na(in->report, name,
		          "this machine itself reaches neither 1.1.1.1 nor 8.8.8.8");
		return;
	}
	try_connect(in, targets[i].address, targets[i].port, &a);
	if (a.reach == REACHED)
		report_ok(in->report, name, "%s reached in %" PRIu64 " ms", targets[i].address,
		          a.ms);
	else
		report_failed(in->report, name,
		              "%s is reached by this machine, but not from the sandbox (%s); see "
		              "what filters packets of the service user, or --host-address",
		              targets[i].address, a.text);
}

static void check_dns(const struct inside *in)
{
	static const char *const argv[] = { "getent", "ahostsv4", NAME, NULL };
	struct exec_result result;
	struct output o;
	struct err e = ERR_INIT;

	if (!net_resolves(NAME)) {
		report_na(in->report, "dns", "this machine itself does not resolve " NAME);
		return;
	}
	if (run(in, argv, TRY_TIMEOUT_MS, &o, &result, &e) == 0 && ended_well(&result))
		report_ok(in->report, "dns", NAME " resolved: %.60s", o.text);
	else
		report_failed(in->report, "dns",
		              NAME
		              " is resolved by this machine, but not in the sandbox (%s); name "
		              "resolvers that it may ask in the tenant's egress.dns",
		              e.code ? e.text : exec_reason_name(result.reason));
}

/* So that a slow machine is not taken for a slow refusal. */
static void time_shell(struct inside *in)
{
	static const char *const argv[] = { "bash", "-c", ":", NULL };
	uint64_t began = clock_mono_ms();
	struct exec_result result;
	struct output o;
	struct err e = ERR_INIT;

	if (run(in, argv, CALL_TIMEOUT_MS, &o, &result, &e) == 0)
		in->shell_ms = clock_mono_ms() - began;
}

static void check_network(struct inside *in)
{
	static const char *const private[] = { "10.255.255.1", "172.31.255.1", "192.168.255.1",
		                               "100.64.0.1", NULL };
	static const char *const metadata[] = { "169.254.169.254", NULL };
	static const char *const v6[] = { "2606:4700:4700::1111", "fe80::1", "::1", NULL };

	time_shell(in);
	check_public(in);
	check_host(in);
	check_denied(in, "egress-private", private);
	check_denied(in, "egress-metadata", metadata);
	check_denied(in, "egress-ipv6", v6);
	check_dns(in);
}

/* -- limits -------------------------------------------------------------------------------- */

static void check_limits(const struct inside *in)
{
	char fault[300];

	if (!in->leaf)
		report_na(in->report, "limits", "boundary development has none");
	else if (leaf_fault(in->leaf, in->limits, fault, sizeof(fault)))
		report_failed(
			in->report, "limits",
			"%s; the limits of %s are not those of the registry, keep the service "
			"off",
			fault, in->leaf);
	else
		report_ok(in->report, "limits",
		          "in force: %u.%02u CPUs, %" PRIu64 " MiB, no swap, tasks bounded",
		          in->limits->cpus / 100, in->limits->cpus % 100, in->limits->memory >> 20);
}

/* The memory limit ends the sandbox, the reason is known, and the next call has a new one. */
static void check_oom(const struct inside *in)
{
	/* One read: a program that touches page after page takes minutes where it is emulated. */
	static const char *const hog[] = { "dd",    "if=/dev/zero", "of=/dev/null",
		                           "bs=1G", "count=1",      NULL };
	static const char *const next[] = { "true", NULL };
	struct exec_result result;
	struct output o;
	struct err e = ERR_INIT;

	if (!in->leaf) {
		report_na(in->report, "memory-limit", "boundary development has none");
		return;
	}
	if (run(in, hog, HOG_TIMEOUT_MS, &o, &result, &e) < 0)
		report_failed(in->report, "memory-limit", "%s; %s", e.text, packets_remedy);
	else if (result.reason != EXEC_OOM)
		report_failed(in->report, "memory-limit",
		              "a command that takes all memory ended with \"%s\", not \"oom\"; see "
		              "memory.events of %s",
		              exec_reason_name(result.reason), in->leaf);
	else if (run(in, next, CALL_TIMEOUT_MS, &o, &result, &e) < 0 || !ended_well(&result))
		report_failed(
			in->report, "memory-limit",
			"no new sandbox after one that memory ended: %s; see the runner's log "
			"(--log-level debug)",
			e.code ? e.text : exec_reason_name(result.reason));
	else
		report_ok(in->report, "memory-limit",
		          "a command that takes all memory says oom, and the next one runs");
}

/* -- the whole ------------------------------------------------------------------------------ */

void inside_check(struct inside *in)
{
	if (!check_sandbox(in))
		return;
	check_workspace(in);
	check_network(in);
	check_limits(in);
	check_oom(in);
}

/* An orderly stop like any other; who ends before it was asked to has failed. */
static void ask_for_the_end(int launcher_sock)
{
	uint64_t deadline = clock_mono_ms() + CALL_TIMEOUT_MS;
	struct pollfd p = { .fd = launcher_sock, .events = POLLIN };
	struct launcher_message m = { .op = 0 };
	int fds[2];
	struct err e = ERR_INIT;

	(void)!kill(getppid(), SIGTERM);
	while (m.op != LAUNCHER_DRAIN && poll(&p, 1, clock_left_ms(deadline)) == 1) {
		if (launcher_receive(launcher_sock, &m, fds, &e) <= 0)
			return;
		fd_close(&fds[0]);
		fd_close(&fds[1]);
	}
}

int inside_main(void *ctx, int launcher_sock, const char *database_socket_dir)
{
	struct inside *in = ctx;
	const struct launcher_message ready = { .op = LAUNCHER_READY, .port = 1 };
	const struct sandboxes_conf conf = {
		.launcher_sock = launcher_sock,
		.start_timeout_ms = START_TIMEOUT_MS,
		.idle_ms = 10 * START_TIMEOUT_MS,
		.max_active = 1,
	};
	struct err e = ERR_INIT;

	(void)database_socket_dir;
	if (launcher_send(launcher_sock, &ready, NULL, &e) < 0 ||
	    sandboxes_start(&conf, &in->sandboxes, &e) < 0) {
		log_error("%s", e.text);
		return 1;
	}
	inside_check(in);
	sandboxes_stop(&in->sandboxes);
	ask_for_the_end(launcher_sock);
	return 0;
}
