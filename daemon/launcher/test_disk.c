/* The disk is a tmpfs of a mount namespace of the test's own. */
#include "common/test.h"

#include "daemon/launcher/disk.h"

#include "common/fd.h"
#include "common/log.h"

#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const struct disk_limits limits = { .start = 40, .end = 20, .reserve = 8 };

static char base[] = "/tmp/test-disk-XXXXXX";

#define CHECK(what)                                                    \
	do {                                                           \
		if (!(what)) {                                         \
			print_error("line %d: %s\n", __LINE__, #what); \
			_exit(2);                                      \
		}                                                      \
	} while (0)

/* For a child: a tmpfs at base/name; returns a descriptor of it. */
static int mount_disk(const char *name, const char *options)
{
	static bool private;
	char path[64];

	(void)snprintf(path, sizeof(path), "%s/%s", base, name);
	CHECK(private || unshare(CLONE_NEWNS) == 0);
	CHECK(private || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
	private = true;
	CHECK(mkdir(path, 0700) == 0);
	CHECK(mount("tmpfs", path, "tmpfs", 0, options) == 0);
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Leave that many MiB of 64 free, without what is reserved. */
static void leave(int disk, unsigned int mib, unsigned int reserved)
{
	auto_close int fd = openat(disk, "filler", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	off_t size = (off_t)(64 - mib - reserved) << 20;

	CHECK(ftruncate(fd, 0) == 0);
	if (size)
		CHECK(posix_fallocate(fd, 0, size) == 0);
}

static bool has_reserve(int disk)
{
	struct stat st;

	return fstatat(disk, DISK_RESERVE_NAME, &st, 0) == 0 && st.st_blocks * 512 >= 8 << 20;
}

static void run_in_child(void (*body)(void))
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		body();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* A test whose body may mount what it likes. */
#define IN_CHILD(name)                     \
	static void name##_body(void);     \
	static void name(void **state)     \
	{                                  \
		(void)state;               \
		run_in_child(name##_body); \
	}                                  \
	static void name##_body(void)

IN_CHILD(test_levels)
{
	int fd = mount_disk("levels", "size=64m,mode=0700");
	struct disk d;

	disk_open(&d, fd, &limits);
	CHECK(has_reserve(fd) && d.reserved);
	CHECK(disk_look(&d) == DISK_ENOUGH);
	leave(fd, 40, 8);
	CHECK(disk_look(&d) == DISK_ENOUGH);
	leave(fd, 39, 8);
	CHECK(disk_look(&d) == DISK_NO_START);
	leave(fd, 20, 8);
	CHECK(disk_look(&d) == DISK_NO_START);
	leave(fd, 19, 8);
	CHECK(disk_look(&d) == DISK_END);
	/* What was ended once does not start again before there is room for a start. */
	leave(fd, 39, 8);
	CHECK(disk_look(&d) == DISK_END);
	leave(fd, 40, 8);
	CHECK(disk_look(&d) == DISK_ENOUGH);
}

IN_CHILD(test_reserve)
{
	int fd = mount_disk("reserve", "size=64m,mode=0700");
	struct disk d;

	disk_open(&d, fd, &limits);
	leave(fd, 8, 8);
	disk_release(&d);
	CHECK(has_reserve(fd)); /* there is as much without it */
	leave(fd, 7, 8);
	disk_release(&d);
	CHECK(!has_reserve(fd) && !d.reserved);
	disk_refill(&d);
	CHECK(!has_reserve(fd));
	leave(fd, 47, 0);
	disk_refill(&d);
	CHECK(!has_reserve(fd));
	leave(fd, 48, 0);
	disk_refill(&d);
	CHECK(has_reserve(fd) && d.reserved);
	/* That of an earlier daemon serves as well, though it could not be made now. */
	leave(fd, 1, 8);
	disk_open(&d, fd, &limits);
	CHECK(has_reserve(fd) && d.reserved);
	CHECK(disk_drop_reserve(fd) && !disk_drop_reserve(fd));
}

IN_CHILD(test_nothing_asked_for)
{
	int fd = mount_disk("nothing", "size=64m,mode=0700");
	struct disk d;

	disk_open(&d, fd, &(struct disk_limits){ 0 });
	CHECK(!has_reserve(fd));
	leave(fd, 0, 0);
	CHECK(disk_look(&d) == DISK_ENOUGH);
}

/* No byte is written, and yet nobody can write: 64 KiB for each of 1,024 files. */
IN_CHILD(test_files_without_number)
{
	int fd = mount_disk("files", "size=64m,mode=0700,nr_inodes=1024");
	struct disk d;
	char name[16];

	disk_open(&d, fd, &(struct disk_limits){ .start = 40, .end = 20 });
	CHECK(disk_look(&d) == DISK_ENOUGH);
	for (int i = 0; i < 800; i++) {
		(void)snprintf(name, sizeof(name), "%d", i);
		close(openat(fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	}
	CHECK(disk_look(&d) == DISK_END);
}

IN_CHILD(test_places)
{
	int state = mount_disk("state", "size=64m,mode=0700");
	char work[64], far[64];
	struct part parts[] = { { .path = far }, { .path = work } };
	struct tenant t = { .id.text = "01980000-0000-7000-8000-000000000001" };
	struct disk_places p;

	(void)mount_disk("other", "size=64m,mode=0700");
	(void)snprintf(work, sizeof(work), "%s/state", base);
	(void)snprintf(far, sizeof(far), "%s/other", base);
	leave(state, 10, 0);
	t.workspace = far;
	disk_places_open(&p, state, &t); /* the guest state will be in the state directory */
	CHECK(p.n == 2 && disk_short(&p, 20) && !disk_short(&p, 10));
	disk_places_close(&p);
	CHECK(mkdirat(state, "tenants", 0700) == 0);
	(void)snprintf(work, sizeof(work), "%s/state/tenants", base);
	CHECK(mount(far, work, NULL, MS_BIND, NULL) == 0);
	disk_places_open(&p, state, &t);
	CHECK(p.n == 2 && !disk_short(&p, 20));
	disk_places_close(&p);
	(void)snprintf(work, sizeof(work), "%s/state", base);
	t.parts = parts;
	t.part_count = 2;
	disk_places_open(&p, state, &t);
	CHECK(p.n == 3 && disk_short(&p, 20));
	disk_places_close(&p);
	CHECK(p.n == 0);
}

/* Neither a link nor what is not there can make a sandbox look harmless. */
IN_CHILD(test_places_that_are_none)
{
	int disk = mount_disk("none", "size=64m,mode=0700");
	struct tenant t = { .id.text = "01980000-0000-7000-8000-000000000001" };
	struct disk_places p;
	char path[64];

	t.workspace = path;
	(void)snprintf(path, sizeof(path), "%s/none/link", base);
	for (int i = 0; i < 2; i++) {
		disk_places_open(&p, disk, &t);
		CHECK(p.n == 2 && disk_short(&p, 0));
		disk_places_close(&p);
		CHECK(i == 1 || symlinkat("/", disk, "link") == 0);
	}
}

int main(void)
{
	static const char *const made[] = { "levels", "reserve", "nothing", "files",
		                            "state",  "other",   "none" };
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_levels),
		cmocka_unit_test(test_reserve),
		cmocka_unit_test(test_nothing_asked_for),
		cmocka_unit_test(test_files_without_number),
		cmocka_unit_test(test_places),
		cmocka_unit_test(test_places_that_are_none),
	};
	auto_close int dir = -1;
	int failed;

	log_setup("test", LOG_ERROR);
	if (!mkdtemp(base))
		return 1;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	dir = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (size_t i = 0; i < ARRAY_LEN(made); i++)
		(void)unlinkat(dir, made[i], AT_REMOVEDIR);
	(void)rmdir(base);
	return failed ? 1 : 0;
}
