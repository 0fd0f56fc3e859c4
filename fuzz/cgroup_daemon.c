#include "fuzz/cgroup_daemon.h"

#include "fuzz/fuzz.h"

#include "common/attr.h"
#include "common/fd.h"
#include "daemon/doctor/leaf.h"
#include "daemon/launcher/delegation.h"

#include <fcntl.h>
#include <stdbool.h>

enum {
	F_MEMORY_MAX,
	F_PIDS_MAX,
	F_SWAP,
	F_OOM,
	F_CPU,
};

const char *const daemon_files[DAEMON_FILES] = {
	[F_MEMORY_MAX] = "memory.max",
	[F_PIDS_MAX] = "pids.max",
	[F_SWAP] = "memory.swap.max",
	[F_OOM] = "memory.oom.group",
	[F_CPU] = "cpu.max",
	"supervisor/cgroup.subtree_control",
	"supervisor/memory.low",
	"supervisor/cpu.weight",
	"sandboxes/memory.max",
	"sandboxes/pids.max",
	"sandboxes/cgroup.controllers",
};

/* -- where we are ----------------------------------------------------------------------------- */

/* Root and path, as they stand in the one line, but for the supervisor's end of it. */
static void check_place(const char *text)
{
	static const char root[] = "/sys/fs/cgroup";
	char dir[PATH_MAX];
	struct err e = ERR_INIT;
	const char *rest;
	size_t len;

	if (delegation_locate(text, root, dir, &e) < 0) {
		demand(e.text[0]);
		return;
	}
	len = strlen(dir) - strlen(root);
	demand(strncmp(dir, root, strlen(root)) == 0 && len >= 2);
	demand(strncmp(text, "0::/", 4) == 0 && strncmp(text + 3, dir + strlen(root), len) == 0);
	demand(!strstr(dir, "/..") && !strchr(dir, '\n'));
	rest = text + 3 + len;
	rest += strncmp(rest, "/supervisor", 11) == 0 ? 11 : 0;
	demand(!*rest || strcmp(rest, "\n") == 0);
}

/* -- what is delegated ------------------------------------------------------------------------ */

static bool is_word(const char *list, const char *word)
{
	size_t len = strlen(word);

	for (const char *at = strstr(list, word); at; at = strstr(at + 1, word))
		if ((at == list || strchr(" \n", at[-1])) && (!at[len] || strchr(" \n", at[len])))
			return true;
	return false;
}

static uint64_t limit_of(const char *text)
{
	return strncmp(text, "max", 3) == 0 ? UINT64_MAX : strtoull(text, NULL, 10);
}

static uint64_t read_limit(const char *dir, const char *name)
{
	auto_close int at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_close int fd = openat(at, name, O_RDONLY | O_CLOEXEC);
	char text[64];
	ssize_t n = read(fd, text, sizeof(text) - 1);

	demand(n > 0);
	text[n] = '\0';
	return strtoull(text, NULL, 10);
}

static void check_arranged(const struct daemon_tree *t)
{
	uint64_t memory = limit_of(t->texts[F_MEMORY_MAX]), tasks = limit_of(t->texts[F_PIDS_MAX]);
	struct err e = ERR_INIT;

	if (delegation_arrange(t->dir, "/run", &e) < 0) {
		demand(e.text[0]);
		return;
	}
	demand(!*t->procs);
	demand(read_limit(t->dir, "sandboxes/memory.max") <= delegation_memory_share(memory));
	if (tasks != UINT64_MAX)
		demand(read_limit(t->dir, "sandboxes/pids.max") == delegation_tasks_share(tasks));
}

/* -- a leaf ----------------------------------------------------------------------------------- */

static bool has_line(const char *text, const char *line)
{
	return strncmp(text, line, strlen(line)) == 0 && strchr("\n", text[strlen(line)]);
}

static bool is_bound(const char *text, const struct limits *l)
{
	char *rest;
	uint64_t quota = strtoull(text, &rest, 10), period = strtoull(rest, NULL, 10);

	return quota && (unsigned __int128)quota * 100 == (unsigned __int128)period * l->cpus;
}

static void check_leaf(const struct daemon_tree *t)
{
	static const struct limits limits = { .cpus = 200, .memory = 1 << 20, .processes = 16 };
	char fault[256] = "";

	if (leaf_fault(t->dir, &limits, fault, sizeof(fault))) {
		demand(fault[0]);
		return;
	}
	demand(*t->procs && has_line(t->texts[F_MEMORY_MAX], "1048576"));
	demand(has_line(t->texts[F_SWAP], "0") && has_line(t->texts[F_OOM], "1"));
	demand(is_bound(t->texts[F_CPU], &limits));
	demand(strtoull(t->texts[F_PIDS_MAX], NULL, 10) >= limits.processes);
}

void check_daemon_tree(const struct daemon_tree *t)
{
	struct err e = ERR_INIT;

	check_place(t->whole);
	check_leaf(t);
	if (delegation_check(t->dir, &e) == 0)
		demand(is_word(t->controllers, "cpu") && is_word(t->controllers, "memory") &&
		       is_word(t->controllers, "pids"));
	else
		demand(e.text[0]);
	/* Each of them would be moved some fifty times. */
	if (strlen(t->procs) < 64)
		check_arranged(t);
}
