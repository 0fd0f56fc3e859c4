/*
 * The helper enters the router's user namespace, where it is root and may enter
 * the router's network namespace, but stays in the host's network namespace,
 * where it is an ordinary user with ordinary sockets.  slirp4netns then shuts
 * itself into a mount namespace without files, drops its capabilities and loads
 * its own system call filter.  The namespace comes as a descriptor, because
 * attaching by process id fails for processes that are not dumpable.
 *
 * It is the service's user, it reads what tenants send, and its filter lets kill(2)
 * pass.  So Landlock takes from it, from version 6 on (Linux 6.12), signals to
 * processes other than its own and abstract sockets.
 */
#include "runner/slirp.h"

#include "common/attr.h"
#include "common/fd.h"
#include "runner/cell.h"
#include "runner/child.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define READY_TIMEOUT_MS 20000 /* a few ms, unless the machine has far more to do than it can */
#define FDS_MAX          ((rlim_t)2 * CELL_CONNECTIONS) /* one a connection, and some for itself */

/* Places of the descriptors in the helper. */
#define NET_FD   "3"
#define READY_FD "4"
#define EXIT_FD  "5"

/* The headers of older distributions stop at version 2. */
#define SCOPES_VERSION 6
#define SCOPE_ABSTRACT (1ULL << 0)
#define SCOPE_SIGNAL   (1ULL << 1)

static const char *const options[] = {
	"slirp4netns",
	"--configure",
	"--mtu=1500",
	"--cidr=" CELL_SLIRP_CIDR,
	/* 10.0.2.2 does not lead to the host's loopback. */
	"--disable-host-loopback",
	"--enable-sandbox",
	"--enable-seccomp",
	"--netns-type=path",
	"--ready-fd=" READY_FD,
	"--exit-fd=" EXIT_FD,
	"/proc/self/fd/" NET_FD,
	CELL_TAP,
	NULL,
};

static int limit_fds(struct err *e)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return err_errno(e, "read the limit of descriptors");
	if (limit.rlim_max > FDS_MAX)
		limit.rlim_max = FDS_MAX;
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		return err_errno(e, "set the limit of descriptors");
	return 0;
}

static int leave_others_alone(struct err *e)
{
	const struct {
		uint64_t fs, net, scoped;
	} domain = { .scoped = SCOPE_ABSTRACT | SCOPE_SIGNAL };
	auto_close int ruleset = -1;

	if (syscall(SYS_landlock_create_ruleset, NULL, (size_t)0, LANDLOCK_CREATE_RULESET_VERSION) <
	    SCOPES_VERSION)
		return 0;
	ruleset = (int)syscall(SYS_landlock_create_ruleset, &domain, sizeof(domain), 0);
	if (ruleset < 0)
		return err_errno(e, "make a Landlock domain for slirp4netns");
	if (syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
		return err_errno(e, "shut slirp4netns into a Landlock domain");
	return 0;
}

struct slirp_plan {
	const char *program;
	int user;     /* user namespace to enter */
	pid_t runner; /* must still be the parent once the parent-death signal is set */
};

static int become_slirp(const struct slirp_plan *plan, const int *fds, int n, struct err *e)
{
	if (setns(plan->user, CLONE_NEWUSER) < 0)
		return err_errno(e, "enter the router's user namespace");
	if (child_bind(e) < 0)
		return -1;
	if (getppid() != plan->runner)
		return err_set(e, ESRCH, "the runner is gone");
	child_reset_signals();
	if (limit_fds(e) < 0 || leave_others_alone(e) < 0 || child_set_fds(fds, n, e) < 0)
		return -1;
	return child_exec(plan->program, options, e);
}

static no_return void slirp_main(const struct slirp_plan *plan, const int *fds, int n)
{
	struct err e = ERR_INIT;

	/* Its output is what the runner shows when it does not become ready. */
	if (dup2(fds[2], STDERR_FILENO) < 0)
		_exit(126);
	(void)become_slirp(plan, fds, n, &e);
	if (fd_write_all(STDERR_FILENO, e.text, strlen(e.text), &e) < 0)
		_exit(126);
	_exit(125);
}

int slirp_start(const char *program, int user, int net, int cgroup, struct slirp *ret,
                struct err *e)
{
	const struct slirp_plan plan = { program, user, getpid() };
	int output[2] = { -1, -1 };
	int ready[2] = { -1, -1 };
	int ending[2] = { -1, -1 };
	pid_t pid;

	if (pipe2(output, O_CLOEXEC) < 0 || pipe2(ready, O_CLOEXEC) < 0 ||
	    pipe2(ending, O_CLOEXEC) < 0) {
		err_errno(e, "make a pipe");
		pid = -1;
	} else {
		pid = child_clone_into(cgroup, 0, e);
	}
	if (pid == 0) {
		const int fds[] = { -1, output[1], output[1], net, ready[1], ending[0] };

		slirp_main(&plan, fds, (int)ARRAY_LEN(fds));
	}
	fd_close(&output[1]);
	fd_close(&ready[1]);
	fd_close(&ending[0]);
	*ret = (struct slirp){
		.pid = pid > 0 ? pid : 0, .exit = ending[1], .ready = ready[0], .output = output[0]
	};
	return pid > 0 ? 0 : -1;
}

int slirp_wait(struct slirp *s, struct err *e)
{
	struct pollfd p = { .fd = s->ready, .events = POLLIN };
	char byte;
	int n;

	do
		n = poll(&p, 1, READY_TIMEOUT_MS);
	while (n < 0 && errno == EINTR);
	if (n == 0)
		return err_set(e, ETIMEDOUT, "slirp4netns is not ready after %d ms",
		               READY_TIMEOUT_MS);
	if (n < 0 || read(s->ready, &byte, 1) != 1)
		return err_set(e, ECHILD, "slirp4netns ended before it was ready");
	fd_close(&s->ready);
	return 0;
}

void slirp_close(struct slirp *s)
{
	fd_close(&s->exit);
	fd_close(&s->ready);
	fd_close(&s->output);
}
