#include "daemon/launcher/state.h"

#include "common/fd.h"
#include "daemon/launcher/disk.h"
#include "daemon/launcher/remedy.h"
#include "daemon/tenant/trusted.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define PROBE_NAME ".cloisterd-probe"
#define NAME_SAFE                                                                           \
	"name one with --state that lies below directories which root or the service user " \
	"alone can change"
#define MAKE_ANOTHER                                                                        \
	"name another with --state; root can make one for the service user (install -d -m " \
	"0700 -o USER DIR)"

/* Where the last component of path begins; trailing slashes do not count. */
static size_t split(const char *path, size_t *ret_len)
{
	size_t len = strlen(path);
	size_t at;

	while (len > 1 && path[len - 1] == '/')
		len--;
	for (at = len; at > 0 && path[at - 1] != '/'; at--)
		continue;
	*ret_len = len;
	return at;
}

int state_canonical(const char *path, char ret_path[PATH_MAX], struct err *e)
{
	char parent[PATH_MAX], found[PATH_MAX];
	size_t len, at = split(path, &len);
	const char *name = path + at;
	int name_len = (int)(len - at);
	struct stat st;
	int n;

	if (len >= sizeof(parent))
		return err_set(e, ENAMETOOLONG, "state directory: path of more than %d bytes",
		               PATH_MAX - 1);
	if (name_len == 0 || (name_len == 1 && name[0] == '.') ||
	    (name_len == 2 && name[0] == '.' && name[1] == '.'))
		return err_set(e, EINVAL,
		               "state directory '%s': end the path with the name of a directory",
		               path);
	(void)snprintf(parent, sizeof(parent), "%.*s", (int)at, path);
	if (!realpath(at > 0 ? parent : ".", found)) {
		(void)err_errno(e, "state directory %s: %s", path, at > 0 ? parent : ".");
		return err_remedy(e, "create that, or name another place with --state");
	}
	n = snprintf(ret_path, PATH_MAX, "%s/%.*s", strcmp(found, "/") ? found : "", name_len,
	             name);
	if (n >= PATH_MAX)
		return err_set(e, ENAMETOOLONG, "state directory: path of more than %d bytes",
		               PATH_MAX - 1);
	if (lstat(ret_path, &st) == 0 && S_ISLNK(st.st_mode))
		return err_set(e, ELOOP,
		               "state directory %s: is a symbolic link; name the directory itself",
		               ret_path);
	return 0;
}

/* The error for errno, with what an operator can do about it. */
static int refuse(const char *path, struct err *e)
{
	const char *remedy = "see its mount and permissions, or name another with --state";

	(void)err_errno(e, "state directory %s", path);
	if (e->code == EROFS)
		remedy = "mount it writable, or name another with --state";
	else if (e->code == ENOSPC || e->code == EDQUOT)
		remedy = "free some space there, or name another with --state";
	else if (e->code == ELOOP || e->code == ENOTDIR)
		remedy = "name a directory, not a link or a file, with --state";
	return err_remedy(e, remedy);
}

static bool is_empty(int fd)
{
	auto_close int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const struct dirent *entry;
	bool empty = true;
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);

	if (!dir)
		return false;
	(void)fd_take(&copy);
	while (empty && (entry = readdir(dir)))
		empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
	(void)closedir(dir);
	return empty;
}

/*
 * A directory of root's with something in it may be one of the system, and nobody shall be
 * told to give that away; fd < 0: what is in it cannot be seen.
 */
static const char *how_to_own(int fd, uid_t owner)
{
	if (owner == 0 && (fd < 0 || !is_empty(fd)))
		return MAKE_ANOTHER;
	return "chown it to the service user, and chmod 0700";
}

/* It could not be opened. */
static int refuse_closed(const char *path, struct err *e)
{
	int code = errno;
	struct stat st;

	if (code == EACCES && lstat(path, &st) == 0) {
		(void)err_set(e, code, "state directory %s: %s", path, strerror(code));
		return err_remedy(e, how_to_own(-1, st.st_uid));
	}
	errno = code;
	return refuse(path, e);
}

static int check_owned(int fd, const char *what, const char *path, struct err *e)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_errno(e, "%s %s", what, path);
	if (st.st_uid != geteuid())
		return err_set(e, EPERM, "%s %s: belongs to user %u, not to user %u; %s", what,
		               path, st.st_uid, geteuid(), how_to_own(fd, st.st_uid));
	if ((st.st_mode & 07777) != 0700)
		return err_set(e, EPERM, "%s %s: mode %04o, not 0700; chmod 0700 it", what, path,
		               st.st_mode & 07777);
	return 0;
}

/* What was held in reserve for this moment counts as well. */
static int check_space(int fd, const char *path, struct err *e)
{
	struct statvfs fs;
	unsigned long long left;

	do {
		if (fstatvfs(fd, &fs) < 0)
			return refuse(path, e);
		left = (unsigned long long)fs.f_bavail * fs.f_frsize;
	} while (left < STATE_MIN_FREE && disk_drop_reserve(fd));
	if (left < STATE_MIN_FREE)
		return err_set(e, ENOSPC,
		               "state directory %s: only %llu MiB left on its file system; free at "
		               "least %llu MiB there, or name another with --state",
		               path, left >> 20, STATE_MIN_FREE >> 20);
	return 0;
}

