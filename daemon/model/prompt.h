/*
 * prompt.h - what a model is given to go on from, and how it is said in each wire format.
 */
#ifndef DAEMON_MODEL_PROMPT_H
#define DAEMON_MODEL_PROMPT_H

#include "common/buf.h"
#include "common/err.h"
#include "common/json.h"
#include "daemon/model/effort.h"
#include "daemon/model/reader.h"
#include "daemon/store/turn.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROMPT_BYTES_MAX ((size_t)32 << 20) /* of a request's body */

struct model_tool {
	const char *name;
	const char *description;
	const char *schema; /* JSON Schema of the arguments, as text */
};

/* Belongs to a user item, or to a tool result. */
struct model_image {
	size_t item;      /* index in the transcript */
	const char *type; /* media type */
	char *data;       /* NULL = none */
	size_t len;
};

struct model_prompt {
	/*
	 * Turns of the session, oldest first, each from its ITEM_USER on; the last one is the
	 * turn that goes on.  Ids of calls are unique in it.  Items need not have a seq.
	 */
	const struct item_list *transcript;
	const char *system; /* NULL = none */
	const struct model_tool *tools;
	size_t tool_count;
	const char *effort; /* as effort.h names it; NULL or "" = the model's own */
	size_t answer_max; /* bytes of text and arguments in the answer; 0 = as many as there are */
	const struct model_image *images; /* those of one item in the order they are shown */
	size_t image_count;
};

struct prompt_target {
	enum dialect dialect;
	const char *model; /* as the provider calls it */
	int64_t max_output_tokens;
	bool sees_images; /* else each one becomes a line of text that says so */
	struct model_reasoning reasoning;
	const char *origin; /* of the reasoning that it takes back, see models_origin() */
};

/*
 * Append the body of the request for an answer as a stream.  A call of the transcript that
 * has no result after it is left out, and so is reasoning of another origin and what led to
 * something that is left out; all that is no UTF-8 is replaced by U+FFFD.
 */
int prompt_write(const struct model_prompt *p, const struct prompt_target *to, struct buf *out,
                 struct err *e) must_check;

#endif
