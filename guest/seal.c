/*
 * In a user namespace of its own, a process of the tenant would have every power over
 * what it makes there: file systems in memory without a size, and, because gVisor
 * exempts who has powers, processes that no limit counts.  So nobody makes namespaces,
 * and the other kinds are refused with it.  What is laid over the guest here is
 * inherited by everything that it ever starts, and cannot be taken off.  The limits of
 * the cgroup are around all of it.
 */
#include "guest/seal.h"

#include "common/attr.h"
#include "guest/fault.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define ABI AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ABI AUDIT_ARCH_AARCH64
#else
#error "the order of clone(2)'s arguments is not known for this machine"
#endif

#define OTHER_ABI 0x40000000 /* bit of the numbers of x32 */

#define NAMESPACES                                                                                 \
	(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWIPC | \
	 CLONE_NEWCGROUP)

#define FIELD(name)    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, name))
#define RETURN(action) BPF_STMT(BPF_RET | BPF_K, action)
/* How many of the instructions after it are left out when it holds, and when not. */
#define IF_IS(value, yes, no)  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no)
#define IF_HAS(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, value, yes, no)

static struct sock_filter program[] = {
	FIELD(arch),
	IF_IS(ABI, 1, 0),
	RETURN(SECCOMP_RET_ERRNO | ENOSYS),
	FIELD(nr),
	IF_HAS(OTHER_ABI, 1, 0),
	/* Keeps its flags in memory, where they cannot be judged; libraries then use clone(2). */
	IF_IS(SYS_clone3, 0, 1),
	RETURN(SECCOMP_RET_ERRNO | ENOSYS),
	IF_IS(SYS_clone, 2, 0),
	IF_IS(SYS_unshare, 1, 0),
	RETURN(SECCOMP_RET_ALLOW),
	FIELD(args[0]),
	IF_HAS(NAMESPACES, 0, 1),
	RETURN(SECCOMP_RET_ERRNO | EPERM),
	RETURN(SECCOMP_RET_ALLOW),
};

void seal_self(void)
{
	const struct sock_fprog filter = { ARRAY_LEN(program), program };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) < 0)
		fault_die(GUEST_EXIT_START, "forbid namespaces: %s", strerror(errno));
}
