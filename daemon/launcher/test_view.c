/* What the launcher shows of runners: numbers of their cgroups, or that it has none. */
#include "common/test.h"

#include "common/fd.h"
#include "common/test_files.h"
#include "daemon/launcher/runner.h"
#include "daemon/launcher/view.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ONE   "01980000-0000-7000-8000-000000000001"
#define TWO   "01980000-0000-7000-8000-000000000002"
#define THREE "01980000-0000-7000-8000-000000000003"

static char unit[64];

static const char *in_unit(const char *name)
{
	static char path[256];

	(void)snprintf(path, sizeof(path), "%s/%s", unit, name);
	return path;
}

static void put(const char *name, const char *text)
{
	auto_close int fd = open(in_unit(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	struct err e = ERR_INIT;

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, strlen(text), &e), 0);
}

static int begin(void **state)
{
	(void)state;
	(void)snprintf(unit, sizeof(unit), "/tmp/view-XXXXXX");
	if (!mkdtemp(unit))
		return -1;
	assert_int_equal(mkdir(in_unit("sandboxes"), 0700), 0);
	assert_int_equal(mkdir(in_unit("sandboxes/" ONE), 0700), 0);
	assert_int_equal(mkdir(in_unit("sandboxes/" TWO), 0700), 0);
	put("sandboxes/" ONE "/memory.current", "123456789012\n");
	put("sandboxes/" ONE "/pids.current", "41\n");
	put("sandboxes/" TWO "/memory.current", "12 monkeys\n");
	assert_int_equal(symlink("memory.current", in_unit("sandboxes/" TWO "/pids.current")), 0);
	return 0;
}

static int end(void **state)
{
	(void)state;
	return remove_tree_at(unit);
}

static struct view_sandbox *show(const char *cgroup, struct view_head *head, int *ret_fd,
                                 off_t *ret_at)
{
	struct runner third = { .tenant = { THREE }, .generation = 3, .pid = 33 },
		      second = { .next = &third, .tenant = { TWO }, .generation = 2, .pid = 22 },
		      first = { .next = &second, .tenant = { ONE }, .generation = 1, .pid = 11 };
	struct view_sandbox *rows = NULL;
	struct err e = ERR_INIT;

	assert_int_equal(view_open(&first, cgroup, true, ret_fd, ret_at, &e), 0);
	assert_int_equal(view_take(*ret_fd, head, &rows, &e), 0);
	assert_int_equal(head->sandboxes, 3);
	assert_string_equal(rows[1].tenant.text, TWO);
	assert_int_equal(rows[1].pid, 22);
	return rows;
}

static void numbers_of_the_kernel(void **state)
{
	struct view_head head;
	int fd;
	off_t at;
	struct view_sandbox *rows = show(unit, &head, &fd, &at);

	(void)state;
	assert_int_equal(head.json, 1);
	assert_true(rows[0].memory == 123456789012);
	assert_int_equal(rows[0].tasks, 41);
	/* What is no number, a link, or not there. */
	assert_int_equal(rows[1].memory, VIEW_UNKNOWN);
	assert_int_equal(rows[1].tasks, VIEW_UNKNOWN);
	assert_int_equal(rows[2].memory, VIEW_UNKNOWN);
	free(rows);
	fd_close(&fd);
	rows = show("", &head, &fd, &at);
	assert_int_equal(rows[0].memory, VIEW_UNKNOWN);
	free(rows);
	fd_close(&fd);
}

static void gather(void *ctx, const char *line)
{
	char *all = ctx;
	size_t len = strlen(all);

	(void)snprintf(all + len, 64 - len, "[%s]", line);
}

static void lines_come_back(void **state)
{
	struct view_head head;
	char all[64] = "";
	struct err e = ERR_INIT;
	int fd;
	off_t at;

	(void)state;
	free(show("", &head, &fd, &at));
	assert_int_equal(view_lines(fd, at, gather, all, &e), 0);
	assert_string_equal(all, "");
	assert_int_equal(fd_write_all(fd, "one\n\ntwo", 8, &e), 0);
	assert_int_equal(view_lines(fd, at, gather, all, &e), 0);
	assert_string_equal(all, "[one][][two]");
	fd_close(&fd);
}

/* The server does not believe the launcher's numbers either. */
static void a_head_out_of_bounds_is_refused(void **state)
{
	struct view_head heads[3] = {
		{ .sandboxes = VIEW_SANDBOXES_MAX + 1 },
		{ .errors = LOG_RECENT + 1 },
		{ .errors = 1 },
	};
	struct view_sandbox *rows = NULL;

	(void)state;
	memset(heads[2].error[0].text, 'x', sizeof(heads[2].error[0].text));
	for (size_t i = 0; i < ARRAY_LEN(heads); i++) {
		auto_close int fd =
			open(in_unit("head"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		struct view_head head;
		struct err e = ERR_INIT;

		assert_int_equal(fd_write_all(fd, &heads[i], sizeof(heads[i]), &e), 0);
		assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
		assert_int_equal(view_take(fd, &head, &rows, &e), -1);
		assert_string_equal(e.text, "what the launcher knows is not in order");
		assert_int_equal(ftruncate(fd, 100), 0);
		assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
		assert_int_equal(view_take(fd, &head, &rows, &e), -1);
		assert_string_equal(e.text, "what the launcher knows is cut off");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(numbers_of_the_kernel, begin, end),
		cmocka_unit_test_setup_teardown(lines_come_back, begin, end),
		cmocka_unit_test_setup_teardown(a_head_out_of_bounds_is_refused, begin, end),
	};

	return RUN_TESTS(tests);
}
