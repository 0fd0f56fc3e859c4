/*
 * tool.h - what a tool is, and all of them (inside this folder only).
 */
#ifndef DAEMON_TOOL_TOOL_H
#define DAEMON_TOOL_TOOL_H

#include "daemon/tool/help.h"
#include "daemon/tool/schema.h"
#include "daemon/tool/tools.h"

struct tool {
	struct model_tool shown;
	/* As tool_run(); ret was begun. */
	int (*run)(const struct tool_context *c, const struct item *call, struct tool_outcome *ret,
	           struct err *e);
	bool writes; /* tool_writes() */
};

extern const struct tool tool_shell;
extern const struct tool tool_read_file;
extern const struct tool tool_write_file;
extern const struct tool tool_edit_file;
extern const struct tool tool_apply_patch;
extern const struct tool tool_list_files;
extern const struct tool tool_search;
extern const struct tool tool_read_output;
extern const struct tool tool_shell_read;
extern const struct tool tool_shell_write;
extern const struct tool tool_shell_stop;
extern const struct tool tool_update_plan;

#endif
