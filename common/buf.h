/*
 * buf.h - a byte buffer that grows up to a ceiling given at birth.
 *
 * Appending past the ceiling, or without memory, marks the buffer as failed and
 * drops that append and every later one: check buf_failed() once at the end.
 * The bytes are always followed by a NUL that len does not count.
 */
#ifndef COMMON_BUF_H
#define COMMON_BUF_H

#include "common/attr.h"

#include <stdbool.h>
#include <stddef.h>

struct buf {
	char *data; /* NULL until the first append */
	size_t len;
	size_t cap;
	size_t max; /* ceiling of len, in bytes */
	bool failed;
};

#define BUF_INIT(ceiling)        \
	{                        \
		.max = (ceiling) \
	}
#define auto_buf __attribute__((cleanup(buf_release)))

void buf_release(struct buf *b);

void buf_add(struct buf *b, const void *data, size_t len);
void buf_adds(struct buf *b, const char *text);
void buf_addc(struct buf *b, char c);
void buf_addf(struct buf *b, const char *fmt, ...) printf_like(2, 3);

/* Room for len more bytes to be written by the caller at the returned place; NULL marks failure. */
char *buf_extend(struct buf *b, size_t len);

/* Drop the first n bytes (n <= len). */
void buf_consume(struct buf *b, size_t n);

/* Keep the first len bytes only (len <= the length now). */
void buf_truncate(struct buf *b, size_t len);

/* Empty the buffer and clear the failure, keeping the memory. */
void buf_reset(struct buf *b);

static inline bool buf_failed(const struct buf *b)
{
	return b->failed;
}

/* Hand the bytes (never NULL, NUL-terminated) to the caller and empty the buffer; NULL = no memory.
 */
char *buf_take(struct buf *b);

#endif
