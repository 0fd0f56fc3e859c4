#include "common/test.h"

#include "daemon/launcher/preflight.h"

#include "common/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SERVICE 4242 /* a user and a group that need not exist */

/* -- who we are ------------------------------------------------------------------------ */

enum lowering {
	NOTHING,
	ROOT_GROUP,
	FOREIGN_GROUP,
	OWN_GROUP_LISTED,
	KEEP_CAPABILITY,
	SAVED_ROOT,
	KEEP_PRIVILEGES, /* no no_new_privs */
	PROPERLY,
	AS_NOBODY,
	NOBODYS_GROUP,
};

static int keep_capability(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { { 0 } };

	data[0].permitted = 1U << CAP_CHOWN;
	return (int)syscall(SYS_capset, &head, data);
}

static int lower(enum lowering how)
{
	gid_t foreign[2] = { SERVICE, SERVICE + 1 };
	gid_t group = how == ROOT_GROUP ? 0 : how == NOBODYS_GROUP ? 65534 : SERVICE;
	uid_t user = how == AS_NOBODY ? 65534 : SERVICE;
	size_t listed = how == FOREIGN_GROUP ? 2 : how == OWN_GROUP_LISTED ? 1 : 0;

	if (how != KEEP_PRIVILEGES && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -1;
	if (how == NOTHING)
		return 0;
	if (how == KEEP_CAPABILITY && prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0)
		return -1;
	if (setgroups(listed, foreign) < 0 || setresgid(group, group, group) < 0 ||
	    setresuid(user, user, how == SAVED_ROOT ? 0 : user) < 0)
		return -1;
	return how == KEEP_CAPABILITY ? keep_capability() : 0;
}

/* NULL: accepted. */
static void expect_of(int (*check)(struct err *e), enum lowering how, const char *reason)
{
	struct err e = ERR_INIT;
	int status, r;
	pid_t pid;

	if (geteuid() != 0)
		skip();
	pid = fork();
	if (pid == 0) {
		if (lower(how) < 0)
			_exit(1);
		r = check(&e);
		if (reason ? r == 0 || !strstr(e.text, reason) : r < 0) {
			print_error("%d: '%s'\n", (int)how, e.text);
			_exit(2);
		}
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void expect_self(enum lowering how, const char *reason)
{
	expect_of(preflight_self, how, reason);
}

static void test_self(void **state)
{
	(void)state;
	expect_self(NOTHING, "refuses to run as root; start it as its own user");
	expect_self(SAVED_ROOT, "refuses to run as root");
	expect_self(ROOT_GROUP, "root's group");
	expect_self(FOREIGN_GROUP, "supplementary groups; clear them");
	expect_self(KEEP_CAPABILITY, "capabilities; drop them");
	expect_self(KEEP_PRIVILEGES, "no_new_privs is not in force");
	expect_self(PROPERLY, NULL);
	expect_self(OWN_GROUP_LISTED, NULL);
}

static void test_dedicated(void **state)
{
	(void)state;
	expect_of(preflight_dedicated, PROPERLY, NULL);
	expect_of(preflight_dedicated, AS_NOBODY, "nobody, whom others share; start it as its own");
	expect_of(preflight_dedicated, NOBODYS_GROUP, "nobody");
}

/* -- what must be there ---------------------------------------------------------------- */

static char base[64];
static char path[128];

static int make_base(void **state)
{
	(void)state;
	(void)snprintf(base, sizeof(base), "/tmp/test-preflight-XXXXXX");
	if (!mkdtemp(base))
		return -1;
	(void)snprintf(path, sizeof(path), "%s/thing", base);
	return 0;
}

static int remove_base(void **state)
{
	char usr[160];

	(void)state;
	(void)snprintf(usr, sizeof(usr), "%s/usr", path);
	(void)rmdir(usr);
	(void)rmdir(path);
	(void)unlink(path);
	return rmdir(base);
}

static void make_file(mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static void expect_error(const struct err *e, const char *reason, const char *remedy)
{
	if (!strstr(e->text, reason) || !strstr(e->text, remedy) || !strstr(e->text, path))
		fail_msg("'%s' lacks '%s', '%s' or the path", e->text, reason, remedy);
	assert_null(strchr(e->text, '\n'));
}

static void expect_program_refused(const char *reason, const char *remedy)
{
	struct err e = ERR_INIT;

	assert_int_equal(preflight_program("--runsc", path, "install gVisor", &e), -1);
	expect_error(&e, reason, remedy);
	assert_int_equal(strncmp(e.text, "--runsc ", 8), 0);
}

static void test_program_missing(void **state)
{
	(void)state;
	expect_program_refused("No such file or directory", "install gVisor");
}

static void test_program_not_executable(void **state)
{
	(void)state;
	make_file(0644);
	expect_program_refused("not executable", "chmod 0755");
}

static void test_program_not_a_file(void **state)
{
	(void)state;
	assert_int_equal(mkdir(path, 0755), 0);
	expect_program_refused("not a regular file", "install gVisor");
}

static void test_program_good(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	make_file(0755);
	assert_int_equal(preflight_program("--runsc", path, "install gVisor", &e), 0);
}

static void test_rootfs(void **state)
{
	struct err e = ERR_INIT;
	char usr[160];

	(void)state;
	assert_int_equal(preflight_rootfs(path, &e), -1);
	expect_error(&e, "No such file or directory", "scripts/prepare rootfs");
	make_file(0755);
	assert_int_equal(preflight_rootfs(path, &e), -1);
	expect_error(&e, "Not a directory", "scripts/prepare rootfs");
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0755), 0);
	assert_int_equal(preflight_rootfs(path, &e), -1);
	expect_error(&e, "not a root filesystem", "scripts/prepare rootfs");
	(void)snprintf(usr, sizeof(usr), "%s/usr", path);
	assert_int_equal(mkdir(usr, 0755), 0);
	assert_int_equal(preflight_rootfs(path, &e), 0);
}

static void test_tun(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(preflight_tun(path, &e), -1);
	expect_error(&e, "No such file or directory", "load the tun module");
	make_file(0600);
	assert_int_equal(preflight_tun(path, &e), -1);
	expect_error(&e, "not a device", "load the tun module");
	assert_int_equal(preflight_tun("/dev/null", &e), 0);
}

/* The mode that some minimal machines give it. */
static void test_tun_closed_to_the_service(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	if (geteuid() != 0)
		skip();
	make_file(0600);
	assert_int_equal(chmod(base, 0755), 0);
	pid = fork();
	if (pid == 0) {
		struct err e = ERR_INIT;

		if (lower(PROPERLY) < 0 || preflight_tun(path, &e) == 0)
			_exit(1);
		_exit(strstr(e.text, "Permission denied") && strstr(e.text, "chmod 0666") ? 0 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* -- the service profile ----------------------------------------------------------------- */

static void set_all(struct launcher_conf *conf, const char *to)
{
	conf->runner = conf->guest = conf->runsc = conf->slirp4netns = conf->rootfs = to;
	conf->postgres_bin = to;
}

static void test_installed(void **state)
{
	struct launcher_conf conf = { .state_dir = NULL };
	const char **const places[] = { &conf.runner,      &conf.guest,  &conf.runsc,
		                        &conf.slirp4netns, &conf.rootfs, &conf.postgres_bin };
	static const char *const options[] = { "--runner ",      "--guest ",  "--runsc ",
		                               "--slirp4netns ", "--rootfs ", "--postgres-bin " };
	struct err e = ERR_INIT;

	(void)state;
	if (geteuid() != 0)
		skip();
	make_file(0755);
	set_all(&conf, path);
	assert_int_equal(preflight_installed(&conf, &e), 0);
	assert_int_equal(chmod(path, 0757), 0);
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		set_all(&conf, "/usr/bin/env");
		*places[i] = path;
		assert_int_equal(preflight_installed(&conf, &e), -1);
		expect_error(&e, "others can write it", "let root own it");
		assert_memory_equal(e.text, options[i], strlen(options[i]) - 1);
	}
	conf.postgres_bin = NULL; /* none is used */
	assert_int_equal(preflight_installed(&conf, &e), 0);
}

static int without_landlock(int errnum)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_landlock_create_ruleset, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned int)errnum),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = { ARRAY_LEN(code), code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -1;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static void expect_landlock(int errnum, const char *reason)
{
	struct err e = ERR_INIT;
	int status, abi = 0;
	pid_t pid = fork();

	if (pid == 0) {
		if (without_landlock(errnum) < 0)
			_exit(1);
		_exit(preflight_landlock(&abi, &e) < 0 && strstr(e.text, reason) ? 0 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void test_landlock(void **state)
{
	(void)state;
	expect_landlock(ENOSYS, "needs Linux 5.13");
	expect_landlock(EOPNOTSUPP, "lsm=");
	expect_landlock(EPERM, "a unit that allows landlock_create_ruleset");
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, make_base, remove_base)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_self),
		cmocka_unit_test(test_dedicated),
		cmocka_unit_test(test_landlock),
		CASE(test_installed),
		CASE(test_program_missing),
		CASE(test_program_not_executable),
		CASE(test_program_not_a_file),
		CASE(test_program_good),
		CASE(test_rootfs),
		CASE(test_tun),
		CASE(test_tun_closed_to_the_service),
	};

	return RUN_TESTS(tests);
}
