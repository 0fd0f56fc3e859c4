#include "guest/target.h"

#include "common/fd.h"
#include "common/id.h"
#include "guest/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int open_dir(const char *path)
{
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int make_dir(const char *path, struct buf *made)
{
	if (mkdir(path, 0755) < 0)
		return errno == EEXIST ? 0 : -1;
	if (made)
		buf_add(made, path, strlen(path) + 1);
	return 0;
}

/* Make every directory of path that is missing.  path is changed and restored. */
static int make_dirs(char *path, struct buf *made)
{
	for (char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
		int rc;

		*at = '\0';
		rc = make_dir(path, made);
		*at = '/';
		if (rc < 0)
			return -1;
	}
	return make_dir(path, made);
}

int target_open(struct target *t, const char *path, struct buf *made, struct err *e)
{
	auto_free char *dir = strdup(path);
	char *slash = dir ? strrchr(dir, '/') : NULL;

	if (!dir || !slash)
		return err_set(e, ENOMEM, "no memory for a path");
	if (strlen(slash + 1) > NAME_MAX)
		return err_set(e, ENAMETOOLONG, "path: a name in it is too long");
	memcpy(t->name, slash + 1, strlen(slash + 1) + 1);
	if (!*t->name || strcmp(t->name, ".") == 0 || strcmp(t->name, "..") == 0)
		return err_set(e, FAULT_NOT_A_FILE, "path: names a directory");
	slash[slash == dir] = '\0';
	t->dir = open_dir(dir);
	if (t->dir < 0 && errno == ENOENT && make_dirs(dir, made) == 0)
		t->dir = open_dir(dir);
	return t->dir < 0 ? err_errno(e, "directory of path") : 0;
}

void target_close(struct target *t)
{
	fd_close(&t->dir);
}

void target_unmake(struct buf *made)
{
	while (made->len) {
		size_t at = made->len - 1;

		while (at && made->data[at - 1])
			at--;
		if (rmdir(made->data + at) < 0)
			errno = 0;
		buf_truncate(made, at);
	}
}

void target_temporary(char ret_name[TARGET_TEMPORARY], const char *suffix)
{
	struct uuid id = uuid_new();

	(void)snprintf(ret_name, TARGET_TEMPORARY, ".cloister-%s.%s", id.text, suffix);
}

int target_create(const struct target *t, char ret_name[TARGET_TEMPORARY], struct err *e)
{
	int fd;

	target_temporary(ret_name, "tmp");
	fd = openat(t->dir, ret_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd >= 0)
		return fd;
	ret_name[0] = '\0';
	return err_errno(e, "directory of path");
}

void target_version(const struct stat *st, char ret_version[TARGET_VERSION])
{
	(void)snprintf(ret_version, TARGET_VERSION, "%jx-%jx-%jx-%jx.%lx-%jx.%lx",
	               (uintmax_t)st->st_dev, (uintmax_t)st->st_ino, (uintmax_t)st->st_size,
	               (uintmax_t)st->st_mtim.tv_sec, (unsigned long)st->st_mtim.tv_nsec,
	               (uintmax_t)st->st_ctim.tv_sec, (unsigned long)st->st_ctim.tv_nsec);
}
