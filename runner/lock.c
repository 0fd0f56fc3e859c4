#include "runner/lock.h"

#include "common/fd.h"
#include "common/log.h"
#include "runner/place.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORD          "processes"
#define RECORD_MAX      4096
#define DEATH_TIMEOUT   5000
#define MOUNT_POINT_DIR "root"

bool lock_parse_start(const char *stat, unsigned long long *ret)
{
	/* The second field is a name in parentheses and may hold anything. */
	const char *p = strrchr(stat, ')');
	char *end;

	for (int field = 2; p && field < 22; field++) {
		p = strchr(p, ' ');
		p = p ? p + 1 : NULL;
	}
	if (!p || *p < '0' || *p > '9')
		return false;
	*ret = strtoull(p, &end, 10);
	return *end == ' ' || *end == '\n' || *end == '\0';
}

static bool read_start(pid_t pid, unsigned long long *ret)
{
	char path[64];
	auto_close int fd = -1;
	auto_free char *text = NULL;
	struct err ignored = ERR_INIT;
	size_t len;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd >= 0 && fd_read_all(fd, 4096, &text, &len, &ignored) == 0 &&
	       lock_parse_start(text, ret);
}

/* A process that we cannot read the start of is not ours, and one with another start neither. */
static int end_process(pid_t pid, unsigned long long start, struct err *e)
{
	auto_close int fd = pidfd_open(pid, 0);
	struct pollfd p = { .fd = fd, .events = POLLIN };
	unsigned long long now;

	if (fd < 0 || !read_start(pid, &now) || now != start || poll(&p, 1, 0) == 1)
		return 0;
	log_warn("process %d of this tenant's previous runner is still there; ending it", pid);
	if (pidfd_send_signal(fd, SIGKILL, NULL, 0) < 0 && errno != ESRCH)
		return err_errno(e, "end process %d of this tenant's previous runner", pid);
	if (poll(&p, 1, DEATH_TIMEOUT) == 1)
		return 0;
	return err_set(e, EBUSY,
	               "process %d of this tenant's previous runner does not end; its sandbox "
	               "cannot be started again before it is gone",
	               pid);
}

static int end_recorded(int dir, struct err *e)
{
	auto_close int fd = openat(dir, RECORD, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	auto_free char *text = NULL;
	size_t len;

	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0)
		return err_errno(e, "open the record of the previous runner");
	if (fd_read_all(fd, RECORD_MAX, &text, &len, e) < 0)
		return err_wrap(e, "read the record of the previous runner");
	for (char *line = text; *line; line += *line == '\n') {
		char *end;
		long pid = strtol(line, &end, 10);

		if (pid > 1 && pid <= INT_MAX && *end == ' ' &&
		    end_process((pid_t)pid, strtoull(end + 1, NULL, 10), e) < 0)
			return -1;
		line += strcspn(line, "\n");
	}
	return 0;
}

static void clear(int dir)
{
	(void)unlinkat(dir, RECORD, 0);
	(void)unlinkat(dir, MOUNT_POINT_DIR, AT_REMOVEDIR);
}

static int check_private(int fd, const char *what, mode_t forbidden, struct err *e)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_errno(e, "stat %s", what);
	if (st.st_uid != geteuid() || (st.st_mode & forbidden))
		return err_set(e, EPERM, "%s must belong to the service user alone (mode %04o)",
		               what, st.st_mode & 07777);
	return 0;
}

/* Open or make DIR/TENANT; it names the place in errors. */
static int open_dir(const char *runtime_dir, const char *path, const char *name, int *ret_fd,
                    struct err *e)
{
	auto_close int parent = -1;
	auto_close int dir = -1;

	if (place_open(runtime_dir, O_DIRECTORY, &parent, e) < 0 ||
	    check_private(parent, runtime_dir, 022, e) < 0)
		return err_wrap(e, "runtime directory");
	if (mkdirat(parent, name, 0700) < 0 && errno != EEXIST)
		return err_errno(e, "make %s (is its file system full or read-only?)", path);
	dir = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir < 0)
		return err_errno(e, "open %s", path);
	if (check_private(dir, path, 077, e) < 0)
		return -1;
	*ret_fd = fd_take(&dir);
	return 0;
}

static int lock_file(int dir, const char *path, int *ret_fd, struct err *e)
{
	auto_close int fd =
		openat(dir, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY, 0600);

	if (fd < 0)
		return err_errno(e, "open %s/lock (is its file system full or read-only?)", path);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
		return err_set(e, EBUSY,
		               "another runner holds %s/lock: this tenant's sandbox runs already; "
		               "end that runner first",
		               path);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return err_errno(e, "lock %s/lock", path);
	*ret_fd = fd_take(&fd);
	return 0;
}

int lock_take(const char *runtime_dir, const struct uuid *tenant, struct lock *ret, struct err *e)
{
	auto_close int dir = -1;
	auto_close int file = -1;
	char path[PATH_MAX - sizeof("/" MOUNT_POINT_DIR)];
	int len = snprintf(path, sizeof(path), "%s/%s", runtime_dir, tenant->text);

	if (len < 0 || (size_t)len >= sizeof(path))
		return err_set(e, ENAMETOOLONG, "runtime directory: the path is too long");
	if (open_dir(runtime_dir, path, tenant->text, &dir, e) < 0 ||
	    lock_file(dir, path, &file, e) < 0 || end_recorded(dir, e) < 0)
		return -1;
	clear(dir);
	if (mkdirat(dir, MOUNT_POINT_DIR, 0700) < 0)
		return err_errno(e, "make %s/%s (is its file system full or read-only?)", path,
		                 MOUNT_POINT_DIR);
	(void)snprintf(ret->mount_point, sizeof(ret->mount_point), "%s/%s", path, MOUNT_POINT_DIR);
	ret->dir = fd_take(&dir);
	ret->file = fd_take(&file);
	return 0;
}

int lock_record(struct lock *l, pid_t pid, struct err *e)
{
	auto_close int fd = openat(l->dir, RECORD,
	                           O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
	unsigned long long start;
	char line[64];

	if (fd < 0)
		return err_errno(e, "record a process (is the runtime directory's file system "
		                    "full or read-only?)");
	if (!read_start(pid, &start))
		return err_set(e, ESRCH, "process %d has ended or cannot be seen in /proc", pid);
	(void)snprintf(line, sizeof(line), "%d %llu\n", pid, start);
	if (fd_write_all(fd, line, strlen(line), e) < 0)
		return err_wrap(e, "record a process");
	return 0;
}

void lock_release(struct lock *l)
{
	if (l->file >= 0)
		clear(l->dir);
	fd_close(&l->file);
	fd_close(&l->dir);
}
