/*
 * What stands between tenants and the machine in the service profile are the limits of
 * cgroups, and this is where their tree is made.  The powers used are those of the owner
 * of a delegated subtree: making directories below it, moving the unit's own processes
 * within it, and enabling controllers for its children.  The unit's own limits belong to
 * root and stay out of reach.
 *
 * Four tenants with 2 GiB each do not fit into a unit of 4 GiB.  When they all want
 * their share, the kernel looks for a victim in the cgroup whose limit was reached: were
 * that the unit's own, it could be PostgreSQL or the server, and the file system of a
 * sandbox, whose memory is mapped by nobody, would not even count.  So DIR/sandboxes has
 * a limit of its own, lower than the unit's: there the kernel finds sandboxes only.  The
 * rest is what supervisor is protected by (memory.low).  Tasks are divided likewise.
 */
#include "daemon/launcher/delegation.h"

#include "common/fd.h"
#include "common/log.h"
#include "daemon/launcher/remedy.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/vfs.h>
#include <unistd.h>

#define SUPERVISOR  "supervisor"
#define SANDBOXES   "sandboxes"
#define FILE_MAX    65536
#define MOVE_ROUNDS 50 /* processes may fork while they are moved */

#define MEMORY_RESERVE (512ULL << 20) /* bytes for supervisor, at most a quarter of all */
#define TASKS_RESERVE  1024           /* likewise */
#define WEIGHT         "1000"         /* of the CPU; 100 is that of all sandboxes together */

static const char *const controllers[] = { "cpu", "memory", "pids" };

static const char delegate_remedy[] =
	"the unit needs Delegate=cpu memory pids and User= (see nix/cloister.service), or use "
	"--boundary development, without limits";

/* -- files ----------------------------------------------------------------------------- */

/* The text, owned by the caller, or NULL. */
static char *get(int dir, const char *name, struct err *e)
{
	auto_close int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	char *text = NULL;
	size_t len;

	if (fd < 0) {
		(void)err_errno(e, "%s", name);
	} else if (fd_read_all(fd, FILE_MAX, &text, &len, e) < 0) {
		(void)err_wrap(e, "%s", name);
		return NULL;
	}
	return text;
}

static int put(int dir, const char *name, const char *value, struct err *e)
{
	auto_close int fd = openat(dir, name, O_WRONLY | O_TRUNC | O_NOFOLLOW | O_CLOEXEC);

	/* The kernel takes a value as one write, or refuses it. */
	if (fd < 0 || write(fd, value, strlen(value)) < 0)
		return err_errno(e, "write %s to %s", value, name);
	return 0;
}

static int open_dir(int at, const char *name, struct err *e)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? err_errno(e, "%s", name) : fd;
}

/* A number, or UINT64_MAX for "max". */
static int get_number(int dir, const char *name, uint64_t *ret, struct err *e)
{
	auto_free char *text = get(dir, name, e);
	char *end;

	if (!text)
		return -1;
	if (strcmp(text, "max\n") == 0 || strcmp(text, "max") == 0) {
		*ret = UINT64_MAX;
		return 0;
	}
	errno = 0;
	*ret = strtoull(text, &end, 10);
	if (errno != 0 || end == text || (*end && *end != '\n'))
		return err_set(e, EINVAL, "%s: not a number: %.40s", name, text);
	return 0;
}

static int put_number(int dir, const char *name, uint64_t value, struct err *e)
{
	uint64_t found;
	char text[24];

	(void)snprintf(text, sizeof(text), "%" PRIu64, value);
	if (put(dir, name, text, e) < 0 || get_number(dir, name, &found, e) < 0)
		return -1;
	if (found != value)
		return err_set(e, EIO, "%s is %" PRIu64 " after writing %" PRIu64, name, found,
		               value);
	return 0;
}

/* -- where we are ---------------------------------------------------------------------- */

