/*
 * Two processes, each root of a user namespace in which one user exists.
 *
 * The router (user namespace U1) has power over the router's network namespace.
 * It makes sockets in it, hands them to the runner, makes the box, and ends: no
 * process with that power stays.  The runner can use the sockets because it is the
 * user who made U1.
 *
 * The box (user namespace U2, a child of U1) is the first process of the sandbox's
 * pid namespace.  Its powers end with U2's namespaces; those of U1 are out of its
 * reach even when a descriptor leaks.  It builds the private root, starts runsc
 * with four capabilities, drops its own, and then only waits.  When the runner dies, the kernel
 * kills the box, and with it every process of the sandbox.
 */
#include "runner/box.h"

#include "common/fd.h"
#include "runner/child.h"
#include "runner/link.h"
#include "runner/nl.h"
#include "runner/report.h"
#include "runner/root.h"
#include "runner/runsc.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define U2_NAMESPACES \
	(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS)

#define FAILED 125 /* the reason went up the channel */

static int order_fds(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* Keep the first three and those given; the lock, above all, stays with the runner alone. */
static void close_others(const int *keep, size_t n)
{
	int sorted[8];

	memcpy(sorted, keep, n * sizeof(int));
	qsort(sorted, n, sizeof(int), order_fds);
	fd_close_from(3, sorted, n);
}

static int close_and_wait(int channel, const int *keep, size_t n, struct err *e)
{
	struct report go;

	close_others(keep, n);
	/* If the runner died before this, its end is closed and the wait below fails. */
	if (child_bind(e) < 0)
		return -1;
	return report_wait(channel, REPORT_GO, 0, -1, &go, e);
}

static int send_fds(int channel, enum report_step step, const int *fds, size_t n, struct err *e)
{
	struct report r = { .step = step, .fd_count = n };

	memcpy(r.fds, fds, n * sizeof(int));
	return report_send(channel, &r, e);
}

/* -- the box ------------------------------------------------------------------ */

#define CHANNEL_FD 4 /* behind those that runsc is told of */

static int prepare_exec(const struct box_plan *plan, struct err *e)
{
	int fds[] = { STDIN_FILENO, STDOUT_FILENO, plan->errors, plan->log, plan->box_channel };
	struct rlimit no_core = { 0 };

	child_reset_signals();
	if (setrlimit(RLIMIT_CORE, &no_core) < 0)
		return err_errno(e, "forbid core dumps");
	if (child_set_fds(fds, (int)ARRAY_LEN(fds), e) < 0)
		return -1;
	if (fcntl(CHANNEL_FD, F_SETFD, FD_CLOEXEC) < 0)
		return err_errno(e, "set up a descriptor");
	return 0;
}

static no_return void execute(const struct box_plan *plan)
{
	struct err e = ERR_INIT;

	if (prepare_exec(plan, &e) == 0)
		(void)runsc_exec(plan->runsc, &e);
	report_error(CHANNEL_FD, REPORT_ROOT, &e);
	_exit(FAILED);
}

static int exit_code(int status)
{
	int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);

	if (access(ROOT_PID_FILE, F_OK) < 0)
		return BOX_NOT_STARTED;
	return code == BOX_NOT_STARTED ? FAILED : code;
}

/* Reap everything; end when runsc ends, the way it ended.  SIGTERM is passed on to it. */
static no_return void wait_for(pid_t runsc)
{
	sigset_t set;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGCHLD);
	(void)sigaddset(&set, SIGTERM);
	for (;;) {
		int status;
		pid_t pid;

		while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
			if (pid == runsc)
				_exit(exit_code(status));
		if (pid < 0)
			_exit(FAILED);
		if (sigwaitinfo(&set, NULL) == SIGTERM)
			(void)kill(runsc, SIGTERM);
	}
}

static int build_box(const struct box_plan *plan, struct err *e)
{
	const int keep[] = { plan->box_channel, plan->errors, plan->log };
	const struct report root_stands = { .step = REPORT_ROOT };
	auto_close int links = -1;
	struct report run;

	if (close_and_wait(plan->box_channel, keep, ARRAY_LEN(keep), e) < 0 ||
	    child_map_root(0, 0, e) < 0 || nl_open_fd(NETLINK_ROUTE, &links, e) < 0 ||
	    send_fds(plan->box_channel, REPORT_LINKS, &links, 1, e) < 0)
		return -1;
	if (root_enter(plan->args, plan->mount_point, plan->config->data, plan->config->len, e) < 0)
		return err_wrap(e, "build the sandbox's root");
	if (report_send(plan->box_channel, &root_stands, e) < 0)
		return -1;
	return report_wait(plan->box_channel, REPORT_RUN, 0, -1, &run, e);
}

static no_return void box_main(const struct box_plan *plan)
{
	struct err e = ERR_INIT;
	pid_t runsc = -1;

	if (build_box(plan, &e) == 0)
		runsc = child_clone(0, &e);
	if (runsc == 0)
		execute(plan);
	if (runsc < 0) {
		report_error(plan->box_channel, REPORT_ROOT, &e);
		_exit(FAILED);
	}
	/* The pipes are the sandbox's now: they must close when it ends. */
	fd_close_from(0, NULL, 0);
	if (child_keep_capabilities(0, &e) < 0)
		_exit(FAILED);
	wait_for(runsc);
}

/* -- the router ----------------------------------------------------------------- */

/*
 * The kernel answers one forbidden datagram in a second, after a few; and where it
 * counts for all namespaces together, a tenant could use up the host's share.  Without
 * this file they are refused no less, only in silence.
 */
static void answer_every_datagram(void)
{
	auto_close int fd = open("/proc/sys/net/ipv4/icmp_ratemask", O_WRONLY | O_CLOEXEC);

	if (fd >= 0)
		(void)!write(fd, "0\n", 2);
}

static int make_sockets(int channel, struct err *e)
{
	auto_close int user = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
	auto_close int net = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	auto_close int rules = -1;
	auto_close int links = -1;
	int fds[4];

	if (user < 0 || net < 0)
		return err_errno(e, "open the router's namespaces");
	if (nl_open_fd(NETLINK_NETFILTER, &rules, e) < 0 ||
	    nl_open_fd(NETLINK_ROUTE, &links, e) < 0)
		return -1;
	fds[0] = user;
	fds[1] = net;
	fds[2] = rules;
	fds[3] = links;
	return send_fds(channel, REPORT_ROUTER, fds, ARRAY_LEN(fds), e);
}

static int build_router(const struct box_plan *plan, uid_t uid, gid_t gid, struct err *e)
{
	const int keep[] = { plan->router_channel, plan->box_channel, plan->errors, plan->log };

	if (close_and_wait(plan->router_channel, keep, ARRAY_LEN(keep), e) < 0 ||
	    child_map_root(uid, gid, e) < 0)
		return -1;
	answer_every_datagram();
	if (link_judge_sources(e) < 0)
		return -1;
	return make_sockets(plan->router_channel, e);
}

void router_main(const struct box_plan *plan, uid_t uid, gid_t gid)
{
	struct report box = { .step = REPORT_BOX };
	struct err e = ERR_INIT;

	if (build_router(plan, uid, gid, &e) < 0) {
		report_error(plan->router_channel, REPORT_ROUTER, &e);
		_exit(FAILED);
	}
	box.value = child_clone(U2_NAMESPACES | CLONE_PARENT, &e);
	if (box.value == 0)
		box_main(plan);
	if (box.value < 0)
		report_error(plan->router_channel, REPORT_BOX, &e);
	else if (report_send(plan->router_channel, &box, &e) < 0)
		_exit(FAILED);
	_exit(0);
}
