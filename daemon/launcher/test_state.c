/* File systems that are read-only or full are real ones, in a mount namespace of the test. */
#include "common/test.h"

#include "daemon/launcher/disk.h"
#include "daemon/launcher/state.h"

#include "common/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char base[64];
static char path[128];

static int make_base(void **state)
{
	(void)state;
	(void)snprintf(base, sizeof(base), "/tmp/test-state-XXXXXX");
	(void)umask(022);
	if (!mkdtemp(base))
		return -1;
	(void)snprintf(path, sizeof(path), "%s/state", base);
	return 0;
}

static int remove_base(void **state)
{
	pid_t pid = fork();

	(void)state;
	if (pid == 0) {
		execlp("rm", "rm", "-rf", "--", base, NULL);
		_exit(127);
	}
	return waitpid(pid, NULL, 0) == pid ? 0 : -1;
}

static void expect_refused(const char *reason, const char *remedy)
{
	struct err e = ERR_INIT;
	int fd = -1;

	assert_int_equal(state_open(path, &fd, &e), -1);
	assert_int_equal(fd, -1);
	if (!strstr(e.text, reason) || !strstr(e.text, remedy) || !strstr(e.text, base))
		fail_msg("'%s' lacks '%s', '%s' or the path", e.text, reason, remedy);
	assert_null(strchr(e.text, '\n'));
}

static void test_made_when_missing(void **state)
{
	struct err e = ERR_INIT;
	struct stat st;
	int fd = -1;

	(void)state;
	assert_int_equal(state_open(path, &fd, &e), 0);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_int_equal(st.st_nlink, 2); /* and nothing is left in it */
	fd_close(&fd);
	assert_int_equal(state_open(path, &fd, &e), 0);
	fd_close(&fd);
}

static void test_one_at_a_time(void **state)
{
	struct err e = ERR_INIT;
	int fd = -1;

	(void)state;
	assert_int_equal(state_open(path, &fd, &e), 0);
	expect_refused("another cloisterd uses it", "--state");
	fd_close(&fd);
	assert_int_equal(state_open(path, &fd, &e), 0);
	fd_close(&fd);
}

static void test_open_to_others(void **state)
{
	(void)state;
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(chmod(path, 0750), 0);
	expect_refused("mode 0750", "chmod 0700");
	assert_int_equal(chmod(path, 01700), 0);
	expect_refused("mode 1700", "chmod 0700");
}

static void test_of_another_user(void **state)
{
	(void)state;
	assert_int_equal(mkdir(path, 0700), 0);
	if (chown(path, 4242, 4242) < 0)
		skip(); /* only root can give it away */
	expect_refused("belongs to user 4242", "chown it");
}