int delegation_locate(const char *text, const char *root, char ret_dir[PATH_MAX], struct err *e)
{
	static const char last[] = "/" SUPERVISOR;
	size_t len = strcspn(text, "\n");
	const char *path = text + 3;

	if (strncmp(text, "0::/", 4) != 0 || (text[len] && text[len + 1]))
		return err_set(e, ENOTSUP,
		               "this system uses cgroup v1; boot it with "
		               "systemd.unified_cgroup_hierarchy=1");
	len -= 3;
	if (len >= strlen(last) && strncmp(path + len - strlen(last), last, strlen(last)) == 0)
		len -= strlen(last);
	if (len < 2 || memmem(path, len, "/..", 3)) {
		(void)err_set(e, ENOTSUP, "not in the cgroup of a unit (%.*s)", (int)len, path);
		return err_remedy(e, delegate_remedy);
	}
	if ((size_t)snprintf(ret_dir, PATH_MAX, "%s%.*s", root, (int)len, path) >= PATH_MAX)
		return err_set(e, ENAMETOOLONG, "the cgroup's path is too long");
	return 0;
}

/* -- what delegation gives ------------------------------------------------------------- */

static bool has_word(const char *list, const char *word)
{
	size_t len = strlen(word);

	for (const char *at = list; *at; at += strspn(at, " \n")) {
		size_t n = strcspn(at, " \n");

		if (n == len && strncmp(at, word, n) == 0)
			return true;
		at += n;
	}
	return false;
}

static size_t count_words(const char *list)
{
	size_t n = 0;

	for (const char *at = list + strspn(list, " \n"); *at; at += strspn(at, " \n")) {
		at += strcspn(at, " \n");
		n++;
	}
	return n;
}

static int check_controllers(int dir, struct err *e)
{
	auto_free char *list = get(dir, "cgroup.controllers", e);

	if (!list)
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(controllers); i++) {
		if (has_word(list, controllers[i]))
			continue;
		(void)err_set(e, ENOTSUP, "the controller %s is not delegated", controllers[i]);
		return err_remedy(e, delegate_remedy);
	}
	return 0;
}

static int check_owner(int dir, struct err *e)
{
	struct stat st;

	if (fstat(dir, &st) < 0)
		return err_errno(e, "stat");
	if (st.st_uid == geteuid())
		return 0;
	(void)err_set(e, EPERM, "belongs to uid %u and is not delegated to this user", st.st_uid);
	return err_remedy(e, delegate_remedy);
}

static int check_writable(int dir, const char *name, struct err *e)
{
	if (faccessat(dir, name, W_OK, AT_EACCESS) == 0)
		return 0;
	if (errno == EROFS) {
		(void)err_errno(e, "%s", name);
		return err_remedy(e, "the unit needs ReadWritePaths=/sys/fs/cgroup, and must not "
		                     "have ProtectControlGroups=");
	}
	(void)err_errno(e, "%s cannot be written", name);
	return err_remedy(e, delegate_remedy);
}

