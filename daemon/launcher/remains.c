#include "daemon/launcher/remains.h"

#include "common/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

static int kill_inside(int leaf, struct err *e)
{
	auto_close int fd = openat(leaf, "cgroup.kill", O_WRONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || write(fd, "1", 1) != 1)
		return err_errno(e, "cgroup.kill");
	return 0;
}

int remains_clear(const char *dir, const struct uuid *tenant, bool *ret_gone, struct err *e)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	auto_close int sandboxes = -1, leaf = -1;
	char path[PATH_MAX];

	*ret_gone = false;
	if ((size_t)snprintf(path, sizeof(path), "%s/sandboxes", dir) >= sizeof(path))
		return err_set(e, ENAMETOOLONG, "the cgroup's path is too long");
	sandboxes = open(path, flags);
	if (sandboxes < 0)
		return err_errno(e, "%s", path);
	leaf = openat(sandboxes, tenant->text, flags);
	if (leaf < 0 && errno == ENOENT) {
		*ret_gone = true;
		return 0;
	}
	if (leaf < 0 || kill_inside(leaf, e) < 0)
		return leaf < 0 ? err_errno(e, "%s", tenant->text) : -1;
	/* The kernel lets go of an empty one alone. */
	if (unlinkat(sandboxes, tenant->text, AT_REMOVEDIR) == 0 || errno == ENOENT)
		*ret_gone = true;
	else if (errno != EBUSY)
		return err_errno(e, "remove %s", tenant->text);
	return 0;
}
