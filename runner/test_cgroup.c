/*
 * The leaf against a real hierarchy of version 2, in which this test is root; the
 * place and the limits, which need controllers, against directories of plain files.
 */
#include "common/test.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/test_files.h"
#include "runner/cgroup.h"
#include "runner/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* -- plain files ------------------------------------------------------------------ */

static char fake[64];
static int fake_dir = -1;

static void put(const char *name, const char *text)
{
	auto_close int fd = openat(fake_dir, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

static void put_inner(const char *dir)
{
	char name[64];

	(void)snprintf(name, sizeof(name), "%s/cgroup.type", dir);
	put(name, "domain\n");
	(void)snprintf(name, sizeof(name), "%s/cgroup.procs", dir);
	put(name, "");
	(void)snprintf(name, sizeof(name), "%s/cgroup.subtree_control", dir);
	put(name, "cpu memory pids\n");
}

/* A place as it should be, with process 77 in its supervisor. */
static int make_fake(void **state)
{
	(void)state;
	(void)snprintf(fake, sizeof(fake), "/tmp/test_cgroup-XXXXXX");
	if (!mkdtemp(fake))
		return -1;
	fake_dir = open(fake, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (mkdirat(fake_dir, "supervisor", 0700) < 0 || mkdirat(fake_dir, "sandboxes", 0700) < 0)
		return -1;
	put("cgroup.controllers", "cpuset cpu io memory pids\n");
	put_inner(".");
	put_inner("sandboxes");
	put("supervisor/cgroup.procs", "7\n77\n777\n");
	return 0;
}

static int remove_fake(void **state)
{
	(void)state;
	fd_close(&fake_dir);
	return remove_tree_at(fake);
}

static void assert_place(pid_t self, const char *reason)
{
	struct err e = ERR_INIT;

	if (!reason) {
		assert_int_equal(cgroup_check_place(fake_dir, self, &e), 0);
		return;
	}
	assert_int_equal(cgroup_check_place(fake_dir, self, &e), -1);
	if (!strstr(e.text, reason))
		fail_msg("'%s' does not say '%s'", e.text, reason);
}

static void test_place(void **state)
{
	static const struct {
		const char *file, *wrong, *right, *reason;
	} rows[] = {
		{ "cgroup.controllers", "cpuset cpu io pids", "cpu memory pids",
		  "controller memory is missing in cgroup.controllers" },
		{ "cgroup.controllers", "cpuset memory pids", "cpu memory pids", "controller cpu" },
		{ "cgroup.subtree_control", "cpu memory", "cpu memory pids", "controller pids" },
		{ "cgroup.subtree_control", "cpu io memory pids", "memory pids cpu",
		  "not exactly cpu, memory and pids" },
		{ "cgroup.subtree_control", "", "cpu memory pids", "is missing" },
		{ "cgroup.type", "domain threaded", "domain\n", "not domain" },
		{ "cgroup.procs", "1\n", "", "processes of its own" },
		{ "sandboxes/cgroup.procs", "1\n", "", "sandboxes: it has processes" },
		{ "sandboxes/cgroup.type", "domain invalid\n", "domain\n", "sandboxes: its type" },
		{ "sandboxes/cgroup.subtree_control", "cpu pids", "cpu memory pids",
		  "sandboxes: controller memory" },
		{ "supervisor/cgroup.procs", "7\n777\n", "77", "not in its supervisor" },
	};

	(void)state;
	assert_place(77, NULL);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		put(rows[i].file, rows[i].wrong);
		assert_place(77, rows[i].reason);
		put(rows[i].file, rows[i].right);
		assert_place(77, NULL);
	}
	assert_place(70, "not in its supervisor");
	assert_int_equal(unlinkat(fake_dir, "cgroup.type", 0), 0);
	assert_place(77, "cgroup.type");
}

static void put_limits(void)
{
	static const char *const files[] = { "cpu.max",         "memory.max",
		                             "memory.swap.max", "memory.oom.group",
		                             "pids.max",        "cgroup.max.descendants",
		                             "cgroup.max.depth" };

	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		put(files[i], "");
}

static void assert_file(const char *name, const char *text)
{
	auto_close int fd = openat(fake_dir, name, O_RDONLY);
	char buf[64] = "";

	assert_true(read(fd, buf, sizeof(buf) - 1) >= 0);
	assert_string_equal(buf, text);
}

static void test_limits(void **state)
{
	const struct limits limits = { .cpus = 150, .memory = (512 << 20) + 1, .processes = 100 };
	struct err e = ERR_INIT;

	(void)state;
	put_limits();
	assert_int_equal(cgroup_set_limits(fake_dir, &limits, &e), 0);
	assert_file("cpu.max", "150000 100000");
	assert_file("memory.max", "536870912"); /* whole pages */
	assert_file("memory.swap.max", "0");
	assert_file("memory.oom.group", "1");
	assert_file("pids.max", "364");
	assert_file("cgroup.max.descendants", "0");
	assert_file("cgroup.max.depth", "0");
}

/* A kernel that takes a limit and does not keep it, and one that has no such limit. */
static void test_limits_that_do_not_hold(void **state)
{
	const struct limits limits = { .cpus = 10, .memory = 1 << 28, .processes = 16 };
	struct err e = ERR_INIT;

	(void)state;
	put_limits();
	assert_int_equal(unlinkat(fake_dir, "pids.max", 0), 0);
	assert_int_equal(symlinkat("/dev/null", fake_dir, "pids.max"), 0);
	assert_int_equal(cgroup_set_limits(fake_dir, &limits, &e), -1);
	assert_int_equal(unlinkat(fake_dir, "pids.max", 0), 0);
	assert_int_equal(mkfifoat(fake_dir, "pids.max", 0600), 0);
	assert_int_equal(unlinkat(fake_dir, "pids.max", 0), 0);
	put("pids.max", "112 and more");
	assert_int_equal(cgroup_set_limits(fake_dir, &limits, &e), -1);
	assert_int_equal(e.code, EPROTO);
	assert_non_null(strstr(e.text, "pids.max is '112 and more', not '112' as it was set"));
	assert_int_equal(unlinkat(fake_dir, "memory.swap.max", 0), 0);
	assert_int_equal(cgroup_set_limits(fake_dir, &limits, &e), -1);
	assert_non_null(strstr(e.text, "memory.swap.max"));
}

static void test_cause(void **state)
{
	static const struct {
		const char *memory, *pids;
		enum cgroup_cause cause;
	} rows[] = {
		{ "low 0\noom 0\noom_kill 0\noom_group_kill 0\n", "max 0\n", CGROUP_OTHER },
		{ "oom 1\noom_kill 3\noom_group_kill 1\n", "max 0\n", CGROUP_MEMORY },
		{ "oom 1\noom_kill 3\noom_group_kill 1\n", "max 5\n", CGROUP_MEMORY },
		{ "oom 0\noom_kill 3\noom_group_kill 1\n", "max 0\n", CGROUP_MEMORY_AROUND },
		{ "oom 0\noom_kill 0\noom_group_kill 1\n", "max 0\n", CGROUP_MEMORY_AROUND },
		/* Memory that could be had in the end ends nothing. */
		{ "oom 4\noom_kill 0\noom_group_kill 0\n", "max 0\n", CGROUP_OTHER },
		{ "oom 0\noom_kill 0\noom_group_kill 0\n", "max 1\n", CGROUP_PROCESSES },
		{ "", "", CGROUP_OTHER },
	};
	struct cgroup c = { .parent = -1, .dir = fake_dir };
	const struct cgroup none = { .parent = -1, .dir = -1 };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		put("memory.events", rows[i].memory);
		put("pids.events", rows[i].pids);
		assert_int_equal(cgroup_cause(&c), rows[i].cause);
	}
	assert_int_equal(cgroup_cause(&none), CGROUP_OTHER);
}

static void test_counter(void **state)
{
	static const char text[] = "oom 1\noom_kill 22\noom_group_kill 333";

	(void)state;
	assert_int_equal(cgroup_counter(text, "oom"), 1);
	assert_int_equal(cgroup_counter(text, "oom_kill"), 22);
	assert_int_equal(cgroup_counter(text, "oom_group_kill"), 333);
	assert_int_equal(cgroup_counter(text, "kill"), 0);
	assert_int_equal(cgroup_counter("", "oom"), 0);
	assert_int_equal(cgroup_counter("oom", "oom"), 0);
}

static void test_not_a_cgroup(void **state)
{
	const struct limits limits = { .cpus = 10, .memory = 1 << 28, .processes = 16 };
	struct cgroup c = { .parent = -1, .dir = -1 };
	struct uuid tenant = uuid_new();
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(cgroup_make(fake, &tenant, &limits, &c, &e), -1);
	assert_non_null(strstr(e.text, "not cgroup version 2"));
	assert_int_equal(cgroup_make("/sys/fs/../fs/cgroup", &tenant, &limits, &c, &e), -1);
	assert_int_equal(c.dir, -1);
}

/* -- the kernel ------------------------------------------------------------------- */

static char mount_point[256];
static int parent = -1;

static int find_hierarchy(void)
{
	auto_file FILE *f = fopen("/proc/self/mounts", "re");
	char line[1024];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%*s %200s cgroup2 ", mount_point) == 1 &&
		    strstr(line, " cgroup2 "))
			return 0;
	print_error("no hierarchy of cgroup version 2 is mounted\n");
	return -1;
}

