/*
 * What of the kernel is there is found by using it, each time in a child that ends with
 * the answer: a namespace, once entered, cannot be left.
 */
#include "daemon/doctor/host.h"

#include "common/fd.h"
#include "daemon/launcher/preflight.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * What fn, called in a child, ends with: 0 or an errno value.  No library's handler of fork(3)
 * runs in it, so it has one thread for certain: two cannot enter a user namespace.
 */
static int try_in_child(int (*fn)(void))
{
	int status;
	pid_t pid;

	(void)fflush(NULL);
	pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (pid == 0)
		_exit(fn());
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return errno;
	return WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
}

/* -- user namespaces --------------------------------------------------------------------- */

static int make_userns(void)
{
	return unshare(CLONE_NEWUSER) < 0 ? errno : 0;
}

/* Where AppArmor restricts them, one can be made, but gives no powers. */
static int use_userns(void)
{
	if (unshare(CLONE_NEWUSER) < 0)
		return errno;
	return unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID) < 0 ? errno : 0;
}

/* The number in a file of /proc/sys; -1 when it is not there, or hidden. */
static long sysctl_of(const char *path)
{
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	char text[32];
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (n <= 0)
		return -1;
	text[n] = '\0';
	return strtol(text, NULL, 10);
}

const char *kernel_userns_remedy(int error, bool powerless)
{
	if (error == ENOSPC)
		return "raise the sysctl user.max_user_namespaces";
	if (powerless || sysctl_of("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1)
		return "AppArmor restricts them: set the sysctl "
		       "kernel.apparmor_restrict_unprivileged_userns=0, or load a profile for "
		       "cloisterd and cloister-runner that allows userns";
	if (sysctl_of("/proc/sys/kernel/unprivileged_userns_clone") == 0)
		return "set the sysctl kernel.unprivileged_userns_clone=1";
	return "let this user make them: see the sysctls kernel.unprivileged_userns_clone and "
	       "kernel.apparmor_restrict_unprivileged_userns, RestrictNamespaces= of the unit, "
	       "and the seccomp profile of a container";
}

static void check_userns(struct report *r)
{
	static const char name[] = "user-namespaces";
	int error = try_in_child(make_userns);
	int inner = error ? 0 : try_in_child(use_userns);

	if (error)
		report_failed(r, name, "cannot be made: %s; %s", strerror(error),
		              kernel_userns_remedy(error, false));
	else if (inner)
		report_failed(r, name, "give no power over what is in them: %s; %s",
		              strerror(inner), kernel_userns_remedy(inner, true));
	else
		report_ok(r, name, "can be made, with mount, network and pid namespaces in them");
}

/* -- single calls ------------------------------------------------------------------------ */

static void check_seccomp(struct report *r)
{
	uint32_t action = SECCOMP_RET_ERRNO;

	if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) < 0)
		report_failed(r, "seccomp",
		              "%s; use a kernel with CONFIG_SECCOMP_FILTER, and a unit or "
		              "container that allows seccomp(2)",
		              strerror(errno));
	else
		report_ok(r, "seccomp", "filters are available");
}

static void check_landlock(struct report *r, bool service)
{
	struct err e = ERR_INIT;
	int abi;

	if (preflight_landlock(&abi, &e) == 0)
		report_ok(r, "landlock", "version %d of its interface", abi);
	else if (service)
		report_failed(r, "landlock", "%s", e.text);
	else
		report_na(r, "landlock", "boundary development does without: %s", e.text);
}

static void check_pidfd(struct report *r)
{
	auto_close int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

	if (fd < 0)
		report_failed(r, "pidfd",
		              "%s; use Linux 5.3 or newer, and a unit or container that allows "
		              "pidfd_open(2)",
		              strerror(errno));
	else
		report_ok(r, "pidfd", "available");
}

/* A size of 0 is refused by a kernel that has the call, before anything happens. */
static void check_clone3(struct report *r, bool service)
{
	struct clone_args none = { .flags = 0 };

	if (syscall(SYS_clone3, &none, (size_t)0) < 0 && errno == EINVAL)
		report_ok(r, "clone3", "available");
	else if (service)
		report_failed(r, "clone3",
		              "%s, and without it no process is born in its sandbox's cgroup; use "
		              "Linux 5.7 or newer, no RestrictNamespaces= in the unit, and a "
		              "container that allows clone3(2)",
		              strerror(errno));
	else
		report_na(r, "clone3", "boundary development does without: %s", strerror(errno));
}

void host_kernel(struct report *r, bool service)
{
	struct utsname name;

	if (uname(&name) == 0)
		report_ok(r, "kernel", "%.64s %.64s %.64s", name.sysname, name.release,
		          name.machine);
	check_userns(r);
	check_seccomp(r);
	check_landlock(r, service);
	check_pidfd(r);
	check_clone3(r, service);
}