static int check_dir(int dir, struct err *e)
{
	static const char *const files[] = { ".", "cgroup.procs", "cgroup.subtree_control" };

	if (check_owner(dir, e) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		if (check_writable(dir, files[i], e) < 0)
			return -1;
	return 0;
}

int delegation_check(const char *path, struct err *e)
{
	auto_close int dir = open_dir(AT_FDCWD, path, e);

	if (dir < 0)
		return -1;
	if (check_dir(dir, e) < 0 || check_controllers(dir, e) < 0)
		return err_wrap(e, "%s", path);
	return 0;
}

/* -- arranging ------------------------------------------------------------------------- */

static int make_child(int dir, const char *name, struct err *e)
{
	auto_close int child = -1;

	if (mkdirat(dir, name, 0755) < 0 && errno != EEXIST)
		return err_errno(e, "make %s", name);
	child = open_dir(dir, name, e);
	if (child < 0)
		return -1;
	if (check_dir(child, e) < 0)
		return err_wrap(e, "%s", name);
	return fd_take(&child);
}

/* One look at the list; *ret_any tells whether there was anybody. */
static int move_listed(int dir, int to, bool *ret_any, struct err *e)
{
	auto_free char *list = get(dir, "cgroup.procs", e);
	struct err why = ERR_INIT;
	char *rest = NULL;

	if (!list)
		return -1;
	*ret_any = *list != '\0';
	for (char *pid = strtok_r(list, "\n", &rest); pid; pid = strtok_r(NULL, "\n", &rest)) {
		if (strcmp(pid, "0") == 0)
			return err_set(e, EBUSY, "a process of another pid namespace is in it");
		/* One that has ended meanwhile needs no moving. */
		if (put(to, "cgroup.procs", pid, &why) < 0 && why.code != ESRCH)
			return err_set(e, why.code, "move process %s to " SUPERVISOR ": %s", pid,
			               why.text);
	}
	return 0;
}

static int move_all(int dir, int to, struct err *e)
{
	bool any = true;

	for (int i = 0; i < MOVE_ROUNDS && any; i++)
		if (move_listed(dir, to, &any, e) < 0)
			return -1;
	return any ? err_set(e, EBUSY, "processes remain in it after they were moved") : 0;
}

static bool exactly_enabled(const char *list)
{
	for (size_t i = 0; i < ARRAY_LEN(controllers); i++)
		if (!has_word(list, controllers[i]))
			return false;
	return count_words(list) == ARRAY_LEN(controllers);
}

static bool is_ours(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(controllers); i++)
		if (strcmp(name, controllers[i]) == 0)
			return true;
	return false;
}

static int disable_others(int dir, char *list, struct err *e)
{
	char *rest = NULL, word[64];

	for (char *at = strtok_r(list, " \n", &rest); at; at = strtok_r(NULL, " \n", &rest)) {
		(void)snprintf(word, sizeof(word), "-%s", at);
		if (!is_ours(at) && put(dir, "cgroup.subtree_control", word, e) < 0)
			return -1;
	}
	return 0;
}

/* Exactly the three for the children of dir, and read back. */
static int enable(int dir, struct err *e)
{
	auto_free char *before = get(dir, "cgroup.subtree_control", e);
	auto_free char *after = NULL;

	if (!before)
		return -1;
	if (exactly_enabled(before))
		return 0;
	if (disable_others(dir, before, e) < 0 ||
	    put(dir, "cgroup.subtree_control", "+cpu +memory +pids", e) < 0)
		return -1;
	after = get(dir, "cgroup.subtree_control", e);
	if (!after)
		return -1;
	if (!exactly_enabled(after))
		return err_set(e, EIO,
		               "cgroup.subtree_control is \"%.*s\", not cpu, memory and pids",
		               (int)strcspn(after, "\n"), after);
	return 0;
}

/* -- what the sandboxes may take together ----------------------------------------------- */

unsigned long long delegation_memory_share(unsigned long long all)
{
	unsigned long long reserve = all / 4 < MEMORY_RESERVE ? all / 4 : MEMORY_RESERVE;

	return (all - reserve) & ~0xfffffULL;
}

unsigned long long delegation_tasks_share(unsigned long long all)
{
	return all - (all / 4 < TASKS_RESERVE ? all / 4 : TASKS_RESERVE);
}

/* The lowest limit of dir and what is above it, as far as there are any. */
static int lowest(const char *dir, const char *root, const char *name, uint64_t *least,
                  struct err *e)
{
	auto_free char *path = strdup(dir);

	if (!path)
		return err_set(e, ENOMEM, "no memory for a path");
	while (strlen(path) > strlen(root)) {
		auto_close int fd = open_dir(AT_FDCWD, path, e);
		struct err why = ERR_INIT;
		uint64_t limit = UINT64_MAX;

		if (fd < 0)
			return -1;
		/* Not every level of the tree has the controller enabled. */
		if (get_number(fd, name, &limit, &why) < 0 && why.code != ENOENT)
			return err_set(e, why.code, "%s: %s", path, why.text);
		*least = limit < *least ? limit : *least;
		*strrchr(path, '/') = '\0';
	}
	return 0;
}

