/*
 * What a process of a tenant tries first: one line an attempt, "NAME: WORKED" or the
 * error's name.  It runs as root of the sandbox; attempts that change nothing are made
 * with arguments that would do no harm where they worked.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static char space[4096];

static void say(const char *what, long got)
{
	printf("%s: %s\n", what, got >= 0 ? "WORKED" : strerrorname_np(errno));
	(void)fflush(stdout);
}

static int open_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd < 0 ? -1 : (int)write(fd, text, strlen(text));
}

static long clone_with(unsigned long flags)
{
	long pid = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);

	if (pid == 0)
		_exit(0);
	if (pid > 0)
		(void)waitpid((pid_t)pid, NULL, 0);
	return pid;
}

static void mounts(void)
{
	(void)mkdir("/tmp/m", 0755);
	say("mount tmpfs", mount("x", "/tmp/m", "tmpfs", 0, "size=1g"));
	say("mount proc", mount("x", "/tmp/m", "proc", 0, NULL));
	say("mount cgroup", mount("x", "/tmp/m", "cgroup", 0, NULL));
	say("mount fuse",
	    mount("x", "/tmp/m", "fuse", 0, "fd=0,rootmode=40000,user_id=0,group_id=0"));
	say("bind", mount("/", "/tmp/m", NULL, MS_BIND, NULL));
	say("remount /", mount(NULL, "/", NULL, MS_REMOUNT, NULL));
	say("move", mount("/workspace", "/tmp/m", NULL, MS_MOVE, NULL));
	say("umount", umount2("/workspace", MNT_DETACH));
	say("umount /proc/sys", umount2("/proc/sys", MNT_DETACH));
	say("chroot", chroot("/tmp"));
	say("pivot_root", syscall(SYS_pivot_root, "/tmp", "/tmp/m"));
	say("fsopen", syscall(SYS_fsopen, "tmpfs", 0));
	say("open_tree", syscall(SYS_open_tree, AT_FDCWD, "/", 1));
	say("open_by_handle_at", syscall(SYS_open_by_handle_at, AT_FDCWD, space, 0));
}

static void namespaces(void)
{
	static const struct {
		const char *name;
		unsigned long flag;
	} kinds[] = {
		{ "user", CLONE_NEWUSER }, { "mnt", CLONE_NEWNS },  { "net", CLONE_NEWNET },
		{ "pid", CLONE_NEWPID },   { "uts", CLONE_NEWUTS }, { "ipc", CLONE_NEWIPC },
	};
	char name[64];

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		(void)snprintf(name, sizeof(name), "clone %s", kinds[i].name);
		say(name, clone_with(kinds[i].flag));
		(void)snprintf(name, sizeof(name), "clone user+%s", kinds[i].name);
		say(name, clone_with(CLONE_NEWUSER | kinds[i].flag));
		(void)snprintf(name, sizeof(name), "/proc/1/ns/%s", kinds[i].name);
		say(name, setns(open(name, O_RDONLY | O_CLOEXEC), 0));
		(void)snprintf(name, sizeof(name), "unshare %s", kinds[i].name);
		say(name, unshare((int)kinds[i].flag));
	}
	say("unshare user, high bits set",
	    syscall(SYS_unshare, CLONE_NEWUSER | UINT64_C(0x100000000)));
	say("clone3 user", syscall(SYS_clone3, (unsigned long long[8]){ CLONE_NEWUSER }, 64));
}

static void kernel(void)
{
	say("init_module", syscall(SYS_init_module, "", 0, ""));
	say("finit_module", syscall(SYS_finit_module, 0, "", 0));
	say("bpf", syscall(SYS_bpf, 0, space, 128));
	say("perf_event_open", syscall(SYS_perf_event_open, space, 0, -1, -1, 0));
	say("io_uring_setup", syscall(SYS_io_uring_setup, 1, space));
	say("add_key", syscall(SYS_add_key, "user", "x", "x", 1, -3));
	say("kexec_load", syscall(SYS_kexec_load, 0, 0, 0, 0));
	say("swapon", syscall(SYS_swapon, "/tmp/m", 0));
	say("acct", syscall(SYS_acct, "/tmp/x"));
#ifdef SYS_iopl
	say("iopl", syscall(SYS_iopl, 3));
	say("ioperm", syscall(SYS_ioperm, 0x80, 1, 1));
#endif
	say("userfaultfd", syscall(SYS_userfaultfd, 0));
	say("settimeofday", syscall(SYS_settimeofday, (long[2]){ 1, 0 }, 0));
	say("sethostname", sethostname("x", 1));
	say("reboot", syscall(SYS_reboot, 0xfee1dead, 672274793, 0, 0));
	say("syslog", syscall(SYS_syslog, 2, space, 1));
	say("quotactl", syscall(SYS_quotactl, 0x80000000, "/", 0, space));
	say("setrlimit", setrlimit(RLIMIT_NPROC, &(struct rlimit){ 60000, 60000 }));
	say("nice", setpriority(PRIO_PROCESS, 0, -20));
}

static void devices(void)
{
	static const char *const paths[] = { "/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg",
		                             "/dev/kvm", "/dev/sda",  "/dev/vda",  "/dev/nvme0",
		                             "/dev/dri", "/dev/loop0" };
	struct ifreq tap = { .ifr_flags = IFF_TAP | IFF_NO_PI };

	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++)
		say(paths[i], open(paths[i], O_RDONLY | O_CLOEXEC));
	(void)mknod("/tmp/mem", S_IFCHR | 0666, 0x101);
	say("made mem", open("/tmp/mem", O_RDWR | O_CLOEXEC));
	(void)mknod("/tmp/sda", S_IFBLK | 0666, 0x800);
	say("made sda", open("/tmp/sda", O_RDWR | O_CLOEXEC));
	say("mknod in /workspace", mknod("/workspace/mem", S_IFCHR | 0666, 0x101));
	say("mknod in /state", mknod("/state/sda", S_IFBLK | 0666, 0x800));
	say("tap", ioctl(open("/dev/net/tun", O_RDWR | O_CLOEXEC), TUNSETIFF, &tap));
}

static void files(void)
{
	static const char *const paths[] = {
		"/proc/kcore",       "/proc/kmsg",        "/proc/keys",
		"/proc/timer_list",  "/proc/kallsyms",    "/proc/sched_debug",
		"/sys/firmware/efi", "/sys/kernel/debug", "/sys/kernel/security",
	};
	static const char *const written[] = {
		"/proc/sysrq-trigger",
		"/proc/sys/kernel/core_pattern",
		"/proc/sys/kernel/hostname",
		"/proc/sys/kernel/modprobe",
		"/proc/sys/kernel/shmmax",
		"/proc/sys/net/ipv4/ip_forward",
		"/proc/sys/vm/overcommit_memory",
		"/proc/self/uid_map",
		"/proc/1/oom_score_adj",
		"/sys/kernel/uevent_helper",
		"/sys/class/net/eth0/mtu",
		"/etc/passwd",
		"/etc/resolv.conf",
		"/etc/ld.so.preload",
		"/cloister/guest",
		"/usr/bin/env",
	};

	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++)
		say(paths[i], open(paths[i], O_RDONLY | O_CLOEXEC));
	for (size_t i = 0; i < sizeof(written) / sizeof(*written); i++)
		say(written[i], open_write(written[i], "1"));
	say("make /x", open("/x", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	say("make /sys/x", open("/sys/x", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	say("make /proc/x", mkdir("/proc/x", 0700));
	say("rename /etc", rename("/etc", "/etc2"));
	say("remove the guest", unlink("/cloister/guest"));
	say("link over the guest", symlink("/workspace", "/cloister/x"));
}

static void processes(void)
{
	struct iovec to = { space, 8 };
	struct iovec at = { (void *)0x400000, 8 };

	say("seize 1", ptrace(PTRACE_SEIZE, 1, 0, 0));
	say("attach 1", ptrace(PTRACE_ATTACH, 1, 0, 0));
	say("memory of 1", open("/proc/1/mem", O_RDWR | O_CLOEXEC));
	say("write 1", process_vm_writev(1, &to, 1, &at, 1, 0));
	say("read 1", process_vm_readv(1, &to, 1, &at, 1, 0));
	say("descriptor of 1", syscall(SYS_pidfd_getfd, syscall(SYS_pidfd_open, 1, 0), 0, 0));
	say("be somebody", setuid(65534));
	say("be in a group", syscall(SYS_setgroups, 1, (gid_t[1]){ 5 }));
}

static long set_link(int fd)
{
	struct {
		struct nlmsghdr head;
		struct ifaddrmsg address;
		struct rtattr attr;
		unsigned char bytes[4];
	} m = { { sizeof(m), RTM_NEWADDR, NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE, 1, 0 },
		{ AF_INET, 32, 0, 0, 2 },
		{ 8, IFA_LOCAL },
		{ 10, 99, 0, 1 } };
	struct {
		struct nlmsghdr head;
		struct nlmsgerr e;
	} answer = { { 0 }, { .error = -EIO } };

	if (send(fd, &m, sizeof(m), 0) < 0 || recv(fd, &answer, sizeof(answer), 0) < 0)
		return -1;
	errno = -answer.e.error;
	return answer.e.error ? -1 : 0;
}

static long bind_as(int level, int name)
{
	struct sockaddr_in other = { .sin_family = AF_INET, .sin_addr = { htonl(0xc6290102) } };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int one = 1;

	if (name)
		(void)setsockopt(fd, level, name, &one, sizeof(one));
	return bind(fd, (const struct sockaddr *)&other, sizeof(other));
}

/* Every family, type and protocol; those that give a socket are named. */
static void sockets(void)
{
	char name[64];

	for (int family = 0; family < 46; family++) {
		for (int type = 1; type <= 10; type++) {
			int last = family == AF_INET || family == AF_INET6 ? 255 : 21;

			for (int protocol = 0; protocol <= last; protocol++) {
				int fd = socket(family, type,
				                family == AF_PACKET ? htons(3) : protocol);

				(void)snprintf(name, sizeof(name), "socket %d %d %d", family, type,
				               protocol);
				if (fd >= 0)
					say(name, fd);
				(void)close(fd);
			}
		}
	}
	say("add an address", set_link(socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE)));
	say("bind to the host's address", bind_as(0, 0));
	say("bind, free", bind_as(IPPROTO_IP, IP_FREEBIND));
	say("bind, transparent", bind_as(IPPROTO_IP, IP_TRANSPARENT));
}

