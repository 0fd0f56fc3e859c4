#include "runner/output.h"

#include "common/fd.h"
#include "common/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CHUNK 4096

void output_init(struct output *o, int fd, const char *who, bool live)
{
	struct err ignored = ERR_INIT;

	*o = (struct output){ .fd = fd, .who = who, .live = live };
	if (fd_set_nonblocking(fd, &ignored) < 0)
		fd_close(&o->fd); /* better deaf than stuck */
}

static void log_line(const struct output *o, const char *line, size_t len)
{
	if (len > 0)
		log_info("%s: %.*s", o->who, (int)len, line);
}

static void log_live(struct output *o, const char *data, size_t len)
{
	for (size_t i = 0; i < len && o->logged <= OUTPUT_LOG_MAX; i++) {
		if (++o->logged > OUTPUT_LOG_MAX) {
			log_line(o, o->line, o->line_len);
			log_warn("%s: more than %zu bytes; the rest is dropped", o->who,
			         OUTPUT_LOG_MAX);
			return;
		}
		if (data[i] != '\n')
			o->line[o->line_len++] = data[i];
		if (data[i] == '\n' || o->line_len == sizeof(o->line)) {
			log_line(o, o->line, o->line_len);
			o->line_len = 0;
		}
	}
}

static void keep_tail(struct output *o, const char *data, size_t len)
{
	size_t stay;

	if (len > sizeof(o->tail)) {
		data += len - sizeof(o->tail);
		len = sizeof(o->tail);
	}
	stay = sizeof(o->tail) - len;
	if (stay > o->tail_len)
		stay = o->tail_len;
	memmove(o->tail, o->tail + o->tail_len - stay, stay);
	memcpy(o->tail + stay, data, len);
	o->tail_len = stay + len;
}

void output_read(struct output *o)
{
	char data[CHUNK];

	/* Who writes as fast as this reads must not keep the runner from everything else. */
	for (size_t left = OUTPUT_READ_MAX / CHUNK; left > 0 && o->fd >= 0; left--) {
		ssize_t n = read(o->fd, data, sizeof(data));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			fd_close(&o->fd);
			return;
		}
		o->taken += o->taken > OUTPUT_LOG_MAX ? 0 : (size_t)n;
		keep_tail(o, data, (size_t)n);
		if (o->live)
			log_live(o, data, (size_t)n);
	}
}

void output_serve(struct output *o, uint64_t now_ms)
{
	if (now_ms < o->rest_ms)
		return;
	output_read(o);
	if (o->taken > OUTPUT_LOG_MAX)
		o->rest_ms = now_ms + OUTPUT_REST_MS;
}

int output_poll(const struct output *o, uint64_t now_ms, uint64_t *wake_ms)
{
	if (o->fd < 0 || now_ms >= o->rest_ms)
		return o->fd;
	if (*wake_ms == 0 || o->rest_ms < *wake_ms)
		*wake_ms = o->rest_ms;
	return -1;
}

static void log_tail(const struct output *o)
{
	const char *end = o->tail + o->tail_len;

	for (const char *at = o->tail; at < end; at++) {
		const char *stop = memchr(at, '\n', (size_t)(end - at));

		if (!stop)
			stop = end;
		log_line(o, at, (size_t)(stop - at));
		at = stop;
	}
}

void output_log_tail(struct output *o)
{
	if (!o->live)
		log_tail(o);
	else if (o->logged <= OUTPUT_LOG_MAX)
		log_line(o, o->line, o->line_len);
	o->line_len = 0;
	o->tail_len = 0;
}

void output_last_line(const struct output *o, char *ret, size_t size)
{
	size_t end = o->tail_len;
	size_t start;

	while (end > 0 && o->tail[end - 1] == '\n')
		end--;
	for (start = end; start > 0 && o->tail[start - 1] != '\n';)
		start--;
	(void)snprintf(ret, size, "%.*s", (int)(end - start), o->tail + start);
}

void output_close(struct output *o)
{
	fd_close(&o->fd);
}