static int limit_sandboxes(int sandboxes, uint64_t memory, uint64_t tasks, struct err *e)
{
	if (put_number(sandboxes, "memory.max", delegation_memory_share(memory), e) < 0)
		return -1;
	if (tasks == UINT64_MAX)
		return 0;
	return put_number(sandboxes, "pids.max", delegation_tasks_share(tasks), e);
}

/* Where the kernel or the service manager keeps these files to themselves, we do without. */
static void protect(int supervisor, uint64_t memory)
{
	struct err e = ERR_INIT;
	char low[24];

	(void)snprintf(low, sizeof(low), "%" PRIu64,
	               (uint64_t)(memory - delegation_memory_share(memory)));
	if (put(supervisor, "memory.low", low, &e) < 0 ||
	    put(supervisor, "cpu.weight", WEIGHT, &e) < 0)
		log_warn("cgroup " SUPERVISOR " is less protected than it could be: %s", e.text);
}

static int arrange(int dir, const char *path, const char *root, struct err *e)
{
	auto_close int supervisor = make_child(dir, SUPERVISOR, e);
	auto_close int sandboxes = -1;
	uint64_t memory, tasks = UINT64_MAX;
	struct sysinfo info;

	if (supervisor < 0 || move_all(dir, supervisor, e) < 0 || enable(dir, e) < 0)
		return -1;
	sandboxes = make_child(dir, SANDBOXES, e);
	if (sandboxes < 0)
		return -1;
	if (enable(sandboxes, e) < 0)
		return err_wrap(e, SANDBOXES);
	if (sysinfo(&info) < 0)
		return err_errno(e, "sysinfo");
	memory = (uint64_t)info.totalram * info.mem_unit;
	if (lowest(path, root, "memory.max", &memory, e) < 0 ||
	    lowest(path, root, "pids.max", &tasks, e) < 0)
		return -1;
	if (limit_sandboxes(sandboxes, memory, tasks, e) < 0)
		return err_wrap(e, SANDBOXES);
	protect(supervisor, memory);
	return 0;
}

int delegation_arrange(const char *path, const char *root, struct err *e)
{
	auto_close int dir = open_dir(AT_FDCWD, path, e);

	if (dir < 0)
		return -1;
	return arrange(dir, path, root, e) < 0 ? err_wrap(e, "%s", path) : 0;
}

/* -- the whole ------------------------------------------------------------------------- */

static int check_place(const char *dir, struct err *e)
{
	auto_free char *text = get(AT_FDCWD, "/proc/self/cgroup", e);
	char want[PATH_MAX + 32];

	if (!text)
		return -1;
	(void)snprintf(want, sizeof(want), "0::%s/" SUPERVISOR "\n", dir + strlen(CGROUP_ROOT));
	if (strcmp(text, want) != 0)
		return err_set(e, EIO, "still in cgroup %.*s", (int)strcspn(text, "\n"), text);
	return 0;
}

int delegation_prepare(char ret_dir[PATH_MAX], struct err *e)
{
	auto_free char *text = NULL;
	struct statfs fs;

	if (statfs(CGROUP_ROOT, &fs) < 0)
		return err_errno(e, CGROUP_ROOT);
	if (fs.f_type != CGROUP2_SUPER_MAGIC)
		return err_set(e, ENOTSUP,
		               CGROUP_ROOT " is not cgroup v2; boot with "
		                           "systemd.unified_cgroup_hierarchy=1, or use "
		                           "--boundary development, without limits");
	text = get(AT_FDCWD, "/proc/self/cgroup", e);
	if (!text || delegation_locate(text, CGROUP_ROOT, ret_dir, e) < 0 ||
	    delegation_check(ret_dir, e) < 0 || delegation_arrange(ret_dir, CGROUP_ROOT, e) < 0)
		return -1;
	return check_place(ret_dir, e);
}
