/*
 * Several files are written and removed, or none.
 *
 *   staging   each content goes to a temporary file beside its target; no target is touched
 *   checking  after END: every target must be what the daemon expects
 *   keeping   each target that is there gets a second name, so that it can come back
 *   changing  temporary files are renamed over their targets, others are removed
 *
 * What fails before the last stage leaves all targets as they were, a full disk too; what
 * fails in it is undone.  The stages after END are one step of the loop: nothing of this
 * guest comes between them, but other processes of the sandbox may.
 */
#include "guest/file.h"

#include "common/fd.h"
#include "guest/fault.h"
#include "guest/job.h"
#include "guest/loop.h"
#include "guest/target.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILES_MAX  100
#define MADE_MAX   ((size_t)1 << 20) /* bytes of paths of directories that were made */
#define ABSENT     "absent"          /* what is expected of a target that must not be there */
#define BYTES_MAX  ((int64_t)1 << 30)
#define MODE_USUAL 0644

struct change_file {
	const char *path; /* as asked for; borrowed from the request */
	struct target target;
	bool removes;
	bool exists;      /* there is something to come back */
	const char *like; /* a new file takes the mode of this one; NULL = of none; borrowed */
	char expect[TARGET_VERSION]; /* a version, ABSENT, or empty: whatever is there */
	int64_t left;                /* bytes of content still to come */
	int fd;                      /* the temporary file */
	char temporary[TARGET_TEMPORARY];
	char kept[TARGET_TEMPORARY]; /* the target's second name */
};

struct change {
	struct call call;
	struct json *request; /* owned: the array of files */
	struct change_file *files;
	size_t n;
	size_t at; /* the file that takes content now */
	int64_t bytes;
	struct buf made;
};

static struct change *change_of(struct call *c)
{
	return source_owner(c, struct change, call);
}

/* -- what can be undone --------------------------------------------------------------------- */

static void unlink_name(const struct target *t, char name[TARGET_TEMPORARY])
{
	/* Nothing more can be done when this fails; the name says what the file is. */
	if (name[0] && unlinkat(t->dir, name, 0) < 0)
		errno = 0;
	name[0] = '\0';
}

static int put_back(struct change_file *f)
{
	int rc = f->kept[0] ? renameat(f->target.dir, f->kept, f->target.dir, f->target.name)
	                    : unlinkat(f->target.dir, f->target.name, 0);

	if (rc == 0)
		f->kept[0] = '\0';
	return rc;
}

/* Put back the first n targets; what cannot be is said, and keeps its second name. */
static void undo(struct change *x, size_t n, struct err *e)
{
	while (n--) {
		if (put_back(&x->files[n]) == 0)
			continue;
		(void)err_wrap(e, "%s was changed and could not be put back (%s)", x->files[n].path,
		               strerror(errno));
		x->files[n].kept[0] = '\0';
	}
}

static void change_failed(struct change *x, const struct err *e)
{
	for (size_t i = 0; i < x->n; i++) {
		unlink_name(&x->files[i].target, x->files[i].temporary);
		unlink_name(&x->files[i].target, x->files[i].kept);
	}
	target_unmake(&x->made);
	call_fail(&x->call, e);
}

/* -- staging -------------------------------------------------------------------------------- */

static int close_file(struct change_file *f, struct err *e)
{
	int fd = fd_take(&f->fd);

	return close(fd) < 0 ? err_errno(e, "%s: write", f->path) : 0;
}

/* Go on to the next file that takes content. */
static int next_file(struct change *x, struct err *e)
{
	while (x->at < x->n && x->files[x->at].left == 0) {
		struct change_file *f = &x->files[x->at++];

		if (f->fd >= 0 && close_file(f, e) < 0)
			return -1;
	}
	return 0;
}

static int stage(struct change *x, const char *data, size_t len, struct err *e)
{
	while (len) {
		struct change_file *f = &x->files[x->at];
		ssize_t n;

		if (x->at == x->n)
			return err_set(e, FAULT_INVALID, "more content than the files have");
		n = write(f->fd, data, (int64_t)len < f->left ? len : (size_t)f->left);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_errno(e, "%s: write", f->path);
		f->left -= n;
		x->bytes += n;
		data += n;
		len -= (size_t)n;
		if (next_file(x, e) < 0)
			return -1;
	}
	return 0;
}

