/*
 * redact.h - arguments of tool calls as a person may see them: without what is secret.
 *
 * Whatever shows a call, live or stored, goes through here.  What is run and what a model
 * is given is never redacted.
 */
#ifndef DAEMON_TURN_REDACT_H
#define DAEMON_TURN_REDACT_H

#include "common/buf.h"
#include "daemon/store/turn.h"

#define REDACT_MAX ((size_t)64 * 1024 * 1024) /* bytes of arguments that were written anew */

/*
 * True when the arguments of a call name a secret; out holds them without it then, or a
 * word in their place when they are no JSON.  All others are to be shown byte for byte.
 */
bool redact_arguments(const struct item *call, struct buf *out);

#endif
