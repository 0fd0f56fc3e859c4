/*
 * What lies below was made by the tenant: names, depth and number of directories are an
 * attacker's, and links may point anywhere.  So nothing is followed, every name is used
 * from the descriptor of its directory, nothing is read, and no recursion goes deeper than
 * the tree allows: a directory inside a directory is first moved up beside it.
 */
#include "daemon/launcher/purge.h"

#include "common/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIRECTORY (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

struct purge {
	int top;         /* holds what is left */
	uint64_t number; /* of the last directory that was moved there */
};

static bool is_self(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Its owner, who is this user, may have taken every right from it. */
static int open_directory(int dir, const char *name)
{
	int fd = openat(dir, name, DIRECTORY);

	if (fd < 0 && errno == EACCES && fchmodat(dir, name, 0700, 0) == 0)
		fd = openat(dir, name, DIRECTORY);
	return fd;
}

/* The first name of a directory that is free in the top one. */
static int move_up(struct purge *p, int dir, const char *name)
{
	char fresh[32];

	if (fchmodat(dir, name, 0700, 0) < 0)
		return -1;
	for (;;) {
		(void)snprintf(fresh, sizeof(fresh), ".purge-%" PRIu64, ++p->number);
		if (renameat2(dir, name, p->top, fresh, RENAME_NOREPLACE) == 0)
			return 0;
		if (errno != EEXIST)
			return -1;
	}
}

/* Remove one entry; a directory that is not empty goes up. */
static int remove_entry(struct purge *p, int dir, const char *name)
{
	if (unlinkat(dir, name, 0) == 0)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -1;
	if (unlinkat(dir, name, AT_REMOVEDIR) == 0)
		return 0;
	if (errno != ENOTEMPTY && errno != EEXIST)
		return -1;
	return move_up(p, dir, name);
}

/* Remove what a directory of the top one holds, and then it. */
static int empty_directory(struct purge *p, const char *name, struct err *e)
{
	auto_close int fd = open_directory(p->top, name);
	auto_dir DIR *d = NULL;
	const struct dirent *entry;
	int own;

	if (fd < 0 || fchmod(fd, 0700) < 0)
		return err_errno(e, "open a directory of the tenant");
	own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	d = own < 0 ? NULL : fdopendir(own);
	if (!d) {
		fd_close(&own);
		return err_errno(e, "read a directory of the tenant");
	}
	while ((entry = readdir(d)))
		if (!is_self(entry->d_name) && remove_entry(p, fd, entry->d_name) < 0)
			return err_errno(e, "remove a file of the tenant");
	/* What came while it was read is for the next round. */
	if (unlinkat(p->top, name, AT_REMOVEDIR) < 0 && errno != ENOTEMPTY)
		return err_errno(e, "remove a directory of the tenant");
	return 0;
}

/* One round over the top directory; *ret_left tells whether there was anything. */
static int round_of(struct purge *p, bool *ret_left, struct err *e)
{
	int own = openat(p->top, ".", DIRECTORY);
	auto_dir DIR *d = own < 0 ? NULL : fdopendir(own);
	const struct dirent *entry;

	*ret_left = false;
	if (!d) {
		fd_close(&own);
		return err_errno(e, "read the tenant's directory");
	}
	while ((entry = readdir(d))) {
		if (is_self(entry->d_name))
			continue;
		*ret_left = true;
		if (unlinkat(p->top, entry->d_name, 0) == 0)
			continue;
		if (errno != EISDIR && errno != EPERM)
			return err_errno(e, "remove a file of the tenant");
		if (empty_directory(p, entry->d_name, e) < 0)
			return -1;
	}
	return 0;
}

static int remove_tree(int all, const char *name, struct err *e)
{
	auto_close int top = openat(all, name, DIRECTORY);
	struct purge p = { .top = top };
	bool left = true;

	if (top < 0 && errno == ENOENT)
		return 0;
	if (top < 0)
		return err_errno(e, "open %s", name);
	while (left)
		if (round_of(&p, &left, e) < 0)
			return -1;
	if (unlinkat(all, name, AT_REMOVEDIR) < 0)
		return err_errno(e, "remove %s", name);
	return 0;
}

int purge_files(int state_fd, const struct uuid *tenant, struct err *e)
{
	auto_close int all = openat(state_fd, "tenants", DIRECTORY);
	char doomed[64];

	if (all < 0 && errno == ENOENT)
		return 0;
	if (all < 0)
		return err_errno(e, "open the directory of the tenants");
	(void)snprintf(doomed, sizeof(doomed), "%s.purged", tenant->text);
	/* First the rest of one that was interrupted; then the name is free. */
	if (remove_tree(all, doomed, e) < 0)
		return -1;
	if (renameat(all, tenant->text, all, doomed) < 0)
		return errno == ENOENT ? 0 : err_errno(e, "rename %s", tenant->text);
	return remove_tree(all, doomed, e);
}
