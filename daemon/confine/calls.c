/*
 * The system calls of the server process, each beside what calls it; at the end of the
 * lists, what those have instead that connect out: the courier and the link.
 *
 * Two filters.  The list answers what is not on it with EPERM (or death, by mode) and
 * has every such answer recorded by the kernel, which the process cannot suppress.
 * The one before it holds calls that libraries try and do without: they are answered
 * with an error that the libraries expect, and without a record, or every new thread
 * would write one.  Of two filters the stricter answer counts.
 *
 * Arguments are compared in all 64 bits where a rule allows, so what the kernel would
 * cut off cannot hide there.  Pointers cannot be followed: what a call says in memory
 * (addresses of sockets, paths) is Landlock's to judge.
 *
 * To find what a new library needs: run the tests with --confine kill; the record in
 * the kernel's log (type=1326) names the number.
 */
#include "daemon/confine/confine.h"

#include "common/sanitizer_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <seccomp.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define auto_filter __attribute__((cleanup(filter_release)))

#define MAX_CONDITIONS 3

/* What pthread_create(3) asks for, and nothing else. */
#define THREAD_FLAGS                                                                      \
	((scmp_datum_t)CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | \
	 CLONE_SYSVSEM | CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID)

/* The conditions of one rule must all hold. */
struct rule {
	int call;
	unsigned int count;
	struct scmp_arg_cmp if_[MAX_CONDITIONS];
};

struct answer {
	struct rule rule;
	uint16_t error;
};

/* clang-format off */
#define IS(arg, value)         { arg, SCMP_CMP_EQ, value, 0 }
#define HAS(arg, bits)         { arg, SCMP_CMP_MASKED_EQ, bits, bits }
#define LACKS(arg, bits)       { arg, SCMP_CMP_MASKED_EQ, bits, 0 }
#define IS_BUT_FOR(arg, bits, value) { arg, SCMP_CMP_MASKED_EQ, ~(scmp_datum_t)(bits), value }

/* -- what is answered quietly ---------------------------------------------------------- */

static const struct answer answered_always[] = {
	/* pthread_create tries it first; its flags are in memory, so it cannot be judged. */
	{ { SCMP_SYS(clone3), 0, {} }, ENOSYS },
};

static const struct answer answered[] = {
#if !SANITIZED
	/* malloc looks for the number of processors and for overcommit, the first use of
	 * local time for a zone, stdio for the kind of file; all of them have a default.
	 * Opening for more than reading is nobody's habit, and recorded. */
	{ { SCMP_SYS(open), 1, { LACKS(1, O_ACCMODE | O_CREAT | O_TRUNC) } }, EACCES },
	{ { SCMP_SYS(openat), 1, { LACKS(2, O_ACCMODE | O_CREAT | O_TRUNC) } }, EACCES },
	{ { SCMP_SYS(stat), 0, {} }, EACCES },
	{ { SCMP_SYS(fstat), 0, {} }, EACCES },
	{ { SCMP_SYS(newfstatat), 0, {} }, EACCES },
	{ { SCMP_SYS(readlink), 0, {} }, EACCES },
#endif
};

/* Of those that connect out: name service asks a cache daemon first, and does without. */
static const struct answer answered_outward[] = {
	{ { SCMP_SYS(socket), 1, { IS(0, AF_UNIX) } }, EACCES },
};

/* -- the list -------------------------------------------------------------------------- */

