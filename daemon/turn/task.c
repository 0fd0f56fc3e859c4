#include "daemon/turn/task.h"

#include "common/fd.h"
#include "common/json.h"
#include "common/utf8.h"
#include "daemon/store/agent.h"
#include "daemon/tool/help.h"
#include "daemon/tool/output.h"
#include "daemon/turn/approval.h"
#include "daemon/turn/calls.h"
#include "daemon/turn/guard.h"
#include "daemon/turn/offered.h"
#include "daemon/turn/redact.h"
#include "daemon/turn/remote.h"
#include "daemon/turn/system_prompt.h"
#include "daemon/turn/tell.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define DETAIL_CHARS 256

struct child {
	struct run *run;
	const struct item *call; /* the parent's, that it works for */
	struct transcript transcript;
	struct buf system;
	struct model_prompt prompt;
	struct model_tool *tools; /* owned: those of the prompt */
	size_t beside;            /* tokens of the prompt but for its items */
	uint32_t steps;           /* stored */
	uint64_t input_tokens, output_tokens;
};

bool task_is(const struct item *call)
{
	return strcmp(call->tool, TASK_NAME) == 0;
}

/* -- steps ------------------------------------------------------------------------------- */

static void publish_step(const struct child *c, const struct agent_step *step)
{
	struct json *data = json_new_object();

	json_put_str(data, "callId", c->call->call_id);
	json_put_str(data, "state", step->state);
	json_put_str(data, "title", step->title);
	json_put_strn(data, "detail", step->detail, step->detail_len);
	run_publish(c->run, "agent.step", data);
}

/* The beginning of a text, as it is shown. */
static void cut_detail(const char *text, size_t len, struct buf *out)
{
	size_t whole = utf8_whole(text, len), fits = output_prefix(text, whole, DETAIL_CHARS);

	buf_add(out, text, fits);
	if (fits < len)
		buf_adds(out, "\xe2\x80\xa6");
}

/* Whether to try again; what was counted unheard of may be counted twice then. */
static bool again(const struct child *c, unsigned int *ms, const struct err *e)
{
	return e->code == STORE_UNAVAILABLE && run_wait_retry(c->run->job, ms);
}

static int count(const struct child *c, struct turn_step *usage, struct err *e)
{
	const struct run *r = c->run;
	unsigned int ms = RUN_RETRY_MS;

	while (turn_append(r->conf->store, &r->job->tenant, &r->job->turn, usage, e))
		if (!again(c, &ms, e))
			return -1;
	return 0;
}

/* Behind the last one that is kept, only what it took counts. */
static int keep_step(struct child *c, struct agent_step *step, struct turn_step *usage,
                     struct err *e)
{
	struct run *r = c->run;
	unsigned int ms = RUN_RETRY_MS;

	step->call = c->call->seq;
	step->number = c->steps++;
	if (step->number >= AGENT_STEPS_MAX)
		return count(c, usage, e);
	while (agent_step_add(r->conf->store, &r->job->tenant, &r->job->turn, step, usage, e))
		if (!again(c, &ms, e))
			return -1;
	publish_step(c, step);
	return 0;
}

static int note(struct child *c, const char *state, const char *title, const struct item *item,
                struct turn_step *usage, struct err *e)
{
	auto_buf struct buf redacted = BUF_INIT(REDACT_MAX), text = BUF_INIT(3 * item->body_len),
			    detail = BUF_INIT(AGENT_DETAIL_MAX);
	struct agent_step step = { .state = state, .title = title };

	if (item->kind == ITEM_TOOL_CALL && redact_arguments(item, &redacted))
		cut_detail(redacted.data, redacted.len, &detail);
	else if (item->body_len) {
		(void)utf8_repair(item->body, item->body_len, &text);
		cut_detail(text.data, text.len, &detail);
	}
	step.detail = detail.data ? detail.data : "";
	step.detail_len = detail.len;
	return keep_step(c, &step, usage, e);
}

/* -- the model ------------------------------------------------------------------------------ */

static void ignore_text(void *ctx, const char *text, size_t len)
{
	(void)ctx;
	(void)text;
	(void)len;
}

/* Take the items; false without memory. */
static bool add_items(struct child *c, struct item *items, size_t n)
{
	for (size_t i = 0; i < n; i++)
		items[i].seq = (uint32_t)(c->transcript.list.count + i);
	transcript_add(&c->transcript, items, n);
	return c->transcript.known;
}

/* Why it may not go on; NULL = it may. */
static const char *bound_of(const struct child *c)
{
	const struct item_list *list = &c->transcript.list;
	const struct run *r = c->run;

	if (guard_steps(&r->transcript.list) + r->child_answers >= r->conf->max_turn_steps)
		return "the turn has no answer of the model left (--max-turn-steps)";
	if (guard_steps(list) >= TASK_STEPS_MAX)
		return "the child answered 64 times and is not done";
	if (guard_loop(list))
		return "the child repeats a call that fails";
	if (c->transcript.bytes >= TASK_BYTES_MAX)
		return "what the child said and did has more than 4 MiB";
	if (context_tokens_of(list->items, list->count) + c->beside > context_room(r->model))
		return "what the child said and did is too long for the model";
	return NULL;
}

