#include "common/test.h"

#include "common/fd.h"
#include "daemon/launcher/remains.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A tree of ordinary files; what a real cgroup does with it is tested in a machine. */
static const struct uuid tenant = { "01234567-89ab-4def-8123-456789abcdef" };
static char unit[64], leaf[160], killer[192];

static int make_tree(void **state)
{
	char sandboxes[96];

	(void)state;
	(void)snprintf(unit, sizeof(unit), "/tmp/remains-XXXXXX");
	if (!mkdtemp(unit))
		return -1;
	(void)snprintf(sandboxes, sizeof(sandboxes), "%s/sandboxes", unit);
	(void)snprintf(leaf, sizeof(leaf), "%s/%s", sandboxes, tenant.text);
	(void)snprintf(killer, sizeof(killer), "%s/cgroup.kill", leaf);
	return mkdir(sandboxes, 0700) < 0 || mkdir(leaf, 0700) < 0 ? -1 : 0;
}

static int remove_tree(void **state)
{
	char path[96];

	(void)state;
	(void)unlink(killer);
	(void)rmdir(leaf);
	(void)unlink(leaf);
	(void)snprintf(path, sizeof(path), "%s/sandboxes", unit);
	return rmdir(path) < 0 || rmdir(unit) < 0 ? -1 : 0;
}

static void put_file(const char *path)
{
	auto_close int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
}

static void test_none_is_gone(void **state)
{
	struct err e = ERR_INIT;
	bool gone = false;

	(void)state;
	assert_int_equal(rmdir(leaf), 0);
	assert_int_equal(remains_clear(unit, &tenant, &gone, &e), 0);
	assert_true(gone);
}

static void test_what_lives_is_killed(void **state)
{
	struct err e = ERR_INIT;
	bool gone = true;
	char text[4] = "";
	auto_close int fd = -1;

	(void)state;
	put_file(killer);
	/* The kernel says EBUSY of a leaf with processes; a directory with a file is ENOTEMPTY. */
	assert_int_equal(remains_clear(unit, &tenant, &gone, &e), -1);
	assert_false(gone);
	assert_int_equal(e.code, ENOTEMPTY);
	fd = open(killer, O_RDONLY | O_CLOEXEC);
	assert_int_equal(read(fd, text, sizeof(text)), 1);
	assert_string_equal(text, "1");
}

static void test_what_cannot_be_killed_is_said(void **state)
{
	struct err e = ERR_INIT;
	bool gone = true;

	(void)state;
	assert_int_equal(remains_clear(unit, &tenant, &gone, &e), -1);
	assert_false(gone);
	assert_non_null(strstr(e.text, "cgroup.kill"));
}

static void test_no_link_is_followed(void **state)
{
	struct err e = ERR_INIT;
	bool gone = true;

	(void)state;
	assert_int_equal(rmdir(leaf), 0);
	assert_int_equal(symlink("/tmp", leaf), 0);
	assert_int_equal(remains_clear(unit, &tenant, &gone, &e), -1);
	assert_false(gone);
	assert_non_null(strstr(e.text, tenant.text));
}

static void test_without_the_place(void **state)
{
	struct err e = ERR_INIT;
	bool gone = true;

	(void)state;
	assert_int_equal(remains_clear("/nowhere", &tenant, &gone, &e), -1);
	assert_false(gone);
	assert_non_null(strstr(e.text, "/nowhere/sandboxes"));
}

/* What is done at once, or never can be, is not looked at again. */
static void test_nothing_is_kept_for_nothing(void **state)
{
	struct remains r = { .dir = unit };

	(void)state;
	remains_add(&r, &tenant); /* cannot be killed */
	assert_null(r.list);
	assert_int_equal(r.look_ms, 0);
	assert_int_equal(rmdir(leaf), 0);
	remains_add(&r, &tenant);
	assert_null(r.list);
	assert_int_equal(r.look_ms, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_none_is_gone, make_tree, remove_tree),
		cmocka_unit_test_setup_teardown(test_what_lives_is_killed, make_tree, remove_tree),
		cmocka_unit_test_setup_teardown(test_what_cannot_be_killed_is_said, make_tree,
		                                remove_tree),
		cmocka_unit_test_setup_teardown(test_no_link_is_followed, make_tree, remove_tree),
		cmocka_unit_test_setup_teardown(test_without_the_place, make_tree, remove_tree),
		cmocka_unit_test_setup_teardown(test_nothing_is_kept_for_nothing, make_tree,
		                                remove_tree),
	};

	return RUN_TESTS(tests);
}
