/*
 * help.h - what tools and questions have in common: results and arguments.
 */
#ifndef DAEMON_TOOL_HELP_H
#define DAEMON_TOOL_HELP_H

#include "common/buf.h"
#include "daemon/tool/tools.h"

#define TOOL_RESULT_MAX \
	((size_t)512 * 1024) /* bytes of a result's text; repair can triple output */

/* An empty result of the call, with empty details. */
void tool_begin(const struct item *call, struct tool_outcome *ret);

/* Make text the result's; it is empty afterwards. */
void tool_body(struct tool_outcome *ret, struct buf *text);

/* Say where output that was cut can be read; id "" = nowhere. */
void tool_put_output(struct tool_outcome *ret, const char *id, struct buf *text);

/* Make it "error: code: text", the form in which a model sees a mistake of its own.  0. */
int tool_refuse(struct tool_outcome *ret, const char *code, const char *text);

/*
 * What the guest refused becomes a result: 0.  What the sandbox as a whole could not do
 * stays an error: -1.
 */
int tool_refuse_with(struct tool_outcome *ret, struct err *e);

/* Whether an error with that code is an answer of the guest. */
bool tool_guest_answered(int code);

/*
 * Parse and match arguments; 0, or -1 with *ret filled.  *ret_doc owns the values.
 */
int tool_arguments(const struct item *call, const struct json_field *fields, size_t n,
                   const struct json **values, struct json **ret_doc, struct tool_outcome *ret);

/* The integer in v, or its default when absent; false with *ret filled when not from 1 to max. */
bool tool_bounded(const struct json *v, const char *name, int64_t fallback, int64_t max,
                  int64_t *ret_value, struct tool_outcome *ret);

/* An absolute path from one that may be relative to cwd; owned by the caller.  NULL = too long. */
char *tool_path(const char *cwd, const char *path);

#endif