/* Every descriptor of every process, tried as a namespace and as a way out. */
static void descriptors(void)
{
	for (int pid = 1; pid < 4096; pid++) {
		char dir[32];
		char path[300];
		DIR *d;

		(void)snprintf(dir, sizeof(dir), "/proc/%d/fd", pid);
		d = opendir(dir);
		for (const struct dirent *x; d && (x = readdir(d));) {
			char target[300] = "";
			int fd;

			(void)snprintf(path, sizeof(path), "%s/%s", dir, x->d_name);
			if (*x->d_name == '.' || readlink(path, target, sizeof(target) - 1) < 0)
				continue;
			fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
			printf("%s -> %s\n", path, target);
			say("setns", setns(fd, 0));
			say("leave by fchdir",
			    fchdir(fd) || chdir("../../../../..") || access("etc/machine-id", F_OK)
			            ? -1
			            : 0);
			(void)chdir("/");
			(void)close(fd);
		}
		if (d)
			(void)closedir(d);
	}
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} parts[] = {
		{ "mounts", mounts },   { "namespaces", namespaces },
		{ "kernel", kernel },   { "devices", devices },
		{ "files", files },     { "processes", processes },
		{ "sockets", sockets }, { "descriptors", descriptors },
	};

	for (size_t i = 0; argc == 2 && i < sizeof(parts) / sizeof(*parts); i++)
		if (!strcmp(parts[i].name, argv[1]))
			parts[i].run();
	return argc != 2;
}
