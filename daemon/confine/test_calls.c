#include "common/test.h"

#include "daemon/confine/test_attack.h"

#include <linux/bpf.h>
#include <linux/io_uring.h>
#include <linux/perf_event.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sys/klog.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <time.h>

/* -- programs -------------------------------------------------------------------------- */

static char *const no_strings[] = { NULL };

static int run_program(void)
{
	char *const argv[] = { (char[]){ "true" }, NULL };

	return outcome(execve("/bin/true", argv, no_strings));
}

static int run_descriptor(void)
{
	char *const argv[] = { (char[]){ "true" }, NULL };

	return outcome(
		syscall(SYS_execveat, world.program_fd, "", argv, no_strings, AT_EMPTY_PATH));
}

static int reap(long pid)
{
	if (pid == 0)
		_exit(0);
	return pid < 0 ? errno : outcome(waitpid((pid_t)pid, NULL, 0));
}

static int make_process(void)
{
	return reap(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
}

static int make_process_by_clone3(void)
{
	struct clone_args args = { .exit_signal = SIGCHLD };

	return reap(syscall(SYS_clone3, &args, sizeof(args)));
}

static int make_executable_memory(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
	               -1, 0);

	return p == MAP_FAILED ? errno : 0;
}

static int map_program(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, world.program_fd, 0);

	return p == MAP_FAILED ? errno : 0;
}

static int make_memory_executable(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? errno : outcome(mprotect(p, 4096, PROT_READ | PROT_EXEC));
}

static int make_memory_file(void)
{
	return outcome(syscall(SYS_memfd_create, "x", 0));
}

static void test_no_program_and_no_foreign_code(void **state)
{
	static const struct attack attacks[] = {
		{ "execve", run_program, 0, DIES },
		{ "execveat of a descriptor", run_descriptor, 0, DIES },
		{ "fork", make_process, 0, EPERM },
		{ "clone3", make_process_by_clone3, 0, ENOSYS },
		{ "executable memory", make_executable_memory, 0, EPERM },
		{ "mapping a program", map_program, 0, EPERM },
		{ "memory made executable", make_memory_executable, 0, EPERM },
		{ "memfd_create", make_memory_file, 0, EPERM },
	};

	(void)state;
	expect_all(attacks, ARRAY_LEN(attacks), ALL);
}

/* -- other processes ------------------------------------------------------------------- */

static int trace_victim(void)
{
	return outcome(ptrace(PTRACE_SEIZE, world.victim, 0, 0));
}

/* What the search for leaks does of its own process, in builds that have it. */
static int attach_victim(void)
{
	if (ptrace(PTRACE_ATTACH, world.victim, 0, 0) < 0)
		return errno;
	(void)waitpid(world.victim, NULL, __WALL);
	return outcome(ptrace(PTRACE_DETACH, world.victim, 0, 0));
}

static int trace_parent(void)
{
	return outcome(ptrace(PTRACE_SEIZE, getppid(), 0, 0));
}

static struct iovec secret_iov(void)
{
	return (struct iovec){ &world.secret, sizeof(world.secret) };
}

static int write_victim(void)
{
	struct iovec iov = secret_iov();

	return outcome(process_vm_writev(world.victim, &iov, 1, &iov, 1, 0));
}

static int read_victim(void)
{
	struct iovec iov = secret_iov();

	return outcome(process_vm_readv(world.victim, &iov, 1, &iov, 1, 0));
}

static int open_memory(pid_t pid, int flags)
{
	char path[64];
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	fd = open(path, flags | O_CLOEXEC);
	if (fd < 0)
		return errno;
	if (flags == O_RDONLY)
		return 0;
	return outcome(
		pwrite(fd, &world.secret, sizeof(world.secret), (off_t)(uintptr_t)&world.secret));
}

static int write_memory_file(void)
{
	return open_memory(world.victim, O_RDWR);
}

static int write_memory_file_of_parent(void)
{
	return open_memory(getppid(), O_RDWR);
}

static int read_memory_file(void)
{
	return open_memory(world.victim, O_RDONLY);
}

/* SIGCONT harms nobody, and needs the same rights as SIGKILL. */
static int signal_victim(void)
{
	return outcome(kill(world.victim, SIGCONT));
}

static int signal_by_tgkill(void)
{
	return outcome(syscall(SYS_tgkill, world.victim, world.victim, SIGCONT));
}

static int signal_by_tkill(void)
{
	return outcome(syscall(SYS_tkill, world.victim, SIGCONT));
}

static int signal_by_queue(void)
{
	siginfo_t info = { .si_code = SI_QUEUE };

	return outcome(syscall(SYS_rt_sigqueueinfo, world.victim, SIGCONT, &info));
}

