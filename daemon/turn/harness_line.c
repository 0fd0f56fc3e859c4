/*
 * One line of a harness, and what it leads to.  Lines of another run are dropped; numbers
 * that do not follow each other are told of once, and the line counts.
 */
#include "common/clock.h"
#include "common/json.h"
#include "common/log.h"
#include "daemon/turn/harness_run.h"
#include "daemon/turn/queue.h"
#include "daemon/turn/tell.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PLAN_BYTES ((size_t)65536)

/* -- kinds of notify ------------------------------------------------------------------------ */

static enum round did(int rc)
{
	return rc ? ROUND_FAILED : ROUND_AGAIN;
}

static enum round on_names(struct run *r, const struct json *data, struct err *e)
{
	return did(harness_tool_names(r, data, e));
}

static enum round on_calls(struct run *r, const struct json *data, struct err *e)
{
	return did(harness_tool_calls(r, data, e));
}

static enum round on_runs(struct run *r, const struct json *data, struct err *e)
{
	return did(harness_tool_runs(r, data, e));
}

static enum round on_tool(struct run *r, const struct json *data, struct err *e)
{
	return did(harness_tool_ended(r, data, e));
}

/* Its list of what is to do; one that is too large is told of by its line alone. */
static enum round on_todos(struct run *r, const struct json *data, struct err *e)
{
	auto_buf struct buf text = BUF_INIT(PLAN_BYTES);
	struct json *o, *items;

	(void)e;
	json_write(data, &text);
	if (buf_failed(&text) || json_type(data) != JSON_ARRAY)
		return ROUND_AGAIN;
	o = json_new_object();
	items = json_new_array();
	for (size_t i = 0; i < json_len(data); i++) {
		struct json *item = json_new_object();

		json_put_str(item, "content", json_str(json_get(json_at(data, i), "content")));
		json_put_str(item, "status", json_str(json_get(json_at(data, i), "status")));
		json_push(items, item);
	}
	json_put(o, "todos", items);
	run_publish(r, "harness.todos", o);
	return ROUND_AGAIN;
}

static enum round on_compact(struct run *r, const struct json *data, struct err *e)
{
	(void)data;
	(void)e;
	run_publish(r, "harness.compacted", NULL);
	return ROUND_AGAIN;
}

static enum round on_retry(struct run *r, const struct json *data, struct err *e)
{
	(void)data;
	return did(harness_discard(r, e));
}

static enum round on_error(struct run *r, const struct json *data, struct err *e)
{
	const char *text = json_str(data) ? json_str(data) : json_str(json_get(data, "message"));

	(void)e;
	outcome_add(&r->harness->outcome, data);
	harness_warn(r, "the harness reports an error: %s", text && *text ? text : "(no text)");
	return ROUND_AGAIN;
}

static enum round on_usage(struct run *r, const struct json *data, struct err *e)
{
	struct outcome_usage u = outcome_usage(data);
	struct json *o = json_new_object();

	(void)e;
	r->harness->usage = u;
	json_put_int(o, "inputTokens", (int64_t)u.input);
	json_put_int(o, "outputTokens", (int64_t)u.output);
	run_publish(r, "harness.usage", o);
	return ROUND_AGAIN;
}

static enum round on_nothing(struct run *r, const struct json *data, struct err *e)
{
	(void)r;
	(void)data;
	(void)e;
	return ROUND_AGAIN;
}

static const struct notify_kind {
	const char *name;
	enum round (*take)(struct run *r, const struct json *data, struct err *e);
} kinds[] = {
	{ "tool_start", on_names }, { "tool_calls", on_calls }, { "tool_running", on_runs },
	{ "tool", on_tool },        { "todos", on_todos },      { "compact", on_compact },
	{ "retry", on_retry },      { "error", on_error },      { "usage", on_usage },
	{ "ask", harness_ask },     { "run_done", on_nothing },
};

static const struct notify_kind *kind_of(const struct message *m)
{
	for (size_t i = 0; m->kind && i < ARRAY_LEN(kinds); i++)
		if (strcmp(kinds[i].name, m->kind) == 0)
			return &kinds[i];
	return NULL;
}

/* -- what a line is ------------------------------------------------------------------------- */

static bool is_of_run(enum message_type type)
{
	return type == MESSAGE_START || type == MESSAGE_DELTA || type == MESSAGE_NOTIFY ||
	       type == MESSAGE_LOG || type == MESSAGE_RESULT;
}

