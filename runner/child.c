#include "runner/child.h"

#include "common/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define FDS_MAX 16

static pid_t check_clone(long pid, struct err *e)
{
	if (pid < 0 && (errno == EPERM || errno == ENOSPC))
		return err_errno(e, "make namespaces (allow unprivileged user namespaces: "
		                    "kernel.unprivileged_userns_clone, user.max_user_namespaces)");
	if (pid < 0)
		return err_errno(e, "make a process");
	return (pid_t)pid;
}

pid_t child_clone(unsigned long flags, struct err *e)
{
	return check_clone(syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, NULL), e);
}

static int move_into(int cgroup, pid_t pid, struct err *e)
{
	auto_close int procs = openat(cgroup, "cgroup.procs", O_WRONLY | O_CLOEXEC);
	char text[16];
	int len = snprintf(text, sizeof(text), "%d", pid);

	if (procs < 0 || write(procs, text, (size_t)len) != len)
		return err_errno(e, "move a process into its cgroup");
	return 0;
}

pid_t child_clone_gated(int cgroup, unsigned long flags, struct err *e)
{
	auto_close int wait_end = -1;
	auto_close int open_end = -1;
	int ends[2];
	char byte = 0;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_errno(e, "make a pipe");
	wait_end = ends[0];
	open_end = ends[1];
	pid = child_clone(flags, e);
	if (pid == 0) {
		fd_close(&open_end);
		/* Its end without a byte: the runner is gone, or could not move this process. */
		if (read(wait_end, &byte, 1) != 1)
			_exit(125);
		return 0;
	}
	if (pid < 0)
		return -1;
	if (move_into(cgroup, pid, e) < 0 || fd_write_all(open_end, &byte, 1, e) < 0) {
		(void)kill(pid, SIGKILL);
		(void)waitpid(pid, NULL, 0);
		return -1;
	}
	return pid;
}

pid_t child_clone_into(int cgroup, unsigned long flags, struct err *e)
{
	struct clone_args args = {
		.flags = flags | CLONE_INTO_CGROUP,
		.exit_signal = SIGCHLD,
		.cgroup = (unsigned long long)cgroup,
	};
	long pid;

	if (cgroup < 0)
		return child_clone(flags, e);
	pid = syscall(SYS_clone3, &args, sizeof(args));
	if (pid < 0 && errno == ENOSYS)
		return child_clone_gated(cgroup, flags, e);
	return check_clone(pid, e);
}

int child_bind(struct err *e)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return err_errno(e, "set the parent-death signal");
	return 0;
}

static int write_proc(const char *path, const char *text, struct err *e)
{
	auto_close int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return err_errno(e, "open %s", path);
	if (fd_write_all(fd, text, strlen(text), e) < 0)
		return err_wrap(e, "%s", path);
	return 0;
}

int child_map_root(uid_t uid, gid_t gid, struct err *e)
{
	char uids[32];
	char gids[32];

	/* The files belong to root for a process that is not dumpable. */
	if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
		return err_errno(e, "set dumpable");
	(void)snprintf(uids, sizeof(uids), "0 %u 1\n", uid);
	(void)snprintf(gids, sizeof(gids), "0 %u 1\n", gid);
	if (write_proc("/proc/self/setgroups", "deny", e) < 0 ||
	    write_proc("/proc/self/uid_map", uids, e) < 0 ||
	    write_proc("/proc/self/gid_map", gids, e) < 0)
		return -1;
	return 0;
}

void child_reset_signals(void)
{
	sigset_t none;

	(void)sigemptyset(&none);
	/* Ignored, as in the runner: it means the daemon's registry, whoever is sent it too. */
	for (int sig = 1; sig < NSIG; sig++)
		(void)signal(sig, sig == SIGHUP ? SIG_IGN : SIG_DFL);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
}

int child_set_fds(const int *from, int n, struct err *e)
{
	int high[FDS_MAX];

	if (n > FDS_MAX)
		return err_set(e, EINVAL, "more than %d descriptors", FDS_MAX);
	/* First out of the way of the places they go to, then into them. */
	for (int i = 0; i < n; i++) {
		int fd = from[i] >= 0 ? from[i] : open("/dev/null", O_RDWR | O_CLOEXEC);

		if (fd < 0)
			return err_errno(e, "open /dev/null");
		high[i] = fcntl(fd, F_DUPFD_CLOEXEC, FDS_MAX);
		if (high[i] < 0)
			return err_errno(e, "duplicate a descriptor");
	}
	for (int i = 0; i < n; i++)
		if (dup2(high[i], i) < 0)
			return err_errno(e, "place a descriptor");
	fd_close_from(n, NULL, 0);
	return 0;
}

int child_exec(const char *path, const char *const *argv, struct err *e)
{
	char *const environment[] = { NULL };
	char *const *arguments;

	/* execve(2) does not write to them, whatever its prototype says. */
	memcpy(&arguments, &argv, sizeof(argv));
	(void)execve(path, arguments, environment);
	return err_errno(e, "execute %s", path);
}

int child_keep_capabilities(uint64_t keep, struct err *e)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { { 0 } };

	for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if (!(keep >> cap & 1) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			return err_errno(e, "drop capability %d", cap);
	for (int i = 0; i < 2; i++)
		data[i].effective = data[i].permitted = (uint32_t)(keep >> (32 * i));
	if (syscall(SYS_capset, &head, data) < 0)
		return err_errno(e, "drop capabilities");
	return 0;
}