static int open_process(void)
{
	return outcome(syscall(SYS_pidfd_open, world.victim, 0));
}

static int own_descriptor_for_victim(void)
{
	return outcome(fcntl(world.file_fd, F_SETOWN, world.victim));
}

static int ask_for_signals(void)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
		return errno;
	return outcome(fcntl(pair[0], F_SETFL, O_ASYNC));
}

static int change_victim_limits(void)
{
	const struct rlimit limit = { 64, 64 };

	return outcome(prlimit(world.victim, RLIMIT_NOFILE, &limit, NULL));
}

static int change_own_limits(void)
{
	const struct rlimit limit = { 64, 64 };

	return outcome(setrlimit(RLIMIT_NOFILE, &limit));
}

static int become_dumpable(void)
{
	return outcome(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
}

static int outlive_parent(void)
{
	return outcome(prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0));
}

static void test_no_other_process(void **state)
{
	static const struct attack attacks[] = {
		{ "ptrace of a sibling", trace_victim, 0, DIES },
		{ "ptrace of the parent", trace_parent, 0, DIES },
		{ "process_vm_writev", write_victim, 0, DIES },
		{ "process_vm_readv", read_victim, 0, DIES },
		{ "writing /proc/PID/mem", write_memory_file, 0, EPERM },
		{ "writing the parent's /proc/PID/mem", write_memory_file_of_parent, 0, EPERM },
		{ "reading /proc/PID/mem", read_memory_file, 0, EACCES },
		{ "kill", signal_victim, 0, EPERM },
		{ "tgkill", signal_by_tgkill, 0, EPERM },
		{ "tkill", signal_by_tkill, 0, EPERM },
		{ "rt_sigqueueinfo", signal_by_queue, 0, EPERM },
		{ "pidfd_open", open_process, 0, EPERM },
		{ "F_SETOWN", own_descriptor_for_victim, 0, EPERM },
		{ "O_ASYNC", ask_for_signals, 0, EPERM },
		{ "prlimit of a sibling", change_victim_limits, 0, EPERM },
		{ "setrlimit", change_own_limits, 0, EPERM },
		{ "becoming dumpable", become_dumpable, 0, SANITIZED_ADDRESSES ? 0 : EPERM },
		{ "attaching", attach_victim, 0, SANITIZED_ADDRESSES ? EPERM : DIES },
		{ "outliving the parent", outlive_parent, 0, EPERM },
	};

	(void)state;
	expect_all(attacks, ARRAY_LEN(attacks), ALL);
}

/* Either wall holds without the other. */
static void test_landlock_alone_guards_processes(void **state)
{
	(void)state;
	expect_outcome("ptrace", FILES, trace_victim, EPERM);
	expect_outcome("ptrace of the parent", FILES, trace_parent, EPERM);
	expect_outcome("process_vm_writev", FILES, write_victim, EPERM);
	expect_outcome("process_vm_readv", FILES, read_victim, EPERM);
	expect_outcome("writing /proc/PID/mem", FILES, write_memory_file, EACCES);
	expect_outcome("reading /proc/PID/mem", FILES, read_memory_file, EACCES);
}

/* -- namespaces, mounts, the kernel ---------------------------------------------------- */

static int leave_namespace(void)
{
	return outcome(unshare(CLONE_NEWNET));
}

static int enter_namespace(void)
{
	return outcome(setns(world.netns_fd, CLONE_NEWNET));
}

static int clone_user(void)
{
	return reap(syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0));
}

static int clone_network(void)
{
	return reap(syscall(SYS_clone, CLONE_NEWNET | SIGCHLD, 0, 0, 0, 0));
}

static int clone_mounts(void)
{
	return reap(syscall(SYS_clone, CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0));
}

static int clone_pids(void)
{
	return reap(syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0));
}

static int mount_something(void)
{
	return outcome(mount("none", world.dir, "tmpfs", 0, NULL));
}

static int open_filesystem(void)
{
	return outcome(syscall(SYS_fsopen, "tmpfs", 0));
}

static int take_tree(void)
{
	return outcome(syscall(SYS_open_tree, AT_FDCWD, "/", 1 /* clone */));
}

static int change_root(void)
{
	return outcome(chroot(world.dir));
}

static int load_module(void)
{
	return outcome(syscall(SYS_init_module, "", 0, ""));
}

static int load_module_file(void)
{
	return outcome(syscall(SYS_finit_module, world.file_fd, "", 0));
}

static int make_bpf_map(void)
{
	union bpf_attr attr = {
		.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1
	};

	return outcome(syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr)));
}

