/*
 * tell.h - what events say about the steps of a turn, live and told again.
 */
#ifndef DAEMON_TURN_TELL_H
#define DAEMON_TURN_TELL_H

#include "common/buf.h"
#include "common/json.h"
#include "daemon/model/model.h"
#include "daemon/store/turn.h"

#define TELL_CHARS 16383 /* characters of a text in an event, then an ellipsis */

/* Data of agent.turn.finished; seq is that of the answer's last item, usage NULL = not known. */
struct json *tell_answer(const struct uuid *turn, const struct item *last,
                         const struct model_answer *usage);

/* Put it under "usage"; NULL = not known. */
void tell_usage(struct json *o, const struct model_answer *usage);

/* Data of tool.started and tool.finished; details are borrowed, NULL = {}. */
struct json *tell_call(const struct item *call);
struct json *tell_result(const struct item *call, const struct item *result,
                         const struct json *details);

/* Data of tool.finished for a question: "answered" or "expired". */
struct json *tell_reply(const struct item *result, const char *reason);

/* Type and data of a turn's last event; code NULL = no error. */
const char *tell_end_type(enum turn_state state);
struct json *tell_end(const char *code, const char *text);

/*
 * All events of a finished turn, from what is stored of it, in their wire form: at most
 * as many items and as much text as turn_items_shown() gives; "warning" says where some
 * was left out.
 */
int tell_again(struct store *s, const struct uuid *tenant, const struct turn *t, struct buf *out,
               struct err *e) must_check;

/* Data of plan.updated when the details of a result have a plan; else NULL. */
struct json *tell_plan(const struct json *details);

#endif
