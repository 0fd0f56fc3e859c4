/*
 * Listing: read all names and keep the first ones in order, then look at each
 * and send its line.  Both happen in small steps, because a directory may be as
 * large as the tenant likes, and few lists hold names at once.
 */
#include "guest/file.h"

#include "common/fd.h"
#include "common/utf8.h"
#include "guest/fault.h"
#include "guest/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENTRIES_MAX   10000
#define ENTRIES_USUAL 1000
#define HOLDERS_MAX   8    /* lists that hold names at once, 2.5 MB each at worst */
#define READ_BATCH    512  /* names read in a step */
#define LOOK_BATCH    64   /* entries looked at in a step */
#define NAME_ROW      256  /* bytes of a name and its NUL */
#define LINE_MAX_SIZE 2048 /* 255 bytes of name, each at most 6 in JSON, and the rest */

struct file_list {
	struct call call;
	DIR *dir;
	bool holder;             /* one of HOLDERS_MAX */
	bool sorted;             /* all names are read; names[] is in order */
	char (*names)[NAME_ROW]; /* only a holder has them; a heap, the greatest on top, until
	                            sorted */
	size_t n;
	size_t limit;
	size_t next; /* to be looked at */
	int64_t total;
	int64_t listed;
	struct buf lines; /* not yet sent */
};

static size_t holders;

static struct file_list *list_of(struct call *c)
{
	return source_owner(c, struct file_list, call);
}

static void swap(char *a, char *b)
{
	char c[NAME_ROW];

	memcpy(c, a, NAME_ROW);
	memcpy(a, b, NAME_ROW);
	memcpy(b, c, NAME_ROW);
}

static void sift_up(char (*heap)[NAME_ROW], size_t i)
{
	while (i && strcmp(heap[i], heap[(i - 1) / 2]) > 0) {
		swap(heap[i], heap[(i - 1) / 2]);
		i = (i - 1) / 2;
	}
}

static void sift_down(char (*heap)[NAME_ROW], size_t n)
{
	size_t i = 0, child;

	while ((child = 2 * i + 1) < n) {
		if (child + 1 < n && strcmp(heap[child + 1], heap[child]) > 0)
			child++;
		if (strcmp(heap[i], heap[child]) >= 0)
			return;
		swap(heap[i], heap[child]);
		i = child;
	}
}

/* Keep name when it is among the first limit ones. */
static void keep_name(struct file_list *l, const char *name)
{
	if (l->n < l->limit) {
		(void)snprintf(l->names[l->n], NAME_ROW, "%s", name);
		sift_up(l->names, l->n++);
	} else if (strcmp(name, l->names[0]) < 0) {
		(void)snprintf(l->names[0], NAME_ROW, "%s", name);
		sift_down(l->names, l->n);
	}
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(a, b);
}

static void read_names(struct file_list *l)
{
	struct dirent *d = NULL;
	struct err e = ERR_INIT;

	errno = 0;
	for (int i = 0; i < READ_BATCH && (d = readdir(l->dir)); i++) {
		if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
			continue;
		l->total++;
		keep_name(l, d->d_name);
	}
	if (d)
		return;
	if (errno) {
		(void)err_errno(&e, "read the directory");
		call_fail(&l->call, &e);
		return;
	}
	qsort(l->names, l->n, sizeof(*l->names), compare_names);
	l->sorted = true;
}

static const char *type_word(mode_t mode)
{
	if (S_ISREG(mode))
		return "file";
	if (S_ISDIR(mode))
		return "directory";
	return S_ISLNK(mode) ? "symlink" : "other";
}