/* Its number, against the one that should come. */
static void check_seq(struct run *r, const struct message *m, struct harness_note *note)
{
	struct harness_run *h = r->harness;

	if (m->seq == h->seq + 1) {
		h->seq = m->seq;
		return;
	}
	note->seq_expected = h->seq + 1;
	if (!h->seq_warned)
		harness_warn(r, "the harness's lines are out of order from number %lld on",
		             (long long)h->seq + 1);
	h->seq_warned = true;
	if (m->seq)
		h->seq = m->seq;
}

static void judge(struct run *r, const struct message *m, struct harness_note *note)
{
	note->type = message_type_name(m->type);
	note->kind = m->kind;
	if (m->type == MESSAGE_MALFORMED) {
		note->type = NULL;
		note->malformed = m->why.text;
	} else if (m->type == MESSAGE_UNKNOWN) {
		note->type = json_str(json_get(m->doc, "type"));
		note->malformed = "unknown type";
	} else if (is_of_run(m->type)) {
		if (!m->run_id || strcmp(m->run_id, r->job->turn.text) != 0)
			note->dropped = "run_id";
		else
			check_seq(r, m, note);
		note->unknown_kind = m->type == MESSAGE_NOTIFY && !kind_of(m);
	}
	note->whole = m->type == MESSAGE_RESULT && !note->dropped;
}

static void count_unknown(void *ctx, const char *key, const struct json *value)
{
	static const char *const known[] = { "type", "protocol", "seq", "run_id", "text" };

	(void)value;
	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		if (strcmp(known[i], key) == 0)
			return;
	++*(size_t *)ctx;
}

/* A piece of text that says nothing more is told of by its text. */
static bool is_mere_text(const struct message *m, const struct harness_note *note)
{
	size_t unknown = 0;

	if (m->type != MESSAGE_DELTA || note->dropped || note->seq_expected)
		return false;
	json_each(m->doc, count_unknown, &unknown);
	return unknown == 0;
}

/* -- what it leads to ----------------------------------------------------------------------- */

/* The harness refused an operation: the turn itself, or something in it. */
static enum round on_refusal(struct run *r, const struct message *m, struct err *e)
{
	struct harness_run *h = r->harness;
	bool ours = !m->op_id || strcmp(m->op_id, h->submit_id) == 0;

	if (!h->started && ours) {
		h->fate = FATE_DROP; /* whatever it does now, it is not what it was given */
		(void)err_set(e, HARNESS_REFUSED, "the harness refused the turn: %.400s", m->text);
		return ROUND_FAILED;
	}
	if (m->op_id && strcmp(m->op_id, h->answer_id) == 0)
		harness_warn(r, "the harness refused the answer: %s", m->text);
	else
		harness_warn(r, "the harness refused something: %s", m->text);
	if (h->refusals.len + strlen(m->text) + 1 < 1000)
		buf_addf(&h->refusals, "\n%s", m->text);
	return ROUND_AGAIN;
}

static enum round act(struct run *r, const struct message *m, struct err *e)
{
	const struct notify_kind *kind = kind_of(m);

	switch (m->type) {
	case MESSAGE_START:
		harness_begin_round(r);
		return ROUND_AGAIN;
	case MESSAGE_DELTA:
		return did(harness_say(r, m->text, strlen(m->text), e));
	case MESSAGE_NOTIFY:
		return kind ? kind->take(r, m->data, e) : ROUND_AGAIN;
	case MESSAGE_RESULT:
		return harness_finish(r, m->doc, e);
	case MESSAGE_ERROR:
		return on_refusal(r, m, e);
	case MESSAGE_LOG:
	case MESSAGE_MALFORMED:
	case MESSAGE_UNKNOWN:
	case MESSAGE_READY:
	case MESSAGE_HELLO:
	case MESSAGE_PONG:
		break;
	}
	return ROUND_AGAIN;
}

enum round harness_line(struct run *r, struct err *e)
{
	const struct buf *line = process_line(harness_process(r->harness->resident));
	auto_message struct message m = { .doc = NULL };
	struct harness_note note = { .type = NULL };

	message_read(line->data ? line->data : "", line->len, &m);
	if (m.type == MESSAGE_READY || m.type == MESSAGE_HELLO || m.type == MESSAGE_PONG)
		return ROUND_AGAIN;
	r->harness->lines++;
	judge(r, &m, &note);
	if (!is_mere_text(&m, &note) && harness_keep_line(r, &note, e))
		return ROUND_FAILED;
	if (note.dropped)
		return ROUND_AGAIN;
	if (is_of_run(m.type))
		r->harness->started = true;
	return act(r, &m, e);
}

