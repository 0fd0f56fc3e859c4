/*
 * The registry, the tokens and the workspaces are reached from here with the
 * powers of the service user, and whoever could redirect one of these walks would
 * choose what the service trusts.  So every component is opened relative to the
 * descriptor of its parent, never followed when it is a link, and judged by
 * fstat(2) of what was opened; nothing is looked up twice by name.
 */
#include "daemon/tenant/trusted.h"

#include "common/fd.h"
#include "common/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SHOWN_MAX 200 /* bytes of a path in a message, so that the reason fits behind it */

/* "%.*s%s" arguments that show a path, or its beginning. */
static int shown_len(size_t len, const char *path)
{
	return (int)(len > SHOWN_MAX ? utf8_whole(path, SHOWN_MAX) : len);
}

#define SHOWN(path, len) shown_len(len, path), path, (len) > SHOWN_MAX ? "..." : ""

/* -- names ----------------------------------------------------------------------------- */

static bool has_control(const char *path)
{
	for (const unsigned char *p = (const unsigned char *)path; *p; p++)
		if (*p < 0x20 || *p == 0x7f || (*p == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f))
			return true;
	return false;
}

static bool is_dots(const char *name, size_t len)
{
	return (len == 1 || len == 2) && name[0] == '.' && name[len - 1] == '.';
}

int trusted_path_check(const char *path, struct err *e)
{
	size_t len = strlen(path);

	if (path[0] != '/')
		return err_set(e, EINVAL, "must be an absolute path");
	if (len > TRUSTED_PATH_MAX)
		return err_set(e, EINVAL, "path of %zu bytes, at most %d", len, TRUSTED_PATH_MAX);
	if (has_control(path))
		return err_set(e, EINVAL, "control character in the path");
	if (len == 1)
		return err_set(e, EINVAL, "must name something below /");
	if (path[len - 1] == '/')
		return err_set(e, EINVAL, "path ends with a slash");
	for (const char *at = path + 1; at[-1]; at++) {
		size_t n = strcspn(at, "/");

		if (!n)
			return err_set(e, EINVAL, "double slash in the path");
		if (is_dots(at, n))
			return err_set(e, EINVAL, "\"%.*s\" in the path", (int)n, at);
		at += n;
	}
	return 0;
}

