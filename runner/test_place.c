#include "common/test.h"

#include "common/fd.h"
#include "runner/place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char base[64];

static const char *at(const char *name)
{
	static char path[4][256];
	static unsigned int next;
	char *p = path[next++ % 4];

	(void)snprintf(p, 256, "%s/%s", base, name);
	return p;
}

static void make_file(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	(void)close(fd);
}

/* base/dir/leaf, base/dir/file, base/link -> dir, base/dir/to_leaf -> leaf */
static int make_tree(void **state)
{
	(void)state;
	(void)snprintf(base, sizeof(base), "/tmp/cloister-place-XXXXXX");
	assert_non_null(mkdtemp(base));
	assert_int_equal(mkdir(at("dir"), 0700), 0);
	assert_int_equal(mkdir(at("dir/leaf"), 0700), 0);
	make_file(at("dir/file"));
	assert_int_equal(symlink("dir", at("link")), 0);
	assert_int_equal(symlink("leaf", at("dir/to_leaf")), 0);
	return 0;
}

static int remove_tree(void **state)
{
	(void)state;
	(void)unlink(at("dir/to_leaf"));
	(void)unlink(at("dir/file"));
	(void)unlink(at("link"));
	(void)rmdir(at("dir/leaf"));
	(void)rmdir(at("dir"));
	return rmdir(base);
}

typedef int opener(const char *path, int flags, int *ret_fd, struct err *e);

/* Both ways must agree on everything. */
static opener *const openers[] = { place_open, place_open_walk };

static void assert_open_fails(const char *path, int code, const char *reason)
{
	for (size_t i = 0; i < ARRAY_LEN(openers); i++) {
		struct err e = ERR_INIT;
		int fd = -2;

		assert_int_equal(openers[i](path, O_DIRECTORY, &fd, &e), -1);
		assert_int_equal(e.code, code);
		assert_non_null(strstr(e.text, reason));
		assert_int_equal(fd, -2);
	}
}

static void test_open(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(openers); i++) {
		struct err e = ERR_INIT;
		struct stat want;
		struct stat got;
		int fd = -1;

		assert_int_equal(openers[i](at("dir/leaf"), O_DIRECTORY, &fd, &e), 0);
		assert_int_equal(stat(at("dir/leaf"), &want), 0);
		assert_int_equal(fstat(fd, &got), 0);
		assert_int_equal(got.st_ino, want.st_ino);
		assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
		(void)close(fd);
		assert_int_equal(openers[i](at("dir/file"), 0, &fd, &e), 0);
		(void)close(fd);
	}
}

static void test_links_are_not_followed(void **state)
{
	(void)state;
	assert_open_fails(at("link"), ELOOP, "symbolic link");
	assert_open_fails(at("link/leaf"), ELOOP, "symbolic link");
	assert_open_fails(at("dir/to_leaf"), ELOOP, "symbolic link");
	assert_open_fails("/proc/self/cwd", ELOOP, "symbolic link");
	assert_open_fails("/proc/self/root/tmp", ELOOP, "symbolic link");
}

static void test_other_refusals(void **state)
{
	(void)state;
	assert_open_fails(at("nothing"), ENOENT, "No such file");
	assert_open_fails(at("dir/file"), ENOTDIR, "Not a directory");
	assert_open_fails(at("dir/file/x"), ENOTDIR, "Not a directory");
	assert_open_fails("tmp", EINVAL, "canonical");
	assert_open_fails("/", EINVAL, "canonical");
	assert_open_fails("/tmp/", EINVAL, "canonical");
	assert_open_fails("/tmp//x", EINVAL, "canonical");
	assert_open_fails("/tmp/./x", EINVAL, "canonical");
	assert_open_fails("/tmp/../tmp", EINVAL, "canonical");
}

static void test_identity(void **state)
{
	struct err e = ERR_INIT;
	struct stat st;
	struct place_id id;
	int fd = -1;

	(void)state;
	assert_int_equal(stat(at("dir"), &st), 0);
	id = (struct place_id){ st.st_dev, st.st_ino };
	assert_int_equal(place_open_dir(at("dir"), &id, &fd, &e), 0);
	(void)close(fd);
	id.inode++;
	assert_int_equal(place_open_dir(at("dir"), &id, &fd, &e), -1);
	assert_int_equal(e.code, ESTALE);
	id.inode--;
	id.device++;
	assert_int_equal(place_open_dir(at("dir"), &id, &fd, &e), -1);
	assert_int_equal(e.code, ESTALE);
	/* Another directory in its place is another inode. */
	id.device--;
	assert_int_equal(rename(at("dir"), at("moved")), 0);
	assert_int_equal(mkdir(at("dir"), 0700), 0);
	assert_int_equal(place_open_dir(at("dir"), &id, &fd, &e), -1);
	assert_int_equal(e.code, ESTALE);
	assert_int_equal(rmdir(at("dir")), 0);
	assert_int_equal(rename(at("moved"), at("dir")), 0);
}

static void test_within(void **state)
{
	(void)state;
	assert_true(place_within("/a/b", "/a/b"));
	assert_true(place_within("/a/b/c", "/a/b"));
	assert_false(place_within("/a/bc", "/a/b"));
	assert_false(place_within("/a", "/a/b"));
}

static void assert_mounts(const char *mountinfo, int code)
{
	struct err e = ERR_INIT;

	assert_int_equal(place_check_mounts(mountinfo, "/srv/a b", &e), code ? -1 : 0);
	assert_int_equal(e.code, code);
}

static void test_mounts_below(void **state)
{
	(void)state;
	assert_mounts("", 0);
	assert_mounts("22 27 0:21 / /proc rw - proc proc rw\n", 0);
	/* On it is fine, beside it too. */
	assert_mounts("22 27 0:21 / /srv/a\\040b rw - ext4 x rw\n", 0);
	assert_mounts("22 27 0:21 / /srv/a\\040bc rw - ext4 x rw\n", 0);
	assert_mounts("22 27 0:21 / /srv/a\\040b/c rw - ext4 x rw\n", EBUSY);
	assert_mounts("1 2 0:1 / / rw - x x rw\n22 27 0:21 / /srv/a\\040b/c\\011d rw - x x rw\n",
	              EBUSY);
	assert_mounts("22 27 0:21\n", EPROTO);
	assert_mounts("22 27 0:21 / /x\\0", 0);
	assert_mounts("22 27 0:21 / /srv/a\\*40b/c rw - ext4 x rw\n", 0);
	assert_mounts("22 27 0:21 / /srv/a\\440b/c rw - ext4 x rw\n", 0);
	assert_mounts("22 27 0:21 / /srv/a\\040b/\\8\\18\\118 rw - ext4 x rw\n", EBUSY);
}

static void test_own_mounts(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(place_check_own_mounts(base, &e), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open),
		cmocka_unit_test(test_links_are_not_followed),
		cmocka_unit_test(test_other_refusals),
		cmocka_unit_test(test_identity),
		cmocka_unit_test(test_within),
		cmocka_unit_test(test_mounts_below),
		cmocka_unit_test(test_own_mounts),
	};

	if (make_tree(NULL) != 0)
		return 1;
	return RUN_TESTS(tests) | remove_tree(NULL);
}
