#include "common/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_release(struct buf *b)
{
	free(b->data);
	b->data = NULL;
	b->len = b->cap = 0;
}

char *buf_extend(struct buf *b, size_t len)
{
	size_t need, cap = b->cap ? b->cap : 256;
	char *data;

	if (b->failed || len > b->max || b->len > b->max - len) {
		b->failed = true;
		return NULL;
	}
	need = b->len + len + 1;
	while (cap < need)
		cap *= 2;
	if (cap != b->cap) {
		data = realloc(b->data, cap);
		if (!data) {
			b->failed = true;
			return NULL;
		}
		b->data = data;
		b->cap = cap;
	}
	b->len += len;
	b->data[b->len] = '\0';
	return b->data + b->len - len;
}

void buf_add(struct buf *b, const void *data, size_t len)
{
	char *at = buf_extend(b, len);

	if (at && len)
		memcpy(at, data, len);
}

void buf_adds(struct buf *b, const char *text)
{
	buf_add(b, text, strlen(text));
}

void buf_addc(struct buf *b, char c)
{
	buf_add(b, &c, 1);
}

void buf_addf(struct buf *b, const char *fmt, ...)
{
	va_list ap, again;
	int n;
	char *at;

	va_start(ap, fmt);
	va_copy(again, ap);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	at = n < 0 ? NULL : buf_extend(b, (size_t)n);
	if (at)
		(void)vsnprintf(at, (size_t)n + 1, fmt, again);
	else
		b->failed = true;
	va_end(again);
}

void buf_consume(struct buf *b, size_t n)
{
	if (!n)
		return;
	b->len -= n;
	memmove(b->data, b->data + n, b->len + 1);
}

void buf_truncate(struct buf *b, size_t len)
{
	b->len = len;
	if (b->data)
		b->data[len] = '\0';
}

void buf_reset(struct buf *b)
{
	b->len = 0;
	b->failed = false;
	if (b->data)
		b->data[0] = '\0';
}

char *buf_take(struct buf *b)
{
	char *data;

	if (!b->data)
		return calloc(1, 1);
	data = b->data;
	b->data = NULL;
	b->len = b->cap = 0;
	return data;
}
