/*
 * On entry the process sees the machine as the service user does, and may mount
 * what it likes, but only in a namespace that nobody else sees.  When
 * root_enter() returns it sees:
 *
 *   /rootfs       the root filesystem, read-only, with the guest and the resolver's
 *                 address bound over two files of it
 *   /workspace    the tenant's two directories, without set-user-ID and devices;
 *                 or its parts, each below it, on a directory that nobody can write to
 *   /state
 *   /runsc        the gVisor binary, read-only
 *   /bundle       config.json
 *   /debug-log    the operator's file for gVisor's debug log, when there is one
 *   /dev/null     and nothing else of /dev
 *   /proc         of its own pid namespace, with /proc/sys/net and /proc/meminfo covered
 *
 * on a small tmpfs that is gone when the last process of the sandbox is.
 */
#include "runner/root.h"

#include "common/buf.h"
#include "common/fd.h"
#include "runner/bundle.h"
#include "runner/cell.h"
#include "runner/place.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TMPFS_OPTIONS "mode=0755,size=8m,nr_inodes=256"

/* Relative: while the root is built, it is the working directory. */
static const char *const directories[] = {
	"bundle", "dev", "proc", "rootfs", "runsc-state", "state", "tmp", "workspace",
};
static const char *const files[] = { "debug-log", "dev/null", "runsc" };

static int write_file(const char *path, const char *text, size_t len, struct err *e)
{
	auto_close int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	if (fd < 0)
		return err_errno(e, "create %s", path);
	if (len > 0 && fd_write_all(fd, text, len, e) < 0)
		return err_wrap(e, "%s", path);
	return 0;
}

