/* As root, in a place of its own: /tmp is sticky and root's, so what is below may be trusted. */
#include "common/test.h"

#include "common/test_files.h"

#include "runner/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char base[64];
static char dir[96];
static char file[128];

static int make_tree(void **state)
{
	int fd;

	(void)state;
	(void)snprintf(base, sizeof(base), "/tmp/test_trust-XXXXXX");
	if (!mkdtemp(base))
		return -1;
	(void)snprintf(dir, sizeof(dir), "%s/dir", base);
	(void)snprintf(file, sizeof(file), "%s/file", dir);
	if (mkdir(dir, 0755) < 0)
		return -1;
	fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	return fd < 0 ? -1 : close(fd);
}

static int remove_tree(void **state)
{
	(void)state;
	return remove_tree_at(base);
}

static void assert_refused(const char *path, const char *culprit)
{
	struct err e = ERR_INIT;

	assert_int_equal(trust_check(path, &e), -1);
	if (strncmp(e.text, culprit, strlen(culprit)) != 0)
		fail_msg("'%s' does not begin with '%s'", e.text, culprit);
}

static void test_trusted(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(trust_check(file, &e), 0);
	assert_int_equal(trust_check(dir, &e), 0);
	assert_int_equal(trust_check("/", &e), -1); /* not canonical */
}

static void test_writable(void **state)
{
	static const mode_t bad[] = { 0775, 0757, 0777 };
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		assert_int_equal(chmod(file, bad[i]), 0);
		assert_refused(file, file);
		assert_int_equal(chmod(file, 0755), 0);
		assert_int_equal(chmod(dir, bad[i]), 0);
		assert_refused(file, dir);
		assert_refused(dir, dir);
		/* Sticky: a way to a thing of root's, but itself not one to rely on. */
		assert_int_equal(chmod(dir, 01000 | bad[i]), 0);
		assert_int_equal(trust_check(file, &e), 0);
		assert_refused(dir, dir);
		assert_int_equal(chmod(dir, 0755), 0);
	}
}

static void test_owners(void **state)
{
	(void)state;
	assert_int_equal(chown(file, 12345, 0), 0);
	assert_refused(file, file);
	assert_int_equal(chown(file, 0, 0), 0);
	assert_int_equal(chown(dir, 12345, 0), 0);
	assert_refused(file, dir);
}

static void test_links(void **state)
{
	char path[128];
	struct err e = ERR_INIT;

	(void)state;
	(void)snprintf(path, sizeof(path), "%s/link", base);
	assert_int_equal(symlink(dir, path), 0);
	assert_refused(path, path);
	(void)snprintf(path, sizeof(path), "%s/link/file", base);
	assert_int_equal(trust_check(path, &e), -1);
	assert_int_equal(e.code, ELOOP);
}

static void test_bad_paths(void **state)
{
	static const char *const bad[] = { "",          "relative",
		                           "//usr",     "/usr/../usr/bin",
		                           "/usr/bin/", "/nonexistent/file" };
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(trust_check(bad[i], &e), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_trusted, make_tree, remove_tree),
		cmocka_unit_test_setup_teardown(test_writable, make_tree, remove_tree),
		cmocka_unit_test_setup_teardown(test_owners, make_tree, remove_tree),
		cmocka_unit_test_setup_teardown(test_links, make_tree, remove_tree),
		cmocka_unit_test(test_bad_paths),
	};

	return RUN_TESTS(tests);
}
