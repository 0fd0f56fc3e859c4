/*
 * sanitizer.h - builds whose runtime watches the program, and what such a build does more.
 *
 * Lists of system calls are wider by what a runtime calls, each place saying what for;
 * builds for use have none of it.
 */
#ifndef COMMON_SANITIZER_H
#define COMMON_SANITIZER_H

#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED_ADDRESSES 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED_ADDRESSES 1
#endif
#endif

#if defined(__SANITIZE_THREAD__)
#define SANITIZED_THREADS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SANITIZED_THREADS 1
#endif
#endif

#ifndef SANITIZED_ADDRESSES
#define SANITIZED_ADDRESSES 0
#endif
#ifndef SANITIZED_THREADS
#define SANITIZED_THREADS 0
#endif
#define SANITIZED (SANITIZED_ADDRESSES || SANITIZED_THREADS)

/* ThreadSanitizer starts one in every process that was forked, and it cannot be ended. */
#define SANITIZER_OWN_THREADS SANITIZED_THREADS

/* What its runtime takes of a thread's stack, in bytes: thread-local storage, larger frames. */
#define SANITIZER_STACK (SANITIZED ? (size_t)1 << 20 : (size_t)0)

#if SANITIZED_ADDRESSES
#include <sanitizer/lsan_interface.h>
#endif

/*
 * Before a process ends by _exit(2): memory that nothing points to is reported, and the
 * end of the process, with a status of its own.  exit(3) and main's return count by themselves.
 */
static inline void sanitizer_count_leaks(void)
{
#if SANITIZED_ADDRESSES
	__lsan_do_leak_check();
#endif
}

/*
 * Before a process ends that takes its children along: they count as well, and are waited
 * for, some seconds at most.
 */
#if SANITIZED_ADDRESSES
void sanitizer_await_children(void);
#else
static inline void sanitizer_await_children(void)
{
}
#endif

/*
 * A fault on purpose, so that a test can tell whether the report of each process is seen.  It is
 * asked for in the environment, as "CLOISTER_FAULT=server=leak:1009 runner=leak:1013", where
 * numbers tell reports apart; sanitizer_asked() is that variable, to be handed on, or NULL.
 */
#if SANITIZED
void sanitizer_fault(const char *who);
char *sanitizer_asked(void);
#else
static inline void sanitizer_fault(const char *who)
{
	(void)who;
}

static inline char *sanitizer_asked(void)
{
	return NULL;
}
#endif

#endif
