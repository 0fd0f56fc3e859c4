/*
 * log.h - one line per event on standard error.
 *
 * "2026-01-31T12:00:00.123Z info daemon: message".  Control characters in the
 * message become '?', so that nothing a peer sent can forge a second line.  A
 * line is at most 2,048 bytes and written with one write(2).  Never pass a
 * prompt, a command's output or a token.  Thread-safe.
 */
#ifndef COMMON_LOG_H
#define COMMON_LOG_H

#include "common/attr.h"

#include <stdatomic.h>
#include <stdbool.h>

enum log_level {
	LOG_ERROR,
	LOG_WARN,
	LOG_INFO,
	LOG_DEBUG,
};

/* Name the program and the most detailed level that is written (default "cloister", LOG_INFO). */
void log_setup(const char *program, enum log_level level);

void log_write(enum log_level level, const char *fmt, ...) printf_like(2, 3);

/* Of lines that somebody outside can cause as often as they like.  Zero is a good start. */
struct log_pace {
	atomic_uint_fast64_t next_ms; /* monotonic: none before */
	atomic_uint left_out;
};

#define LOG_PACE_MS 10000

/*
 * True when a line may be written now, once in LOG_PACE_MS; *ret_left_out is how many were
 * not written since the last one.
 */
bool log_paced(struct log_pace *pace, unsigned int *ret_left_out);

#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_write(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_write(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_DEBUG, __VA_ARGS__)

#endif