/* With the words of the answer, if there are any. */
static int count_usage(struct child *c, const struct model_answer *answer, struct err *e)
{
	struct turn_step usage = { .input_tokens = answer->input_tokens,
		                   .output_tokens = answer->output_tokens,
		                   .cached_tokens = answer->cached_tokens,
		                   .reasoning_tokens = answer->reasoning_tokens,
		                   .cost_nano = answer->cost_nano };

	c->input_tokens += answer->input_tokens;
	c->output_tokens += answer->output_tokens;
	for (size_t i = 0; i < answer->items.count; i++)
		if (answer->items.items[i].kind == ITEM_ASSISTANT)
			return note(c, "info", "answer", &answer->items.items[i], &usage, e);
	return count(c, &usage, e);
}

/* Tools of servers may be others each time; those of this place come first. */
static int offer(struct child *c, struct err *e)
{
	size_t all, own, ours;
	const struct model_tool *offered = remote_offer(c->run, &all);

	(void)offered_tools(&own);
	(void)offered_to_child(&ours);
	free(c->tools);
	c->tools = calloc(all, sizeof(*c->tools));
	if (!c->tools)
		return err_set(e, ENOMEM, "no memory for the tools of a child agent");
	memcpy(c->tools, offered, ours * sizeof(*offered));
	memcpy(c->tools + ours, offered + own, (all - own) * sizeof(*offered));
	c->prompt.tools = c->tools;
	c->prompt.tool_count = ours + all - own;
	return 0;
}

/*
 * Ask once.  0, or 1 with *ret filled when the child cannot go on, or -1 when the turn cannot.
 * *ret_from is the index of the answer's first item.
 */
static int ask(struct child *c, size_t *ret_from, struct tool_outcome *ret, struct err *e)
{
	const struct model_sink sink = { .text = ignore_text };
	struct model_answer answer = { 0 };
	struct run *r = c->run;
	int rc;

	if (offer(c, e))
		return -1;
	c->prompt.transcript = &c->transcript.list;
	c->prompt.answer_max = TASK_BYTES_MAX - c->transcript.bytes;
	rc = model_respond(r->model, &c->prompt, &sink, &r->job->cancel, &answer, e);
	if (rc && !cancel_fired(&r->job->cancel)) {
		(void)tool_refuse(ret, "task_failed", e->text);
		rc = 1;
	}
	*ret_from = c->transcript.list.count;
	if (rc == 0) {
		r->child_answers++;
		rc = count_usage(c, &answer, e);
	}
	if (rc == 0 && !add_items(c, answer.items.items, answer.items.count))
		rc = err_set(e, ENOMEM, "no memory for what a child agent does");
	item_list_release(&answer.items);
	return rc;
}

/* -- its calls --------------------------------------------------------------------------------- */

static bool succeeded(const struct tool_outcome *outcome)
{
	const char *reason = json_str(json_get(outcome->details, "reason"));

	return !reason || strcmp(reason, "done") == 0 ||
	       (strcmp(reason, "exited") == 0 && json_get(outcome->details, "exitCode") &&
	        json_int(json_get(outcome->details, "exitCode")) == 0);
}

static int run_or_refuse(struct child *c, const struct item *call, struct tool_outcome *ret,
                         struct err *e)
{
	struct run *r = c->run;
	bool remote = remote_is(call), may_run = false;
	unsigned int ms = RUN_RETRY_MS;
	struct approval_case rule = { .store = r->conf->store,
		                      .tenant = &r->job->tenant,
		                      .turn = &r->job->turn,
		                      .session = &r->session,
		                      .call = call,
		                      .writes = tool_writes(call),
		                      .asks = remote };

	if (remote && !remote_judge(r, call, &rule.writes, ret))
		return 0;
	while (approval_of_child(&rule, ret, &may_run, e))
		if (!again(c, &ms, e))
			return -1;
	return may_run ? calls_run_quietly(r, call, ret, e) : 0;
}

/* The call is a copy, whose body stays where it is. */
static int run_call(struct child *c, const struct item *call, struct err *e)
{
	struct turn_step nothing = { .cost_nano = -1 };
	struct tool_outcome outcome;
	int rc = run_or_refuse(c, call, &outcome, e);

	if (rc)
		return -1;
	rc = note(c, succeeded(&outcome) ? "completed" : "failed", call->tool, call, &nothing, e);
	tool_outcome_store_details(&outcome);
	if (rc == 0 && !add_items(c, &outcome.result, 1))
		rc = err_set(e, ENOMEM, "no memory for what a child agent does");
	tool_outcome_release(&outcome);
	return rc;
}