/* As a user who is not root, with directories of root's; what came out of it. */
static void expect_as_nobody(const char *dir, const char *reason, const char *advice)
{
	struct err e = ERR_INIT, examined = ERR_INIT;
	int status, fd;
	pid_t pid;

	if (geteuid() != 0)
		skip();
	pid = fork();
	if (pid == 0) {
		if (setresuid(4242, 4242, 4242) < 0 || state_open(dir, &fd, &e) == 0 ||
		    state_examine(dir, &examined) == 0 || strcmp(e.text, examined.text) != 0 ||
		    !strstr(e.text, reason) || !strstr(e.text, advice) ||
		    (strcmp(advice, "--state") == 0 &&
		     (strstr(e.text, "chown") || strstr(e.text, "chmod")))) {
			print_error("'%s' and '%s', not '%s' and '%s'\n", e.text, examined.text,
			            reason, advice);
			_exit(2);
		}
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* Nobody is told to give away or to open what belongs to the system. */
static void test_of_the_system(void **state)
{
	char below[sizeof(path) + 8];

	(void)state;
	expect_as_nobody("/etc", "belongs to user 0", "--state");
	expect_as_nobody("/etc/none", "is not there and cannot be made", "--state");
	expect_as_nobody("/none", "is not there and cannot be made", "--state");
	assert_int_equal(chmod(base, 0755), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	expect_as_nobody(path, "Permission denied", "--state");
	assert_int_equal(chmod(path, 0755), 0);
	expect_as_nobody(path, "belongs to user 0", "chown it"); /* fresh, and empty */
	(void)snprintf(below, sizeof(below), "%s/below", path);
	assert_int_equal(mkdir(below, 0700), 0);
	expect_as_nobody(path, "belongs to user 0", "--state");
}

/* What is good is opened, and what is missing can be made. */
static void test_examined(void **state)
{
	struct err e = ERR_INIT;
	struct stat st;

	(void)state;
	assert_int_equal(state_examine(path, &e), 0);
	assert_int_equal(lstat(path, &st), -1);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(state_examine(path, &e), 0);
	assert_int_equal(chmod(path, 0750), 0);
	assert_int_equal(state_examine(path, &e), -1);
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(chmod(base, 0777), 0);
	assert_int_equal(state_examine(path, &e), -1);
	assert_non_null(strstr(e.text, "mode 0777"));
}

static void test_below_what_others_can_change(void **state)
{
	(void)state;
	assert_int_equal(chmod(base, 0777), 0);
	expect_refused("mode 0777", "alone can change");
}

static void test_link_and_file(void **state)
{
	char other[128];
	int fd;

	(void)state;
	(void)snprintf(other, sizeof(other), "%s/other", base);
	assert_int_equal(mkdir(other, 0700), 0);
	assert_int_equal(symlink(other, path), 0);
	expect_refused("state", "not a link or a file");
	assert_int_equal(unlink(path), 0);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	fd_close(&fd);
	expect_refused("Not a directory", "not a link or a file");
}

static void test_parent_missing(void **state)
{
	(void)state;
	(void)snprintf(path, sizeof(path), "%s/none/state", base);
	expect_refused("No such file or directory", "--state");
}

/* -- file systems ---------------------------------------------------------------------- */

static int write_map(const char *file, unsigned int id)
{
	char text[32];
	int fd = open(file, O_WRONLY | O_CLOEXEC);
	int n = snprintf(text, sizeof(text), "%u %u 1", id, id);
	int r = fd < 0 || write(fd, text, (size_t)n) != n ? -1 : 0;

	fd_close(&fd);
	return r;
}

/* Mount a tmpfs with these options on the state directory; ends the process when it cannot. */
static void mount_or_die(unsigned long flags, const char *options)
{
	uid_t uid = geteuid();
	int kind = CLONE_NEWNS | (uid ? CLONE_NEWUSER : 0);

	if (mkdir(path, 0700) < 0 || unshare(kind) < 0 ||
	    (uid && write_map("/proc/self/uid_map", uid) < 0) ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("tmpfs", path, "tmpfs", flags, options) < 0) {
		perror("mount a tmpfs");
		_exit(1);
	}
}

static void expect_in_child(unsigned long flags, const char *options, const char *reason,
                            const char *remedy)
{
	struct err e = ERR_INIT;
	int status, fd;
	pid_t pid = fork();

	if (pid == 0) {
		mount_or_die(flags, options);
		if (state_open(path, &fd, &e) == 0 || !strstr(e.text, reason) ||
		    !strstr(e.text, remedy)) {
			print_error("'%s' lacks '%s' or '%s'\n", e.text, reason, remedy);
			_exit(2);
		}
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void test_read_only(void **state)
{
	(void)state;
	expect_in_child(MS_RDONLY, "size=64m,mode=0700", "Read-only file system", "mount it");
}

static void test_too_small(void **state)
{
	(void)state;
	expect_in_child(0, "size=31m,mode=0700", "only 31 MiB left", "free at least 32 MiB");
}

/* Space enough, but no inode for the first file. */
static void test_full(void **state)
{
	(void)state;
	expect_in_child(0, "size=64m,mode=0700,nr_inodes=1", "No space left on device",
	                "free some space");
}

static void test_just_large_enough(void **state)
{
	struct err e = ERR_INIT;
	int status, fd;
	pid_t pid = fork();

	(void)state;
	if (pid == 0) {
		mount_or_die(0, "size=32m,mode=0700");
		_exit(state_open(path, &fd, &e) == 0 ? 0 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* The reserve was made for the moment when nothing else is left. */
static void test_reserve_makes_room(void **state)
{
	struct err e = ERR_INIT;
	int status, fd, dir;
	pid_t pid = fork();

	(void)state;
	if (pid == 0) {
		mount_or_die(0, "size=64m,mode=0700");
		dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		disk_open(&(struct disk){ 0 }, dir, &(struct disk_limits){ .reserve = 32 });
		fd = openat(dir, "filler", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		if (posix_fallocate(fd, 0, 31 << 20) != 0)
			_exit(3);
		_exit(state_open(path, &fd, &e) == 0 ? 0 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* -- names ----------------------------------------------------------------------------- */

static void test_canonical(void **state)
{
	char given[256], found[PATH_MAX], link[128];
	struct err e = ERR_INIT;

	(void)state;
	(void)snprintf(link, sizeof(link), "%s/link", base);
	assert_int_equal(symlink(base, link), 0);
	/* Links on the way are resolved; the directory need not exist. */
	(void)snprintf(given, sizeof(given), "%s/../%s/./state//", link, strrchr(base, '/') + 1);
	assert_int_equal(state_canonical(given, found, &e), 0);
	assert_string_equal(found, path);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(state_canonical(path, found, &e), 0);
	assert_string_equal(found, path);
	/* A link at the end is refused, with a slash behind it too. */
	assert_int_equal(state_canonical(link, found, &e), -1);
	assert_int_equal(e.code, ELOOP);
	(void)snprintf(given, sizeof(given), "%s/", link);
	assert_int_equal(state_canonical(given, found, &e), -1);
	assert_int_equal(e.code, ELOOP);
	(void)snprintf(given, sizeof(given), "%s/none/state", base);
	assert_int_equal(state_canonical(given, found, &e), -1);
	assert_int_equal(e.code, ENOENT);
	assert_non_null(strstr(e.text, "create that"));
}

static void test_canonical_relative(void **state)
{
	char found[PATH_MAX];
	struct err e = ERR_INIT;
	auto_close int old = open(".", O_PATH | O_CLOEXEC);

	(void)state;
	assert_int_equal(chdir(base), 0);
	assert_int_equal(state_canonical("state", found, &e), 0);
	assert_int_equal(fchdir(old), 0);
	assert_string_equal(found, path);
}

static void test_canonical_needs_a_name(void **state)
{
	static const char *const names[] = { "", "/", "//", ".", "..", "/tmp/.", "/tmp/..", "./" };
	char found[PATH_MAX];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct err e = ERR_INIT;

		assert_int_equal(state_canonical(names[i], found, &e), -1);
		assert_int_equal(e.code, EINVAL);
	}
}

static void test_canonical_length(void **state)
{
	char given[PATH_MAX + 1], found[PATH_MAX];
	struct err e = ERR_INIT;

	(void)state;
	memset(given, 'a', sizeof(given));
	given[0] = '/';
	given[PATH_MAX] = '\0';
	assert_int_equal(state_canonical(given, found, &e), -1);
	assert_int_equal(e.code, ENAMETOOLONG);
	/* One less, relative: what it becomes is too long. */
	given[0] = 'a';
	given[PATH_MAX - 1] = '\0';
	assert_int_equal(state_canonical(given, found, &e), -1);
	assert_int_equal(e.code, ENAMETOOLONG);
}

/* -- tenants --------------------------------------------------------------------------- */

static void test_tenant_directories(void **state)
{
	struct uuid id = { .text = "01980000-0000-7000-8000-00000000ac3e" };
	struct state_tenant first, again;
	struct err e = ERR_INIT;
	struct stat st;
	int fd = -1;

	(void)state;
	assert_int_equal(state_open(path, &fd, &e), 0);
	assert_int_equal(state_tenant(fd, path, &id, &first, &e), 0);
	assert_int_equal(state_tenant(fd, path, &id, &again, &e), 0);
	assert_int_equal(lstat(first.state, &st), 0);
	assert_int_equal(st.st_dev, again.device);
	assert_int_equal(st.st_ino, again.inode);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_int_equal(lstat(first.run, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	/* Opened up by somebody: not used. */
	assert_int_equal(chmod(first.run, 0755), 0);
	assert_int_equal(state_tenant(fd, path, &id, &again, &e), -1);
	assert_non_null(strstr(e.text, "mode 0755"));
	assert_int_equal(chmod(first.run, 0700), 0);
	/* The sandbox can change the mode of this one, and must not lock itself out by it. */
	for (mode_t mode = 0; mode <= 02777; mode += 02777) {
		assert_int_equal(chmod(first.state, mode), 0);
		assert_int_equal(state_tenant(fd, path, &id, &again, &e), 0);
		assert_int_equal(lstat(first.state, &st), 0);
		assert_int_equal(st.st_mode & 07777, 0700);
	}
	fd_close(&fd);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, make_base, remove_base)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_made_when_missing),
		CASE(test_one_at_a_time),
		CASE(test_open_to_others),
		CASE(test_of_another_user),
		CASE(test_of_the_system),
		CASE(test_examined),
		CASE(test_below_what_others_can_change),
		CASE(test_link_and_file),
		CASE(test_parent_missing),
		CASE(test_read_only),
		CASE(test_too_small),
		CASE(test_full),
		CASE(test_just_large_enough),
		CASE(test_reserve_makes_room),
		CASE(test_canonical),
		CASE(test_canonical_relative),
		CASE(test_canonical_needs_a_name),
		CASE(test_canonical_length),
		CASE(test_tenant_directories),
	};

	return RUN_TESTS(tests);
}