/* -- the result ----------------------------------------------------------------------------- */

static const struct {
	const char *code, *name;
} codes[] = {
	{ "budget", "harness_budget" },
	{ "timeout", "harness_timeout" },
};

static const char *name_of(const char *code)
{
	for (size_t i = 0; i < ARRAY_LEN(codes); i++)
		if (strcmp(codes[i].code, code) == 0)
			return codes[i].name;
	return "harness_failed";
}

/* What the turn comes to, as the harness says. */
static void end_turn(struct run *r)
{
	struct harness_run *h = r->harness;
	auto_buf struct buf text = BUF_INIT(OUTCOME_ERRORS_MAX + 2000);

	if (h->outcome.cancelled) {
		r->settled = job_finish(r->job, TURN_CANCELLED, NULL, NULL);
		return;
	}
	if (!h->outcome.count) {
		r->settled = job_finish(r->job, TURN_COMPLETED, NULL, NULL);
		return;
	}
	buf_adds(&text, h->outcome.errors.len ? h->outcome.errors.data
	                                      : "the harness reports an error without a text");
	buf_add(&text, h->refusals.data, h->refusals.len);
	r->settled = job_finish(r->job, TURN_FAILED, name_of(h->outcome.code),
	                        text.data ? text.data : "the harness failed");
}

/* Its answer is what counts; when streams were shown something else, they are told. */
static int show_answer(struct run *r, const char *answer, struct err *e)
{
	struct harness_run *h = r->harness;
	size_t len = answer ? strlen(answer) : 0;

	if (!len || (h->text.len == len && memcmp(h->text.data, answer, len) == 0))
		return 0;
	return harness_discard(r, e) ? -1 : harness_say(r, answer, len, e);
}

static int commit_answer(struct run *r, struct err *e)
{
	struct harness_run *h = r->harness;
	char none[1] = "";
	struct item item = { .kind = ITEM_ASSISTANT,
		             .body = h->text.data ? h->text.data : none,
		             .body_len = h->text.len };
	struct turn_step step = { .items = &item,
		                  .count = 1,
		                  .input_tokens = h->usage.input,
		                  .output_tokens = h->usage.output,
		                  .cost_nano = -1 };
	const struct model_answer usage = { .input_tokens = h->usage.input,
		                            .output_tokens = h->usage.output,
		                            .cost_nano = -1 };

	harness_begin_round(r);
	if (harness_flush(r, e) || harness_commit(r, &step, e))
		return -1;
	run_publish(r, "agent.turn.finished", tell_answer(&r->job->turn, &item, &usage));
	return 0;
}

enum round harness_finish(struct run *r, const struct json *result, struct err *e)
{
	const char *answer = json_str(json_get(result, "answer"));
	const struct json *usage = json_get(result, "usage");
	struct harness_run *h = r->harness;

	harness_give(r->job->turns->harnesses, h->resident);
	h->resident = NULL;
	h->fate = FATE_NONE;
	outcome_take(&h->outcome, result);
	if (usage)
		h->usage = outcome_usage(usage);
	if (show_answer(r, answer, e) || commit_answer(r, e))
		return ROUND_FAILED;
	end_turn(r);
	return ROUND_OVER;
}

/*
 * The turn may have been ended by who cancelled it; its tokens count all the same.  One try:
 * that caller's answer does not wait.
 */
void harness_save(struct run *r)
{
	struct harness_run *h = r->harness;
	struct item item = { .kind = ITEM_ASSISTANT,
		             .body = h->text.data,
		             .body_len = h->text.len };
	struct turn_step step = { .items = &item,
		                  .count = h->text.len ? 1 : 0,
		                  .input_tokens = h->usage.input,
		                  .output_tokens = h->usage.output,
		                  .cost_nano = -1,
		                  .first = h->next };
	struct err e = ERR_INIT;

	if (harness_flush(r, &e) && e.code == STORE_UNAVAILABLE)
		return;
	if (turn_append(r->conf->store, &r->job->tenant, &r->job->turn, &step, &e) &&
	    e.code == STORE_CONFLICT &&
	    harness_count_tokens(r->conf->store, &r->job->tenant, &r->job->turn, &step, &e))
		log_warn("turn %s: its tokens are not counted: %s", r->job->turn.text, e.text);
}
