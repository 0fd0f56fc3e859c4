/*
 * tools.h - the tools a model can call, all of which work inside the sandbox.
 *
 *   shell       {"command", "cwd"?, "timeoutMs"? (1 to 3,600,000; default 120,000)}
 *   read_file   {"path", "offset"?, "limit"? (bytes, at most 65,536, the default)}
 *   write_file  {"path", "content"}
 *   list_files  {"path"?, "limit"? (1 to 1,000, the default)}
 *   ask_user    {"question", "options"?: [strings], "expiresInSeconds"? (1 to 2,592,000)};
 *               answered by a person
 *   plan_enter  {"reason"?}; a person decides whether the session plans first
 *   plan_exit   {"plan"}; a person approves the plan, or not
 *
 * Relative paths begin at the session's working directory.  What a tool has to say
 * about a mistake of the model is its result, not an error of the turn.
 */
#ifndef DAEMON_TURN_TOOLS_H
#define DAEMON_TURN_TOOLS_H

#include "common/cancel.h"
#include "common/err.h"
#include "common/json.h"
#include "daemon/sandbox/sandbox.h"
#include "daemon/store/turn.h"

struct tool_context {
	struct sandboxes *sandboxes;
	const struct uuid *tenant;
	const char *cwd; /* of the session, absolute */
	struct cancel *cancel;
	/* Output as it comes: UTF-8, at most 16,383 characters; skipped: some was left out before
	 * it. */
	void (*progress)(void *ctx, const char *text, size_t len, bool skipped);
	void *ctx;
};

/* What a call came to. */
struct tool_outcome {
	struct item result;   /* ITEM_TOOL_RESULT; owned by the caller of tool_run */
	struct json *details; /* for the event: reason, exitCode, ...; owned likewise */
};

void tool_outcome_release(struct tool_outcome *o);

/* Make o->details, as JSON, part of o->result, to be stored with it. */
void tool_outcome_store_details(struct tool_outcome *o);

/* True when the call is a question to a person rather than something to run. */
bool tool_asks(const struct item *call);

/* True when the call may change something: what a session that plans does not run. */
bool tool_writes(const struct item *call);

/*
 * Run a call and fill *ret.  -1 when there is no result to show the model:
 * SANDBOX_CANCELLED, SANDBOX_START_FAILED, SANDBOX_STOPPING.
 */
int tool_run(const struct tool_context *c, const struct item *call, struct tool_outcome *ret,
             struct err *e) must_check;

/*
 * Read the arguments of a call that asks into the request's kind, prompt and options (of
 * ask_user: the model's, then "custom").  1 when they are usable, 0 with *ret filled (the
 * refusal to show the model) when not.
 */
int tool_question(const struct item *call, struct request *request, struct tool_outcome *ret);

/* The result of a call that is not run: "error: code: text". */
void tool_refused(const struct item *call, const char *code, const char *text,
                  struct tool_outcome *ret);

/* The result of a call whose outcome nobody knows, because the daemon ended while it ran. */
void tool_interrupted(const struct item *call, struct tool_outcome *ret);

/*
 * Whether the session plans from now on because of a decision; false when the decision
 * changes nothing about that.
 */
bool tool_changes_planning(const struct request *request, const char *decision, bool *ret_planning);

/* The result of an answered question, and of one that nobody answered in time. */
int tool_answered(const struct request *request, const char *decision, const char *value,
                  struct item *ret, struct err *e) must_check;
int tool_expired(const struct request *request, struct item *ret, struct err *e) must_check;

/*
 * 0 when a sandbox of this daemon runs, started if need be.  Its runner holds the tenant's
 * lock then, and has ended what an earlier one left: no earlier sandbox is alive.
 */
int tool_prove(const struct tool_context *c, struct err *e) must_check;

#endif
