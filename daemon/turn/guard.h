/*
 * guard.h - what ends a turn that would go on for ever (inside this folder only).
 */
#ifndef DAEMON_TURN_GUARD_H
#define DAEMON_TURN_GUARD_H

#include "daemon/store/turn.h"

#define GUARD_REPEATS 5 /* the same call with the same failure, in a row */

/* How often the model has answered in the items of a turn. */
size_t guard_steps(const struct item_list *items);

/* The call whose same failure ends the items GUARD_REPEATS times in a row; NULL = none. */
const struct item *guard_loop(const struct item_list *items);

#endif
