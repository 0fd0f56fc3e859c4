/*
 * What the runner executes and mounts decides what the boundary is worth.  Were any
 * of it the service user's own, a process that broke out of one sandbox could change
 * it and be inside all others; so it has to be root's, and every way to it too.
 */
#include "runner/trust.h"

#include "common/fd.h"
#include "runner/place.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

int trust_check_one(const char *path, const struct stat *st, bool last, struct err *e)
{
	if (st->st_uid != 0)
		return err_set(e, EPERM,
		               "%s belongs to user %u; in the service boundary it must be root's",
		               path, st->st_uid);
	/* What is below a sticky directory is root's too, or the next step refuses it. */
	if ((st->st_mode & 022) && (last || !(st->st_mode & S_ISVTX)))
		return err_set(e, EPERM,
		               "%s is writable for others than root (mode %04o); in the service "
		               "boundary it must not be",
		               path, st->st_mode & 07777);
	return 0;
}

static int check_prefix(char *path, size_t len, bool last, struct err *e)
{
	auto_close int fd = -1;
	char after = path[len];
	struct stat st;
	int got;

	path[len] = '\0';
	got = place_open(path, 0, &fd, e);
	if (got == 0 && fstat(fd, &st) < 0)
		got = err_errno(e, "stat %s", path);
	if (got == 0)
		got = trust_check_one(path, &st, last, e);
	path[len] = after;
	return got;
}

int trust_check(const char *path, struct err *e)
{
	char copy[PATH_MAX];
	size_t size = strlen(path) + 1;
	struct stat root;

	if (path[0] != '/' || size > sizeof(copy))
		return err_set(e, EINVAL, "'%.100s' is not an absolute path of less than %d bytes",
		               path, PATH_MAX);
	memcpy(copy, path, size);
	if (stat("/", &root) < 0)
		return err_errno(e, "stat /");
	if (trust_check_one("/", &root, false, e) < 0)
		return -1;
	for (size_t i = 1; i < size; i++)
		if ((copy[i] == '/' || copy[i] == '\0') &&
		    check_prefix(copy, i, copy[i] == '\0', e) < 0)
			return -1;
	return 0;
}

int trust_check_self(struct err *e)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

	if (n < 0)
		return err_errno(e, "find this program's own path");
	path[n] = '\0';
	return trust_check(path, e);
}
