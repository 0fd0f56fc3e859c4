/*
 * root.h - the private root of a sandbox: all that gVisor can see of this machine.
 */
#ifndef RUNNER_ROOT_H
#define RUNNER_ROOT_H

#include "common/err.h"
#include "runner/args.h"

#include <stddef.h>

#define ROOT_RUNSC     "/runsc"       /* the gVisor binary */
#define ROOT_RUNSC_DIR "/runsc-state" /* where it keeps the state of its container */
#define ROOT_DEBUG_LOG "/debug-log"   /* the operator's file, when there is one */
#define ROOT_PID_FILE  "/bundle/pid"  /* written by it when the sandbox exists */

/*
 * In a mount namespace of our own: build the private root on mount_point, write
 * config into the bundle, and make it the root of this process.  The two
 * directories of the tenant are opened again here and compared once more, because
 * mounts can only be cloned within one mount namespace.
 */
int root_enter(const struct runner_args *args, const char *mount_point, const char *config,
               size_t config_len, struct err *e) must_check;

#endif
