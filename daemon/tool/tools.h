/*
 * tools.h - the tools a model can call that work inside the sandbox; docs/tools.md describes
 * them and their arguments.
 *
 * Relative paths begin at the session's working directory.  What a tool has to say
 * about a mistake of the model is its result, not an error of the turn.
 */
#ifndef DAEMON_TOOL_TOOLS_H
#define DAEMON_TOOL_TOOLS_H

#include "common/cancel.h"
#include "common/err.h"
#include "common/json.h"
#include "daemon/model/prompt.h"
#include "daemon/sandbox/sandbox.h"
#include "daemon/store/turn.h"

#include <stdbool.h>

struct tool_context {
	struct sandboxes *sandboxes;
	const struct uuid *tenant;
	const char *cwd; /* of the session, absolute */
	struct cancel *cancel;
	bool sees_images; /* the model; else an image is told of only */
	/* Output as it comes: UTF-8, at most 16,383 characters; skipped: some was left out before
	 * it. */
	void (*progress)(void *ctx, const char *text, size_t len, bool skipped);
	void *ctx;
};

/* What a call came to. */
struct tool_outcome {
	struct item result;   /* ITEM_TOOL_RESULT; owned by the caller of tool_run */
	struct json *details; /* for the event: reason, exitCode, ...; owned likewise */
	/* What the model is shown with the result; data is owned likewise, NULL = nothing. */
	struct model_image image;
};

void tool_outcome_release(struct tool_outcome *o);

/* Make o->details, as JSON, part of o->result, to be stored with it. */
void tool_outcome_store_details(struct tool_outcome *o);

/* The tools as a model is told of them, i < tool_count(). */
size_t tool_count(void);
const struct model_tool *tool_shown(size_t i);

/* True when the call may change something: what a session that plans does not run. */
bool tool_writes(const struct item *call);

/*
 * Run a call and fill *ret.  -1 when there is no result to show the model:
 * SANDBOX_CANCELLED, SANDBOX_START_FAILED, SANDBOX_STOPPING.
 */
int tool_run(const struct tool_context *c, const struct item *call, struct tool_outcome *ret,
             struct err *e) must_check;

/* The result of a call that is not run: "error: code: text". */
void tool_refused(const struct item *call, const char *code, const char *text,
                  struct tool_outcome *ret);

/* The result of a call whose outcome nobody knows, because the daemon ended while it ran. */
void tool_interrupted(const struct item *call, struct tool_outcome *ret);

/*
 * 0 when a sandbox of this daemon runs, started if need be.  Its runner holds the tenant's
 * lock then, and has ended what an earlier one left: no earlier sandbox is alive.
 */
int tool_prove(const struct tool_context *c, struct err *e) must_check;

#endif