static int measure(void)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_SOFTWARE,
		                        .size = sizeof(attr),
		                        .config = PERF_COUNT_SW_CPU_CLOCK };

	return outcome(syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0));
}

static int handle_faults(void)
{
	return outcome(syscall(SYS_userfaultfd, 0));
}

static int make_ring(void)
{
	struct io_uring_params params = { 0 };

	return outcome(syscall(SYS_io_uring_setup, 1, &params));
}

static int ask_keyring(void)
{
	return outcome(syscall(SYS_keyctl, 0 /* id */, -3 /* session keyring */, 1));
}

static int change_personality(void)
{
	return outcome(syscall(SYS_personality, 0xffffffff));
}

static void test_no_namespace_and_no_kernel(void **state)
{
	static const struct attack attacks[] = {
		{ "unshare", leave_namespace, 0, DIES },
		{ "setns", enter_namespace, 0, DIES },
		{ "clone(CLONE_NEWUSER)", clone_user, 0, DIES },
		{ "clone(CLONE_NEWNET)", clone_network, 0, DIES },
		{ "clone(CLONE_NEWNS)", clone_mounts, 0, DIES },
		{ "clone(CLONE_NEWPID)", clone_pids, 0, DIES },
		{ "mount", mount_something, 0, DIES },
		{ "fsopen", open_filesystem, 0, DIES },
		{ "open_tree", take_tree, 0, DIES },
		{ "chroot", change_root, 0, DIES },
		{ "bpf", make_bpf_map, 0, DIES },
		{ "perf_event_open", measure, 0, DIES },
		{ "userfaultfd", handle_faults, 0, DIES },
		{ "io_uring_setup", make_ring, 0, DIES },
		{ "keyctl", ask_keyring, 0, DIES },
		{ "personality", change_personality, 0, DIES },
	};

	(void)state;
	expect_all(attacks, ARRAY_LEN(attacks), ALL);
	/* There may be kernels without modules, so without a control. */
	expect_outcome("init_module", ALL, load_module, DIES);
	expect_outcome("finit_module", ALL, load_module_file, DIES);
}

#if defined(__x86_64__)
static int call_by_old_abi(void)
{
	int rc;

	__asm__ volatile("int $0x80" : "=a"(rc) : "a"(20 /* getpid */) : "memory");
	return rc > 0 ? 0 : EINVAL;
}

static int call_by_x32(void)
{
	return outcome(syscall(0x40000000 | SYS_getpid));
}

static void test_other_abis_die(void **state)
{
	(void)state;
	/* Without the old ABI in the kernel it is a fault of the program's. */
	if (attempt(UNCONFINED, call_by_old_abi) == 0)
		expect_outcome("int 0x80", ALL, call_by_old_abi, DIES);
	expect_outcome("x32", ALL, call_by_x32, DIES);
}
#endif

/* -- the list itself ------------------------------------------------------------------- */

static int unlisted_call(void)
{
	return outcome(syscall(SYS_getpriority, 0, 0));
}

static int signal_own_thread(void)
{
	return outcome(syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), 0));
}

static int read_own_limit(void)
{
	struct rlimit limit;

	return outcome(getrlimit(RLIMIT_NOFILE, &limit));
}

static void *attack_in_thread(void *ret)
{
	*(int *)ret = unlisted_call();
	return NULL;
}

static int unlisted_call_in_thread(void)
{
	pthread_t thread;
	int got = 0, rc = pthread_create(&thread, NULL, attack_in_thread, &got);

	if (rc == 0)
		rc = pthread_join(thread, NULL);
	return rc == 0 ? got : BROKEN;
}

static int abort_in_order(void)
{
	abort();
}

static void test_what_the_server_needs_goes_on(void **state)
{
	(void)state;
	for (int walls = ALL; walls <= ALL_KILL; walls++) {
		expect_outcome("own signal", (enum walls)walls, signal_own_thread, 0);
		expect_outcome("own limit", (enum walls)walls, read_own_limit, 0);
		expect_outcome("abort", (enum walls)walls, abort_in_order, DIES + SIGABRT);
		expect_outcome("clone3", (enum walls)walls, make_process_by_clone3, ENOSYS);
		expect_outcome("quiet answer", (enum walls)walls, read_memory_file, EACCES);
	}
}

static void test_unlisted_calls_fail_in_every_thread_or_kill(void **state)
{
	(void)state;
	expect_outcome("getpriority", UNCONFINED, unlisted_call, 0);
	expect_outcome("getpriority", ALL, unlisted_call, EPERM);
	expect_outcome("getpriority", ALL_KILL, unlisted_call, DIES);
	expect_outcome("in a thread", UNCONFINED, unlisted_call_in_thread, 0);
	expect_outcome("in a thread", ALL, unlisted_call_in_thread, EPERM);
	expect_outcome("in a thread", ALL_KILL, unlisted_call_in_thread, DIES);
	expect_outcome("execve", ALL_KILL, run_program, DIES);
}

