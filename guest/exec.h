/* exec.h - the call that runs a process. */
#ifndef GUEST_EXEC_H
#define GUEST_EXEC_H

#include "guest/call.h"

int exec_start(const struct json *request, struct call **ret, struct err *e);

#endif
