/*
 * lines.h - pick lines from a text that comes in pieces, with bounded memory.
 */
#ifndef DAEMON_TOOL_LINES_H
#define DAEMON_TOOL_LINES_H

#include "common/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINES_BYTES ((size_t)65536) /* of what is picked */
#define LINES_MATCH ((size_t)1000)  /* bytes shown of a line that was searched for */

struct lines {
	/* in: from line first on (from 1), at most count; or those that contain a text */
	uint64_t first, count;
	const char *contains; /* NULL = by number; else each is shown after its offset */
	/* out */
	struct buf out;  /* what was picked, each line with its end */
	uint64_t picked; /* lines in out */
	uint64_t number; /* lines that began */
	bool full;       /* out has no room for the next line */
	bool cut;        /* a line in out is not whole */
	/* inside */
	struct buf line;   /* the beginning of the line that has not ended */
	uint64_t line_len; /* bytes of it so far */
	uint64_t at;       /* bytes taken */
	bool within;       /* a line has begun and not ended */
};

void lines_init(struct lines *l, uint64_t first, uint64_t count, const char *contains);
void lines_release(struct lines *l);

void lines_take(struct lines *l, const char *data, size_t len);

/* The text ended, or has a gap of skip bytes here; a line that has no end is one. */
void lines_end(struct lines *l, uint64_t skip);

/* Nothing more will be picked. */
bool lines_done(const struct lines *l);

#endif
