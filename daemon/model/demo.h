/*
 * demo.h - the built-in model without a key.
 *
 * It exists so that people and tests can see the whole path.  It understands lines:
 *
 *   $ COMMAND              a call of the tool "shell" with {"command": COMMAND}
 *   @TOOL {JSON}           a call of TOOL with exactly these argument bytes
 *   ? QUESTION | A | B     a call of "ask_user" with {"question", "options"}
 *   anything else          text, which it repeats
 *
 * All calls of one input are made in one answer; when their results are there, its
 * final answer is the last of them.
 */
#ifndef DAEMON_MODEL_DEMO_H
#define DAEMON_MODEL_DEMO_H

#include "daemon/model/model.h"

#define DEMO_CALLS_MAX 64 /* tool calls in one answer; one more is an error that says so */

int demo_respond(const struct item_list *transcript, const struct model_sink *sink,
                 struct model_answer *ret, struct err *e) must_check;

#endif
