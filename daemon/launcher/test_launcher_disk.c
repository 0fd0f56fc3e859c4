/* A launcher whose disk becomes full: who is ended, who may start, and what is given back. */
#define WORLD_DISK "size=128m,mode=0700"

#include "daemon/launcher/test_world.h"

/* MiB; the world itself needs less than one. */
static const struct disk_limits limits = { .start = 60, .end = 30, .reserve = 16 };

static void leave(struct world *w, unsigned int mib)
{
	char path[128];
	auto_close int fd = -1;

	(void)snprintf(path, sizeof(path), "%s/filler", w->dir);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(posix_fallocate(fd, 0, (off_t)(128 - 16 - 1 - mib) << 20), 0);
}

static bool is_reserved(const struct world *w)
{
	char path[192];

	(void)snprintf(path, sizeof(path), "%s/" DISK_RESERVE_NAME, w->state);
	return access(path, F_OK) == 0;
}

static void expect_no_room(struct world *w, const char *tenant, uint64_t generation)
{
	struct launcher_message m = hear(w, LAUNCHER_EXITED, NULL);

	assert_string_equal(m.tenant.text, tenant);
	assert_int_equal(m.generation, generation);
	assert_int_equal(m.status, RUNNER_NO_ROOM);
	assert_non_null(strstr(m.cause, "disk"));
}

static void refuse_runner(struct world *w, const char *tenant, uint64_t generation)
{
	say(w, LAUNCHER_START, tenant, generation);
	expect_no_room(w, tenant, generation);
}

/* All is as it was when there is room again. */
static void end_with_room(struct world *w)
{
	char path[128];
	int pipes[2];

	(void)snprintf(path, sizeof(path), "%s/filler", w->dir);
	assert_int_equal(unlink(path), 0);
	start_runner(w, ECHO, 99, pipes);
	close_both(pipes);
	(void)hear(w, LAUNCHER_EXITED, NULL);
	stop(w);
}

static void mount_at(const struct world *w, const char *name)
{
	char path[192];

	(void)snprintf(path, sizeof(path), "%s/%s", w->dir, name);
	assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
	assert_int_equal(mount("tmpfs", path, "tmpfs", 0, "size=128m,mode=0700"), 0);
}

/* Whether the launcher has a workspace open. */
static bool holds_workspace(const struct world *w)
{
	char dir[64], work[80], link[PATH_MAX];
	struct dirent *entry;
	bool found = false;
	DIR *d;

	(void)snprintf(dir, sizeof(dir), "/proc/%d/fd", (int)w->launcher);
	(void)snprintf(work, sizeof(work), "%s/work", w->dir);
	d = opendir(dir);
	assert_non_null(d);
	while ((entry = readdir(d))) {
		ssize_t n = readlinkat(dirfd(d), entry->d_name, link, sizeof(link) - 1);

		link[n > 0 ? n : 0] = '\0';
		found = found || strncmp(link, work, strlen(work)) == 0;
	}
	closedir(d);
	return found;
}

/* One on a file system that hangs would hold up all tenants, so it is not even opened. */
static void test_workspaces_are_left_alone(void **state)
{
	struct world *w = *state;
	int first[2];

	w->conf.disk = limits;
	mount_at(w, "state/tenants");
	mount_at(w, "work6");
	begin(w);
	start_runner(w, SECOND, 1, first);
	assert_false(holds_workspace(w));
	close_both(first);
	(void)hear(w, LAUNCHER_EXITED, NULL);
	leave(w, 20);
	start_runner(w, SECOND, 2, first);
	assert_true(holds_workspace(w)); /* now it has to be looked at */
	close_both(first);
	(void)hear(w, LAUNCHER_EXITED, NULL);
	end_with_room(w);
}

static void test_full(void **state)
{
	struct world *w = *state;
	int pipes[2];

	w->conf.disk = limits;
	begin(w);
	assert_true(is_reserved(w));
	start_runner(w, ECHO, 1, pipes);
	leave(w, 50);
	refuse_runner(w, SECOND, 2);
	expect_silence(w); /* who runs goes on */
	leave(w, 20);
	expect_no_room(w, ECHO, 1);
	close_both(pipes);
	refuse_runner(w, ECHO, 3);
	assert_true(is_reserved(w)); /* as much is left without it */
	leave(w, 50);
	refuse_runner(w, ECHO, 4);
	end_with_room(w);
}

/* One that ignores everything else, and writes until the last byte. */
static void test_reserve_is_given_back(void **state)
{
	struct world *w = *state;
	int pipes[2];
	char x;

	w->conf.disk = limits;
	begin(w);
	start_runner(w, STUBBORN, 1, pipes);
	assert_int_equal(read(pipes[1], &x, 1), 1);
	leave(w, 0);
	expect_no_room(w, STUBBORN, 1);
	close_both(pipes);
	while (is_reserved(w))
		(void)usleep(1000);
	refuse_runner(w, STUBBORN, 2);
	end_with_room(w);
}

/* Guest states on a disk of their own, and one workspace, too. */
static void test_other_disks(void **state)
{
	struct world *w = *state;
	int first[2], second[2];

	w->conf.disk = limits;
	mount_at(w, "state/tenants");
	mount_at(w, "work6");
	begin(w);
	start_runner(w, ECHO, 1, first);
	start_runner(w, SECOND, 2, second);
	leave(w, 20);
	expect_no_room(w, ECHO, 1);
	close_both(first);
	expect_silence(w);
	refuse_runner(w, ECHO, 3);
	close_both(second);
	(void)hear(w, LAUNCHER_EXITED, NULL);
	start_runner(w, SECOND, 4, second);
	close_both(second);
	(void)hear(w, LAUNCHER_EXITED, NULL);
	end_with_room(w);
}

int main(int argc, char *argv[], char *env[])
{
	const struct CMUnitTest tests[] = {
		CASE(test_full),
		CASE(test_reserve_is_given_back),
		CASE(test_other_disks),
		CASE(test_workspaces_are_left_alone),
	};

	return RUN_WORLD(tests);
}
