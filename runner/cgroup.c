/*
 * The kernel enforces a sandbox's share of the machine; this module sees to it that
 * it was told the right one.  Nothing is taken on trust: the place is what the
 * service manager should have delegated, every limit reads as it was written, and a
 * leaf is gone only when the kernel lets it be removed, which it does for an empty
 * one alone.  The box never sees these files: no cgroup file system is in its root.
 */
#include "runner/cgroup.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/log.h"
#include "runner/place.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#define FILE_MAX        (256U << 10)
#define REMOVE_TIMEOUT  5000    /* ms for what a predecessor left */
#define POLL_MS         50      /* events may be lost on the way; then look again */
#define CPU_PERIOD      100000U /* microseconds */
#define PIDS_BASE       64      /* host tasks of an idle sandbox, and some */
#define PIDS_A_PROCESS  3       /* host tasks for one process of the tenant, and some */
#define SUPERVISOR      "supervisor"
#define SANDBOXES       "sandboxes"
#define SUBTREE_CONTROL "cgroup.subtree_control"

/* A small file below dir without its last newline, owned by the caller; NULL on failure. */
static char *read_file(int dir, const char *name, struct err *e)
{
	auto_close int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	auto_free char *text = NULL;
	size_t len = 0;

	if (fd < 0) {
		err_errno(e, "open %s", name);
		return NULL;
	}
	if (fd_read_all(fd, FILE_MAX, &text, &len, e) < 0) {
		err_wrap(e, "read %s", name);
		return NULL;
	}
	if (text && len > 0 && text[len - 1] == '\n')
		text[len - 1] = '\0';
	return mem_take(&text);
}

static int write_file(int dir, const char *name, const char *text, struct err *e)
{
	auto_close int fd = openat(dir, name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return err_errno(e, "open %s", name);
	if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		return err_errno(e, "write '%s' to %s", text, name);
	return 0;
}

/* -- the place ------------------------------------------------------------------- */

/* True when the words of text (apart by blanks) hold word. */
static bool has_word(const char *text, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = text; *p; p += strspn(p, " \n")) {
		size_t n = strcspn(p, " \n");

		if (n == len && memcmp(p, word, n) == 0)
			return true;
		p += n;
	}
	return false;
}

static size_t count_words(const char *text)
{
	size_t n = 0;

	for (const char *p = text + strspn(text, " \n"); *p; n++) {
		p += strcspn(p, " \n");
		p += strspn(p, " \n");
	}
	return n;
}

static int check_controllers(int dir, const char *file, bool exactly, struct err *e)
{
	static const char *const needed[] = { "cpu", "memory", "pids" };
	auto_free char *text = read_file(dir, file, e);

	if (!text)
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(needed); i++)
		if (!has_word(text, needed[i]))
			return err_set(e, EINVAL,
			               "controller %s is missing in %s ('%.100s'); delegate it: "
			               "Delegate=cpu memory pids",
			               needed[i], file, text);
	if (exactly && count_words(text) != ARRAY_LEN(needed))
		return err_set(e, EINVAL, "%s is '%.100s', not exactly cpu, memory and pids", file,
		               text);
	return 0;
}

static int check_inner(int dir, struct err *e)
{
	auto_free char *type = read_file(dir, "cgroup.type", e);
	auto_free char *procs = type ? read_file(dir, "cgroup.procs", e) : NULL;

	if (!type || !procs)
		return -1;
	if (strcmp(type, "domain") != 0)
		return err_set(e, EINVAL, "its type is '%.40s', not domain", type);
	if (*procs)
		return err_set(e, EINVAL, "it has processes of its own; they belong below it");
	return check_controllers(dir, SUBTREE_CONTROL, true, e);
}

static int open_below(int dir, const char *name, int *ret_fd, struct err *e)
{
	*ret_fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (*ret_fd < 0)
		return err_errno(e, "open %s", name);
	return 0;
}

static int check_self(int dir, pid_t self, struct err *e)
{
	auto_close int supervisor = -1;
	auto_free char *procs = NULL;
	char pid[16];

	(void)snprintf(pid, sizeof(pid), "%d", self);
	if (open_below(dir, SUPERVISOR, &supervisor, e) < 0)
		return -1;
	procs = read_file(supervisor, "cgroup.procs", e);
	if (!procs)
		return -1;
	if (!has_word(procs, pid))
		return err_set(e, EINVAL, "this runner is not in its %s", SUPERVISOR);
	return 0;
}

