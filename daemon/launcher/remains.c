#include "daemon/launcher/remains.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LOOK_INTERVAL 50 /* ms */
#define GIVE_UP       10000

struct remain {
	struct remain *next;
	struct uuid tenant;
	uint64_t since_ms;
};

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

/* True when there is nothing more to do about it. */
static bool clear(const struct remains *r, const struct remain *m)
{
	struct err e = ERR_INIT;
	bool gone;

	if (remains_clear(r->dir, &m->tenant, &gone, &e) < 0) {
		log_error("tenant %s: what its sandbox left: %s", m->tenant.text, e.text);
		return true;
	}
	if (!gone && clock_mono_ms() > m->since_ms + GIVE_UP) {
		log_error("tenant %s: processes of its sandbox do not end", m->tenant.text);
		return true;
	}
	return gone;
}

void remains_look(struct remains *r)
{
	struct remain **at = &r->list;

	while (*at) {
		struct remain *m = *at;

		if (clear(r, m)) {
			*at = m->next;
			free(m);
		} else {
			at = &m->next;
		}
	}
	r->look_ms = r->list ? clock_mono_ms() + LOOK_INTERVAL : 0;
}

void remains_add(struct remains *r, const struct uuid *tenant)
{
	struct remain *m = malloc(sizeof(*m));

	if (!m) {
		log_error(
			"tenant %s: no memory to clear what its sandbox left; its next runner does",
			tenant->text);
		return;
	}
	*m = (struct remain){ r->list, *tenant, clock_mono_ms() };
	r->list = m;
	remains_look(r);
}

void remains_forget(struct remains *r, const struct uuid *tenant)
{
	for (struct remain **at = &r->list; *at; at = &(*at)->next) {
		struct remain *m = *at;

		if (!uuid_equal(&m->tenant, tenant))
			continue;
		*at = m->next;
		free(m);
		return;
	}
}

void remains_release(struct remains *r)
{
	while (r->list)
		remains_forget(r, &r->list->tenant);
}