static const int allowed[] = {
	/* malloc, and the stacks of threads (mmap and mprotect: below) */
	SCMP_SYS(brk),
	SCMP_SYS(madvise),
	SCMP_SYS(mremap), /* realloc of large blocks */
	SCMP_SYS(munmap),
	SCMP_SYS(sched_getaffinity), /* how many arenas */
	/* threads (clone: below), mutexes, condition variables */
	SCMP_SYS(exit),
	SCMP_SYS(futex),
	SCMP_SYS(rseq),
	SCMP_SYS(set_robust_list),
	/* pthread_create and the starts of threads mask signals; libpq masks SIGPIPE */
	SCMP_SYS(rt_sigaction),
	SCMP_SYS(rt_sigprocmask),
	SCMP_SYS(rt_sigreturn),
	/* the end: server_main returns, abort(3) (tgkill: below) with glibc's last words */
	SCMP_SYS(exit_group),
	SCMP_SYS(getpid),
	SCMP_SYS(gettid),
	SCMP_SYS(writev),
	/* loops of HTTP, streams and sandboxes; wait_for_end, libpq; ppoll and epoll_pwait
	 * where a machine has only these; restart_syscall after a stop and continue */
	SCMP_SYS(epoll_create1),
	SCMP_SYS(epoll_ctl),
	SCMP_SYS(epoll_pwait),
	SCMP_SYS(epoll_wait),
	SCMP_SYS(eventfd2),
	SCMP_SYS(poll),
	SCMP_SYS(ppoll),
	SCMP_SYS(restart_syscall),
	/* time where the vdso cannot tell it; the store's waits */
	SCMP_SYS(clock_gettime),
	SCMP_SYS(clock_nanosleep),
	SCMP_SYS(gettimeofday),
	/* sandboxes' pipes, eventfds, the log */
	SCMP_SYS(close),
	SCMP_SYS(read),
	SCMP_SYS(write),
	/* libmicrohttpd, streams, lingering closes, libpq, the launcher's messages
	 * (socket, setsockopt, sendto, sendmsg: below) */
	SCMP_SYS(bind), /* of which port: Landlock */
	SCMP_SYS(connect), /* the server to PostgreSQL; TCP to where: Landlock */
	SCMP_SYS(getpeername),
	SCMP_SYS(getsockname),
	SCMP_SYS(getsockopt),
	SCMP_SYS(recvfrom),
	SCMP_SYS(recvmsg),
	/* ids, libsodium */
	SCMP_SYS(getrandom),
	/* glibc's qsort of more than 1 KiB: the keys of a large JSON object */
	SCMP_SYS(sysinfo),
	SANITIZER_CALLS
};

/* Of the server alone: the listener, libmicrohttpd. */
static const int allowed_server[] = {
	SCMP_SYS(accept4),
	SCMP_SYS(listen),
	SCMP_SYS(shutdown),
};

/* Any of the rules of a call suffices. */
static const struct rule allowed_if[] = {
	/* no memory becomes executable, so no code comes in beside the program's own */
	{ SCMP_SYS(mmap), 1, { LACKS(2, PROT_EXEC) } },
	{ SCMP_SYS(mprotect), 1, { LACKS(2, PROT_EXEC) } },
	{ SCMP_SYS(clone), 1, { IS(0, THREAD_FLAGS) } },
	/* start_http looks at the limit; setting one, or that of another process, is not needed */
	{ SCMP_SYS(prlimit64), 2, { IS(0, 0), IS(2, 0) } },
	/* F_SETOWN and O_ASYNC would send signals to others */
	{ SCMP_SYS(fcntl), 1, { IS(1, F_GETFD) } },
	{ SCMP_SYS(fcntl), 1, { IS(1, F_SETFD) } },
	{ SCMP_SYS(fcntl), 1, { IS(1, F_GETFL) } },
	{ SCMP_SYS(fcntl), 2, { IS(1, F_SETFL), LACKS(2, O_ASYNC) } },
	/* linger keeps a duplicate */
	{ SCMP_SYS(fcntl), 1, { IS(1, F_DUPFD_CLOEXEC) } },
	/* the listener, connections, and nothing but TCP: no raw packets, no MPTCP */
	{ SCMP_SYS(socket), 3, { IS(0, AF_INET), IS_BUT_FOR(1, SOCK_CLOEXEC | SOCK_NONBLOCK, SOCK_STREAM), IS(2, 0) } },
	{ SCMP_SYS(socket), 3, { IS(0, AF_INET6), IS_BUT_FOR(1, SOCK_CLOEXEC | SOCK_NONBLOCK, SOCK_STREAM), IS(2, 0) } },
	/* open_listener */
	{ SCMP_SYS(setsockopt), 2, { IS(1, SOL_SOCKET), IS(2, SO_REUSEADDR) } },
	/* libmicrohttpd and streams */
	{ SCMP_SYS(setsockopt), 2, { IS(1, IPPROTO_TCP), IS(2, TCP_CORK) } },
	{ SCMP_SYS(setsockopt), 2, { IS(1, IPPROTO_TCP), IS(2, TCP_NODELAY) } },
	/* streams: a dead peer is noticed, an idle stream is small */
	{ SCMP_SYS(setsockopt), 2, { IS(1, SOL_SOCKET), IS(2, SO_KEEPALIVE) } },
	{ SCMP_SYS(setsockopt), 2, { IS(1, SOL_SOCKET), IS(2, SO_SNDBUF) } },
	{ SCMP_SYS(setsockopt), 2, { IS(1, IPPROTO_TCP), IS(2, TCP_KEEPCNT) } },
	{ SCMP_SYS(setsockopt), 2, { IS(1, IPPROTO_TCP), IS(2, TCP_KEEPIDLE) } },
	{ SCMP_SYS(setsockopt), 2, { IS(1, IPPROTO_TCP), IS(2, TCP_KEEPINTVL) } },
	{ SCMP_SYS(setsockopt), 2, { IS(1, IPPROTO_TCP), IS(2, TCP_USER_TIMEOUT) } },
	/* fast open connects without asking Landlock */
	{ SCMP_SYS(sendto), 1, { LACKS(3, MSG_FASTOPEN) } },
	{ SCMP_SYS(sendmsg), 1, { LACKS(2, MSG_FASTOPEN) } },
	SANITIZER_RULES
};

