/*
 * Calls that a person answers.  The answer is the call's result; it may also begin or end
 * the planning of the session, in which nothing is run that writes.
 */
#include "daemon/turn/questions.h"
#include "common/buf.h"
#include "common/fd.h"
#include "daemon/tool/help.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS_MAX 100
#define EXPIRES_MAX INT64_C(2592000) /* 30 days */
#define REQUEST_MAX ((size_t)65536)  /* bytes of prompt and options as JSON */
#define ANSWER_MAX  ((size_t)131072) /* bytes of an answer with words of ours around it */

/* Prompt and options of a request; 1, or 0 with *ret filled. */
static int put_question(struct request *request, const char *prompt, char *options,
                        struct tool_outcome *ret)
{
	request->options = options;
	if (!options || strlen(options) + strlen(prompt) > REQUEST_MAX)
		return tool_refuse(ret, "invalid_arguments", "the question is larger than 64 KiB");
	request->prompt = strdup(prompt);
	if (!request->prompt)
		return tool_refuse(ret, "no_memory", "the question could not be kept");
	tool_outcome_release(ret);
	return 1;
}

/* -- ask_user ------------------------------------------------------------------------- */

static bool options_valid(const struct json *options)
{
	for (size_t i = 0; options && i < json_len(options); i++) {
		const struct json *option = json_at(options, i);

		if (json_type(option) != JSON_STRING || json_str_len(option) == 0)
			return false;
	}
	return true;
}

/* The model's options and "custom", as the JSON text that is stored and shown; NULL = too large. */
static char *render_options(const struct json *options)
{
	auto_buf struct buf text = BUF_INIT(REQUEST_MAX);
	auto_json struct json *all = options ? json_copy(options) : json_new_array();

	json_push_str(all, "custom");
	json_write(all, &text);
	return buf_failed(&text) ? NULL : buf_take(&text);
}

static int read_question(const struct item *call, struct request *request, struct tool_outcome *ret)
{
	static const struct json_field fields[] = {
		{ "question", JSON_STRING, true, false },
		{ "options", JSON_ARRAY, false, true },
		{ "expiresInSeconds", JSON_INT, false, true },
	};
	const struct json *v[ARRAY_LEN(fields)];
	auto_json struct json *doc = NULL;
	int64_t seconds;

	if (tool_arguments(call, fields, ARRAY_LEN(fields), v, &doc, ret) ||
	    !tool_bounded(v[2], "expiresInSeconds", 1, EXPIRES_MAX, &seconds, ret))
		return 0;
	request->expires_ms = v[2] ? request->created_ms + (uint64_t)seconds * 1000 : 0;
	if (!options_valid(v[1]) || (v[1] && json_len(v[1]) >= OPTIONS_MAX))
		return tool_refuse(ret, "invalid_arguments",
		                   "options: at most 99 non-empty strings; \"custom\" is added");
	return put_question(request, json_str(v[0]), render_options(v[1]), ret);
}

static const char *say_answer(const char *decision, const char *value, struct buf *room)
{
	(void)room;
	return strcmp(decision, "custom") == 0 && value ? value : decision;
}

/* -- plans ------------------------------------------------------------------------------ */

static int read_plan_enter(const struct item *call, struct request *request,
                           struct tool_outcome *ret)
{
	static const struct json_field fields[] = { { "reason", JSON_STRING, false, true } };
	const struct json *v[ARRAY_LEN(fields)];
	auto_json struct json *doc = NULL;

	if (tool_arguments(call, fields, ARRAY_LEN(fields), v, &doc, ret))
		return 0;
	return put_question(request, v[0] ? json_str(v[0]) : "Plan before anything is changed?",
	                    strdup("[\"enter\",\"stay\"]"), ret);
}

static const char *say_plan_enter(const char *decision, const char *value, struct buf *room)
{
	(void)value;
	(void)room;
	return strcmp(decision, "enter") == 0
	               ? "planning: only what reads is run until plan_exit is approved"
	               : "go on without a plan";
}

static int read_plan_exit(const struct item *call, struct request *request,
                          struct tool_outcome *ret)
{
	static const struct json_field fields[] = { { "plan", JSON_STRING, true, false } };
	const struct json *v[ARRAY_LEN(fields)];
	auto_json struct json *doc = NULL;

