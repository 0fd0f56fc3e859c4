#include "daemon/launcher/view.h"

#include "common/buf.h"
#include "common/fd.h"
#include "daemon/launcher/runner.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* -- the launcher ------------------------------------------------------------------------ */

/* A number in a file of the kernel's below the sandbox's leaf. */
static int64_t read_number(const char *cgroup, const struct uuid *tenant, const char *name)
{
	char path[PATH_MAX + 128], text[32];
	auto_close int fd = -1;
	char *end;
	long long value;
	ssize_t n;

	if (!*cgroup)
		return VIEW_UNKNOWN;
	(void)snprintf(path, sizeof(path), "%s/sandboxes/%s/%s", cgroup, tenant->text, name);
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return VIEW_UNKNOWN;
	text[n] = '\0';
	value = strtoll(text, &end, 10);
	return end != text && *end == '\n' && value >= 0 ? value : VIEW_UNKNOWN;
}

static void put_runner(struct buf *out, const struct runner *r, const char *cgroup)
{
	const struct view_sandbox row = {
		.tenant = r->tenant,
		.pid = (int32_t)r->pid,
		.generation = r->generation,
		.memory = read_number(cgroup, &r->tenant, "memory.current"),
		.tasks = read_number(cgroup, &r->tenant, "pids.current"),
	};

	buf_add(out, &row, sizeof(row));
}

static int fill(int fd, const struct buf *rows, struct err *e)
{
	const unsigned int seals = F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;

	if (fd_write_all(fd, rows->data, rows->len, e) < 0)
		return err_wrap(e, "write what the launcher knows");
	if (ftruncate(fd, (off_t)(rows->len + VIEW_OUT_MAX)) < 0 ||
	    fcntl(fd, F_ADD_SEALS, seals) < 0 || lseek(fd, 0, SEEK_SET) < 0)
		return err_errno(e, "prepare the file for the status");
	return 0;
}

int view_open(const struct runner *first, const char *cgroup, bool json, int *ret_fd, off_t *ret_at,
              struct err *e)
{
	const size_t most =
		sizeof(struct view_head) + VIEW_SANDBOXES_MAX * sizeof(struct view_sandbox);
	auto_close int fd = memfd_create("status", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct view_head head = { .json = json, .pid = (uint32_t)getpid() };
	auto_buf struct buf rows = BUF_INIT(most);

	if (fd < 0)
		return err_errno(e, "make a memory file for the status");
	head.errors = (uint32_t)log_recent(head.error);
	buf_add(&rows, &head, sizeof(head));
	for (; first && head.sandboxes < VIEW_SANDBOXES_MAX; first = first->next) {
		put_runner(&rows, first, cgroup);
		head.sandboxes++;
	}
	if (buf_failed(&rows))
		return err_set(e, ENOMEM, "no memory for the status");
	memcpy(rows.data, &head, sizeof(head));
	if (fill(fd, &rows, e) < 0)
		return -1;
	*ret_at = (off_t)rows.len;
	*ret_fd = fd_take(&fd);
	return 0;
}

int view_lines(int fd, off_t at, void (*fn)(void *ctx, const char *line), void *ctx, struct err *e)
{
	auto_free char *text = malloc(VIEW_OUT_MAX + 1);
	ssize_t n = text ? pread(fd, text, VIEW_OUT_MAX, at) : -1;
	char *line = text, *end;

	if (n < 0)
		return text ? err_errno(e, "read the status")
		            : err_set(e, ENOMEM, "no memory for the status");
	text[n] = '\0';
	for (; *line; line = end) {
		end = line + strcspn(line, "\n");
		if (*end)
			*end++ = '\0';
		fn(ctx, line);
	}
	return 0;
}

/* -- the server -------------------------------------------------------------------------- */

static int read_all(int fd, void *into, size_t len, struct err *e)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = read(fd, (char *)into + done, len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return err_set(e, EPROTO, "what the launcher knows is cut off");
		done += (size_t)n;
	}
	return 0;
}

static bool head_good(const struct view_head *head)
{
	if (head->sandboxes > VIEW_SANDBOXES_MAX || head->errors > LOG_RECENT)
		return false;
	for (size_t i = 0; i < head->errors; i++)
		if (!memchr(head->error[i].text, '\0', sizeof(head->error[i].text)))
			return false;
	return true;
}

int view_take(int fd, struct view_head *ret, struct view_sandbox **ret_rows, struct err *e)
{
	auto_free struct view_sandbox *rows = NULL;

	if (read_all(fd, ret, sizeof(*ret), e) < 0)
		return -1;
	if (!head_good(ret))
		return err_set(e, EPROTO, "what the launcher knows is not in order");
	rows = calloc(ret->sandboxes + 1UL, sizeof(*rows));
	if (!rows)
		return err_set(e, ENOMEM, "no memory for the status");
	if (read_all(fd, rows, ret->sandboxes * sizeof(*rows), e) < 0)
		return -1;
	for (size_t i = 0; i < ret->sandboxes; i++)
		rows[i].tenant.text[UUID_TEXT_LEN] = '\0';
	*ret_rows = mem_take(&rows);
	return 0;
}