/* Of the server alone. */
static const struct rule allowed_server_if[] = {
	/* libpq */
	{ SCMP_SYS(socket), 3, { IS(0, AF_UNIX), IS_BUT_FOR(1, SOCK_CLOEXEC | SOCK_NONBLOCK, SOCK_STREAM), IS(2, 0) } },
	/* a request's own socket to the courier */
	{ SCMP_SYS(socketpair), 3, { IS(0, AF_UNIX), IS(1, SOCK_STREAM | SOCK_CLOEXEC), IS(2, 0) } },
};

/* -- the lists of those that connect out --------------------------------------------------- */

static const int allowed_outward[] = {
	/* glibc's name service: its files and modules; which ones: Landlock */
	SCMP_SYS(access),
	SCMP_SYS(faccessat2),
	SCMP_SYS(fstat),
	SCMP_SYS(lseek),
	SCMP_SYS(newfstatat),
	SCMP_SYS(pread64),
	SCMP_SYS(readlink),
	SCMP_SYS(stat),
	SCMP_SYS(uname), /* the name of this machine */
	SCMP_SYS(getuid),
	SCMP_SYS(geteuid),
	SCMP_SYS(getgid),
	SCMP_SYS(getegid),
};

static const struct rule allowed_outward_if[] = {
	{ SCMP_SYS(open), 1, { LACKS(1, O_ACCMODE | O_CREAT | O_TRUNC) } },
	{ SCMP_SYS(openat), 1, { LACKS(2, O_ACCMODE | O_CREAT | O_TRUNC) } },
	/* modules are mapped as they are in their files, never written and run */
	{ SCMP_SYS(mmap), 1, { LACKS(2, PROT_WRITE) } },
	/* both questions at once; of fast open: as above */
	{ SCMP_SYS(sendmmsg), 1, { LACKS(3, MSG_FASTOPEN) } },
	/* how much an answer has */
	{ SCMP_SYS(ioctl), 1, { IS(1, FIONREAD) } },
	{ SCMP_SYS(setsockopt), 2, { IS(1, IPPROTO_IP), IS(2, IP_RECVERR) } },
	{ SCMP_SYS(setsockopt), 2, { IS(1, IPPROTO_IPV6), IS(2, IPV6_RECVERR) } },
	/* questions to name servers, and which of our addresses would be used */
	{ SCMP_SYS(socket), 2, { IS(0, AF_INET), IS_BUT_FOR(1, SOCK_CLOEXEC | SOCK_NONBLOCK, SOCK_DGRAM) } },
	{ SCMP_SYS(socket), 2, { IS(0, AF_INET6), IS_BUT_FOR(1, SOCK_CLOEXEC | SOCK_NONBLOCK, SOCK_DGRAM) } },
	{ SCMP_SYS(socket), 3, { IS(0, AF_NETLINK), IS(1, SOCK_RAW | SOCK_CLOEXEC), IS(2, NETLINK_ROUTE) } },
};

