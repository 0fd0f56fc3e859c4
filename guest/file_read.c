#include "guest/file.h"

#include "common/fd.h"
#include "guest/fault.h"
#include "guest/loop.h"
#include "guest/target.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIMIT_MAX  (1LL << 40)
#define OFFSET_MAX (1LL << 52)

struct file_read {
	struct call call;
	int fd;
	int64_t offset;
	int64_t left;
	int64_t sent;
	int64_t size;
	char version[TARGET_VERSION]; /* when it was opened */
};

static char chunk[FRAME_DATA_MAX];

static struct file_read *read_of(struct call *c)
{
	return source_owner(c, struct file_read, call);
}

static void read_exit(struct file_read *r)
{
	struct json *result = json_new_object();

	json_put_int(result, "size", r->size);
	json_put_int(result, "bytes", r->sent);
	json_put_str(result, "version", r->version);
	call_exit(&r->call, result);
}

static void read_step(struct call *c, struct turn *t)
{
	struct file_read *r = read_of(c);
	size_t want = call_sendable(c);
	struct err e = ERR_INIT;
	ssize_t n = 0;

	if ((int64_t)want > r->left)
		want = (size_t)r->left;
	if (!want && r->left)
		return;
	if (want)
		n = pread(r->fd, chunk, want, r->offset);
	if (n < 0) {
		(void)err_errno(&e, "read");
		call_fail(c, &e);
		return;
	}
	if (n == 0) {
		read_exit(r);
		return;
	}
	call_send(c, FRAME_STDOUT, chunk, (size_t)n);
	r->sent += n;
	r->offset += n;
	r->left -= n;
	turn_wake(t, t->now_ms);
}

static void read_release(struct call *c)
{
	struct file_read *r = read_of(c);

	fd_close(&r->fd);
	free(r);
}

static const struct call_kind read_kind = {
	.input = call_drop_input,
	.end = call_ignore_end,
	.cancel = call_cancelled,
	.step = read_step,
	.release = read_release,
};

/*
 * Looked at before it is opened, since opening a FIFO lets go of whoever waits at
 * the other end; and looked at again, since the path may name something else by then.
 */
static int open_regular(const char *path, struct stat *st, struct err *e)
{
	auto_close int fd = -1;

	if (stat(path, st) < 0)
		return err_errno(e, "path");
	if (!S_ISREG(st->st_mode))
		return err_set(e, FAULT_NOT_A_FILE, "path: not a regular file");
	fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, st) < 0)
		return err_errno(e, "path");
	if (!S_ISREG(st->st_mode))
		return err_set(e, FAULT_NOT_A_FILE, "path: not a regular file");
	return fd_take(&fd);
}

struct call *file_read_start(const struct json *request, struct err *e)
{
	struct file_number numbers[] = {
		{ .name = "offset", .min = 0, .max = OFFSET_MAX, .value = 0 },
		{ .name = "limit", .min = 0, .max = LIMIT_MAX, .value = LIMIT_MAX },
	};
	struct file_read *r;
	const char *path;
	struct stat st;
	int fd;

	if (file_request(request, numbers, ARRAY_LEN(numbers), &path, e) < 0)
		return NULL;
	fd = open_regular(path, &st, e);
	if (fd < 0)
		return NULL;
	r = calloc(1, sizeof(*r));
	if (!r) {
		fd_close(&fd);
		(void)err_set(e, ENOMEM, "no memory for a call");
		return NULL;
	}
	r->fd = fd;
	r->offset = numbers[0].value;
	r->left = numbers[1].value;
	r->size = st.st_size;
	target_version(&st, r->version);
	return call_init(&r->call, &read_kind);
}
