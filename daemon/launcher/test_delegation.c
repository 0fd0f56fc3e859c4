#include "common/test.h"
#include "common/test_files.h"

#include "daemon/launcher/delegation.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>

/*
 * A tree of ordinary files: what is written stays, and nothing happens.  So a file that
 * says that all is enabled plays a kernel that obeys, and every other one that does not.
 */
static char root[64], unit[96];

static char *at(const char *name)
{
	static char paths[4][192];
	static unsigned int next;
	char *path = paths[next++ % 4];

	(void)snprintf(path, sizeof(paths[0]), "%s/%s", unit, name);
	return path;
}

static void put_file(const char *path, const char *text)
{
	put_bytes(path, text, strlen(text));
}

static void make_cgroup(const char *name, const char *enabled)
{
	char path[192];

	(void)snprintf(path, sizeof(path), "%s", *name ? at(name) : unit);
	assert_int_equal(mkdir(path, 0755), 0);
	(void)snprintf(path, sizeof(path), "%s/cgroup.procs", *name ? at(name) : unit);
	put_file(path, "");
	(void)snprintf(path, sizeof(path), "%s/cgroup.subtree_control", *name ? at(name) : unit);
	put_file(path, enabled);
}

static int make_tree(void **state)
{
	(void)state;
	(void)snprintf(root, sizeof(root), "/tmp/delegation-XXXXXX");
	if (!mkdtemp(root))
		return -1;
	(void)snprintf(unit, sizeof(unit), "%s/c.service", root);
	make_cgroup("", "cpu memory pids\n");
	put_file(at("cgroup.controllers"), "cpuset cpu io memory pids\n");
	put_file(at("memory.max"), "4294967296\n");
	put_file(at("pids.max"), "max\n");
	make_cgroup("supervisor", "");
	put_file(at("supervisor/memory.low"), "0\n");
	put_file(at("supervisor/cpu.weight"), "100\n");
	make_cgroup("sandboxes", "cpu memory pids\n");
	put_file(at("sandboxes/memory.max"), "max\n");
	put_file(at("sandboxes/pids.max"), "max\n");
	return 0;
}

static int remove_tree(void **state)
{
	pid_t pid = fork();

	(void)state;
	if (pid == 0) {
		execlp("rm", "rm", "-rf", "--", root, NULL);
		_exit(127);
	}
	return waitpid(pid, NULL, 0) == pid ? 0 : -1;
}

static void refused(int r, const struct err *e, const char *why, const char *remedy)
{
	assert_int_equal(r, -1);
	if (!strstr(e->text, why) || !strstr(e->text, remedy))
		fail_msg("'%s' lacks '%s' or '%s'", e->text, why, remedy);
}

/* -- where we are ---------------------------------------------------------------------- */

static void test_locate(void **state)
{
	static const struct {
		const char *text, *dir;
	} places[] = {
		{ "0::/system.slice/c.service\n", "/r/system.slice/c.service" },
		{ "0::/system.slice/c.service/supervisor\n", "/r/system.slice/c.service" },
		{ "0::/c/supervisor/supervisor", "/r/c/supervisor" },
		{ "0::/a-supervisor\n", "/r/a-supervisor" },
	};
	static const char *const v1[] = {
		"",
		"\n",
		"1:name=systemd:/\n0::/c.service\n",
		"0::/c.service\n1:name=systemd:/\n",
		"0:cpu:/c.service\n",
		"0::c.service\n",
	};
	static const char *const nowhere[] = { "0::/\n", "0::/supervisor\n", "0::/../c.service\n",
		                               "0::/a/../b\n" };
	char dir[PATH_MAX];
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		assert_int_equal(delegation_locate(places[i].text, "/r", dir, &e), 0);
		assert_string_equal(dir, places[i].dir);
	}
	for (size_t i = 0; i < ARRAY_LEN(v1); i++)
		refused(delegation_locate(v1[i], "/r", dir, &e), &e, "cgroup v1",
		        "systemd.unified_cgroup_hierarchy=1");
	for (size_t i = 0; i < ARRAY_LEN(nowhere); i++)
		refused(delegation_locate(nowhere[i], "/r", dir, &e), &e,
		        "not in the cgroup of a unit", "Delegate=cpu memory pids");
}

static void test_locate_length(void **state)
{
	char text[2 * PATH_MAX] = "0::/", dir[PATH_MAX];
	struct err e = ERR_INIT;

	(void)state;
	memset(text + 4, 'a', PATH_MAX - 1 - 3); /* with "/r/" one less than PATH_MAX */
	assert_int_equal(delegation_locate(text, "/r", dir, &e), 0);
	assert_int_equal(strlen(dir), PATH_MAX - 1);
	memset(text + 4, 'a', PATH_MAX - 3);
	refused(delegation_locate(text, "/r", dir, &e), &e, "too long", "");
}

