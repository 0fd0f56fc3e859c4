/*
 * attached.h - what came with a turn, on its way into the sandbox and to the model
 * (inside this folder only).
 *
 * Number N of the turn's list is written by the guest as
 * /workspace/.cloister/<turn id>/<N>/<name>, and the model's input says so.
 */
#ifndef DAEMON_TURN_ATTACHED_H
#define DAEMON_TURN_ATTACHED_H

#include "common/json.h"
#include "daemon/model/prompt.h"
#include "daemon/tool/tools.h"
#include "daemon/turn/transcript.h"
#include "daemon/turn/turns.h"

struct attached {
	struct uuid turn;
	struct json *list; /* NULL = nothing came with it */
};

/* Read t's list. */
int attached_read(struct attached *a, const struct turn *t, struct err *e) must_check;
void attached_release(struct attached *a);

/*
 * Write everything into the sandbox; what is there already is replaced.  Store codes,
 * those of tool_run(), and TURNS_NOT_ATTACHED.
 */
int attached_write(const struct attached *a, struct store *s, const struct tool_context *c,
                   struct err *e) must_check;

/* Add to the input where everything is, once; false without memory. */
bool attached_tell(const struct attached *a, struct transcript *t);

/*
 * The image that the model is shown with item 0, *ret->data NULL when there is none that models
 * take. The caller frees data; type is borrowed from a.
 */
int attached_image(const struct attached *a, struct store *s, const struct uuid *tenant,
                   struct model_image *ret, struct err *e) must_check;

#endif
