/*
 * The model's step: it is asked to go on, and what it says is committed.
 */
#include "common/json.h"
#include "common/log.h"
#include "daemon/tool/output.h"
#include "daemon/turn/brief.h"
#include "daemon/turn/run.h"
#include "daemon/turn/summarise.h"
#include "daemon/turn/tell.h"

#include <stdlib.h>

static void publish_piece(const struct run *r, const char *type, const char *text, size_t len)
{
	while (len > 0) {
		size_t n = output_prefix(text, len, TELL_CHARS);
		struct json *data = json_new_object();

		json_put_strn(data, "text", text, n);
		json_put_bool(data, "truncated", false);
		run_publish(r, type, data);
		text += n;
		len -= n;
	}
}

static void publish_text(void *ctx, const char *text, size_t len)
{
	publish_piece(ctx, "response.text.delta", text, len);
}

static void publish_reasoning(void *ctx, const char *text, size_t len)
{
	publish_piece(ctx, "response.reasoning.delta", text, len);
}

static void publish_discarded(void *ctx, const char *reason)
{
	struct json *data = json_new_object();

	json_put_str(data, "reason", reason);
	json_put_bool(data, "displayOnly", true);
	run_publish(ctx, "response.attempt.discarded", data);
}

/*
 * After a lost connection the commit may have happened, which the conflict of the second
 * try tells: the model is not asked again for what it has said.
 */
static enum round commit_answer(struct run *r, struct model_answer *answer, struct err *e)
{
	struct turn_step step = {
		.items = answer->items.items,
		.count = answer->items.count,
		.input_tokens = answer->input_tokens,
		.output_tokens = answer->output_tokens,
		.cached_tokens = answer->cached_tokens,
		.reasoning_tokens = answer->reasoning_tokens,
		.cost_nano = answer->cost_nano,
		.first = (uint32_t)r->transcript.list.count,
	};
	unsigned int ms = RUN_RETRY_MS;
	bool unsure = false;

	while (turn_append(r->conf->store, &r->job->tenant, &r->job->turn, &step, e)) {
		if (e->code == STORE_CONFLICT && unsure) {
			transcript_forget(&r->transcript); /* the next round sees what is there */
			break;
		}
		if (e->code != STORE_UNAVAILABLE)
			return ROUND_FAILED;
		unsure = true;
		if (!run_wait_retry(r->job, &ms))
			return ROUND_STORE;
	}
	run_publish(
		r, "agent.turn.finished",
		tell_answer(&r->job->turn, &answer->items.items[answer->items.count - 1], answer));
	transcript_add(&r->transcript, answer->items.items, answer->items.count);
	return ROUND_AGAIN;
}

static enum round answer_too_long(size_t left, struct err *e)
{
	(void)err_set(e, TURNS_TOO_LARGE,
	              "the model's answer has more than the %zu bytes that the turn has left "
	              "(--max-turn-bytes)",
	              left);
	return ROUND_FAILED;
}

static size_t bytes_of(const struct item_list *items)
{
	size_t n = 0;

	for (size_t i = 0; i < items->count; i++)
		n += items->items[i].body_len + items->items[i].opaque_len;
	return n;
}

/* The turn is about to end; what was shown of its last answer is kept if the store can. */
static void keep_discarded(struct run *r, const struct item_list *items)
{
	struct turn_step step = { .items = items->items,
		                  .count = items->count,
		                  .first = (uint32_t)r->transcript.list.count };
	struct err e = ERR_INIT;

	if (items->count && turn_append(r->conf->store, &r->job->tenant, &r->job->turn, &step, &e))
		log_warn("turn %s: what was shown of an answer is not kept: %s", r->job->turn.text,
		         e.text);
}

static enum round take_answer(struct run *r, struct model_answer *answer, size_t left,
                              struct err *e)
{
	if (bytes_of(&answer->items) > left)
		return answer_too_long(left, e);
	if (answer->items.count)
		return commit_answer(r, answer, e);
	(void)err_set(e, MODEL_FAILED, "the model answered nothing");
	return ROUND_FAILED;
}

static enum round no_answer(struct run *r, const struct model_answer *answer, size_t left,
                            struct err *e)
{
	keep_discarded(r, &answer->items);
	return e->code == MODEL_TOO_LONG ? answer_too_long(left, e) : ROUND_FAILED;
}

/* Once in a job: a provider that finds it too long is asked for a summary, and then again. */
static bool shorten(struct run *r, const struct brief *brief, enum round *ret, struct err *e)
{
	struct err why = ERR_INIT;
	bool made = false;

	if (e->code != MODEL_CONTEXT || r->context.overflowed)
		return false;
	r->context.overflowed = true;
	*ret = summarise(r, brief->beside, true, &made, &why);
	if (*ret != ROUND_AGAIN)
		*e = why;
	return made || *ret != ROUND_AGAIN;
}

static enum round speak(struct run *r, struct brief *brief, size_t left, struct err *e)
{
	const struct model_sink sink = { publish_text, r, publish_reasoning, publish_discarded };
	struct model_answer answer = { 0 };
	enum round round = ROUND_AGAIN;

	run_publish(r, "agent.turn.started", NULL);
	if (model_respond(r->model, &brief->prompt, &sink, &r->job->cancel, &answer, e) == 0)
		round = take_answer(r, &answer, left, e);
	else if (!shorten(r, brief, &round, e))
		round = no_answer(r, &answer, left, e);
	item_list_release(&answer.items);
	return round;
}

enum round run_ask_model(struct run *r, struct err *e)
{
	size_t left = r->conf->max_turn_bytes - r->transcript.bytes; /* check_bytes() */
	struct brief brief;
	enum round round = brief_make(r, left ? left : 1, &brief, e);

	if (round == ROUND_AGAIN)
		round = speak(r, &brief, left, e);
	brief_release(&brief);
	return round;
}
