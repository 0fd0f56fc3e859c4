/*
 * sanitizer_calls.h - the system calls that a sanitizer's runtime makes by itself, for the
 * lists of the programs that are confined; empty in builds for use.
 *
 * A report reads the process's own maps and the files that are mapped, and handles signals
 * on stacks of its own; locks yield.  Which files: Landlock.
 *
 * The search for leaks stops the threads as a debugger does: a clone of the process that
 * shares its memory attaches to each (ptrace), having made the process dumpable.  What is
 * attached to is not known to a filter; out of a Landlock domain there is no way.  Every other
 * clone that is no thread, and seizing, is as deadly as in a build for use.
 *
 * ThreadSanitizer has threads of its own, which sleep and look around: one starts with a
 * process that is forked, before the list is loaded, and stays outside of it; one with the
 * first thread of the program.
 */
#ifndef COMMON_SANITIZER_CALLS_H
#define COMMON_SANITIZER_CALLS_H

#include "common/sanitizer.h"

#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>

/* The only clone(2) that is no thread. */
#define SANITIZER_CLONE ((scmp_datum_t)CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_UNTRACED)

#define SANITIZER_IF(call, arg, value)                     \
	{                                                  \
		SCMP_SYS(call), 1,                         \
		{                                          \
			{                                  \
				arg, SCMP_CMP_EQ, value, 0 \
			}                                  \
		}                                          \
	}
#define SANITIZER_OPEN(call, flags)                                                                \
	{                                                                                          \
		SCMP_SYS(call), 1,                                                                 \
		{                                                                                  \
			{                                                                          \
				flags, SCMP_CMP_MASKED_EQ, O_ACCMODE | O_CREAT | O_TRUNC, O_RDONLY \
			}                                                                          \
		}                                                                                  \
	}

/* clang-format off */
#if SANITIZED
#define SANITIZER_REPORT_CALLS \
	SCMP_SYS(fstat), SCMP_SYS(lseek), SCMP_SYS(newfstatat), SCMP_SYS(pread64), \
	SCMP_SYS(readlink), SCMP_SYS(sched_yield), SCMP_SYS(sigaltstack), SCMP_SYS(stat),
#define SANITIZER_REPORT_RULES SANITIZER_OPEN(open, 1), SANITIZER_OPEN(openat, 2),
#else
#define SANITIZER_REPORT_CALLS
#define SANITIZER_REPORT_RULES
#endif

#if SANITIZED_ADDRESSES
#define SANITIZER_CALLS SANITIZER_REPORT_CALLS \
	SCMP_SYS(getdents), SCMP_SYS(getdents64), SCMP_SYS(getppid), SCMP_SYS(wait4),
#define SANITIZER_RULES SANITIZER_REPORT_RULES \
	SANITIZER_IF(clone, 0, SANITIZER_CLONE), \
	SANITIZER_IF(prctl, 0, PR_GET_DUMPABLE), SANITIZER_IF(prctl, 0, PR_SET_DUMPABLE), \
	SANITIZER_IF(prctl, 0, PR_SET_PTRACER), \
	{ SCMP_SYS(prctl), 2, { { 0, SCMP_CMP_EQ, PR_SET_PDEATHSIG, 0 }, \
	                        { 1, SCMP_CMP_EQ, SIGKILL, 0 } } }, \
	SANITIZER_IF(ptrace, 0, PTRACE_ATTACH), SANITIZER_IF(ptrace, 0, PTRACE_CONT), \
	SANITIZER_IF(ptrace, 0, PTRACE_DETACH), SANITIZER_IF(ptrace, 0, PTRACE_KILL), \
	SANITIZER_IF(ptrace, 0, PTRACE_GETREGS), SANITIZER_IF(ptrace, 0, PTRACE_GETREGSET),
#elif SANITIZED_THREADS
#define SANITIZER_CALLS SANITIZER_REPORT_CALLS SCMP_SYS(nanosleep),
#define SANITIZER_RULES SANITIZER_REPORT_RULES
#else
#define SANITIZER_CALLS
#define SANITIZER_RULES
#endif

#if SANITIZED_ADDRESSES
#define SANITIZER_DEADLY_CLONE { SCMP_SYS(clone), 1, { { 0, SCMP_CMP_NE, SANITIZER_CLONE, 0 } } }
#define SANITIZER_DEADLY_PTRACE SANITIZER_IF(ptrace, 0, PTRACE_SEIZE)
#else
#define SANITIZER_DEADLY_CLONE { SCMP_SYS(clone), 0, {} }
#define SANITIZER_DEADLY_PTRACE { SCMP_SYS(ptrace), 0, {} }
#endif
/* clang-format on */

#endif