static void change_input(struct call *c, const char *data, size_t len)
{
	struct change *x = change_of(c);
	struct err e = ERR_INIT;

	if (stage(x, data, len, &e) < 0)
		change_failed(x, &e);
	else
		call_grant(c, len);
}

/* -- checking ------------------------------------------------------------------------------- */

/* Of a link, what it points to decides whether it is as expected. */
static int check_version(const struct change_file *f, const struct stat *found, struct err *e)
{
	char version[TARGET_VERSION];
	struct stat st = *found;

	if (!f->expect[0])
		return 0;
	if (S_ISLNK(st.st_mode) && fstatat(f->target.dir, f->target.name, &st, 0) < 0)
		return err_errno(e, "%s", f->path);
	target_version(&st, version);
	if (strcmp(version, f->expect) != 0)
		return err_set(e, FAULT_CHANGED, "%s: was changed since it was read", f->path);
	return 0;
}

/* The new file has the owner and the mode of the old one. */
static int take_over(const struct change_file *f, const struct stat *st, struct err *e)
{
	const char *name = f->temporary;
	struct stat ours;

	if (fstatat(f->target.dir, name, &ours, AT_SYMLINK_NOFOLLOW) < 0 ||
	    ((ours.st_uid != st->st_uid || ours.st_gid != st->st_gid) &&
	     fchownat(f->target.dir, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0) ||
	    fchmodat(f->target.dir, name, st->st_mode & 07777, 0) < 0)
		return err_errno(e, "%s: owner and mode", f->path);
	return 0;
}

static int take_over_from(const struct change_file *f, struct err *e)
{
	struct stat st;

	return stat(f->like, &st) < 0 ? err_errno(e, "%s", f->like) : take_over(f, &st, e);
}

static int check_file(struct change_file *f, struct err *e)
{
	struct stat st;

	f->exists = fstatat(f->target.dir, f->target.name, &st, AT_SYMLINK_NOFOLLOW) == 0;
	if (!f->exists && errno != ENOENT)
		return err_errno(e, "%s", f->path);
	if (!f->exists && !f->removes && (!f->expect[0] || strcmp(f->expect, ABSENT) == 0))
		return f->like ? take_over_from(f, e) : 0;
	if (!f->exists)
		return err_set(e, ENOENT, "%s: is not there", f->path);
	if (strcmp(f->expect, ABSENT) == 0)
		return err_set(e, EEXIST, "%s: is there already", f->path);
	if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
		return err_set(e, FAULT_NOT_A_FILE, "%s: not a regular file", f->path);
	if (check_version(f, &st, e) < 0)
		return -1;
	return f->removes || S_ISLNK(st.st_mode) ? 0 : take_over(f, &st, e);
}

/* -- keeping and changing ------------------------------------------------------------------- */

static int keep(struct change_file *f, struct err *e)
{
	if (!f->exists)
		return 0;
	target_temporary(f->kept, "old");
	if (linkat(f->target.dir, f->target.name, f->target.dir, f->kept, 0) == 0)
		return 0;
	f->kept[0] = '\0';
	return err_errno(e, "%s: keep it", f->path);
}

/* A file that must not be there is linked, since a rename would replace what just came. */
static int apply(struct change_file *f, struct err *e)
{
	const struct target *t = &f->target;
	int rc;

	if (f->removes) {
		rc = unlinkat(t->dir, t->name, 0);
	} else if (f->exists) {
		rc = renameat(t->dir, f->temporary, t->dir, t->name);
		if (rc == 0)
			f->temporary[0] = '\0';
	} else {
		rc = linkat(t->dir, f->temporary, t->dir, t->name, 0);
	}
	return rc < 0 ? err_errno(e, "%s", f->path) : 0;
}

static int change_all(struct change *x, struct err *e)
{
	for (size_t i = 0; i < x->n; i++)
		if (check_file(&x->files[i], e) < 0)
			return -1;
	for (size_t i = 0; i < x->n; i++)
		if (keep(&x->files[i], e) < 0)
			return -1;
	for (size_t i = 0; i < x->n; i++) {
		if (apply(&x->files[i], e) == 0)
			continue;
		undo(x, i, e);
		return -1;
	}
	return 0;
}

static void change_end(struct call *c)
{
	struct change *x = change_of(c);
	struct err e = ERR_INIT;
	struct json *result;

	if (x->at < x->n)
		(void)err_set(&e, FAULT_INVALID, "less content than the files have");
	if (x->at < x->n || change_all(x, &e) < 0) {
		change_failed(x, &e);
		return;
	}
	for (size_t i = 0; i < x->n; i++) {
		unlink_name(&x->files[i].target, x->files[i].temporary);
		unlink_name(&x->files[i].target, x->files[i].kept);
	}
	buf_reset(&x->made);
	result = json_new_object();
	json_put_int(result, "files", (int64_t)x->n);
	json_put_int(result, "bytes", x->bytes);
	call_exit(c, result);
}

/* -- life ----------------------------------------------------------------------------------- */

static void change_cancel(struct call *c)
{
	struct err e = ERR_INIT;

	(void)err_set(&e, FAULT_CANCELLED, "cancelled");
	change_failed(change_of(c), &e);
}

static void change_step(struct call *c, struct turn *t)
{
	(void)c;
	(void)t;
}

static void change_release(struct call *c)
{
	struct change *x = change_of(c);

	for (size_t i = 0; x->files && i < x->n; i++) {
		unlink_name(&x->files[i].target, x->files[i].temporary);
		unlink_name(&x->files[i].target, x->files[i].kept);
		fd_close(&x->files[i].fd);
		target_close(&x->files[i].target);
	}
	target_unmake(&x->made);
	buf_release(&x->made);
	json_free(&x->request);
	free(x->files);
	free(x);
}

static const struct call_kind change_kind = {
	.input = change_input,
	.end = change_end,
	.cancel = change_cancel,
	.step = change_step,
	.release = change_release,
};

/* -- the request ---------------------------------------------------------------------------- */

enum {
	F_PATH,
	F_REMOVE,
	F_BYTES,
	F_EXPECT,
	F_LIKE,
	F_COUNT
};

static int read_file(struct change_file *f, const struct json *o, struct err *e)
{
	static const struct json_field fields[F_COUNT] = {
		[F_PATH] = { .name = "path", .type = JSON_STRING, .required = true },
		[F_REMOVE] = { .name = "remove", .type = JSON_BOOL },
		[F_BYTES] = { .name = "bytes", .type = JSON_INT },
		[F_EXPECT] = { .name = "expect", .type = JSON_STRING },
		[F_LIKE] = { .name = "like", .type = JSON_STRING },
	};
	const struct json *v[F_COUNT];
	struct json_faults faults = { .count = 0 };

	if (!json_fields(o, "files", fields, F_COUNT, v, &faults))
		return err_set(e, FAULT_INVALID, "%s", faults.first.text);
	f->removes = v[F_REMOVE] && json_bool(v[F_REMOVE]);
	if (json_str(v[F_PATH])[0] != '/' || json_str_len(v[F_PATH]) > JOB_PATH_MAX)
		return err_set(e, FAULT_INVALID, "path: must be absolute and at most %d bytes",
		               JOB_PATH_MAX);
	if (f->removes == !!v[F_BYTES] ||
	    (v[F_BYTES] && (json_int(v[F_BYTES]) < 0 || json_int(v[F_BYTES]) > BYTES_MAX)))
		return err_set(e, FAULT_INVALID, "exactly one of remove and bytes is needed");
	if (v[F_EXPECT] &&
	    (!json_str_len(v[F_EXPECT]) || json_str_len(v[F_EXPECT]) >= TARGET_VERSION))
		return err_set(e, FAULT_INVALID, "expect: no version");
	if (v[F_EXPECT])
		memcpy(f->expect, json_str(v[F_EXPECT]), json_str_len(v[F_EXPECT]) + 1);
	f->left = v[F_BYTES] ? json_int(v[F_BYTES]) : 0;
	f->path = json_str(v[F_PATH]);
	f->like = v[F_LIKE] ? json_str(v[F_LIKE]) : NULL;
	return 0;
}

/* What is written where a link is, and was read through it, replaces what it points to. */
static char *resolve(const struct change_file *f, struct err *e)
{
	bool follow = !f->removes && f->expect[0] && strcmp(f->expect, ABSENT) != 0;
	char *path = follow ? realpath(f->path, NULL) : strdup(f->path);

	if (!path)
		(void)err_errno(e, "%s", f->path);
	return path;
}

/* One file must not be changed twice, whatever it is called. */
static int check_distinct(const struct change *x, const struct change_file *f, struct err *e)
{
	struct stat ours, theirs;

	if (fstat(f->target.dir, &ours) < 0)
		return err_errno(e, "%s", f->path);
	for (const struct change_file *o = x->files; o < f; o++) {
		if (strcmp(o->target.name, f->target.name) != 0)
			continue;
		if (fstat(o->target.dir, &theirs) < 0)
			return err_errno(e, "%s", o->path);
		if (ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino)
			return err_set(e, FAULT_INVALID, "%s: is the same file as %s", f->path,
			               o->path);
	}
	return 0;
}

static int open_file(struct change *x, struct change_file *f, struct err *e)
{
	auto_free char *path = resolve(f, e);
	struct stat st;

	if (!path)
		return -1;
	if (f->removes && lstat(path, &st) < 0)
		return err_errno(e, "%s", f->path);
	if (target_open(&f->target, path, f->removes ? NULL : &x->made, e) < 0)
		return err_wrap(e, "%s", f->path);
	if (check_distinct(x, f, e) < 0)
		return -1;
	if (f->removes)
		return 0;
	f->fd = target_create(&f->target, f->temporary, e);
	if (f->fd < 0)
		return err_wrap(e, "%s", f->path);
	return fchmod(f->fd, MODE_USUAL) < 0 ? err_errno(e, "%s", f->path) : 0;
}

static int open_files(struct change *x, struct err *e)
{
	size_t n = json_len(x->request);

	if (n < 1 || n > FILES_MAX)
		return err_set(e, FAULT_INVALID, "files: 1 to %d, not %zu", FILES_MAX, n);
	x->files = calloc(n, sizeof(*x->files));
	if (!x->files)
		return err_set(e, ENOMEM, "no memory for a call");
	for (; x->n < n; x->n++) {
		struct change_file *f = &x->files[x->n];

		f->fd = f->target.dir = -1;
		if (read_file(f, json_at(x->request, x->n), e) < 0 || open_file(x, f, e) < 0) {
			x->n++; /* what it has is released with the rest */
			return -1;
		}
	}
	return buf_failed(&x->made) ? err_set(e, ENOMEM, "no memory for a call") : next_file(x, e);
}

struct call *file_change_start(const struct json *request, struct err *e)
{
	static const struct json_field fields[] = {
		{ .name = "op", .type = JSON_STRING, .required = true },
		{ .name = "files", .type = JSON_ARRAY, .required = true },
	};
	const struct json *v[ARRAY_LEN(fields)];
	struct json_faults faults = { .count = 0 };
	struct change *x;

	if (!json_fields(request, "", fields, ARRAY_LEN(fields), v, &faults)) {
		(void)err_set(e, FAULT_INVALID, "%s", faults.first.text);
		return NULL;
	}
	x = calloc(1, sizeof(*x));
	if (!x) {
		(void)err_set(e, ENOMEM, "no memory for a call");
		return NULL;
	}
	(void)call_init(&x->call, &change_kind);
	x->made = (struct buf)BUF_INIT(MADE_MAX);
	x->request = json_copy(v[1]);
	if (open_files(x, e) < 0) {
		change_release(&x->call);
		return NULL;
	}
	return &x->call;
}