static void add_line(struct file_list *l, const char *name, const struct stat *st)
{
	auto_buf struct buf text = BUF_INIT(LINE_MAX_SIZE);
	bool lossy = utf8_repair(name, strlen(name), &text);
	int64_t mtime = (int64_t)st->st_mtim.tv_sec * 1000 + st->st_mtim.tv_nsec / 1000000;

	buf_adds(&l->lines, "{\"name\":");
	json_write_string(text.data, text.len, &l->lines);
	buf_addf(&l->lines, ",\"type\":\"%s\",\"size\":%" PRId64 ",\"mtimeMs\":%" PRId64 "%s}\n",
	         type_word(st->st_mode), (int64_t)st->st_size, mtime,
	         lossy ? ",\"lossy\":true" : "");
	if (buf_failed(&text) || buf_failed(&l->lines))
		fault_die(GUEST_EXIT_START, "no memory for a directory");
	l->listed++;
}

static void look_at_some(struct file_list *l)
{
	struct stat st;

	for (int i = 0; i < LOOK_BATCH && l->next < l->n; i++) {
		const char *name = l->names[l->next++];

		if (fstatat(dirfd(l->dir), name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			add_line(l, name, &st);
		else
			l->total--; /* removed since its name was read */
	}
}

static void send_lines(struct file_list *l)
{
	size_t n = call_sendable(&l->call);

	if (n > l->lines.len)
		n = l->lines.len;
	if (!n)
		return;
	call_send(&l->call, FRAME_STDOUT, l->lines.data, n);
	buf_consume(&l->lines, n);
}

static void list_exit(struct file_list *l)
{
	struct json *result = json_new_object();

	json_put_int(result, "entries", l->listed);
	json_put_int(result, "total", l->total);
	call_exit(&l->call, result);
}

/* False while it has to wait for another list to end, or failed. */
static bool become_holder(struct file_list *l)
{
	struct err e = ERR_INIT;

	if (l->holder || holders >= HOLDERS_MAX)
		return l->holder;
	l->names = calloc(l->limit, sizeof(*l->names));
	if (!l->names) {
		(void)err_set(&e, ENOMEM, "no memory for a directory");
		call_fail(&l->call, &e);
		return false;
	}
	holders++;
	l->holder = true;
	return true;
}

static void list_step(struct call *c, struct turn *t)
{
	struct file_list *l = list_of(c);

	if (!become_holder(l))
		return;
	if (!l->sorted)
		read_names(l);
	else if (!l->lines.len)
		look_at_some(l);
	send_lines(l);
	if (!c->exited && l->sorted && l->next == l->n && !l->lines.len)
		list_exit(l);
	if (!l->lines.len)
		turn_wake(t, t->now_ms);
}

static void list_release(struct call *c)
{
	struct file_list *l = list_of(c);

	holders -= l->holder;
	free(l->names);
	if (l->dir)
		(void)closedir(l->dir);
	buf_release(&l->lines);
	free(l);
}

static const struct call_kind list_kind = {
	.input = call_drop_input,
	.end = call_ignore_end,
	.cancel = call_cancelled,
	.step = list_step,
	.release = list_release,
};

static int open_list(struct file_list *l, const char *path, struct err *e)
{
	auto_close int fd = open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return err_errno(e, "path");
	l->dir = fdopendir(fd);
	if (!l->dir)
		return err_errno(e, "open the directory");
	(void)fd_take(&fd);
	return 0;
}

struct call *file_list_start(const struct json *request, struct err *e)
{
	struct file_number limit = {
		.name = "limit", .min = 1, .max = ENTRIES_MAX, .value = ENTRIES_USUAL
	};
	struct file_list *l;
	const char *path;

	if (file_request(request, &limit, 1, &path, e) < 0)
		return NULL;
	l = calloc(1, sizeof(*l));
	if (!l) {
		(void)err_set(e, ENOMEM, "no memory for a call");
		return NULL;
	}
	(void)call_init(&l->call, &list_kind);
	l->limit = (size_t)limit.value;
	l->lines = (struct buf)BUF_INIT((size_t)LOOK_BATCH * LINE_MAX_SIZE);
	if (open_list(l, path, e) < 0) {
		list_release(&l->call);
		return NULL;
	}
	return &l->call;
}