/* -- what delegation gives ------------------------------------------------------------- */

static void test_good(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(delegation_check(unit, &e), 0);
}

static void test_missing_controller(void **state)
{
	static const struct {
		const char *list, *missing;
	} lists[] = {
		{ "cpu memory\n", "controller pids" },
		{ "cpuset memory pids\n", "controller cpu " },
		{ "", "controller cpu " },
		{ "cpu memoryx pids\n", "controller memory" },
	};
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
		put_file(at("cgroup.controllers"), lists[i].list);
		refused(delegation_check(unit, &e), &e, lists[i].missing,
		        "Delegate=cpu memory pids");
	}
}

static void test_not_there(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(unlink(at("cgroup.controllers")), 0);
	refused(delegation_check(unit, &e), &e, "cgroup.controllers: No such file", "");
	refused(delegation_check(at("none"), &e), &e, "No such file", "none");
}

static void test_of_somebody_else(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	if (geteuid() != 0)
		skip();
	assert_int_equal(chown(unit, 1234, 1234), 0);
	refused(delegation_check(unit, &e), &e, "belongs to uid 1234", "Delegate=");
}

/* The directory is ours, but the files in it are not: what Delegate= without User= gives. */
static void test_files_of_somebody_else(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	if (geteuid() != 0)
		skip();
	assert_int_equal(chmod(root, 0755), 0);
	assert_int_equal(chown(unit, 1234, 1234), 0);
	assert_int_equal(seteuid(1234), 0);
	refused(delegation_check(unit, &e), &e, "cgroup.procs cannot be written", "Delegate=");
	assert_int_equal(seteuid(0), 0);
	assert_int_equal(chown(at("cgroup.procs"), 1234, 1234), 0);
	assert_int_equal(seteuid(1234), 0);
	refused(delegation_check(unit, &e), &e, "cgroup.subtree_control cannot be written",
	        "Delegate=");
	assert_int_equal(seteuid(0), 0);
}

/* -- arranging ------------------------------------------------------------------------- */

static void test_arranged(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	put_file(at("pids.max"), "32768\n");
	if (delegation_arrange(unit, root, &e) < 0)
		fail_msg("%s", e.text);
	expect_text(at("sandboxes/memory.max"), "3758096384");
	expect_text(at("sandboxes/pids.max"), "31744");
	expect_text(at("supervisor/memory.low"), "536870912");
	expect_text(at("supervisor/cpu.weight"), "1000");
}

/* A unit without a limit of tasks has none to divide. */
static void test_no_limit_of_tasks(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(delegation_arrange(unit, root, &e), 0);
	expect_text(at("sandboxes/pids.max"), "max\n");
}

/* The limit that counts is the lowest of all that are above. */
static void test_limit_of_an_ancestor(void **state)
{
	size_t len = strlen(unit);
	char path[224];
	struct err e = ERR_INIT;

	(void)state;
	(void)snprintf(path, sizeof(path), "%s/memory.max", root);
	put_file(path, "1\n"); /* the root itself has none */
	put_file(at("memory.max"), "1073741824\n");
	(void)snprintf(unit + len, sizeof(unit) - len, "/inner");
	make_cgroup("", "cpu memory pids\n");
	put_file(at("memory.max"), "2147483648\n");
	make_cgroup("supervisor", "");
	put_file(at("supervisor/memory.low"), "0\n");
	put_file(at("supervisor/cpu.weight"), "100\n");
	make_cgroup("sandboxes", "cpu memory pids\n");
	put_file(at("sandboxes/memory.max"), "max\n");
	if (delegation_arrange(unit, root, &e) < 0)
		fail_msg("%s", e.text);
	expect_text(at("sandboxes/memory.max"), "805306368");
	expect_text(at("supervisor/memory.low"), "268435456");
}

static void test_protection_may_be_missing(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(unlink(at("supervisor/memory.low")), 0);
	assert_int_equal(delegation_arrange(unit, root, &e), 0);
}

static void test_limit_may_not_be_missing(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(unlink(at("sandboxes/memory.max")), 0);
	refused(delegation_arrange(unit, root, &e), &e, "sandboxes", "memory.max");
}

static void test_controllers_that_do_not_come_on(void **state)
{
	static const char *const lists[] = { "", "cpu memory\n", "cpu io memory pids\n" };
	static const char *const names[] = { "cgroup.subtree_control",
		                             "sandboxes/cgroup.subtree_control" };
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		for (size_t k = 0; k < ARRAY_LEN(lists); k++) {
			put_file(at(names[i]), lists[k]);
			refused(delegation_arrange(unit, root, &e), &e,
			        "cgroup.subtree_control is ", "not cpu, memory and pids");
		}
		put_file(at(names[i]), "cpu memory pids\n");
	}
}

