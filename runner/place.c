#include "runner/place.h"

#include "common/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MOUNTINFO_MAX (4U << 20)

static bool is_canonical(const char *path)
{
	const char *p = path;

	if (*p != '/' || strlen(path) >= 4096)
		return false;
	while (*p == '/') {
		size_t len = strcspn(p + 1, "/");

		if (len == 0 || (len == 1 && p[1] == '.') ||
		    (len == 2 && p[1] == '.' && p[2] == '.'))
			return false;
		p += 1 + len;
	}
	return true;
}

static int open_failed(struct err *e, const char *path)
{
	if (errno == ELOOP)
		return err_set(e, ELOOP, "%s: a symbolic link is on the way; name the real path",
		               path);
	return err_errno(e, "open %s", path);
}

/* One component further; consumes at.  Returns the new descriptor, or -1 with errno. */
static int walk_step(int at, const char *name, int flags)
{
	auto_close int from = at;
	auto_close int fd = openat(from, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -1;
	/* O_PATH opens a link itself instead of failing, so ask what was opened. */
	if (S_ISLNK(st.st_mode)) {
		errno = ELOOP;
		return -1;
	}
	if ((flags & O_DIRECTORY) && !S_ISDIR(st.st_mode)) {
		errno = ENOTDIR;
		return -1;
	}
	return fd_take(&fd);
}

int place_open_walk(const char *path, int flags, int *ret_fd, struct err *e)
{
	auto_close int at = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	char name[256];
	const char *p = path;

	if (!is_canonical(path))
		return err_set(e, EINVAL, "%s: not an absolute, canonical path", path);
	while (at >= 0 && *p == '/') {
		size_t len = strcspn(p + 1, "/");
		bool last = p[1 + len] == '\0';

		if (len >= sizeof(name))
			return err_set(e, ENAMETOOLONG, "%s: a name is too long", path);
		memcpy(name, p + 1, len);
		name[len] = '\0';
		at = walk_step(fd_take(&at), name, last ? flags : O_DIRECTORY);
		p += 1 + len;
	}
	if (at < 0)
		return open_failed(e, path);
	*ret_fd = fd_take(&at);
	return 0;
}

int place_open(const char *path, int flags, int *ret_fd, struct err *e)
{
	struct open_how how = {
		.flags = (unsigned long long)(O_PATH | O_CLOEXEC | flags),
		.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	long fd;

	if (!is_canonical(path))
		return err_set(e, EINVAL, "%s: not an absolute, canonical path", path);
	fd = syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));
	if (fd < 0 && (errno == ENOSYS || errno == EPERM))
		return place_open_walk(path, flags, ret_fd, e);
	if (fd < 0)
		return open_failed(e, path);
	*ret_fd = (int)fd;
	return 0;
}

int place_check_id(int fd, const char *path, const struct place_id *id, struct err *e)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_errno(e, "stat %s", path);
	if (st.st_dev != id->device || st.st_ino != id->inode)
		return err_set(e, ESTALE,
		               "%s is not the directory that was declared (%lu:%lu, not %lu:%lu); "
		               "reload the registry if it was replaced on purpose",
		               path, (unsigned long)st.st_dev, (unsigned long)st.st_ino,
		               (unsigned long)id->device, (unsigned long)id->inode);
	return 0;
}

int place_open_dir(const char *path, const struct place_id *id, int *ret_fd, struct err *e)
{
	auto_close int fd = -1;
	char self[32];

	if (place_open(path, O_DIRECTORY, &fd, e) < 0 || place_check_id(fd, path, id, e) < 0)
		return -1;
	(void)snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	if (access(self, R_OK | W_OK | X_OK) < 0)
		return err_errno(e, "%s must be readable and writable for the service user", path);
	*ret_fd = fd_take(&fd);
	return 0;
}

bool place_within(const char *inner, const char *outer)
{
	size_t len = strlen(outer);

	return strncmp(inner, outer, len) == 0 && (inner[len] == '\0' || inner[len] == '/');
}

/* A backslash and three octal digits are a byte; that of anything else is itself. */
static bool is_escape(const char *text, size_t len)
{
	return len > 3 && text[0] == '\\' && text[1] >= '0' && text[1] <= '3' && text[2] >= '0' &&
	       text[2] <= '7' && text[3] >= '0' && text[3] <= '7';
}

/* Undo the octal escapes of mountinfo, up to the end of the field. */
static void decode_field(const char *field, size_t len, char *out)
{
	for (size_t i = 0; i < len; i++) {
		if (is_escape(field + i, len - i)) {
			*out++ = (char)((field[i + 1] - '0') << 6 | (field[i + 2] - '0') << 3 |
			                (field[i + 3] - '0'));
			i += 3;
		} else {
			*out++ = field[i];
		}
	}
	*out = '\0';
}

/* The mount point is the fifth field of a line. */
static const char *mount_point(const char *line, size_t *ret_len)
{
	for (int skip = 0; skip < 4; skip++) {
		line += strcspn(line, " \n");
		if (*line != ' ')
			return NULL;
		line++;
	}
	*ret_len = strcspn(line, " \n");
	return line;
}

int place_check_mounts(const char *mountinfo, const char *path, struct err *e)
{
	for (const char *line = mountinfo; *line;) {
		size_t len;
		const char *point = mount_point(line, &len);
		char decoded[4096 + 1];

		if (!point || len >= sizeof(decoded))
			return err_set(e, EPROTO, "cannot read the list of mounts");
		decode_field(point, len, decoded);
		if (place_within(decoded, path) && strcmp(decoded, path) != 0)
			return err_set(e, EBUSY, "%s is mounted below %s; unmount it", decoded,
			               path);
		line += strcspn(line, "\n");
		line += *line == '\n';
	}
	return 0;
}

int place_check_own_mounts(const char *path, struct err *e)
{
	auto_close int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	auto_free char *text = NULL;
	size_t len;

	if (fd < 0)
		return err_errno(e, "open /proc/self/mountinfo");
	if (fd_read_all(fd, MOUNTINFO_MAX, &text, &len, e) < 0)
		return err_wrap(e, "/proc/self/mountinfo");
	return place_check_mounts(text, path, e);
}