/* Those of the answer that begins there; *ret_any: there was one. */
static int run_calls(struct child *c, size_t from, bool *ret_any, struct err *e)
{
	size_t end = c->transcript.list.count;

	*ret_any = false;
	for (size_t i = from; i < end; i++) {
		const struct item call = c->transcript.list.items[i];

		if (call.kind != ITEM_TOOL_CALL)
			continue;
		*ret_any = true;
		if (run_call(c, &call, e))
			return -1;
		transcript_mark(&c->transcript, (uint32_t)i, CALL_DONE);
	}
	return 0;
}

/* -- the whole -------------------------------------------------------------------------------- */

/* What its last answer says, bounded as the output of a command is. */
static int finish(struct child *c, size_t from, struct tool_outcome *ret, struct err *e)
{
	auto_free struct output *output = malloc(sizeof(*output));
	auto_buf struct buf text = BUF_INIT(TOOL_RESULT_MAX);

	if (!output)
		return err_set(e, ENOMEM, "no memory for what a child agent says");
	output_init(output);
	for (size_t i = from; i < c->transcript.list.count; i++)
		if (c->transcript.list.items[i].kind == ITEM_ASSISTANT)
			output_take(output, c->transcript.list.items[i].body,
			            c->transcript.list.items[i].body_len);
	ret->result.truncated = output_render(output, &text, &ret->result.lossy);
	ret->result.total_bytes = output->total;
	tool_body(ret, &text);
	json_put_str(ret->details, "reason", "done");
	return 0;
}

static int work(struct child *c, struct tool_outcome *ret, struct err *e)
{
	const char *bound = NULL;
	bool goes_on = true;
	size_t from = 0;
	int rc = 0;

	while (rc == 0 && goes_on) {
		bound = bound_of(c);
		rc = bound ? 1 : ask(c, &from, ret, e);
		if (rc == 0)
			rc = run_calls(c, from, &goes_on, e);
	}
	if (bound)
		(void)tool_refuse(ret, "task_limit", bound);
	if (rc == 0)
		rc = finish(c, from, ret, e);
	json_put_int(ret->details, "inputTokens", (int64_t)c->input_tokens);
	json_put_int(ret->details, "outputTokens", (int64_t)c->output_tokens);
	return rc < 0 ? -1 : 0;
}

static int begin(struct child *c, const char *prompt, size_t len, struct err *e)
{
	struct turn_step nothing = { .cost_nano = -1 };
	struct item *input = calloc(1, sizeof(*input));
	const struct model_tool *ours;
	size_t count;

	if (!input)
		return err_set(e, ENOMEM, "no memory for a child agent");
	c->transcript = (struct transcript){ .list = { input, 1 }, .room = 1, .known = true };
	*input = (struct item){ .kind = ITEM_USER, .body = strndup(prompt, len), .body_len = len };
	c->system = (struct buf)BUF_INIT(SYSTEM_PROMPT_MAX);
	ours = offered_to_child(&count);
	c->prompt.effort = c->run->session.effort;
	system_prompt_child(&c->run->session, ours, count, &c->system);
	c->prompt.system = c->system.data;
	if (!input->body || buf_failed(&c->system))
		return err_set(e, ENOMEM, "no memory for a child agent");
	c->beside = context_tokens(c->system.len);
	for (size_t i = 0; i < count; i++)
		c->beside += context_tokens(strlen(ours[i].description) + strlen(ours[i].schema));
	return note(c, "info", "input", input, &nothing, e);
}

/* How many calls of this tool stand before the call. */
static size_t tasks_before(const struct item_list *list, const struct item *call)
{
	size_t n = 0;

	for (size_t i = 0; i < list->count && &list->items[i] != call; i++)
		n += list->items[i].kind == ITEM_TOOL_CALL && task_is(&list->items[i]);
	return n;
}

int task_run(struct run *r, const struct item *call, struct tool_outcome *ret, struct err *e)
{
	static const struct json_field fields[] = { { "prompt", JSON_STRING, true, false } };
	const struct json *v[ARRAY_LEN(fields)];
	auto_json struct json *doc = NULL;
	struct child child = { .run = r, .call = call };
	int rc;

	tool_begin(call, ret);
	if (tool_arguments(call, fields, ARRAY_LEN(fields), v, &doc, ret))
		return 0;
	if (tasks_before(&r->transcript.list, call) >= TASKS_MAX)
		return tool_refuse(ret, "task_limit", "a turn has at most 8 child agents");
	rc = begin(&child, json_str(v[0]), json_str_len(v[0]), e);
	if (rc == 0)
		rc = work(&child, ret, e);
	transcript_forget(&child.transcript);
	buf_release(&child.system);
	free(child.tools);
	if (rc)
		tool_outcome_release(ret);
	return rc;
}