static void test_processes_that_stay(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	put_file(at("cgroup.procs"), "77\n");
	refused(delegation_arrange(unit, root, &e), &e, "processes remain", "c.service");
	expect_text(at("supervisor/cgroup.procs"), "77");
	put_file(at("cgroup.procs"), "0\n");
	refused(delegation_arrange(unit, root, &e), &e, "another pid namespace", "");
}

static void test_link_in_the_way(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(rename(at("sandboxes"), at("elsewhere")), 0);
	assert_int_equal(symlink("elsewhere", at("sandboxes")), 0);
	refused(delegation_arrange(unit, root, &e), &e, "sandboxes", "");
}

static void test_shares(void **state)
{
	(void)state;
	assert_int_equal(delegation_memory_share(4ULL << 30), 3584ULL << 20);
	assert_int_equal(delegation_memory_share(2ULL << 30), 1536ULL << 20);
	assert_int_equal(delegation_memory_share(1ULL << 30), 768ULL << 20);
	/* In whole MiB, never more. */
	assert_int_equal(delegation_memory_share((4ULL << 30) + 4095), 3584ULL << 20);
	assert_int_equal(delegation_memory_share((4ULL << 30) - 1), 3583ULL << 20);
	assert_int_equal(delegation_tasks_share(32768), 31744);
	assert_int_equal(delegation_tasks_share(1000), 750);
}

/* -- the kernel's own tree --------------------------------------------------------------- */

/* A cgroup v2 that can be written; NULL: none here. */
static const char *real_root(void)
{
	static const char *const mounts[] = { CGROUP_ROOT, CGROUP_ROOT "/unified" };
	struct statfs fs;

	for (size_t i = 0; i < ARRAY_LEN(mounts); i++)
		if (statfs(mounts[i], &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC &&
		    access(mounts[i], W_OK) == 0)
			return mounts[i];
	return NULL;
}

static pid_t fork_into(const char *cgroup)
{
	char path[192], text[16];
	pid_t pid = fork();

	if (pid == 0)
		for (;;)
			pause();
	(void)snprintf(path, sizeof(path), "%s/cgroup.procs", cgroup);
	(void)snprintf(text, sizeof(text), "%d", (int)pid);
	put_file(path, text);
	return pid;
}

static void test_real_processes_move(void **state)
{
	const char *mount = real_root();
	char expected[64];
	pid_t pids[3];
	struct err e = ERR_INIT;
	bool arranged;

	(void)state;
	if (!mount || geteuid() != 0)
		skip();
	(void)snprintf(unit, sizeof(unit), "%s/cloister-test-%d", mount, (int)getpid());
	if (mkdir(unit, 0755) < 0)
		skip();
	for (int i = 0; i < 3; i++)
		pids[i] = fork_into(unit);
	/* Where v1 has the controllers, this ends at enabling them, after the move. */
	arranged = delegation_arrange(unit, mount, &e) == 0;
	(void)snprintf(expected, sizeof(expected), "%d\n%d\n%d\n", pids[0], pids[1], pids[2]);
	expect_text(at("cgroup.procs"), "");
	expect_text(at("supervisor/cgroup.procs"), expected);
	if (arranged)
		expect_text(at("cgroup.subtree_control"), "cpu memory pids\n");
	else if (!strstr(e.text, "subtree_control"))
		fail_msg("%s", e.text);
	for (int i = 0; i < 3; i++) {
		(void)kill(pids[i], SIGKILL);
		(void)waitpid(pids[i], NULL, 0);
	}
	(void)rmdir(at("supervisor"));
	(void)rmdir(at("sandboxes"));
	assert_int_equal(rmdir(unit), 0);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, make_tree, remove_tree)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_locate),
		cmocka_unit_test(test_locate_length),
		CASE(test_good),
		CASE(test_missing_controller),
		CASE(test_not_there),
		CASE(test_of_somebody_else),
		CASE(test_files_of_somebody_else),
		CASE(test_arranged),
		CASE(test_no_limit_of_tasks),
		CASE(test_limit_of_an_ancestor),
		CASE(test_protection_may_be_missing),
		CASE(test_limit_may_not_be_missing),
		CASE(test_controllers_that_do_not_come_on),
		CASE(test_processes_that_stay),
		CASE(test_link_in_the_way),
		cmocka_unit_test(test_shares),
		cmocka_unit_test(test_real_processes_move),
	};

	return RUN_TESTS(tests);
}