/* Quotas, inode tables and read-only mounts show themselves only to one who writes. */
static int check_writable(int fd, const char *path, struct err *e)
{
	static const char page[4096];
	auto_close int probe = -1;
	bool written;

	(void)unlinkat(fd, PROBE_NAME, 0);
	probe = openat(fd, PROBE_NAME, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (probe < 0)
		return refuse(path, e);
	written = write(probe, page, sizeof(page)) == (ssize_t)sizeof(page) && fsync(probe) == 0;
	if (!written)
		(void)refuse(path, e);
	(void)unlinkat(fd, PROBE_NAME, 0);
	return written ? 0 : -1;
}

static int lock(int fd, const char *path, struct err *e)
{
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		return 0;
	if (errno != EWOULDBLOCK)
		return err_errno(e, "state directory %s: lock it", path);
	return err_set(e, EBUSY,
	               "state directory %s: another cloisterd uses it; stop that one, or name "
	               "another with --state",
	               path);
}

/* Whoever may write above the directory could put another in its place. */
static int check_place(int fd, const char *path, struct err *e)
{
	struct stat walked, opened;

	if (trusted_directory(path, &walked, e) < 0) {
		(void)err_wrap(e, "state directory");
		return err_remedy(e, NAME_SAFE);
	}
	if (fstat(fd, &opened) < 0)
		return refuse(path, e);
	if (walked.st_dev != opened.st_dev || walked.st_ino != opened.st_ino)
		return err_set(e, ESTALE, "state directory %s: replaced while it was opened; retry",
		               path);
	return 0;
}

/* It is not there, and errno says why it cannot be made. */
static int refuse_missing(const char *path, struct err *e)
{
	if (errno != EACCES)
		return refuse(path, e);
	(void)err_errno(e, "state directory %s: is not there and cannot be made", path);
	return err_remedy(e, MAKE_ANOTHER);
}

static int open_owned(const char *path, int *ret_fd, struct err *e)
{
	auto_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return refuse_closed(path, e);
	if (check_place(fd, path, e) < 0 || check_owned(fd, "state directory", path, e) < 0)
		return -1;
	*ret_fd = fd_take(&fd);
	return 0;
}

int state_open(const char *path, int *ret_fd, struct err *e)
{
	auto_close int fd = -1;

	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return refuse_missing(path, e);
	if (open_owned(path, &fd, e) < 0 || lock(fd, path, e) < 0 || check_space(fd, path, e) < 0 ||
	    check_writable(fd, path, e) < 0)
		return -1;
	*ret_fd = fd_take(&fd);
	return 0;
}

static int examine_parent(const char *path, struct err *e)
{
	char parent[PATH_MAX];
	size_t len, at = split(path, &len);
	struct stat st;
	bool shared;

	(void)snprintf(parent, sizeof(parent), "%.*s", at > 1 ? (int)at - 1 : 1, path);
	if (faccessat(AT_FDCWD, parent, W_OK | X_OK, AT_EACCESS) < 0)
		return refuse_missing(path, e);
	if (trusted_directory(parent, &st, e) < 0) {
		(void)err_wrap(e, "state directory");
		return err_remedy(e, NAME_SAFE);
	}
	shared = (st.st_mode & 022) && !((st.st_mode & S_ISVTX) && st.st_uid == 0);
	if (shared || (st.st_uid != 0 && st.st_uid != geteuid()))
		return err_set(e, EPERM,
		               "state directory %s: %s has mode %04o and belongs to user %u; %s",
		               path, parent, st.st_mode & 07777, st.st_uid, NAME_SAFE);
	return 0;
}

int state_examine(const char *path, struct err *e)
{
	auto_close int fd = -1;
	struct stat st;

	if (lstat(path, &st) < 0 && errno == ENOENT)
		return examine_parent(path, e);
	return open_owned(path, &fd, e);
}

/* Make name below dir when it is missing; what is there must be ours alone. */
static int enter(int dir, const char *name, const char *tenant, int *ret_fd, struct err *e)
{
	auto_close int fd = -1;

	if (mkdirat(dir, name, 0700) < 0 && errno != EEXIST)
		return err_errno(e, "state of tenant %s: make %s", tenant, name);
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_errno(e, "state of tenant %s: open %s", tenant, name);
	if (check_owned(fd, "state of tenant", tenant, e) < 0)
		return -1;
	*ret_fd = fd_take(&fd);
	return 0;
}

int state_tenant(int state_fd, const char *path, const struct uuid *tenant,
                 struct state_tenant *ret, struct err *e)
{
	auto_close int all = -1, own = -1, run = -1, state = -1;
	const char *id = tenant->text;
	struct stat st;
	int n, m;

	if (enter(state_fd, "tenants", id, &all, e) < 0 || enter(all, id, id, &own, e) < 0 ||
	    enter(own, "run", id, &run, e) < 0)
		return -1;
	/* Its mode is the sandbox's to change, its name is not: no link can stand there. */
	if (fchmodat(own, "state", 0700, 0) < 0 && errno != ENOENT)
		return err_errno(e, "state of tenant %s: close it to others", id);
	if (enter(own, "state", id, &state, e) < 0)
		return -1;
	if (fstat(state, &st) < 0)
		return err_errno(e, "state of tenant %s", id);
	n = snprintf(ret->state, sizeof(ret->state), "%s/tenants/%s/state", path, id);
	m = snprintf(ret->run, sizeof(ret->run), "%s/tenants/%s/run", path, id);
	if (n >= (int)sizeof(ret->state) || m >= (int)sizeof(ret->run))
		return err_set(e, ENAMETOOLONG, "state of tenant %s: path too long", id);
	ret->device = st.st_dev;
	ret->inode = st.st_ino;
	return 0;
}
