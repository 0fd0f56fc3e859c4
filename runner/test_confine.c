/* Each test confines a child, which then attacks; the parent looks at how that ended. */
#include "common/test.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/log.h"
#include "common/sanitizer.h"
#include "runner/cgroup.h"
#include "runner/confine.h"
#include "runner/local.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SURVIVED 100 /* and above it, errno */

static char base[64];
static int leaf = -1;
static int lock = -1;
static pid_t kept; /* a child that may be signalled */
static pid_t other;

static pid_t make_sleeper(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		(void)pause();
		_exit(0);
	}
	return pid;
}

static int open_dir(const char *name)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/%s", base, name);
	return mkdir(path, 0700) < 0 ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int touch(int dir, const char *name)
{
	auto_close int fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	return fd < 0 ? -1 : 0;
}

static int make_all(void **state)
{
	(void)state;
	(void)snprintf(base, sizeof(base), "/tmp/test_confine-XXXXXX");
	if (!mkdtemp(base) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -1;
	leaf = open_dir("leaf");
	lock = open_dir("lock");
	kept = make_sleeper();
	other = make_sleeper();
	return touch(leaf, "cgroup.kill") < 0 || touch(lock, "processes") < 0 ? -1 : 0;
}

static int remove_all(void **state)
{
	char command[128];

	(void)state;
	(void)kill(kept, SIGKILL);
	(void)kill(other, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0)
		continue;
	fd_close(&leaf);
	fd_close(&lock);
	for (const char *const *p = (const char *const[]){ "leaf/cgroup.kill", "lock/processes",
	                                                   "leaf", "lock", "", NULL };
	     *p; p++) {
		(void)snprintf(command, sizeof(command), "%s/%s", base, *p);
		(void)remove(command);
	}
	return 0;
}

/* What becomes of a confined process that calls attack(), which returns 0 or -1 with errno. */
static int fate(enum confine_mode mode, int (*attack)(void))
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		const struct confine c = {
			.mode = mode,
			.need_landlock = true,
			.children = { kept, 0, 0 },
			.leaf = leaf,
			.sandboxes = -1,
			.lock = lock,
		};
		struct err e = ERR_INIT;

		if (confine_self(&c, &e) < 0) {
			log_error("%s", e.text);
			_exit(99);
		}
		errno = 0;
		_exit(attack() < 0 ? SURVIVED + errno : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/* -- what kills ------------------------------------------------------------------ */

static int do_execve(void)
{
	char *const argv[] = { NULL };

	return execve("/bin/true", argv, argv);
}

static int do_fork(void)
{
	return (int)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

static int do_ptrace(void)
{
	return (int)ptrace(PTRACE_SEIZE, kept, NULL, NULL);
}

static int do_attach(void)
{
	return (int)ptrace(PTRACE_ATTACH, kept, NULL, NULL);
}

static int do_vm_write(void)
{
	return (int)syscall(SYS_process_vm_writev, kept, NULL, 0, NULL, 0, 0);
}

static int do_pidfd_getfd(void)
{
	return (int)syscall(SYS_pidfd_getfd, 0, 0, 0);
}

static int do_mount(void)
{
	return (int)syscall(SYS_mount, "none", "/tmp", "tmpfs", 0, NULL);
}

static int do_open_tree(void)
{
	return (int)syscall(SYS_open_tree, AT_FDCWD, "/", 1);
}

static int do_unshare(void)
{
	return unshare(CLONE_NEWUSER);
}

static int do_setns(void)
{
	return setns(0, CLONE_NEWNET);
}

static int do_chroot(void)
{
	return chroot("/tmp");
}

static int do_module(void)
{
	return (int)syscall(SYS_init_module, NULL, 0, "");
}

static int do_bpf(void)
{
	return (int)syscall(SYS_bpf, 0, NULL, 0);
}

static int do_io_uring(void)
{
	return (int)syscall(SYS_io_uring_setup, 1, NULL);
}

static int do_keyctl(void)
{
	return (int)syscall(SYS_keyctl, 0, 0, 0, 0, 0);
}

static void test_deadly(void **state)
{
	static int (*const attacks[])(void) = {
		do_execve, do_fork,      do_ptrace,   do_vm_write, do_pidfd_getfd,
		do_mount,  do_open_tree, do_unshare,  do_setns,    do_chroot,
		do_module, do_bpf,       do_io_uring, do_keyctl,
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(attacks); i++) {
		assert_int_equal(fate(CONFINE_ENFORCE, attacks[i]), -SIGSYS);
		assert_int_equal(fate(CONFINE_KILL, attacks[i]), -SIGSYS);
	}
}

/* -- what is refused ---------------------------------------------------------------- */

static int do_tcp(void)
{
	return socket(AF_INET, SOCK_STREAM, 0);
}

static int do_packet(void)
{
	return socket(AF_PACKET, SOCK_RAW, 0);
}

static int do_unix(void)
{
	return socket(AF_UNIX, SOCK_STREAM, 0);
}

static int do_netfilter(void)
{
	return socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER);
}

static int do_code(void)
{
	return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
	                       MAP_FAILED
	               ? -1
	               : 0;
}

static int do_signal(void)
{
	return kill(other, SIGKILL);
}

static int do_signal_all(void)
{
	return kill(-1, SIGKILL);
}

static int do_signal_parent(void)
{
	return (int)syscall(SYS_tgkill, getppid(), getppid(), SIGKILL);
}

static int do_pidfd_signal(void)
{
	return (int)syscall(SYS_pidfd_send_signal, 0, SIGKILL, NULL, 0);
}

static int do_dumpable(void)
{
	return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

static int do_listen(void)
{
	return listen(0, 1);
}

static int do_mkdir(void)
{
	return mkdir("/tmp/made", 0700);
}

static int do_rename(void)
{
	return rename("/tmp/a", "/tmp/b");
}

static int do_chmod(void)
{
	return chmod("/tmp", 0777);
}

static int do_setuid(void)
{
	return (int)syscall(SYS_setuid, 0);
}

static void test_refused(void **state)
{
	static int (*const attacks[])(void) = {
		do_tcp,    do_packet,     do_unix,          do_netfilter,    do_code,
		do_signal, do_signal_all, do_signal_parent, do_pidfd_signal, do_listen,
		do_mkdir,  do_rename,     do_chmod,         do_setuid,
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(attacks); i++) {
		assert_int_equal(fate(CONFINE_ENFORCE, attacks[i]), SURVIVED + EPERM);
		assert_int_equal(fate(CONFINE_KILL, attacks[i]), -SIGSYS);
	}
	assert_int_equal(kill(other, 0), 0);
}

static int say_nothing(void)
{
	return 0;
}

/* Once, and never in a build for use. */
static void test_sanitizer_is_said(void **state)
{
	static const char said[] = "runner, sanitizer build, not for use: ";
	auto_free char *text = NULL;
	struct err e = ERR_INIT;
	int times = 0;
	int ends[2], kept_stderr = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	size_t len;

	(void)state;
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_int_equal(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
	fd_close(&ends[1]);
	assert_int_equal(fate(CONFINE_ENFORCE, say_nothing), 0);
	assert_int_equal(dup2(kept_stderr, STDERR_FILENO), STDERR_FILENO);
	fd_close(&kept_stderr);
	assert_int_equal(fd_read_all(ends[0], 4096, &text, &len, &e), 0);
	fd_close(&ends[0]);
	for (const char *p = text; (p = strstr(p, said)); p++)
		times++;
	assert_int_equal(times, SANITIZED ? 1 : 0);
}

/* What the search for leaks does, in builds that have it; of whom: Landlock. */
static void test_as_a_debugger(void **state)
{
	(void)state;
	assert_int_equal(fate(CONFINE_ENFORCE, do_attach),
	                 SANITIZED_ADDRESSES ? SURVIVED + EPERM : -SIGSYS);
	assert_int_equal(fate(CONFINE_ENFORCE, do_dumpable),
	                 SANITIZED_ADDRESSES ? 0 : SURVIVED + EPERM);
	assert_int_equal(fate(CONFINE_KILL, do_dumpable), SANITIZED_ADDRESSES ? 0 : -SIGSYS);
}

static int do_clone3(void)
{
	return (int)syscall(SYS_clone3, NULL, 0);
}

static void test_clone3_does_not_exist(void **state)
{
	(void)state;
	assert_int_equal(fate(CONFINE_ENFORCE, do_clone3), SURVIVED + ENOSYS);
	assert_int_equal(fate(CONFINE_KILL, do_clone3), SURVIVED + ENOSYS);
}

/* -- files --------------------------------------------------------------------------- */

static int do_read_passwd(void)
{
	return open("/etc/passwd", O_RDONLY | O_CLOEXEC);
}

static int do_write_elsewhere(void)
{
	return openat(lock, "processes", O_WRONLY | O_CLOEXEC);
}

static int do_climb(void)
{
	return openat(leaf, "../lock/processes", O_RDONLY | O_CLOEXEC);
}

static int do_create_in_leaf(void)
{
	return openat(leaf, "new", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
}

static int do_remove_in_leaf(void)
{
	return unlinkat(leaf, "cgroup.kill", 0);
}

static void test_files(void **state)
{
	static int (*const attacks[])(void) = { do_read_passwd, do_write_elsewhere, do_climb,
		                                do_create_in_leaf, do_remove_in_leaf };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(attacks); i++)
		assert_int_equal(fate(CONFINE_ENFORCE, attacks[i]), SURVIVED + EACCES);
}

/* -- what the runner does must work, also where everything else kills ------------------ */

static int do_leaf(void)
{
	const struct cgroup c = { .parent = -1, .dir = leaf };

	cgroup_kill(&c);
	return cgroup_cause(&c) == CGROUP_OTHER ? 0 : -1;
}

static int do_routes(void)
{
	struct deny d = { .n = 0 };
	struct err e = ERR_INIT;

	return local_snapshot(&d, &e);
}

static int do_lock(void)
{
	return unlinkat(lock, "processes", 0);
}

static int do_end_child(void)
{
	return kill(kept, SIGTERM);
}

static int do_log(void)
{
	auto_free void *large = malloc(1 << 20);
	struct pollfd p = { .fd = -1 };

	log_info("%zu bytes after %llu ms", large ? sizeof(p) : 0,
	         (unsigned long long)clock_mono_ms());
	return poll(&p, 1, 1);
}

static int do_abort(void)
{
	abort();
}

static void test_allowed(void **state)
{
	static int (*const deeds[])(void) = { do_leaf, do_routes, do_lock, do_end_child, do_log };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(deeds); i++) {
		assert_int_equal(fate(CONFINE_KILL, deeds[i]), 0);
		(void)touch(lock, "processes");
	}
	assert_int_equal(fate(CONFINE_KILL, do_abort), -SIGABRT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_deadly, make_all, remove_all),
		cmocka_unit_test_setup_teardown(test_refused, make_all, remove_all),
		cmocka_unit_test_setup_teardown(test_as_a_debugger, make_all, remove_all),
		cmocka_unit_test_setup_teardown(test_sanitizer_is_said, make_all, remove_all),
		cmocka_unit_test_setup_teardown(test_clone3_does_not_exist, make_all, remove_all),
		cmocka_unit_test_setup_teardown(test_files, make_all, remove_all),
		cmocka_unit_test_setup_teardown(test_allowed, make_all, remove_all),
	};

	return RUN_TESTS(tests);
}
