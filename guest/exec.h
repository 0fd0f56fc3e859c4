/* exec.h - the call that runs a process. */
#ifndef GUEST_EXEC_H
#define GUEST_EXEC_H

#include "guest/call.h"

/* NULL when nothing was run, for the reason in e. */
struct call *exec_start(const struct json *request, struct err *e);

#define EXEC_BACKGROUND_MAX 8 /* background commands that run */

/* How many background commands run. */
size_t exec_background(void);

/* Of a background command: owner of its output. */
struct exec;

/* Write to its standard input, and end that; FAULT_BUSY when it does not read. */
int exec_write(struct exec *x, const char *data, size_t len, bool end, struct err *e) must_check;

/* Kill it with all of its tree; it ends with the reason "stopped". */
void exec_stop(struct exec *x);

#endif
