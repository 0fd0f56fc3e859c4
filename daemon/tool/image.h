/*
 * image.h - images that a tool shows the model (inside this folder only).
 */
#ifndef DAEMON_TOOL_IMAGE_H
#define DAEMON_TOOL_IMAGE_H

#include "daemon/tool/tools.h"

#define IMAGE_MAX ((size_t)3 << 20) /* bytes of an image that is shown; every provider takes it */

/* The media type of what begins so; NULL when it is no image that models take. */
const char *image_type(const char *data, size_t len);

/* Read the image at path; as a tool's run. */
int image_read(const struct tool_context *c, const char *path, const char *type, uint64_t size,
               struct tool_outcome *ret, struct err *e);

#endif