/* Of the courier alone: the link could end the socket that its successors listen at. */
static const int allowed_courier[] = {
	SCMP_SYS(shutdown),
};

static const struct rule allowed_courier_if[] = {
	/* libcurl names the protocol */
	{ SCMP_SYS(socket), 3, { IS(0, AF_INET), IS_BUT_FOR(1, SOCK_CLOEXEC | SOCK_NONBLOCK, SOCK_STREAM), IS(2, IPPROTO_TCP) } },
	{ SCMP_SYS(socket), 3, { IS(0, AF_INET6), IS_BUT_FOR(1, SOCK_CLOEXEC | SOCK_NONBLOCK, SOCK_STREAM), IS(2, IPPROTO_TCP) } },
	/* how a thread that looks a name up tells that it has it; one for datagrams could be
	 * turned to any local socket */
	{ SCMP_SYS(socketpair), 3, { IS(0, AF_UNIX), IS_BUT_FOR(1, SOCK_CLOEXEC | SOCK_NONBLOCK, SOCK_STREAM), IS(2, 0) } },
};

/* Of the link alone: connections to the local socket that it was given. */
static const int allowed_link[] = {
	SCMP_SYS(accept4),
};

/* -- what kills in every mode: nobody tries these by mistake ------------------------------- */

static const int deadly[] = {
	SCMP_SYS(execve), SCMP_SYS(execveat),
	/* other processes (ptrace: below) */
	SCMP_SYS(process_vm_readv), SCMP_SYS(process_vm_writev),
	SCMP_SYS(process_madvise), SCMP_SYS(pidfd_getfd), SCMP_SYS(kcmp),
	/* namespaces and what hangs in them (clone: below) */
	SCMP_SYS(unshare), SCMP_SYS(setns), SCMP_SYS(chroot), SCMP_SYS(pivot_root),
	SCMP_SYS(mount), SCMP_SYS(umount2), SCMP_SYS(move_mount), SCMP_SYS(open_tree),
	SCMP_SYS(mount_setattr), SCMP_SYS(fsopen), SCMP_SYS(fsconfig), SCMP_SYS(fsmount),
	SCMP_SYS(fspick), SCMP_SYS(open_by_handle_at), SCMP_SYS(name_to_handle_at),
	/* the kernel: code in it, and interfaces with a long record of holes */
	SCMP_SYS(init_module), SCMP_SYS(finit_module), SCMP_SYS(delete_module),
	SCMP_SYS(kexec_load), SCMP_SYS(kexec_file_load), SCMP_SYS(reboot),
	SCMP_SYS(bpf), SCMP_SYS(perf_event_open), SCMP_SYS(userfaultfd),
	SCMP_SYS(io_uring_setup), SCMP_SYS(io_uring_enter), SCMP_SYS(io_uring_register),
	SCMP_SYS(add_key), SCMP_SYS(request_key), SCMP_SYS(keyctl),
	SCMP_SYS(personality), SCMP_SYS(modify_ldt), SCMP_SYS(iopl), SCMP_SYS(ioperm),
	SCMP_SYS(swapon), SCMP_SYS(swapoff), SCMP_SYS(acct), SCMP_SYS(quotactl),
};

static const struct rule deadly_if[] = {
	SANITIZER_DEADLY_PTRACE,
	{ SCMP_SYS(clone), 1, { HAS(0, CLONE_NEWNS) } },
	{ SCMP_SYS(clone), 1, { HAS(0, CLONE_NEWCGROUP) } },
	{ SCMP_SYS(clone), 1, { HAS(0, CLONE_NEWUTS) } },
	{ SCMP_SYS(clone), 1, { HAS(0, CLONE_NEWIPC) } },
	{ SCMP_SYS(clone), 1, { HAS(0, CLONE_NEWUSER) } },
	{ SCMP_SYS(clone), 1, { HAS(0, CLONE_NEWPID) } },
	{ SCMP_SYS(clone), 1, { HAS(0, CLONE_NEWNET) } },
};

