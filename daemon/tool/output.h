/*
 * output.h - what is kept of a command's output: its head, its tail, and the truth about the rest.
 */
#ifndef DAEMON_TOOL_OUTPUT_H
#define DAEMON_TOOL_OUTPUT_H

#include "common/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OUTPUT_HALF ((size_t)32768) /* bytes kept of the head, and of the tail */

struct output {
	char head[OUTPUT_HALF];
	char tail[OUTPUT_HALF]; /* a ring: byte number n (from OUTPUT_HALF on) at n % OUTPUT_HALF */
	uint64_t total;         /* bytes taken in all */
};

void output_init(struct output *o);

void output_take(struct output *o, const char *data, size_t len);

/*
 * Append what was kept as UTF-8: everything when at most 2 x OUTPUT_HALF bytes came,
 * else head, a line that says how many bytes were cut, and tail.  *ret_lossy: bytes
 * were replaced by U+FFFD.  True when something was cut.
 */
bool output_render(const struct output *o, struct buf *out, bool *ret_lossy);

/* Longest prefix of valid UTF-8 text that has at most max characters; its length in bytes. */
size_t output_prefix(const char *text, size_t len, size_t max_chars);

#endif
