/*
 * bundle.h - what the sandbox is, in the words of the OCI runtime specification.
 */
#ifndef RUNNER_BUNDLE_H
#define RUNNER_BUNDLE_H

#include "common/buf.h"
#include "runner/args.h"

#include <stddef.h>

/* Paths in the private root that runsc sees. */
#define BUNDLE_DIR       "/bundle"
#define BUNDLE_ROOTFS    "/rootfs"
#define BUNDLE_WORKSPACE "/workspace"
#define BUNDLE_STATE     "/state"

/* Paths in the sandbox. */
#define BUNDLE_GUEST "/cloister/guest"

#define BUNDLE_MAX ((size_t)64 * 1024)

/* Append config.json.  What the sandbox keeps in memory is a fifth of limits->memory at most. */
void bundle_write(const struct limits *limits, struct buf *out);

#endif
