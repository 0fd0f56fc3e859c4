/*
 * runsc.h - how gVisor is called.
 */
#ifndef RUNNER_RUNSC_H
#define RUNNER_RUNSC_H

#include "common/err.h"

#include <stdbool.h>

/* The descriptor that runsc finds open beside 0 to 2. */
#define RUNSC_LOG_FD 3

/* Drop what runsc does not need, and execute it in the private root.  Returns only on failure. */
int runsc_exec(bool debug, struct err *e);

#endif
