/*
 * line.h - bytes of a harness's standard output, cut into lines.
 *
 * A line ends with a line feed; a carriage return before it belongs to its end.  One that
 * is longer than HARNESS_LINE_MAX is thrown away up to its end, and counted.
 */
#ifndef DAEMON_HARNESS_LINE_H
#define DAEMON_HARNESS_LINE_H

#include "common/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HARNESS_LINE_MAX ((size_t)4 << 20) /* bytes, without its end */

enum line_result {
	LINE_NONE,     /* all bytes were used, and the line goes on */
	LINE_WHOLE,    /* its text is in text, until the next call */
	LINE_TOO_LONG, /* it had so many bytes as skipped says */
	LINE_NO_MEMORY,
};

struct line_reader {
	struct buf text;
	uint64_t skipped; /* bytes of a line that is too long; 0 = it is not, so far */
	bool given;       /* text was given, and is forgotten by the next call */
};

void line_init(struct line_reader *r);
void line_release(struct line_reader *r);

/* Take bytes up to the end of a line; *ret_used says how many. */
enum line_result line_take(struct line_reader *r, const char *data, size_t len, size_t *ret_used);

#endif
