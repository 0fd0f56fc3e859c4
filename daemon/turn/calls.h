/*
 * calls.h - the parts of a call's step, one after another (inside this folder only).
 */
#ifndef DAEMON_TURN_CALLS_H
#define DAEMON_TURN_CALLS_H

#include "daemon/tool/tools.h"
#include "daemon/turn/run.h"

/* Commit that the call begins. */
enum round calls_start(struct run *r, const struct item *call, struct err *e);

/* Run it, in any thread.  As tool_run(). */
int calls_run(struct run *r, const struct item *call, struct tool_outcome *ret, struct err *e)
	must_check;

/* The same without live output. */
int calls_run_quietly(struct run *r, const struct item *call, struct tool_outcome *ret,
                      struct err *e) must_check;

/* Commit what it came to; the outcome stays the caller's. */
enum round calls_commit(struct run *r, const struct item *call, struct tool_outcome *outcome,
                        struct err *e);

#endif
