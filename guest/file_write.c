/*
 * A file is written under an unguessable name beside its target and renamed over
 * it after END, so that readers see the old content or the new one, never a part.
 */
#include "guest/file.h"

#include "common/fd.h"
#include "common/id.h"
#include "guest/fault.h"
#include "guest/job.h"
#include "guest/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct file_write {
	struct call call;
	int dir;                     /* directory of the target */
	int fd;                      /* the temporary file */
	char temporary[64];          /* its name in dir; empty when there is none */
	char name[JOB_PATH_MAX + 1]; /* name of the target in dir */
	mode_t mode;
	int64_t bytes;
};

static struct file_write *write_of(struct call *c)
{
	return source_owner(c, struct file_write, call);
}

static void remove_temporary(struct file_write *w)
{
	/* Nothing more can be done when this fails; the name says what the file is. */
	if (w->temporary[0] && unlinkat(w->dir, w->temporary, 0) < 0)
		errno = 0;
	w->temporary[0] = '\0';
}

static void write_failed(struct file_write *w, const char *what)
{
	struct err e = ERR_INIT;

	(void)err_errno(&e, "%s", what);
	remove_temporary(w);
	call_fail(&w->call, &e);
}

static void write_input(struct call *c, const char *data, size_t len)
{
	struct file_write *w = write_of(c);
	size_t done = 0;

	while (done < len) {
		ssize_t n = write(w->fd, data + done, len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			write_failed(w, "write");
			return;
		}
		done += (size_t)n;
	}
	w->bytes += (int64_t)len;
	call_grant(c, len);
}

/* What may be replaced: nothing, a regular file or a symbolic link. */
static int check_target(const struct file_write *w, struct err *e)
{
	struct stat st;

	if (fstatat(w->dir, w->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : err_errno(e, "path");
	if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
		return err_set(e, FAULT_NOT_A_FILE, "path: not a regular file");
	return 0;
}

static void write_end(struct call *c)
{
	struct file_write *w = write_of(c);
	struct err e = ERR_INIT;
	struct json *result;
	int fd;

	if (check_target(w, &e) < 0) {
		call_fail(c, &e);
		return;
	}
	if (fchmod(w->fd, w->mode) < 0) {
		write_failed(w, "set the mode");
		return;
	}
	fd = fd_take(&w->fd);
	if (close(fd) < 0) {
		write_failed(w, "write");
		return;
	}
	if (renameat(w->dir, w->temporary, w->dir, w->name) < 0) {
		write_failed(w, "replace");
		return;
	}
	w->temporary[0] = '\0';
	result = json_new_object();
	json_put_int(result, "bytes", w->bytes);
	call_exit(c, result);
}

static void write_step(struct call *c, struct turn *t)
{
	(void)c;
	(void)t;
}

static void write_release(struct call *c)
{
	struct file_write *w = write_of(c);

	remove_temporary(w);
	fd_close(&w->fd);
	fd_close(&w->dir);
	free(w);
}

static const struct call_kind write_kind = {
	.input = write_input,
	.end = write_end,
	.cancel = call_cancelled,
	.step = write_step,
	.release = write_release,
};

static int open_dir(const char *path)
{
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Make every directory of path that is missing.  path is changed and restored. */
static int make_dirs(char *path)
{
	for (char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
		int made;

		*at = '\0';
		made = mkdir(path, 0755);
		*at = '/';
		if (made < 0 && errno != EEXIST)
			return -1;
	}
	return mkdir(path, 0755) < 0 && errno != EEXIST ? -1 : 0;
}

/* Split path into an open directory, made when missing, and the name in it. */
static int open_target(struct file_write *w, const char *path, struct err *e)
{
	auto_free char *dir = strdup(path);
	char *slash = dir ? strrchr(dir, '/') : NULL;

	if (!dir || !slash)
		return err_set(e, ENOMEM, "no memory for a path");
	(void)snprintf(w->name, sizeof(w->name), "%s", slash + 1);
	if (!*w->name || strcmp(w->name, ".") == 0 || strcmp(w->name, "..") == 0)
		return err_set(e, FAULT_NOT_A_FILE, "path: names a directory");
	slash[slash == dir] = '\0';
	w->dir = open_dir(dir);
	if (w->dir < 0 && errno == ENOENT && make_dirs(dir) == 0)
		w->dir = open_dir(dir);
	return w->dir < 0 ? err_errno(e, "directory of path") : check_target(w, e);
}

static int open_temporary(struct file_write *w, struct err *e)
{
	struct uuid id = uuid_new();

	(void)snprintf(w->temporary, sizeof(w->temporary), ".cloister-%s.tmp", id.text);
	w->fd = openat(w->dir, w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
	               0600);
	if (w->fd >= 0)
		return 0;
	w->temporary[0] = '\0';
	return err_errno(e, "directory of path");
}

struct call *file_write_start(const struct json *request, struct err *e)
{
	struct file_number mode = { .name = "mode", .min = 0, .max = 0777, .value = 0644 };
	struct file_write *w;
	const char *path;

	if (file_request(request, &mode, 1, &path, e) < 0)
		return NULL;
	w = calloc(1, sizeof(*w));
	if (!w) {
		(void)err_set(e, ENOMEM, "no memory for a call");
		return NULL;
	}
	(void)call_init(&w->call, &write_kind);
	w->dir = w->fd = -1;
	w->mode = (mode_t)mode.value;
	if (open_target(w, path, e) < 0 || open_temporary(w, e) < 0) {
		write_release(&w->call);
		return NULL;
	}
	return &w->call;
}
