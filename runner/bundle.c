/*
 * The root filesystem is read-only, and what must be writable is a tmpfs with a
 * size.  gVisor's writable overlay would do the same job, but the releases in use
 * cannot bound one that is kept in memory, and memory is what a tenant must not
 * be able to use up.
 */
#include "runner/bundle.h"

#include "common/attr.h"
#include "common/json.h"
#include "common/sanitizer.h"

#include <stddef.h>
#include <stdio.h>

struct mount_row {
	const char *destination;
	const char *type;
	const char *source;
	const char *options[6];
	unsigned int
		part; /* a tmpfs holds one part of the sandbox's memory in so many; 0: no size */
};

static const struct mount_row mounts[] = {
	{ "/proc", "proc", "proc", { "nosuid", "nodev", "noexec" } },
	/* gVisor's own devices: it takes no size, and is half of the memory at most. */
	{ "/dev", "tmpfs", "tmpfs", { "nosuid", "mode=755" } },
	{ "/dev/shm", "tmpfs", "tmpfs", { "nosuid", "nodev", "mode=1777" }, 32 },
	{ "/sys", "sysfs", "sysfs", { "nosuid", "nodev", "noexec", "ro" } },
	{ "/tmp", "tmpfs", "tmpfs", { "nosuid", "nodev", "mode=1777" }, 8 },
	{ "/var/tmp", "tmpfs", "tmpfs", { "nosuid", "nodev", "mode=1777" }, 32 },
	{ "/run", "tmpfs", "tmpfs", { "nosuid", "nodev", "mode=755" }, 128 },
	/* With what is mounted below it, which is the parts of a workspace that has some. */
	{ "/workspace", "bind", BUNDLE_WORKSPACE, { "rbind", "rw", "nosuid", "nodev" } },
	{ "/state", "bind", BUNDLE_STATE, { "bind", "rw", "nosuid", "nodev" } },
};

static const char *const environment[] = {
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"HOME=/state/home",
	"USER=root",
	"LOGNAME=root",
	"TMPDIR=/tmp",
	"LANG=C.UTF-8",
	"GIT_PAGER=cat",
};

struct rlimit_row {
	const char *type;
	int64_t limit;
};

static const char *const masked[] = {
	"/proc/acpi",          "/proc/kcore",       "/proc/keys",
	"/proc/latency_stats", "/proc/scsi",        "/proc/timer_list",
	"/proc/timer_stats",   "/proc/sched_debug", "/sys/firmware",
};

static const char *const readonly[] = {
	"/proc/asound", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger",
};

static struct json *strings(const char *const *list, size_t n)
{
	struct json *array = json_new_array();

	for (size_t i = 0; i < n && list[i]; i++)
		json_push_str(array, list[i]);
	return array;
}

static struct json *new_capabilities(void)
{
	static const char *const sets[] = { "bounding", "effective", "inheritable", "permitted",
		                            "ambient" };
	struct json *none = json_new_object();

	for (size_t i = 0; i < ARRAY_LEN(sets); i++)
		json_put(none, sets[i], json_new_array());
	return none;
}

static struct json *new_rlimits(const struct limits *limits)
{
	const struct rlimit_row rows[] = {
		{ "RLIMIT_CORE", 0 },
		{ "RLIMIT_NOFILE", 8192 },
		/* gVisor itself enforces this one, with EAGAIN inside. */
		{ "RLIMIT_NPROC", limits->processes },
	};
	struct json *array = json_new_array();

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct json *row = json_new_object();

		json_put_str(row, "type", rows[i].type);
		json_put_int(row, "hard", rows[i].limit);
		json_put_int(row, "soft", rows[i].limit);
		json_push(array, row);
	}
	return array;
}

static struct json *new_process(const struct limits *limits)
{
	static const char *const argv[] = { BUNDLE_GUEST };
	struct json *process = json_new_object();
	struct json *user = json_new_object();
	struct json *env = strings(environment, ARRAY_LEN(environment));

	json_put_int(user, "uid", 0);
	json_put_int(user, "gid", 0);
	json_put_bool(process, "terminal", false);
	json_put(process, "user", user);
	json_put(process, "args", strings(argv, ARRAY_LEN(argv)));
	if (sanitizer_asked())
		json_push_str(env, sanitizer_asked());
	json_put(process, "env", env);
	json_put_str(process, "cwd", "/workspace");
	json_put(process, "capabilities", new_capabilities());
	json_put(process, "rlimits", new_rlimits(limits));
	json_put_bool(process, "noNewPrivileges", true);
	return process;
}

static struct json *new_options(const struct mount_row *mount, uint64_t memory)
{
	struct json *array = strings(mount->options, ARRAY_LEN(mount->options));
	char size[32];

	if (mount->part == 0)
		return array;
	(void)snprintf(size, sizeof(size), "size=%llum",
	               (unsigned long long)(memory / mount->part >> 20));
	json_push_str(array, size);
	return array;
}

static struct json *new_mounts(uint64_t memory)
{
	struct json *array = json_new_array();

	for (size_t i = 0; i < ARRAY_LEN(mounts); i++) {
		struct json *row = json_new_object();

		json_put_str(row, "destination", mounts[i].destination);
		json_put_str(row, "type", mounts[i].type);
		json_put_str(row, "source", mounts[i].source);
		json_put(row, "options", new_options(&mounts[i], memory));
		json_push(array, row);
	}
	return array;
}

static struct json *new_linux(void)
{
	static const char *const fresh[] = { "pid", "ipc", "uts", "mount" };
	struct json *namespaces = json_new_array();
	struct json *network = json_new_object();
	struct json *section = json_new_object();

	for (size_t i = 0; i < ARRAY_LEN(fresh); i++) {
		struct json *row = json_new_object();

		json_put_str(row, "type", fresh[i]);
		json_push(namespaces, row);
	}
	/* The one that runsc is started in: without a path it would make an empty one. */
	json_put_str(network, "type", "network");
	json_put_str(network, "path", "/proc/self/ns/net");
	json_push(namespaces, network);
	json_put(section, "namespaces", namespaces);
	json_put(section, "maskedPaths", strings(masked, ARRAY_LEN(masked)));
	json_put(section, "readonlyPaths", strings(readonly, ARRAY_LEN(readonly)));
	return section;
}

void bundle_write(const struct limits *limits, struct buf *out)
{
	auto_json struct json *spec = json_new_object();
	struct json *root = json_new_object();

	json_put_str(root, "path", BUNDLE_ROOTFS);
	json_put_bool(root, "readonly", true);
	json_put_str(spec, "ociVersion", "1.0.0");
	json_put(spec, "process", new_process(limits));
	json_put(spec, "root", root);
	json_put_str(spec, "hostname", "cloister");
	json_put(spec, "mounts", new_mounts(limits->memory));
	json_put(spec, "linux", new_linux());
	json_write(spec, out);
}
