/*
 * A file is written under an unguessable name beside its target and renamed over
 * it after END, so that readers see the old content or the new one, never a part.
 */
#include "guest/file.h"

#include "common/fd.h"
#include "guest/fault.h"
#include "guest/loop.h"
#include "guest/target.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct file_write {
	struct call call;
	struct target target;
	int fd;                           /* the temporary file */
	char temporary[TARGET_TEMPORARY]; /* its name beside the target; empty when there is none */
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
	if (w->temporary[0] && unlinkat(w->target.dir, w->temporary, 0) < 0)
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

	if (fstatat(w->target.dir, w->target.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
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
	if (renameat(w->target.dir, w->temporary, w->target.dir, w->target.name) < 0) {
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
	target_close(&w->target);
	free(w);
}

static const struct call_kind write_kind = {
	.input = write_input,
	.end = write_end,
	.cancel = call_cancelled,
	.step = write_step,
	.release = write_release,
};

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
	w->target.dir = w->fd = -1;
	w->mode = (mode_t)mode.value;
	if (target_open(&w->target, path, NULL, e) < 0 || check_target(w, e) < 0 ||
	    (w->fd = target_create(&w->target, w->temporary, e)) < 0) {
		write_release(&w->call);
		return NULL;
	}
	return &w->call;
}