int cgroup_check_place(int dir, pid_t self, struct err *e)
{
	auto_close int sandboxes = -1;

	if (check_controllers(dir, "cgroup.controllers", false, e) < 0 || check_inner(dir, e) < 0 ||
	    check_self(dir, self, e) < 0)
		return -1;
	if (open_below(dir, SANDBOXES, &sandboxes, e) < 0 || check_inner(sandboxes, e) < 0)
		return err_wrap(e, SANDBOXES);
	return 0;
}

static int open_place(const char *path, int *ret_fd, struct err *e)
{
	auto_close int place = -1;
	auto_close int dir = -1;
	struct statfs fs;

	if (place_open(path, O_DIRECTORY, &place, e) < 0)
		return -1;
	dir = openat(place, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0 || fstatfs(dir, &fs) < 0)
		return err_errno(e, "open it");
	if (fs.f_type != CGROUP2_SUPER_MAGIC)
		return err_set(e, EINVAL,
		               "it is not cgroup version 2; boot with the unified hierarchy");
	*ret_fd = fd_take(&dir);
	return 0;
}

/* -- limits ---------------------------------------------------------------------- */

#define SETTINGS 7

struct setting {
	const char *file;
	char value[48];
};

static void settings_of(const struct limits *l, struct setting ret[SETTINGS])
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	for (int i = 0; i < SETTINGS; i++)
		ret[i] = (struct setting){ "", "0" };
	ret[0].file = "cpu.max";
	(void)snprintf(ret[0].value, sizeof(ret[0].value), "%u %u", l->cpus * (CPU_PERIOD / 100),
	               CPU_PERIOD);
	ret[1].file = "memory.max";
	/* The kernel counts pages. */
	(void)snprintf(ret[1].value, sizeof(ret[1].value), "%" PRIu64, l->memory / page * page);
	ret[2].file = "memory.swap.max";
	ret[3].file = "memory.oom.group";
	(void)snprintf(ret[3].value, sizeof(ret[3].value), "1");
	ret[4].file = "pids.max";
	(void)snprintf(ret[4].value, sizeof(ret[4].value), "%u",
	               PIDS_BASE + PIDS_A_PROCESS * l->processes);
	ret[5].file = "cgroup.max.descendants";
	ret[6].file = "cgroup.max.depth";
}

static int verify_limits(int leaf, const struct limits *limits, struct err *e)
{
	struct setting settings[SETTINGS];

	settings_of(limits, settings);
	for (int i = 0; i < SETTINGS; i++) {
		auto_free char *text = read_file(leaf, settings[i].file, e);

		if (!text)
			return -1;
		if (strcmp(text, settings[i].value) != 0)
			return err_set(e, EPROTO, "%s is '%.60s', not '%s' as it was set",
			               settings[i].file, text, settings[i].value);
	}
	return 0;
}

int cgroup_set_limits(int leaf, const struct limits *limits, struct err *e)
{
	struct setting settings[SETTINGS];

	settings_of(limits, settings);
	for (int i = 0; i < SETTINGS; i++)
		if (write_file(leaf, settings[i].file, settings[i].value, e) < 0)
			return -1;
	return verify_limits(leaf, limits, e);
}

/* -- the leaf --------------------------------------------------------------------- */

uint64_t cgroup_counter(const char *text, const char *key)
{
	size_t len = strlen(key);

	for (const char *line = text; *line; line += *line == '\n') {
		if (strncmp(line, key, len) == 0 && line[len] == ' ')
			return strtoull(line + len + 1, NULL, 10);
		line += strcspn(line, "\n");
	}
	return 0;
}

static bool is_empty(int leaf)
{
	struct err ignored = ERR_INIT;
	auto_free char *text = read_file(leaf, "cgroup.events", &ignored);

	return text && strstr(text, "populated ") && cgroup_counter(text, "populated") == 0;
}

static bool await_empty(int leaf, uint64_t deadline_ms)
{
	auto_close int events = openat(leaf, "cgroup.events", O_RDONLY | O_CLOEXEC);
	struct pollfd p = { .fd = events, .events = POLLPRI };
	char text[128];

	while (!is_empty(leaf)) {
		int left = clock_left_ms(deadline_ms);

		if (left == 0)
			return false;
		/* Reading tells the kernel which state is known. */
		if (events < 0 || pread(events, text, sizeof(text), 0) < 0 ||
		    poll(&p, 1, left < POLL_MS ? left : POLL_MS) < 0)
			return false;
	}
	return true;
}