/* Families that the server has no use for; of the others, those are merely refused. */
static const struct rule deadly_server_if[] = {
	/* all families between the three above, and all after them */
	{ SCMP_SYS(socket), 1, { IS(0, AF_UNSPEC) } },
	{ SCMP_SYS(socket), 1, { IS(0, AF_AX25) } },
	{ SCMP_SYS(socket), 1, { IS(0, AF_IPX) } },
	{ SCMP_SYS(socket), 1, { IS(0, AF_APPLETALK) } },
	{ SCMP_SYS(socket), 1, { IS(0, AF_NETROM) } },
	{ SCMP_SYS(socket), 1, { IS(0, AF_BRIDGE) } },
	{ SCMP_SYS(socket), 1, { IS(0, AF_ATMPVC) } },
	{ SCMP_SYS(socket), 1, { IS(0, AF_X25) } },
	{ SCMP_SYS(socket), 1, { { 0, SCMP_CMP_GT, AF_INET6, 0 } } },
};
/* clang-format on */

/* -- from tables to filters ---------------------------------------------------------------- */

static void filter_release(scmp_filter_ctx *filter)
{
	if (*filter)
		seccomp_release(*filter);
}

/* libseccomp returns negative errno values. */
static int failed(int rc, const char *what, struct err *e)
{
	return rc < 0 ? (errno = -rc, err_errno(e, "seccomp: %s", what)) : 0;
}

static int add(scmp_filter_ctx filter, uint32_t action, const struct rule *rule, struct err *e)
{
	char what[64];

	(void)snprintf(what, sizeof(what), "rule for system call %d", rule->call);
	return failed(seccomp_rule_add_array(filter, action, rule->call, rule->count, rule->if_),
	              what, e);
}

static int add_calls(scmp_filter_ctx filter, uint32_t action, const int *calls, size_t n,
                     struct err *e)
{
	for (size_t i = 0; i < n; i++)
		if (add(filter, action, &(struct rule){ .call = calls[i] }, e) < 0)
			return -1;
	return 0;
}

static int add_rules(scmp_filter_ctx filter, uint32_t action, const struct rule *rules, size_t n,
                     struct err *e)
{
	for (size_t i = 0; i < n; i++)
		if (add(filter, action, &rules[i], e) < 0)
			return -1;
	return 0;
}

static int load(scmp_filter_ctx filter, struct err *e)
{
	/* A call by another ABI of the machine (int 0x80, x32) means other numbers. */
	if (failed(seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS),
	           "refuse other ABIs", e) < 0)
		return -1;
	return failed(seccomp_load(filter), "load", e);
}

/* Whose list. */
struct role {
	const struct role *base; /* whose list is its, too */
	const struct answer *answered;
	size_t answered_count;
	const int *allowed;
	size_t allowed_count;
	const struct rule *allowed_if;
	size_t allowed_if_count;
	const struct rule *deadly_if;
	size_t deadly_if_count;
};

static const struct role server = {
	.answered = answered,
	.answered_count = ARRAY_LEN(answered),
	.allowed = allowed_server,
	.allowed_count = ARRAY_LEN(allowed_server),
	.allowed_if = allowed_server_if,
	.allowed_if_count = ARRAY_LEN(allowed_server_if),
	.deadly_if = deadly_server_if,
	.deadly_if_count = ARRAY_LEN(deadly_server_if),
};

static const struct role outward = {
	.answered = answered_outward,
	.answered_count = ARRAY_LEN(answered_outward),
	.allowed = allowed_outward,
	.allowed_count = ARRAY_LEN(allowed_outward),
	.allowed_if = allowed_outward_if,
	.allowed_if_count = ARRAY_LEN(allowed_outward_if),
};

static const struct role courier = {
	.base = &outward,
	.allowed = allowed_courier,
	.allowed_count = ARRAY_LEN(allowed_courier),
	.allowed_if = allowed_courier_if,
	.allowed_if_count = ARRAY_LEN(allowed_courier_if),
};

