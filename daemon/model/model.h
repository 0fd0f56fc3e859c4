/*
 * model.h - the catalogue of models, and one step of a conversation with one of them.
 *
 * Without declared models it has the built-in one alone, and else the declared ones.
 */
#ifndef DAEMON_MODEL_MODEL_H
#define DAEMON_MODEL_MODEL_H

#include "common/cancel.h"
#include "common/err.h"
#include "daemon/model/effort.h"
#include "daemon/model/fault.h"
#include "daemon/model/models.h"
#include "daemon/model/prompt.h"
#include "daemon/store/turn.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct model {
	const char *id;
	const char *label;
	const char *provider;
	const char *connection;
	const char *transport_model;
	const char *dialect;
	int64_t context_window; /* tokens; 0 = none, it is shown one turn */
	int64_t max_output_tokens;
	bool sees_images; /* else a line of text stands for each of them */
	struct model_reasoning reasoning;
	char credential[MODEL_CREDENTIAL_SIZE]; /* whose account it is; "" = nobody's */
};

/* What the model says while it speaks; from the calling thread. */
struct model_sink {
	void (*text)(void *ctx, const char *text, size_t len);
	void *ctx;
	void (*reasoning)(void *ctx, const char *text, size_t len); /* NULL = not wanted */
	/* What was said so far counts no more; another attempt may begin.  NULL = not wanted. */
	void (*discarded)(void *ctx, const char *reason);
};

/* What it said: items to append to the transcript.  Without a tool call it is the final answer. */
struct model_answer {
	/*
	 * ITEM_DISCARDED for each attempt that failed after some of it was shown; then, in the
	 * order of the answer, ITEM_REASONING, ITEM_ASSISTANT and ITEM_TOOL_CALL (call_state
	 * CALL_PENDING).  The last one is never reasoning.
	 */
	struct item_list items;

	uint64_t input_tokens, output_tokens, cached_tokens, reasoning_tokens;
	int64_t cost_nano; /* billionths of the prices' currency; -1 = they are not declared */
};

/*
 * Offer the declared models instead of the built-in one; courier is the socket of
 * courier_start().  Both outlive the catalogue.  Before there is a second thread.
 */
void model_declare(const struct models *models, int courier);

size_t model_count(void);
const struct model *model_at(size_t i);
const struct model *model_find(const char *id); /* NULL = unknown */

/*
 * Ask the model to go on from the transcript, blocking.  The caller releases ret->items,
 * also on failure, when there is nothing but ITEM_DISCARDED in it, to be kept with the turn.
 * Codes: MODEL_FAILED, MODEL_CANCELLED, MODEL_CONTEXT, MODEL_TOO_LONG.
 */
int model_respond(const struct model *m, const struct model_prompt *prompt,
                  const struct model_sink *sink, struct cancel *cancel, struct model_answer *ret,
                  struct err *e) must_check;

#endif