/* Is there a line of the kernel's log that holds both?  -1 when it cannot be read. */
static int kernel_log_has(const char *first, const char *second)
{
	static char log[1 << 20];
	int n = klogctl(3 /* SYSLOG_ACTION_READ_ALL */, log, sizeof(log) - 1);
	char *rest = log, *line;

	if (n < 0)
		return -1;
	log[n] = '\0';
	while ((line = strsep(&rest, "\n")))
		if (strstr(line, first) && strstr(line, second))
			return 1;
	return 0;
}

/* The kernel writes at most ten such records in five seconds. */
static void test_a_refusal_is_recorded(void **state)
{
	char pid[32], call[32];
	int found = 0;

	(void)state;
	if (kernel_log_has("", "") < 0 || access("/run/auditd.pid", F_OK) == 0)
		skip();
	(void)snprintf(call, sizeof(call), " syscall=%d ", (int)SYS_getpriority);
	for (int i = 0; i < 30 && !found; i++) {
		expect_outcome("getpriority", ALL, unlisted_call, EPERM);
		(void)snprintf(pid, sizeof(pid), " pid=%d ", (int)world.attacker);
		found = kernel_log_has(pid, call);
		if (!found)
			(void)nanosleep(&(struct timespec){ .tv_sec = 1 }, NULL);
	}
	assert_int_equal(found, 1);
}

/* -- the process ----------------------------------------------------------------------- */

static int look_at_process(void)
{
	struct rlimit core;

	/* Asked by prctl(2), which the list does not have: so before it. */
	return prctl(PR_GET_DUMPABLE) == 0 && getrlimit(RLIMIT_CORE, &core) == 0 &&
	                       core.rlim_max == 0
	               ? 0
	               : EINVAL;
}

static int confine_process_and_look(void)
{
	struct err e = ERR_INIT;

	return confine_process(&e) < 0 ? BROKEN : look_at_process();
}

static int confine_process_and_make_executable(void)
{
	struct err e = ERR_INIT;

	/* MDWE says EACCES. */
	if (confine_process(&e) < 0 || prctl(66 /* PR_GET_MDWE */, 0, 0, 0, 0) <= 0)
		return EACCES;
	return make_memory_executable();
}

static void test_process_is_sealed(void **state)
{
	(void)state;
	expect_outcome("not dumpable", UNCONFINED, confine_process_and_look, 0);
	expect_outcome("MDWE", UNCONFINED, confine_process_and_make_executable, EACCES);
}

static int refused(const char *text)
{
	const struct confine_conf conf = { .mode = CONFINE_ENFORCE };
	struct err e = ERR_INIT;

	return confine_self(&conf, &e) < 0 && strstr(e.text, text) ? 0 : EINVAL;
}

static void *wait_for_ever(void *arg)
{
	(void)arg;
	for (;;)
		pause();
	return NULL;
}

static int confine_beside_thread(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, wait_for_ever, NULL) != 0)
		return BROKEN;
	return refused("threads run already");
}

static void test_refuses_beside_a_thread(void **state)
{
	(void)state;
	expect_outcome("second thread", UNCONFINED, confine_beside_thread, 0);
}

static void test_refuses_without_no_new_privs(void **state)
{
	pid_t pid;

	(void)state;
	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
		skip(); /* cannot be taken off */
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(refused("no_new_privs"));
	assert_int_equal(child_outcome(pid), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_refusal_is_recorded), /* first: records are rationed */
		cmocka_unit_test(test_no_program_and_no_foreign_code),
		cmocka_unit_test(test_no_other_process),
		cmocka_unit_test(test_landlock_alone_guards_processes),
		cmocka_unit_test(test_no_namespace_and_no_kernel),
#if defined(__x86_64__)
		cmocka_unit_test(test_other_abis_die),
#endif
		cmocka_unit_test(test_what_the_server_needs_goes_on),
		cmocka_unit_test(test_unlisted_calls_fail_in_every_thread_or_kill),
		cmocka_unit_test(test_process_is_sealed),
		cmocka_unit_test(test_refuses_beside_a_thread),
		cmocka_unit_test(test_refuses_without_no_new_privs),
	};
	int failed;

	alarm(300);
	failed = world_make(NULL);
	failed += RUN_TESTS(tests);
	return failed + world_remove(NULL) ? 1 : 0;
}
