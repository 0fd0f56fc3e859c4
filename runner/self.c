/*
 * The runner is started with the rights of the service user and nothing more.
 * It never gains any: what it does with namespaces, mounts and packet filters is
 * what the kernel grants every user within a user namespace of its own.  A runner
 * that finds itself with more than that refuses to work, because every rule that
 * follows was written for a process that could not break out by itself.
 */
#include "runner/self.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int self_lower(struct err *e)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_errno(e, "set no_new_privs");
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return err_errno(e, "set the parent-death signal");
	return 0;
}

int self_seal(struct err *e)
{
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return err_errno(e, "clear dumpable");
	return 0;
}

static bool holds_capabilities(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { { 0 } };
	uint32_t any = 0;

	if (syscall(SYS_capget, &head, data) < 0)
		return true;
	for (int i = 0; i < 2; i++)
		any |= data[i].effective | data[i].permitted | data[i].inheritable;
	for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		any |= prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, cap, 0, 0) == 1;
	return any != 0;
}

int self_check(struct err *e)
{
	uid_t ruid, euid, suid;
	gid_t rgid, egid, sgid;
	gid_t groups[2];
	int n;

	if (getresuid(&ruid, &euid, &suid) < 0 || getresgid(&rgid, &egid, &sgid) < 0)
		return err_errno(e, "read the user and group");
	if (euid == 0 || egid == 0)
		return err_set(e, EPERM, "refusing to run as root; start it as the service user");
	if (ruid != euid || suid != euid || rgid != egid || sgid != egid)
		return err_set(e, EPERM,
		               "real, effective and saved ids differ; start it without "
		               "set-user-ID");
	n = getgroups((int)ARRAY_LEN(groups), groups);
	if (n > 1 || n < 0 || (n == 1 && groups[0] != egid))
		return err_set(e, EPERM, "refusing to run with supplementary groups; clear them");
	if (holds_capabilities())
		return err_set(e, EPERM, "refusing to run with capabilities; drop them");
	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
		return err_set(e, EPERM, "no_new_privs did not take effect");
	return 0;
}

int self_check_landlock(struct err *e)
{
	if (syscall(SYS_landlock_create_ruleset, NULL, (size_t)0,
	            LANDLOCK_CREATE_RULESET_VERSION) >= 1)
		return 0;
	return err_errno(e, "Landlock is not available; boot with lsm=landlock,... and let the "
	                    "service manager permit landlock_create_ruleset");
}

static int check_pipe(int fd, int access, const char *what, struct err *e)
{
	struct stat st;
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fstat(fd, &st) < 0)
		return err_errno(e, "%s", what);
	if (!S_ISFIFO(st.st_mode) || (flags & O_ACCMODE) != access)
		return err_set(e, EINVAL, "%s is not the %s end of a pipe; the launcher makes it",
		               what, access == O_RDONLY ? "read" : "write");
	return 0;
}

int self_check_pipes(struct err *e)
{
	if (check_pipe(STDIN_FILENO, O_RDONLY, "standard input", e) < 0)
		return -1;
	return check_pipe(STDOUT_FILENO, O_WRONLY, "standard output", e);
}
