/*
 * log.h - one line per event on standard error.
 *
 *   text     2026-01-31T12:00:00.123Z info cloisterd[3f9ac1d2]: message
 *   json     {"time":"...","level":"info","program":"cloisterd","instance":"3f9ac1d2",
 *            "request":"...","message":"..."}
 *   journal  <6>[3f9ac1d2] message         for a service manager that reads priorities
 *
 * Control characters in the message become '?', so that nothing a peer sent can forge a
 * second line, or steer a terminal.  A line is at most LOG_LINE_MAX bytes and written with
 * one write(2).  Never pass a prompt, a command's output or a token.  Thread-safe.
 */
#ifndef COMMON_LOG_H
#define COMMON_LOG_H

#include "common/attr.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOG_LINE_MAX 4096
#define LOG_TEXT_MAX 1900 /* of a message; what is longer is cut */

enum log_level {
	LOG_ERROR,
	LOG_WARN,
	LOG_INFO,
	LOG_DEBUG,
};

enum log_format {
	LOG_TEXT,
	LOG_JSON,
	LOG_JOURNAL,
};

/* Name the program and the most detailed level that is written (default "cloister", LOG_INFO). */
void log_setup(const char *program, enum log_level level);

/* Before any thread: the form of lines, and an id by which this run is told from others. */
void log_begin(enum log_format format);

enum log_format log_form(void);

/* Eight hex digits; "" before log_begin(). */
const char *log_instance(void);

/* What this thread works on from now on: its lines say so.  Borrowed; NULL = nothing. */
void log_request(const char *id);

void log_write(enum log_level level, const char *fmt, ...) printf_like(2, 3);

/* A line of the kind that an operator wants to see again. */
struct log_line {
	uint64_t at_ms; /* wall clock */
	enum log_level level;
	char text[300]; /* cut when longer */
};

#define LOG_RECENT 16

/* The last errors and warnings of this process, the newest first; how many there are. */
size_t log_recent(struct log_line ret[LOG_RECENT]);

/* In a process that was forked: forget what another one wrote. */
void log_forget(void);

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
