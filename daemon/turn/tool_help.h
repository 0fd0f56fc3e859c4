/*
 * tool_help.h - what tools and questions have in common: results and arguments (inside
 * this folder only).
 */
#ifndef DAEMON_TURN_TOOL_HELP_H
#define DAEMON_TURN_TOOL_HELP_H

#include "daemon/turn/tools.h"

/* An empty result of the call, with empty details. */
void tool_begin(const struct item *call, struct tool_outcome *ret);

/* Make it "error: code: text", the form in which a model sees a mistake of its own.  0. */
int tool_refuse(struct tool_outcome *ret, const char *code, const char *text);

/*
 * Parse and match arguments; 0, or -1 with *ret filled.  *ret_doc owns the values.
 */
int tool_arguments(const struct item *call, const struct json_field *fields, size_t n,
                   const struct json **values, struct json **ret_doc, struct tool_outcome *ret);

/* The integer in v, or its default when absent; false with *ret filled when not from 1 to max. */
bool tool_bounded(const struct json *v, const char *name, int64_t fallback, int64_t max,
                  int64_t *ret_value, struct tool_outcome *ret);

#endif
