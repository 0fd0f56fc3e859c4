/* system_prompt.h - what every model is told before a session (inside this folder only). */
#ifndef DAEMON_TURN_SYSTEM_PROMPT_H
#define DAEMON_TURN_SYSTEM_PROMPT_H

#include "common/buf.h"
#include "daemon/model/prompt.h"
#include "daemon/store/session.h"

#define SYSTEM_PROMPT_MAX \
	((size_t)128 * 1024) /* bytes; the session's instructions are part of it */

/* Append it; it changes only with the session's settings, so that providers can cache it. */
void system_prompt(const struct session *s, const struct model_tool *tools, size_t n,
                   struct buf *out);

/* The same for a child agent. */
void system_prompt_child(const struct session *s, const struct model_tool *tools, size_t n,
                         struct buf *out);

#endif
