/*
 * prompt.h - what a model is given to go on from, and how it is said in each wire format.
 */
#ifndef DAEMON_MODEL_PROMPT_H
#define DAEMON_MODEL_PROMPT_H

#include "common/buf.h"
#include "common/err.h"
#include "common/json.h"
#include "daemon/model/reader.h"
#include "daemon/store/turn.h"

#include <stddef.h>
#include <stdint.h>

#define PROMPT_BYTES_MAX ((size_t)32 << 20) /* of a request's body */

struct model_tool {
	const char *name;
	const char *description;
	const char *schema; /* JSON Schema of the arguments, as text */
};

struct model_image {
	const char *type; /* media type */
	char *data;       /* NULL = none */
	size_t len;
};

struct model_prompt {
	const struct item_list *transcript; /* the first item is the input */
	const char *system;                 /* NULL = none */
	const struct model_tool *tools;
	size_t tool_count;
	size_t answer_max; /* bytes of text and arguments in the answer; 0 = as many as there are */
	struct model_image image; /* that came with the input */
};

struct prompt_target {
	enum dialect dialect;
	const char *model; /* as the provider calls it */
	int64_t max_output_tokens;
};

/*
 * Append the body of the request for an answer as a stream.  A call of the transcript that
 * has no result in it is left out, with all that is no UTF-8 replaced by U+FFFD.
 */
int prompt_write(const struct model_prompt *p, const struct prompt_target *to, struct buf *out,
                 struct err *e) must_check;

#endif
