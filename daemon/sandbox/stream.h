/*
 * stream.h - a command that stays: whoever has it writes its input and takes its output
 * piece by piece, and does other things meanwhile.
 *
 * While nobody takes its output, at most the credit of a call (common/frame.h) waits here
 * and the command blocks.  One thread at a time; different ones may have it one after
 * another.
 */
#ifndef DAEMON_SANDBOX_STREAM_H
#define DAEMON_SANDBOX_STREAM_H

#include "daemon/sandbox/sandbox.h"

#include <stdbool.h>

struct stream;

/* Start the command, whose timeout must be 0, and the sandbox if need be; as sandbox_exec(). */
int stream_open(const struct sandbox_use *use, const struct exec_spec *spec, struct stream **ret,
                struct err *e) must_check;

/*
 * Give the sink what came, and send what was written as far as there is credit for it.
 * False once it has ended, after the last of its output was given.
 */
bool stream_take(struct stream *s, const struct output_sink *sink);

/* Sleep until stream_take() has something to do, at most so long; true when the cancel fired. */
bool stream_wait(const struct stream *s, const struct cancel *cancel, int timeout_ms);

/* Becomes readable with stream_wait()'s condition; borrowed. */
int stream_fd(const struct stream *s);

enum stream_state {
	STREAM_SILENT,
	STREAM_OUTPUT, /* something waits to be taken */
	STREAM_OVER,   /* it has ended, or its sandbox has */
};

/* What can be said of it without taking anything; makes stream_fd() unreadable. */
enum stream_state stream_look(const struct stream *s);

/* Queue input; -1 when more than max bytes would wait to be taken by the command. */
int stream_write(struct stream *s, const char *data, size_t len, size_t max, struct err *e)
	must_check;

/* No more input, once what is queued is sent. */
void stream_end_input(struct stream *s);

/* Kill it with all that it started.  What is not gone in two seconds ends the sandbox. */
void stream_kill(struct stream *s);

/* One that rests is no work: it does not keep its sandbox from being stopped as idle. */
void stream_rest(struct stream *s, bool rest);

/* Once it has ended: what became of it; -1: it was never run. */
int stream_result(const struct stream *s, struct exec_result *ret, struct err *e) must_check;

/* Kill it if need be, wait for its end, free. */
void stream_close(struct stream **s);

#endif