/* Mount what fd is open on, without the mounts below it, over the path to. */
static int bind_fd(int fd, const char *to, uint64_t attributes, struct err *e)
{
	struct mount_attr attr = { .attr_set = attributes | MOUNT_ATTR_NOSUID };
	auto_close int tree = open_tree(
		fd, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | (unsigned int)OPEN_TREE_CLOEXEC);

	if (tree < 0)
		return err_errno(e, "clone the mount for %s", to);
	if (mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
		return err_errno(e, "restrict the mount for %s", to);
	if (move_mount(tree, "", AT_FDCWD, to, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return err_errno(e, "mount %s", to);
	return 0;
}

/* For what the operator names: here a symbolic link may be on the way. */
static int bind_path(const char *path, const char *to, uint64_t attributes, struct err *e)
{
	auto_close int fd = open(path, O_PATH | O_CLOEXEC);

	if (fd < 0)
		return err_errno(e, "open %s", path);
	return bind_fd(fd, to, attributes, e);
}

/* For what the tenant can change. */
static int bind_place(const char *path, const struct place_id *id, const char *to, struct err *e)
{
	auto_close int fd = -1;

	if (place_open_dir(path, id, &fd, e) < 0)
		return -1;
	return bind_fd(fd, to, MOUNT_ATTR_NODEV, e);
}

/* What lies beside the parts would be kept in memory, and gone with the sandbox. */
static int bind_parts(const struct runner_args *args, struct err *e)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY };
	char to[NAME_MAX + sizeof("workspace/")];

	if (mount("tmpfs", "workspace", "tmpfs", MS_NOSUID | MS_NODEV,
	          "mode=0755,size=64k,nr_inodes=32") < 0)
		return err_errno(e, "mount a tmpfs for the parts of the workspace");
	for (size_t i = 0; i < args->n_parts; i++) {
		const struct part *part = &args->parts[i];

		(void)snprintf(to, sizeof(to), "workspace%s", strrchr(part->path, '/'));
		if (mkdir(to, 0755) < 0)
			return err_errno(e, "make %s", to);
		if (bind_place(part->path, &part->id, to, e) < 0)
			return -1;
	}
	if (mount_setattr(AT_FDCWD, "workspace", 0, &attr, sizeof(attr)) < 0)
		return err_errno(e, "make the workspace of parts read-only");
	return 0;
}

static int bind_workspace(const struct runner_args *args, struct err *e)
{
	if (args->n_parts)
		return bind_parts(args, e);
	return bind_place(args->workspace, &args->workspace_id, "workspace", e);
}

static int make_skeleton(const char *mount_point, struct err *e)
{
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return err_errno(e, "make the mounts private");
	if (mount("tmpfs", mount_point, "tmpfs", MS_NOSUID | MS_NODEV, TMPFS_OPTIONS) < 0)
		return err_errno(e, "mount a tmpfs on %s", mount_point);
	if (chdir(mount_point) < 0)
		return err_errno(e, "enter %s", mount_point);
	for (size_t i = 0; i < ARRAY_LEN(directories); i++)
		if (mkdir(directories[i], 0755) < 0)
			return err_errno(e, "make directory %s", directories[i]);
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		if (write_file(files[i], "", 0, e) < 0)
			return -1;
	return 0;
}

/*
 * gVisor takes the size of the machine from here for that of the sandbox, and half
 * of it for the bound of a file system that has no other, such as /dev.
 */
static int cover_meminfo(uint64_t memory, struct err *e)
{
	char text[64];
	int len = snprintf(text, sizeof(text), "MemTotal: %14llu kB\n",
	                   (unsigned long long)memory >> 10);

	if (write_file("bundle/meminfo", text, (size_t)len, e) < 0)
		return -1;
	return bind_path("bundle/meminfo", "proc/meminfo",
	                 MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, e);
}

static int mount_proc(struct err *e)
{
	if (mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		return err_errno(e, "mount procfs (nothing may be mounted below /proc here)");
	/*
	 * Releases of gVisor take net/core/rmem_default for a sign of the host's own
	 * network namespace, and newer kernels show that file in every namespace.
	 */
	if (mount("tmpfs", "proc/sys/net", "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC,
	          "mode=0555,size=4k,nr_inodes=1") < 0)
		return err_errno(e, "cover /proc/sys/net");
	return 0;
}

/*
 * Without a resolver, the C library asks the sandbox's own loopback, where a lookup
 * fails at once unless the tenant has put a name server there.
 */
static void write_resolver(const struct egress *g, struct buf *out)
{
	if (g->dns == DNS_OFF)
		buf_adds(out, "# This sandbox has no resolver.\noptions timeout:1 attempts:1\n");
	if (g->dns == DNS_HOST)
		buf_adds(out, "nameserver " CELL_DNS_TEXT "\n");
	for (size_t i = 0; i < g->n_resolvers; i++) {
		uint32_t a = g->resolvers[i];

		buf_addf(out, "nameserver %u.%u.%u.%u\n", a >> 24, a >> 16 & 255, a >> 8 & 255,
		         a & 255);
	}
	if (g->dns != DNS_OFF)
		buf_adds(out, "options timeout:2 attempts:2\n");
}

static int fill_rootfs(const struct runner_args *args, struct err *e)
{
	auto_buf struct buf resolver = BUF_INIT(1024);

	write_resolver(&args->egress, &resolver);
	if (buf_failed(&resolver))
		return err_set(e, ENOMEM, "no memory for resolv.conf");

	if (bind_path(args->rootfs, "rootfs", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV, e) < 0)
		return -1;
	if (bind_path(args->guest, "rootfs" BUNDLE_GUEST, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV, e) <
	    0)
		return err_wrap(e, "put the guest into the root filesystem");
	if (write_file("bundle/resolv.conf", resolver.data, resolver.len, e) < 0)
		return -1;
	if (bind_path("bundle/resolv.conf", "rootfs/etc/resolv.conf",
	              MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV, e) < 0)
		return err_wrap(e, "put resolv.conf into the root filesystem");
	return 0;
}

/* The old root is stacked below the new one and then let go. */
static int pivot(struct err *e)
{
	if (syscall(SYS_pivot_root, ".", ".") < 0)
		return err_errno(e, "change the root");
	if (umount2(".", MNT_DETACH) < 0)
		return err_errno(e, "let go of the old root");
	if (chdir("/") < 0)
		return err_errno(e, "enter the new root");
	return 0;
}

int root_enter(const struct runner_args *args, const char *mount_point, const char *config,
               size_t config_len, struct err *e)
{
	if (make_skeleton(mount_point, e) < 0 || mount_proc(e) < 0 ||
	    cover_meminfo(args->limits.memory, e) < 0 ||
	    bind_path("/dev/null", "dev/null", 0, e) < 0 || fill_rootfs(args, e) < 0 ||
	    bind_path(args->runsc, "runsc", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV, e) < 0 ||
	    bind_workspace(args, e) < 0 ||
	    bind_place(args->state, &args->state_id, "state", e) < 0 ||
	    write_file("bundle/config.json", config, config_len, e) < 0)
		return -1;
	if (args->debug_log && bind_path(args->debug_log, "debug-log", MOUNT_ATTR_NODEV, e) < 0)
		return err_wrap(e, "debug log");
	return pivot(e);
}
