/*
 * exec.h - an exec as a call: its START, its output, its EXIT (inside this folder only).
 */
#ifndef DAEMON_SANDBOX_EXEC_H
#define DAEMON_SANDBOX_EXEC_H

#include "daemon/sandbox/call.h"
#include "daemon/sandbox/outputs.h"

/* ctx of exec_take(), which counts what came. */
struct exec_output {
	const struct output_sink *sink; /* NULL = thrown away */
	struct exec_result *result;
};

/* For call_plan. */
int exec_take(void *ctx, int stream, const char *data, size_t len, struct err *e);

/* What became of a call that is exited or lost; -1: nothing was run. */
int exec_end(struct call *c, const struct call_plan *plan, struct exec_result *ret, struct err *e)
	must_check;

#endif
