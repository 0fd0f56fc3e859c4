/* exec.h - the call that runs a process. */
#ifndef GUEST_EXEC_H
#define GUEST_EXEC_H

#include "guest/call.h"

/* NULL when nothing was run, for the reason in e. */
struct call *exec_start(const struct json *request, struct err *e);

#endif