static const struct role link_role = {
	.base = &outward,
	.allowed = allowed_link,
	.allowed_count = ARRAY_LEN(allowed_link),
};

static int add_answers(scmp_filter_ctx filter, const struct answer *answers, size_t n, bool allow,
                       struct err *e)
{
	for (size_t i = 0; i < n; i++)
		if (add(filter, allow ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(answers[i].error),
		        &answers[i].rule, e) < 0)
			return -1;
	return 0;
}

static int add_all_answers(scmp_filter_ctx filter, const struct role *role, bool allow,
                           struct err *e)
{
	if (add_answers(filter, answered_always, ARRAY_LEN(answered_always), allow, e) < 0)
		return -1;
	for (; role; role = role->base)
		if (add_answers(filter, role->answered, role->answered_count, allow, e) < 0)
			return -1;
	return 0;
}

static int load_answers(const struct role *role, struct err *e)
{
	auto_filter scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);

	if (!filter)
		return err_set(e, ENOMEM, "seccomp: no memory");
	return add_all_answers(filter, role, false, e) < 0 ? -1 : load(filter, e);
}

static int add_deadly(scmp_filter_ctx filter, const struct role *role, struct err *e)
{
	const uint32_t kill = SCMP_ACT_KILL_PROCESS;

	if (add_calls(filter, kill, deadly, ARRAY_LEN(deadly), e) < 0 ||
	    add_rules(filter, kill, deadly_if, ARRAY_LEN(deadly_if), e) < 0)
		return -1;
	for (; role; role = role->base)
		if (add_rules(filter, kill, role->deadly_if, role->deadly_if_count, e) < 0)
			return -1;
	return 0;
}

static int add_list(scmp_filter_ctx filter, const struct role *role, struct err *e)
{
	/* Its own threads only: abort(3) and pthread_kill(3), and no signal to another process. */
	const struct rule own = { SCMP_SYS(tgkill), 1, { IS(0, (scmp_datum_t)getpid()) } };
	const uint32_t allow = SCMP_ACT_ALLOW;

	/* These never get past the other filter. */
	if (add_all_answers(filter, role, true, e) < 0 ||
	    add_calls(filter, allow, allowed, ARRAY_LEN(allowed), e) < 0 ||
	    add_rules(filter, allow, allowed_if, ARRAY_LEN(allowed_if), e) < 0)
		return -1;
	for (; role; role = role->base)
		if (add_calls(filter, allow, role->allowed, role->allowed_count, e) < 0 ||
		    add_rules(filter, allow, role->allowed_if, role->allowed_if_count, e) < 0)
			return -1;
	return add(filter, allow, &own, e);
}

static int load_list(enum confine_mode mode, const struct role *role, struct err *e)
{
	const uint32_t unknown =
		mode == CONFINE_KILL ? SCMP_ACT_KILL_PROCESS : SCMP_ACT_ERRNO(EPERM);
	auto_filter scmp_filter_ctx filter = seccomp_init(unknown);

	if (!filter)
		return err_set(e, ENOMEM, "seccomp: no memory");
	if (failed(seccomp_attr_set(filter, SCMP_FLTATR_CTL_LOG, 1), "record refusals", e) < 0 ||
	    failed(seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2), "sort the list", e) < 0)
		return -1;
	/* A rule that says the same as the filter itself is refused by libseccomp. */
	if (add_list(filter, role, e) < 0 ||
	    (mode != CONFINE_KILL && add_deadly(filter, role, e) < 0))
		return -1;
	return load(filter, e);
}

int confine_calls(enum confine_mode mode, struct err *e)
{
	return load_answers(&server, e) < 0 ? -1 : load_list(mode, &server, e);
}

int confine_courier_calls(enum confine_mode mode, struct err *e)
{
	return load_answers(&courier, e) < 0 ? -1 : load_list(mode, &courier, e);
}

int confine_link_calls(enum confine_mode mode, struct err *e)
{
	return load_answers(&link_role, e) < 0 ? -1 : load_list(mode, &link_role, e);
}
