/*
 * output.h - what a child process says, bounded in every direction.
 */
#ifndef RUNNER_OUTPUT_H
#define RUNNER_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OUTPUT_LOG_MAX  ((size_t)64 * 1024)  /* bytes of a child that reach the log as they come */
#define OUTPUT_TAIL_MAX 2048                 /* bytes kept for the case of failure */
#define OUTPUT_READ_MAX ((size_t)128 * 1024) /* bytes of one output_read(): two full pipes */
#define OUTPUT_REST_MS  100                  /* between two readings, beyond OUTPUT_LOG_MAX bytes */

struct output {
	int fd; /* read end, non-blocking; -1 when closed */
	const char *who;
	bool live;        /* lines go to the log at once, up to OUTPUT_LOG_MAX */
	size_t logged;    /* bytes that went there */
	size_t taken;     /* bytes read, as far as they count: up to OUTPUT_LOG_MAX and one */
	uint64_t rest_ms; /* of the loudest: nothing is read before; monotonic */
	char line[512];
	size_t line_len;
	char tail[OUTPUT_TAIL_MAX]; /* the last bytes */
	size_t tail_len;
};

/* Takes fd and makes it non-blocking. */
void output_init(struct output *o, int fd, const char *who, bool live);

/* Take what is there, at most OUTPUT_READ_MAX bytes of it; closes fd at its end. */
void output_read(struct output *o);

/*
 * The same for a loop: a child that said too much is read now and then only, and waits
 * meanwhile; it must not use up the processor that keeps its sandbox within its bounds.
 */
void output_serve(struct output *o, uint64_t now_ms);

/* What that loop polls: -1 while the child rests.  *wake_ms becomes when it has rested, if sooner.
 */
int output_poll(const struct output *o, uint64_t now_ms, uint64_t *wake_ms);

/* Log what has not been logged: the kept tail line by line, or the last half line of a live one. */
void output_log_tail(struct output *o);

/* The last line that was said, without its end; "" when there was none. */
void output_last_line(const struct output *o, char *ret, size_t size);

void output_close(struct output *o);

#endif
