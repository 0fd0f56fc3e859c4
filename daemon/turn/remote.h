/*
 * remote.h - calls of the tools of MCP servers, in a turn (inside this folder only).
 *
 * They run from here and never in the sandbox, so no sandbox is started for them, and none
 * of an earlier daemon can still be at work on one.
 */
#ifndef DAEMON_TURN_REMOTE_H
#define DAEMON_TURN_REMOTE_H

#include "daemon/model/prompt.h"
#include "daemon/tool/tools.h"
#include "daemon/turn/run.h"

#include <stdbool.h>

/*
 * All tools of the turn, those of MCP servers last; valid until the next call.  Servers are
 * asked for theirs when the turn has none yet, or when one said that it has others; of one
 * that is not there the turn's stream is told, and the turn goes on.
 */
const struct model_tool *remote_offer(struct run *r, size_t *ret_count);

/* The call is of such a tool, whether it is there or not. */
bool remote_is(const struct item *call);

/*
 * Whether the call can be made at all, before anybody is asked about it: false with *refusal
 * filled.  *ret_writes: its server does not say that it changes nothing.
 */
bool remote_judge(struct run *r, const struct item *call, bool *ret_writes,
                  struct tool_outcome *refusal);

/* The call can be made, and its server says that it changes nothing. */
bool remote_reads(struct run *r, const struct item *call);

/*
 * As tool_run(), for one that was judged, or that reads.  Several may run at once, and then
 * nothing else of this file does.
 */
int remote_run(struct run *r, const struct item *call, struct tool_outcome *ret, struct err *e)
	must_check;

void remote_forget(struct run *r);

#endif
