/*
 * harness.h - turns whose session is driven by the tenant's own program (inside this folder
 * only).
 */
#ifndef DAEMON_TURN_HARNESS_H
#define DAEMON_TURN_HARNESS_H

#include "daemon/turn/run.h"

extern const struct engine engine_harness;

/* Whether a request is a harness's: nobody waits for its answer once the run is gone. */
bool harness_asked(const struct request *q);

/* For harnesses_conf.  ctx: struct turns. */
void harness_stirred(void *ctx, const struct uuid *tenant, const struct uuid *turn);

#endif