	if (tool_arguments(call, fields, ARRAY_LEN(fields), v, &doc, ret))
		return 0;
	return put_question(request, json_str(v[0]),
	                    strdup("[\"approve\",\"request_changes\",\"cancel\"]"), ret);
}

static const char *say_plan_exit(const char *decision, const char *value, struct buf *room)
{
	if (strcmp(decision, "approve") == 0)
		return "the plan is approved";
	if (strcmp(decision, "cancel") == 0)
		return "the plan is refused; planning goes on";
	buf_addf(room, "changes are requested: %s", value ? value : "no more was said");
	return buf_failed(room) ? NULL : room->data;
}

/* -- all of them ------------------------------------------------------------------------ */

static const struct kind {
	const char *tool;
	const char *name; /* of the request */
	/* NULL: no model asks so */
	int (*read)(const struct item *call, struct request *request, struct tool_outcome *ret);
	const char *(*say)(const char *decision, const char *value, struct buf *room);
	const char *changes; /* the decision that begins or ends the planning */
	bool planning;       /* from then on */
} kinds[] = {
	{ "ask_user", "plan_question", read_question, say_answer, NULL, false },
	{ "plan_enter", "plan_enter", read_plan_enter, say_plan_enter, "enter", true },
	{ "plan_exit", "plan_exit", read_plan_exit, say_plan_exit, "approve", false },
	{ "harness_ask", "harness_ask", NULL, say_answer, NULL, false },
	{ "harness_confirm", "harness_confirm", NULL, say_answer, NULL, false },
};

static const struct kind *kind_of_tool(const struct item *call)
{
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		if (kinds[i].read && strcmp(kinds[i].tool, call->tool) == 0)
			return &kinds[i];
	return NULL;
}

static const struct kind *kind_of_request(const struct request *request)
{
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		if (strcmp(kinds[i].name, request->kind) == 0)
			return &kinds[i];
	return NULL;
}

bool tool_asks(const struct item *call)
{
	return kind_of_tool(call) != NULL;
}

int tool_question(const struct item *call, struct request *request, struct tool_outcome *ret)
{
	const struct kind *kind = kind_of_tool(call);

	tool_begin(call, ret);
	if (!kind)
		return tool_refuse(ret, "unknown_tool", call->tool);
	(void)snprintf(request->kind, sizeof(request->kind), "%s", kind->name);
	return kind->read(call, request, ret);
}

bool tool_changes_planning(const struct request *request, const char *decision, bool *ret_planning)
{
	const struct kind *kind = kind_of_request(request);

	if (!kind || !kind->changes || strcmp(kind->changes, decision) != 0)
		return false;
	*ret_planning = kind->planning;
	return true;
}

static int make_result(const struct request *request, const char *text, struct item *ret,
                       struct err *e)
{
	const struct kind *kind = kind_of_request(request);

	*ret = (struct item){ .kind = ITEM_TOOL_RESULT };
	if (!kind)
		return err_set(e, STORE_CORRUPT, "a stored request has the kind \"%s\"",
		               request->kind);
	ret->body = text ? strdup(text) : NULL;
	if (!ret->body)
		return err_set(e, ENOMEM, "no memory for an answer");
	memcpy(ret->call_id, request->call_id, sizeof(ret->call_id));
	(void)snprintf(ret->tool, sizeof(ret->tool), "%s", kind->tool);
	ret->body_len = ret->total_bytes = strlen(ret->body);
	return 0;
}

int tool_answered(const struct request *request, const char *decision, const char *value,
                  struct item *ret, struct err *e)
{
	auto_buf struct buf room = BUF_INIT(ANSWER_MAX);
	const struct kind *kind = kind_of_request(request);

	return make_result(request, kind ? kind->say(decision, value, &room) : NULL, ret, e);
}

int tool_expired(const struct request *request, struct item *ret, struct err *e)
{
	return make_result(request, "error: expired: nobody answered in time", ret, e);
}

int tool_withdrawn(const struct request *request, struct item *ret, struct err *e)
{
	return make_result(request, "error: withdrawn: the answer is not waited for any more", ret,
	                   e);
}
