/*
 * The system calls of the serving runner, each beside what makes it.  What is on no
 * list answers EPERM and is recorded by the kernel (or kills, by mode: the record
 * names what is missing here); what nobody tries by mistake kills always.  Pointers
 * cannot be followed by a filter: which files are meant is for Landlock to judge.
 */
#include "runner/confine.h"

#include "common/fd.h"
#include "common/log.h"
#include "common/sanitizer_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <linux/netlink.h>
#include <seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define auto_filter __attribute__((cleanup(filter_release)))

/* clang-format off */
#define IS(arg, value)   { arg, SCMP_CMP_EQ, value, 0 }
#define LACKS(arg, bits) { arg, SCMP_CMP_MASKED_EQ, bits, 0 }
#define IS_BUT_FOR(arg, bits, value) { arg, SCMP_CMP_MASKED_EQ, ~(scmp_datum_t)(bits), value }

static const int allowed[] = {
	/* serve_turn, await_children, await_empty, report_wait; restart_syscall after a stop */
	SCMP_SYS(poll), SCMP_SYS(ppoll), SCMP_SYS(restart_syscall),
	/* signalfd, outputs, counters of the leaf; the log, limits, cgroup.kill */
	SCMP_SYS(read), SCMP_SYS(pread64), SCMP_SYS(write), SCMP_SYS(close),
	/* files of the leaf; which ones: Landlock */
	SCMP_SYS(openat),
	/* lock_release, cgroup_remove; what: Landlock */
	SCMP_SYS(unlinkat),
	/* reap */
	SCMP_SYS(wait4), SCMP_SYS(waitid),
	/* netlink: routes that change, rules, counters (socket, setsockopt: below) */
	SCMP_SYS(bind), SCMP_SYS(getsockname), SCMP_SYS(recvfrom), SCMP_SYS(recvmsg),
	SCMP_SYS(sendmsg), SCMP_SYS(sendto),
	/* raise: its own end, in order or by abort(3) (tgkill: below) */
	SCMP_SYS(exit), SCMP_SYS(exit_group), SCMP_SYS(getpid), SCMP_SYS(gettid),
	SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn),
	/* time where the vdso cannot tell it */
	SCMP_SYS(clock_gettime), SCMP_SYS(gettimeofday),
	/* malloc (mmap, mprotect: below), which takes random bytes for its lists */
	SCMP_SYS(brk), SCMP_SYS(futex), SCMP_SYS(getrandom), SCMP_SYS(madvise),
	SCMP_SYS(mremap), SCMP_SYS(munmap),
	SANITIZER_CALLS
};

struct rule {
	int call;
	unsigned int count;
	struct scmp_arg_cmp if_[3];
};

static const struct rule allowed_if[] = {
	{ SCMP_SYS(mmap), 1, { LACKS(2, PROT_EXEC) } },
	{ SCMP_SYS(mprotect), 1, { LACKS(2, PROT_EXEC) } },
	/* local_snapshot */
	{ SCMP_SYS(socket), 3, { IS(0, AF_NETLINK), IS_BUT_FOR(1, SOCK_CLOEXEC, SOCK_RAW),
	                         IS(2, NETLINK_ROUTE) } },
	{ SCMP_SYS(setsockopt), 2, { IS(1, SOL_SOCKET), IS(2, SO_RCVTIMEO) } },
	{ SCMP_SYS(setsockopt), 2, { IS(1, SOL_SOCKET), IS(2, SO_SNDTIMEO) } },
	{ SCMP_SYS(setsockopt), 2, { IS(1, SOL_SOCKET), IS(2, SO_SNDBUF) } },
	{ SCMP_SYS(setsockopt), 2, { IS(1, SOL_NETLINK), IS(2, NETLINK_CAP_ACK) } },
	/* mem_free of the log's stdio, and libraries that ask what a descriptor is for */
	{ SCMP_SYS(fcntl), 1, { IS(1, F_GETFL) } },
	SANITIZER_RULES
};

static const int deadly[] = {
	/* becoming or making another process */
	SCMP_SYS(execve), SCMP_SYS(execveat), SCMP_SYS(fork), SCMP_SYS(vfork),
	/* other processes */
	SCMP_SYS(process_vm_readv), SCMP_SYS(process_vm_writev),
	SCMP_SYS(process_madvise), SCMP_SYS(pidfd_getfd), SCMP_SYS(kcmp),
	/* namespaces and what hangs in them */
	SCMP_SYS(unshare), SCMP_SYS(setns), SCMP_SYS(chroot), SCMP_SYS(pivot_root),
	SCMP_SYS(mount), SCMP_SYS(umount2), SCMP_SYS(move_mount), SCMP_SYS(open_tree),
	SCMP_SYS(mount_setattr), SCMP_SYS(fsopen), SCMP_SYS(fsconfig), SCMP_SYS(fsmount),
	SCMP_SYS(fspick), SCMP_SYS(open_by_handle_at), SCMP_SYS(name_to_handle_at),
	/* the kernel: code in it, and interfaces with a long record of holes */
	SCMP_SYS(init_module), SCMP_SYS(finit_module), SCMP_SYS(delete_module),
	SCMP_SYS(kexec_load), SCMP_SYS(kexec_file_load), SCMP_SYS(bpf),
	SCMP_SYS(perf_event_open), SCMP_SYS(userfaultfd), SCMP_SYS(io_uring_setup),
	SCMP_SYS(io_uring_enter), SCMP_SYS(io_uring_register), SCMP_SYS(keyctl),
	SCMP_SYS(add_key), SCMP_SYS(request_key), SCMP_SYS(swapon), SCMP_SYS(swapoff),
	SCMP_SYS(reboot), SCMP_SYS(personality),
};

