#include "daemon/launcher/preflight.h"

#include "common/fd.h"
#include "daemon/launcher/remedy.h"
#include "daemon/tenant/trusted.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOBODY 65534 /* whatever has no user of its own, mapped or not */

#define START_AS "e.g. with setpriv --reuid USER --regid GROUP --clear-groups"

static int check_ids(struct err *e)
{
	uid_t ruid, euid, suid;
	gid_t rgid, egid, sgid;

	if (getresuid(&ruid, &euid, &suid) < 0 || getresgid(&rgid, &egid, &sgid) < 0)
		return err_errno(e, "read the user and group");
	if (ruid == 0 || euid == 0 || suid == 0)
		return err_set(e, EPERM,
		               "refuses to run as root; start it as its own user, " START_AS);
	if (rgid == 0 || egid == 0 || sgid == 0)
		return err_set(e, EPERM,
		               "refuses to run in root's group; start it in its own, " START_AS);
	if (ruid != euid || suid != euid || rgid != egid || sgid != egid)
		return err_set(e, EPERM,
		               "real, effective and saved ids differ; remove the set-user-ID or "
		               "set-group-ID bit of cloisterd");
	return 0;
}

static int check_groups(struct err *e)
{
	gid_t groups[2];
	int n = getgroups((int)ARRAY_LEN(groups), groups);

	/* A login puts the primary group on the list too: it grants nothing more. */
	if (n == 0 || (n == 1 && groups[0] == getegid()))
		return 0;
	return err_set(e, EPERM, "refuses to run with supplementary groups; clear them, " START_AS);
}

static bool holds_capabilities(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { { 0 } };
	uint32_t any = 0;

	/* An ambient capability is always permitted and inheritable as well. */
	if (syscall(SYS_capget, &head, data) < 0)
		return true;
	for (size_t i = 0; i < ARRAY_LEN(data); i++)
		any |= data[i].effective | data[i].permitted | data[i].inheritable;
	return any != 0;
}

int preflight_self(struct err *e)
{
	if (check_ids(e) < 0 || check_groups(e) < 0)
		return -1;
	if (holds_capabilities())
		return err_set(e, EPERM,
		               "refuses to run with capabilities; drop them, e.g. with "
		               "setpriv --inh-caps=-all --ambient-caps=-all");
	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
		return err_set(e, EPERM, "no_new_privs is not in force; see what filters prctl(2)");
	return 0;
}

int preflight_program(const char *option, const char *path, const char *remedy, struct err *e)
{
	struct stat st;

	if (stat(path, &st) < 0) {
		(void)err_errno(e, "%s %s", option, path);
		return err_remedy(e, remedy);
	}
	if (!S_ISREG(st.st_mode)) {
		(void)err_set(e, EINVAL, "%s %s: not a regular file", option, path);
		return err_remedy(e, remedy);
	}
	if (faccessat(AT_FDCWD, path, R_OK | X_OK, AT_EACCESS) < 0) {
		(void)err_errno(e, "%s %s: not executable for this user", option, path);
		return err_remedy(e, "chmod 0755 it, or look for noexec on its mount");
	}
	return 0;
}

int preflight_rootfs(const char *path, struct err *e)
{
	const char *remedy = "build one with scripts/prepare rootfs and name it with --rootfs";
	auto_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || faccessat(fd, ".", R_OK | X_OK, AT_EACCESS) < 0) {
		(void)err_errno(e, "--rootfs %s", path);
		if (e->code == EACCES)
			remedy =
				"name one with --rootfs that this user can read, with all above it";
		return err_remedy(e, remedy);
	}
	if (faccessat(fd, "usr", R_OK | X_OK, AT_EACCESS) < 0) {
		(void)err_errno(e, "--rootfs %s: not a root filesystem: usr", path);
		return err_remedy(e, remedy);
	}
	return 0;
}

int preflight_tun(const char *path, struct err *e)
{
	const char *remedy = "load the tun module, or give this container the device";
	auto_close int fd = open(path, O_RDWR | O_CLOEXEC);
	struct stat st;

	if (fd < 0) {
		(void)err_errno(e, "%s cannot be opened, and sandboxes get no network without it",
		                path);
		if (e->code == EACCES || e->code == EPERM)
			remedy = "chmod 0666 it (it grants nothing by itself), or allow the device "
				 "to this unit or container";
		return err_remedy(e, remedy);
	}
	if (fstat(fd, &st) < 0 || !S_ISCHR(st.st_mode)) {
		(void)err_set(e, ENODEV, "%s is not a device", path);
		return err_remedy(e, remedy);
	}
	return 0;
}

int preflight_check(const struct launcher_conf *conf, struct err *e)
{
	if (preflight_program("--runner", conf->runner,
	                      "build Cloister and name its cloister-runner with --runner", e) < 0 ||
	    preflight_program("--guest", conf->guest,
	                      "build Cloister and name its cloister-guest with --guest", e) < 0 ||
	    preflight_program("--runsc", conf->runsc,
	                      "install gVisor (Debian: runsc), or name it with --runsc", e) < 0 ||
	    preflight_program("--slirp4netns", conf->slirp4netns,
	                      "install slirp4netns, or name it with --slirp4netns", e) < 0 ||
	    preflight_rootfs(conf->rootfs, e) < 0)
		return -1;
	return preflight_tun("/dev/net/tun", e);
}

/* -- the service profile --------------------------------------------------------------- */

int preflight_dedicated(struct err *e)
{
	if (geteuid() == NOBODY || getegid() == NOBODY)
		return err_set(e, EPERM,
		               "refuses to run as nobody, whom others share; start it as its own "
		               "user and group (User= and Group= of the unit)");
	return 0;
}

int preflight_landlock(int *ret_abi, struct err *e)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

	if (abi < 0 && errno == EOPNOTSUPP)
		return err_set(e, errno,
		               "Landlock is switched off; add landlock to the kernel's lsm= "
		               "parameter");
	if (abi < 0) {
		(void)err_errno(e, "Landlock is not available");
		return err_remedy(e, "needs Linux 5.13 with CONFIG_SECURITY_LANDLOCK, and a unit "
		                     "that allows landlock_create_ruleset");
	}
	*ret_abi = (int)abi;
	return 0;
}

int preflight_installed(const struct launcher_conf *conf, struct err *e)
{
	const struct {
		const char *option, *path;
	} installed[] = {
		{ "--runner", conf->runner }, { "--guest", conf->guest },
		{ "--runsc", conf->runsc },   { "--slirp4netns", conf->slirp4netns },
		{ "--rootfs", conf->rootfs }, { "--postgres-bin", conf->postgres_bin },
	};

	for (size_t i = 0; i < ARRAY_LEN(installed); i++) {
		if (!installed[i].path || trusted_installed(installed[i].path, e) == 0)
			continue;
		(void)err_wrap(e, "%s", installed[i].option);
		return err_remedy(e, "let root own it and all directories above it, with no "
		                     "write access for others");
	}
	return 0;
}

int preflight_service(const struct launcher_conf *conf, struct err *e)
{
	int abi;

	if (preflight_dedicated(e) < 0 || preflight_landlock(&abi, e) < 0)
		return -1;
	return preflight_installed(conf, e);
}
