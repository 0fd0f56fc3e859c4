/*
 * command.h - how background commands are told of (inside this folder only).
 */
#ifndef DAEMON_TOOL_COMMAND_H
#define DAEMON_TOOL_COMMAND_H

#include "daemon/tool/help.h"

/* Append a line that says whether it runs, or how it ended. */
void command_describe(const struct command_state *state, struct buf *text);

/* The same for the event. */
void command_details(const struct command_state *state, struct tool_outcome *ret);

/* Start spec in the background and give its first output; as a tool's run. */
int command_start(const struct tool_context *c, const struct exec_spec *spec,
                  struct tool_outcome *ret, struct err *e);

#endif