static int make_parent(void **state)
{
	size_t len;

	(void)state;
	if (find_hierarchy() < 0)
		return -1;
	len = strlen(mount_point);
	(void)snprintf(mount_point + len, sizeof(mount_point) - len, "/test_cgroup-%d", getpid());
	if (mkdir(mount_point, 0700) < 0)
		return -1;
	parent = open(mount_point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return parent < 0 ? -1 : 0;
}

static int remove_parent(void **state)
{
	(void)state;
	fd_close(&parent);
	return rmdir(mount_point);
}

static bool is_inside(int leaf, pid_t pid)
{
	auto_close int fd = openat(leaf, "cgroup.procs", O_RDONLY | O_CLOEXEC);
	auto_free char *text = NULL;
	struct err e = ERR_INIT;
	char line[16];
	size_t len;

	(void)snprintf(line, sizeof(line), "%d\n", pid);
	assert_int_equal(fd_read_all(fd, 4096, &text, &len, &e), 0);
	return strstr(text, line) != NULL;
}

/* A child that waits; where says how it is made. */
static pid_t make_child(pid_t (*clone_child)(int, unsigned long, struct err *), int leaf)
{
	struct err e = ERR_INIT;
	pid_t pid = clone_child(leaf, 0, &e);

	if (pid == 0) {
		(void)pause();
		_exit(0);
	}
	if (pid < 0)
		fail_msg("%s", e.text);
	return pid;
}

static int ended_by(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void live_and_die(pid_t (*clone_child)(int, unsigned long, struct err *))
{
	struct cgroup c = { .parent = -1, .dir = -1 };
	struct err e = ERR_INIT;
	pid_t pid;

	(void)snprintf(c.name, sizeof(c.name), "leaf");
	assert_int_equal(cgroup_make_leaf(parent, c.name, &c.dir, &e), 0);
	c.parent = dup(parent);
	pid = make_child(clone_child, c.dir);
	assert_true(is_inside(c.dir, pid));
	assert_false(is_inside(c.dir, getpid()));
	/* Neither is it empty, nor does it go. */
	assert_false(cgroup_remove(&c, clock_mono_ms() + 20));
	assert_true(c.dir >= 0);
	cgroup_kill(&c);
	assert_true(cgroup_remove(&c, clock_mono_ms() + 5000));
	assert_int_equal(ended_by(pid), SIGKILL);
	assert_int_equal(c.dir, -1);
	assert_int_equal(faccessat(parent, "leaf", F_OK, 0), -1);
}

static void test_born_inside(void **state)
{
	(void)state;
	live_and_die(child_clone_into);
}

static void test_moved_inside(void **state)
{
	(void)state;
	live_and_die(child_clone_gated);
}

static void test_no_way_inside(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	/* Not a cgroup: the child must not live on outside. */
	assert_int_equal(unlinkat(fake_dir, "cgroup.procs", 0), 0);
	assert_int_equal(child_clone_gated(fake_dir, 0, &e), -1);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
}

static void test_leftover_is_removed(void **state)
{
	struct err e = ERR_INIT;
	int leaf = -1;
	pid_t pid;

	(void)state;
	assert_int_equal(cgroup_make_leaf(parent, "leaf", &leaf, &e), 0);
	pid = make_child(child_clone_into, leaf);
	fd_close(&leaf);
	assert_int_equal(cgroup_make_leaf(parent, "leaf", &leaf, &e), 0);
	assert_int_equal(ended_by(pid), SIGKILL);
	/* It is a fresh one: what is cloned into it lives. */
	pid = make_child(child_clone_into, leaf);
	assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(ended_by(pid), SIGKILL);
	fd_close(&leaf);
	assert_int_equal(unlinkat(parent, "leaf", AT_REMOVEDIR), 0);
}

static void test_leftover_that_stays(void **state)
{
	struct err e = ERR_INIT;
	int leaf = -1;

	(void)state;
	assert_int_equal(mkdirat(parent, "leaf", 0700), 0);
	assert_int_equal(mkdirat(parent, "leaf/deeper", 0700), 0);
	assert_int_equal(cgroup_make_leaf(parent, "leaf", &leaf, &e), -1);
	assert_non_null(strstr(e.text, "previous sandbox left"));
	assert_int_equal(leaf, -1);
	assert_int_equal(unlinkat(parent, "leaf/deeper", AT_REMOVEDIR), 0);
	assert_int_equal(unlinkat(parent, "leaf", AT_REMOVEDIR), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_place, make_fake, remove_fake),
		cmocka_unit_test_setup_teardown(test_limits, make_fake, remove_fake),
		cmocka_unit_test_setup_teardown(test_limits_that_do_not_hold, make_fake,
		                                remove_fake),
		cmocka_unit_test_setup_teardown(test_cause, make_fake, remove_fake),
		cmocka_unit_test(test_counter),
		cmocka_unit_test_setup_teardown(test_not_a_cgroup, make_fake, remove_fake),
		cmocka_unit_test_setup_teardown(test_no_way_inside, make_fake, remove_fake),
		cmocka_unit_test_setup_teardown(test_born_inside, make_parent, remove_parent),
		cmocka_unit_test_setup_teardown(test_moved_inside, make_parent, remove_parent),
		cmocka_unit_test_setup_teardown(test_leftover_is_removed, make_parent,
		                                remove_parent),
		cmocka_unit_test_setup_teardown(test_leftover_that_stays, make_parent,
		                                remove_parent),
	};

	return RUN_TESTS(tests);
}