bool trusted_path_inside(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	if (n == 1)
		return true;
	return strncmp(path, dir, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

/* -- walking --------------------------------------------------------------------------- */

struct walk {
	const char *path;
	bool check_ancestors;
	bool by_root;   /* the service's own is not good enough */
	int last_flags; /* how the last component is opened */
	int fd;         /* where the walk stands */
	struct stat st; /* of fd */
};

/* Who may own what is walked over: root alone, or the service too. */
static bool owned(const struct stat *st, bool by_root)
{
	return st->st_uid == 0 || (!by_root && st->st_uid == geteuid());
}

static int refuse_owner(const char *path, size_t len, const struct stat *st, bool by_root,
                        struct err *e)
{
	if (by_root || geteuid() == 0)
		return err_set(e, EPERM, "%.*s%s: owned by uid %u, must be root's",
		               SHOWN(path, len), st->st_uid);
	return err_set(e, EPERM, "%.*s%s: owned by uid %u, must be root's or uid %u's",
	               SHOWN(path, len), st->st_uid, geteuid());
}

/* May the entry below be trusted to stay what it is?  path is that of dir. */
static int check_ancestor(const struct walk *w, size_t len, const struct stat *below, struct err *e)
{
	const struct stat *dir = &w->st;
	const char *path = w->path;

	if (!owned(dir, w->by_root))
		return refuse_owner(path, len, dir, w->by_root, e);
	if (!(dir->st_mode & (S_IWGRP | S_IWOTH)))
		return 0;
	if (!(dir->st_mode & S_ISVTX) || dir->st_uid != 0)
		return err_set(e, EPERM,
		               "%.*s%s: mode %04o, group or others can replace what is in it",
		               SHOWN(path, len), dir->st_mode & 07777);
	if (!owned(below, w->by_root))
		return err_set(e, EPERM,
		               "%.*s%s: sticky, and the entry below belongs to uid %u, who can "
		               "replace it",
		               SHOWN(path, len), below->st_uid);
	return 0;
}

/* From w->fd to its entry path[at..at+n). */
static int walk_step(struct walk *w, size_t at, size_t n, bool last, struct err *e)
{
	auto_close int fd = -1;
	char name[NAME_MAX + 1];
	struct stat st;
	size_t parent = at > 1 ? at - 1 : at;

	if (n > NAME_MAX)
		return err_set(e, ENAMETOOLONG, "%.*s%s: a name is longer than %d bytes",
		               SHOWN(w->path, at + n), NAME_MAX);
	memcpy(name, w->path + at, n);
	name[n] = '\0';
	fd = openat(w->fd, name, (last ? w->last_flags : O_PATH) | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == ELOOP)
		return err_set(e, ELOOP, "%.*s%s: is a symbolic link", SHOWN(w->path, at + n));
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(e, "%.*s%s", SHOWN(w->path, at + n));
	if (S_ISLNK(st.st_mode))
		return err_set(e, ELOOP, "%.*s%s: is a symbolic link", SHOWN(w->path, at + n));
	if (!last && !S_ISDIR(st.st_mode))
		return err_set(e, ENOTDIR, "%.*s%s: is not a directory", SHOWN(w->path, at + n));
	if (w->check_ancestors && check_ancestor(w, parent, &st, e) < 0)
		return -1;
	fd_close(&w->fd);
	w->fd = fd_take(&fd);
	w->st = st;
	return 0;
}

/* Leaves w->fd open for the caller, also on failure. */
static int walk(struct walk *w, struct err *e)
{
	size_t at = 0, len = strlen(w->path);

	w->fd = open(w->path[0] == '/' ? "/" : ".", O_PATH | O_CLOEXEC);
	if (w->fd < 0 || fstat(w->fd, &w->st) < 0)
		return err_errno(e, "%.*s%s", SHOWN(w->path, len));
	while (at < len) {
		size_t n = strcspn(w->path + at, "/");

		if (n && walk_step(w, at, n, at + n == len, e) < 0)
			return -1;
		at += n + 1;
	}
	return 0;
}

int trusted_directory(const char *path, struct stat *ret, struct err *e)
{
	struct walk w = { .path = path, .check_ancestors = true, .last_flags = O_PATH, .fd = -1 };
	int r = walk(&w, e);

	fd_close(&w.fd);
	if (r < 0)
		return -1;
	if (!S_ISDIR(w.st.st_mode))
		return err_set(e, ENOTDIR, "%.*s%s: is not a directory", SHOWN(path, strlen(path)));
	*ret = w.st;
	return 0;
}

int trusted_installed(const char *path, struct err *e)
{
	struct walk w = {
		.path = path,
		.check_ancestors = true,
		.by_root = true,
		.last_flags = O_PATH,
		.fd = -1,
	};
	size_t len = strlen(path);
	int r = walk(&w, e);

	fd_close(&w.fd);
	if (r < 0)
		return -1;
	if (!S_ISDIR(w.st.st_mode) && !S_ISREG(w.st.st_mode))
		return err_set(e, EINVAL, "%.*s%s: is neither a file nor a directory",
		               SHOWN(path, len));
	if (!owned(&w.st, w.by_root))
		return refuse_owner(path, len, &w.st, w.by_root, e);
	if (w.st.st_mode & (S_IWGRP | S_IWOTH))
		return err_set(e, EPERM, "%.*s%s: mode %04o, group or others can write it",
		               SHOWN(path, len), w.st.st_mode & 07777);
	return 0;
}

/* -- files ----------------------------------------------------------------------------- */

static const char *what_others_can(mode_t mode)
{
	if ((mode & 044) && (mode & 022))
		return "group or others can read and write it";
	if (mode & 044)
		return "group or others can read it";
	if (mode & 022)
		return "group or others can write it";
	return "nothing beyond 0600 is allowed";
}

static int check_file(const struct walk *w, enum trusted_kind kind, struct err *e)
{
	size_t len = strlen(w->path);
	mode_t mode = w->st.st_mode & 07777;

	if (!S_ISREG(w->st.st_mode))
		return err_set(e, EINVAL, "%.*s%s: is not a regular file", SHOWN(w->path, len));
	if (!owned(&w->st, w->by_root))
		return refuse_owner(w->path, len, &w->st, w->by_root, e);
	if (!(mode & ~0600U))
		return 0;
	if (kind == TRUSTED_CONFIG && w->st.st_uid == 0) {
		if (!(mode & 022))
			return 0;
		return err_set(e, EPERM, "%.*s%s: mode %04o, group or others can write it",
		               SHOWN(w->path, len), mode);
	}
	return err_set(e, EPERM, "%.*s%s: mode %04o, %s", SHOWN(w->path, len), mode,
	               what_others_can(mode));
}

/* O_NONBLOCK: a FIFO in its place must not hold the start up. */
static struct walk walk_to_file(const char *path)
{
	return (struct walk){
		.path = path,
		.last_flags = O_RDONLY | O_NONBLOCK | O_NOCTTY,
		.fd = -1,
	};
}

static int read_file(const struct walk *w, size_t max, char **ret_data, size_t *ret_len,
                     struct err *e)
{
	if (fd_read_all(w->fd, max, ret_data, ret_len, e) < 0)
		return err_wrap(e, "%.*s%s", SHOWN(w->path, strlen(w->path)));
	return 0;
}

int trusted_read(const char *path, enum trusted_kind kind, size_t max, char **ret_data,
                 size_t *ret_len, struct err *e)
{
	struct walk w = walk_to_file(path);
	int r = walk(&w, e);

	if (r == 0)
		r = check_file(&w, kind, e);
	if (r == 0)
		r = read_file(&w, max, ret_data, ret_len, e);
	fd_close(&w.fd);
	return r;
}

int trusted_read_anyway(const char *path, size_t max, char **ret_data, size_t *ret_len,
                        struct err *ret_fault, struct err *e)
{
	struct walk w = walk_to_file(path);
	int r = walk(&w, e);

	*ret_fault = (struct err)ERR_INIT;
	if (r == 0 && check_file(&w, TRUSTED_CONFIG, ret_fault) < 0 && ret_fault->code != EPERM) {
		*e = *ret_fault;
		r = -1;
	}
	if (r == 0)
		r = read_file(&w, max, ret_data, ret_len, e);
	fd_close(&w.fd);
	return r;
}

int trusted_canonical(const char *path, char **ret_path, struct err *e)
{
	auto_free char *head = strdup(path);
	auto_free char *found = NULL;
	const char *rest = path + strlen(path);
	int n;

	if (!head)
		return err_set(e, ENOMEM, "no memory for a path");
	while (!(found = realpath(*head ? head : ".", NULL))) {
		char *slash = strrchr(head, '/');

		if (errno != ENOENT)
			return err_errno(e, "%.*s%s", SHOWN(path, strlen(path)));
		if (slash == head && !head[1])
			return err_errno(e, "/");
		rest = path + (slash ? slash + 1 - head : 0);
		head[slash == head ? 1 : slash ? slash - head : 0] = '\0';
	}
	n = asprintf(ret_path, "%s%s%s", found, *rest && found[1] ? "/" : "", rest);
	if (n < 0)
		return err_set(e, ENOMEM, "no memory for a path");
	while (n > 1 && (*ret_path)[n - 1] == '/')
		(*ret_path)[--n] = '\0';
	return 0;
}
