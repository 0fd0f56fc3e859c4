/*
 * sanitizer.h - what the runtime of a sanitizer needs beyond the program.
 *
 * To say where a fault is, it reads the process's own maps and the files that are
 * mapped, and sorts signals out on stacks of its own.  Builds for use have none of it.
 */
#ifndef DAEMON_CONFINE_SANITIZER_H
#define DAEMON_CONFINE_SANITIZER_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CONFINE_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CONFINE_SANITIZED 1
#endif
#endif

#ifndef CONFINE_SANITIZED
#define CONFINE_SANITIZED 0
#endif

#endif
