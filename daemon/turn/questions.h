/*
 * questions.h - calls that a person answers.
 *
 *   ask_user    {"question", "options"?: [strings], "expiresInSeconds"? (1 to 2,592,000)}
 *   plan_enter  {"reason"?}; a person decides whether the session plans first
 *   plan_exit   {"plan"}; a person approves the plan, or not
 */
#ifndef DAEMON_TURN_QUESTIONS_H
#define DAEMON_TURN_QUESTIONS_H

#include "daemon/tool/tools.h"

/* True when the call is a question to a person rather than something to run. */
bool tool_asks(const struct item *call);

/*
 * Read the arguments of a call that asks into the request's kind, prompt and options (of
 * ask_user: the model's, then "custom").  1 when they are usable, 0 with *ret filled (the
 * refusal to show the model) when not.
 */
int tool_question(const struct item *call, struct request *request, struct tool_outcome *ret);

/*
 * Whether the session plans from now on because of a decision; false when the decision
 * changes nothing about that.
 */
bool tool_changes_planning(const struct request *request, const char *decision, bool *ret_planning);

/* The result of an answered question, and of one that nobody answered in time. */
int tool_answered(const struct request *request, const char *decision, const char *value,
                  struct item *ret, struct err *e) must_check;
int tool_expired(const struct request *request, struct item *ret, struct err *e) must_check;

/* Of one whose answer nobody waits for any more. */
int tool_withdrawn(const struct request *request, struct item *ret, struct err *e) must_check;

#endif