static int remove_leftover(int parent, const char *name, struct err *e)
{
	auto_close int leaf = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (leaf < 0 && errno == ENOENT)
		return 0;
	if (leaf < 0)
		return err_errno(e, "open it");
	log_warn("the cgroup of this tenant's previous sandbox is still there; removing it");
	if (write_file(leaf, "cgroup.kill", "1", e) < 0)
		return -1;
	if (!await_empty(leaf, clock_mono_ms() + REMOVE_TIMEOUT))
		return err_set(e, EBUSY,
		               "processes of this tenant's previous sandbox do not end; it cannot "
		               "be started again before they are gone");
	if (unlinkat(parent, name, AT_REMOVEDIR) < 0)
		return err_errno(e, "remove what this tenant's previous sandbox left");
	return 0;
}

int cgroup_make_leaf(int parent, const char *name, int *ret_fd, struct err *e)
{
	if (remove_leftover(parent, name, e) < 0)
		return -1;
	if (mkdirat(parent, name, 0700) < 0)
		return err_errno(e, "make it");
	if (open_below(parent, name, ret_fd, e) < 0) {
		(void)unlinkat(parent, name, AT_REMOVEDIR);
		return -1;
	}
	return 0;
}

static int make(const char *path, struct cgroup *c, struct err *e)
{
	auto_close int dir = -1;

	if (open_place(path, &dir, e) < 0 || cgroup_check_place(dir, getpid(), e) < 0)
		return err_wrap(e, "cgroup %s", path);
	if (open_below(dir, SANDBOXES, &c->parent, e) < 0)
		return -1;
	if (cgroup_make_leaf(c->parent, c->name, &c->dir, e) < 0)
		return err_wrap(e, "cgroup %s/" SANDBOXES "/%s", path, c->name);
	if (cgroup_set_limits(c->dir, &c->limits, e) < 0)
		return err_wrap(e, "limits of cgroup %s/" SANDBOXES "/%s", path, c->name);
	return 0;
}

int cgroup_make(const char *path, const struct uuid *tenant, const struct limits *limits,
                struct cgroup *ret, struct err *e)
{
	struct cgroup c = CGROUP_INIT;

	memcpy(c.name, tenant->text, sizeof(c.name));
	c.limits = *limits;
	if (make(path, &c, e) < 0) {
		if (c.dir < 0 || !cgroup_remove(&c, clock_mono_ms())) {
			fd_close(&c.dir);
			fd_close(&c.parent);
		}
		return -1;
	}
	*ret = c;
	return 0;
}

int cgroup_verify(const struct cgroup *c, pid_t pid, struct err *e)
{
	auto_free char *procs = read_file(c->dir, "cgroup.procs", e);
	char wanted[16];

	(void)snprintf(wanted, sizeof(wanted), "%d", pid);
	if (!procs || verify_limits(c->dir, &c->limits, e) < 0)
		return err_wrap(e, "the sandbox's own cgroup");
	if (!has_word(procs, wanted))
		return err_set(e, EPROTO, "process %d of the sandbox is not in its cgroup", pid);
	return 0;
}

static uint64_t read_counter(int dir, const char *file, const char *key)
{
	struct err ignored = ERR_INIT;
	auto_free char *text = read_file(dir, file, &ignored);

	return text ? cgroup_counter(text, key) : 0;
}

enum cgroup_cause cgroup_cause(const struct cgroup *c)
{
	if (c->dir < 0)
		return CGROUP_OTHER;
	if (read_counter(c->dir, "memory.events", "oom_kill") > 0 ||
	    read_counter(c->dir, "memory.events", "oom_group_kill") > 0)
		return read_counter(c->dir, "memory.events", "oom") > 0 ? CGROUP_MEMORY
		                                                        : CGROUP_MEMORY_AROUND;
	if (read_counter(c->dir, "pids.events", "max") > 0)
		return CGROUP_PROCESSES;
	return CGROUP_OTHER;
}

void cgroup_kill(const struct cgroup *c)
{
	struct err e = ERR_INIT;

	if (c->dir >= 0 && write_file(c->dir, "cgroup.kill", "1", &e) < 0)
		log_error("%s", e.text);
}

bool cgroup_remove(struct cgroup *c, uint64_t deadline_ms)
{
	if (c->dir < 0)
		return true;
	if (!await_empty(c->dir, deadline_ms) ||
	    (unlinkat(c->parent, c->name, AT_REMOVEDIR) < 0 && errno != ENOENT))
		return false;
	fd_close(&c->dir);
	fd_close(&c->parent);
	return true;
}
