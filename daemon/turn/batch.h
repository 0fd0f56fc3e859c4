/*
 * batch.h - calls of one answer that only read, run at once (inside this folder only).
 */
#ifndef DAEMON_TURN_BATCH_H
#define DAEMON_TURN_BATCH_H

#include "daemon/turn/run.h"

#define BATCH_MAX 4 /* calls at once */

/*
 * How many calls from this one on, which is open, may run at once: those behind one another
 * that have not begun and only read, and 1 at least.
 */
size_t batch_size(struct run *r, const struct item *call);

/* Run them; their starts and their results are committed in the order of the calls. */
enum round batch_run(struct run *r, const struct item *call, size_t n, struct err *e);

#endif