static const struct rule deadly_if[] = { SANITIZER_DEADLY_CLONE, SANITIZER_DEADLY_PTRACE };
/* clang-format on */

static void filter_release(scmp_filter_ctx *filter)
{
	if (*filter)
		seccomp_release(*filter);
}

static int refused(int code, const char *what, struct err *e)
{
	errno = -code;
	return err_errno(e, "%s", what);
}

static int add_calls(scmp_filter_ctx filter, uint32_t action, const int *calls, size_t n)
{
	int got = 0;

	for (size_t i = 0; got == 0 && i < n; i++)
		got = seccomp_rule_add(filter, action, calls[i], 0);
	return got;
}

static int add_rules(scmp_filter_ctx filter, uint32_t action, const struct rule *rules, size_t n)
{
	int got = 0;

	for (size_t i = 0; got == 0 && i < n; i++)
		got = seccomp_rule_add_array(filter, action, rules[i].call, rules[i].count,
		                             rules[i].if_);
	return got;
}

static int add_lists(scmp_filter_ctx filter, enum confine_mode mode, struct err *e)
{
	int got = add_calls(filter, SCMP_ACT_ALLOW, allowed, ARRAY_LEN(allowed));

	if (got == 0)
		got = add_rules(filter, SCMP_ACT_ALLOW, allowed_if, ARRAY_LEN(allowed_if));
	/* The library takes no rule that says what holds without it. */
	if (got == 0 && mode != CONFINE_KILL)
		got = add_calls(filter, SCMP_ACT_KILL_PROCESS, deadly, ARRAY_LEN(deadly));
	if (got == 0 && mode != CONFINE_KILL)
		got = add_rules(filter, SCMP_ACT_KILL_PROCESS, deadly_if, ARRAY_LEN(deadly_if));
	/* Its flags are in memory and cannot be judged, so to libraries it does not exist. */
	if (got == 0)
		got = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
	return got < 0 ? refused(got, "write the filter of system calls", e) : 0;
}

/* end_children sends TERM and KILL to these, and STOP to itself. */
static int add_signals(scmp_filter_ctx filter, const struct confine *c, struct err *e)
{
	int got = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1,
	                           SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)getpid()));

	for (size_t i = 0; got == 0 && i < CONFINE_CHILDREN; i++)
		if (c->children[i] > 0)
			got = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(kill), 1,
			                       SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)c->children[i]));
	return got < 0 ? refused(got, "write the filter of signals", e) : 0;
}

static int confine_calls(const struct confine *c, struct err *e)
{
	auto_filter scmp_filter_ctx filter = seccomp_init(
		c->mode == CONFINE_KILL ? SCMP_ACT_KILL_PROCESS : SCMP_ACT_ERRNO(EPERM));
	int got;

	if (!filter)
		return err_set(e, ENOMEM, "no memory for a filter of system calls");
	got = seccomp_attr_set(filter, SCMP_FLTATR_CTL_LOG, 1);
	if (got < 0)
		return refused(got, "have refused system calls recorded", e);
	if (add_lists(filter, c->mode, e) < 0 || add_signals(filter, c, e) < 0)
		return -1;
	got = seccomp_load(filter);
	return got < 0 ? refused(got, "load the filter of system calls", e) : 0;
}

/* -- files ----------------------------------------------------------------------- */

/* All that the first version of Landlock knows; the runner needs none of what came later. */
#define HANDLED (LANDLOCK_ACCESS_FS_MAKE_SYM * 2 - 1)

static int add_directory(int ruleset, int dir, uint64_t access, struct err *e)
{
	struct landlock_path_beneath_attr rule = { .allowed_access = access, .parent_fd = dir };

	if (dir < 0)
		return 0;
	if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
		return err_errno(e, "add a directory to the Landlock domain");
	return 0;
}

/* What a sanitizer's reports and its search for leaks read. */
static int add_runtime(int ruleset, struct err *e)
{
	auto_close int self = open("/proc/self", O_PATH | O_CLOEXEC);

	return add_directory(ruleset, self,
	                     LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR, e);
}

static int confine_files(const struct confine *c, struct err *e)
{
	const struct landlock_ruleset_attr attr = { .handled_access_fs = HANDLED };
	auto_close int ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);

	if (ruleset < 0 && !c->need_landlock && (errno == ENOSYS || errno == EOPNOTSUPP))
		return 0;
	if (ruleset < 0)
		return err_errno(e, "make a Landlock domain");
	if (add_directory(ruleset, c->leaf,
	                  LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE, e) < 0 ||
	    add_directory(ruleset, c->sandboxes, LANDLOCK_ACCESS_FS_REMOVE_DIR, e) < 0 ||
	    add_directory(ruleset, c->lock,
	                  LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE, e) < 0)
		return -1;
	if (SANITIZED && add_runtime(ruleset, e) < 0)
		return -1;
	if (syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
		return err_errno(e, "enter the Landlock domain");
	return 0;
}

int confine_self(const struct confine *c, struct err *e)
{
	if (confine_files(c, e) < 0 || confine_calls(c, e) < 0)
		return err_wrap(e, "confine the runner");
	if (SANITIZED)
		log_warn("runner, sanitizer build, not for use: more system calls are allowed, "
		         "ptrace(2) and a clone(2) that shares its memory too, and its own "
		         "/proc may be read");
	return 0;
}
