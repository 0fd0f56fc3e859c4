/*
 * prompt_format.h - between the files that write prompts: what each wire format uses.
 */
#ifndef DAEMON_MODEL_PROMPT_FORMAT_H
#define DAEMON_MODEL_PROMPT_FORMAT_H

#include "daemon/model/prompt.h"

/* What is written, and for whom. */
struct prompt_work {
	const struct model_prompt *prompt;
	const struct prompt_target *to;
};

/* Each puts what its format has beside the model, the tools and "stream". */
void prompt_write_chat(struct json *o, const struct prompt_work *w);
void prompt_write_responses(struct json *o, const struct prompt_work *w);
void prompt_write_messages(struct json *o, const struct prompt_work *w);

/* {"type":type} */
struct json *prompt_typed(const char *type);

/* {"role":role, "content":content} */
void prompt_push_message(struct json *messages, const char *role, struct json *content);

/* Append the text of item i, with a line for each image that the model cannot see. */
void prompt_add_text(struct buf *out, const struct prompt_work *w, size_t i);

/* The same as a string under key, and as {"type":type, "text":...}. */
void prompt_put_text(struct json *o, const char *key, const struct prompt_work *w, size_t i);
struct json *prompt_text_part(const char *type, const struct prompt_work *w, size_t i);

/*
 * The images that the model is shown with item i, one after the other: NULL after the last.
 * *at is 0 for the first.
 */
const struct model_image *prompt_next_image(const struct prompt_work *w, size_t i, size_t *at);
bool prompt_has_image(const struct prompt_work *w, size_t i);

/* The prefix and the image in base64; and as a URL. */
void prompt_put_base64(struct json *o, const char *key, const char *prefix,
                       const struct model_image *image);
void prompt_put_data_url(struct json *o, const char *key, const struct model_image *image);

/*
 * What a model is told of: every item, but for empty texts, calls that nothing came of,
 * reasoning that it does not take back and what was discarded.
 */
bool prompt_is_told(const struct prompt_work *w, size_t i);

/* The level of effort that the model is asked for; NULL = none is named. */
const char *prompt_effort(const struct prompt_work *w);

/* Push what the provider gets back of reasoning. */
void prompt_push_reasoning(struct json *to, const struct item *item);

/* Whether item i is of an answer of the model. */
bool prompt_is_answer(const struct item_list *list, size_t i);

/* From the answer's item at on to before the returned index. */
size_t prompt_answer_end(const struct item_list *list, size_t at);

#endif
