#include "daemon/turn/approval.h"

#include "common/buf.h"
#include "common/utf8.h"
#include "daemon/turn/redact.h"
#include "daemon/turn/removal.h"

#include <stdio.h>
#include <string.h>

#define OPTIONS    "[\"allow_once\",\"allow_tool\",\"deny\"]"
#define EACH_TIME  "[\"allow_once\",\"deny\"]"
#define PROMPT_MAX ((size_t)65536 - sizeof(OPTIONS)) /* bytes */
#define REASON_MAX ((size_t)131072)

static enum approval refuse(const struct approval_case *c, const char *code, const char *text,
                            struct tool_outcome *refusal)
{
	tool_refused(c->call, code, text, refusal);
	return APPROVAL_REFUSE;
}

/* Tool, call and arguments, byte for byte. */
static enum approval ask(const struct approval_case *c, const char *options,
                         struct request *request, struct tool_outcome *refusal)
{
	auto_buf struct buf prompt = BUF_INIT(PROMPT_MAX), redacted = BUF_INIT(REDACT_MAX);
	const struct item *call = c->call;

	if (!utf8_valid(call->body, call->body_len) || memchr(call->body, '\0', call->body_len))
		return refuse(c, "invalid_arguments", "they are no text", refusal);
	if (redact_arguments(call, &redacted))
		return refuse(c, "not_shown",
		              "they hold a secret, and nobody allows what is not shown", refusal);
	buf_addf(&prompt, "%s %s\n", call->tool, call->call_id);
	buf_add(&prompt, call->body, call->body_len);
	if (buf_failed(&prompt))
		return refuse(c, "invalid_arguments",
		              "they are larger than the 64 KiB that a person can be shown",
		              refusal);
	(void)snprintf(request->kind, sizeof(request->kind), "%s", APPROVAL_KIND);
	request->before_call = true;
	request->prompt = buf_take(&prompt);
	request->options = strdup(options);
	return APPROVAL_ASK;
}

static enum approval judge(const struct approval_case *c, const struct request *answered,
                           struct tool_outcome *refusal)
{
	auto_buf struct buf why = BUF_INIT(REASON_MAX);

	if (answered->state == REQUEST_ANSWERED && (strcmp(answered->decision, "allow_once") == 0 ||
	                                            strcmp(answered->decision, "allow_tool") == 0))
		return APPROVAL_RUN;
	buf_addf(&why, "a person did not allow this call%s%s", answered->value ? ": " : "",
	         answered->value ? answered->value : "");
	return refuse(c, "denied", buf_failed(&why) ? "a person did not allow this call" : why.data,
	              refusal);
}

/* Whether the tool was allowed for the whole session, where that is an option. */
static int is_allowed(const struct approval_case *c, const char *options, bool *ret, struct err *e)
{
	const struct request_precedent allowed = { &c->session->id, APPROVAL_KIND, c->call->tool,
		                                   "allow_tool" };

	*ret = false;
	if (!strstr(options, allowed.decision))
		return 0;
	return request_decided(c->store, c->tenant, &allowed, ret, e);
}

/*
 * What was decided about this very call, or about its tool for the whole session, where that
 * is an option.
 */
static int look_up(const struct approval_case *c, const char *options, struct request *request,
                   struct tool_outcome *refusal, enum approval *ret, struct err *e)
{
	struct request answered;
	bool found = false;

	if (request_of_call(c->store, c->tenant, c->turn, c->call->seq, &answered, e) == 0) {
		bool open = answered.state == REQUEST_OPEN;

		if (!open)
			*ret = judge(c, &answered, refusal);
		request_release(&answered);
		return open ? err_set(e, STORE_CONFLICT, "somebody is asked about the call") : 0;
	}
	if (e->code != STORE_NOT_FOUND || is_allowed(c, options, &found, e))
		return -1;
	*ret = found ? APPROVAL_RUN : ask(c, options, request, refusal);
	return 0;
}

/* APPROVAL_ASK: unless it was decided before, with these options. */
static enum approval rule_of(const struct approval_case *c, struct tool_outcome *refusal,
                             const char **ret_options)
{
	auto_json struct json *arguments = NULL;
	struct err why = ERR_INIT;

	if (!c->writes)
		return APPROVAL_RUN;
	if (json_parse(c->call->body, c->call->body_len, &arguments, &why))
		return refuse(c, "invalid_arguments", why.text, refusal);
	if (c->session->planning)
		return refuse(c, "planning",
		              "the session plans; what writes is run when plan_exit is approved",
		              refusal);
	if (removal_in_call(arguments))
		*ret_options = EACH_TIME;
	else if (c->asks || strcmp(c->session->approvals, "ask") == 0)
		*ret_options = OPTIONS;
	else
		return APPROVAL_RUN;
	return APPROVAL_ASK;
}

int approval_of(const struct approval_case *c, struct request *request,
                struct tool_outcome *refusal, enum approval *ret, struct err *e)
{
	const char *options = NULL;

	*ret = rule_of(c, refusal, &options);
	return *ret == APPROVAL_ASK ? look_up(c, options, request, refusal, ret, e) : 0;
}

int approval_of_child(const struct approval_case *c, struct tool_outcome *refusal, bool *ret_run,
                      struct err *e)
{
	const char *options = NULL;
	enum approval rule = rule_of(c, refusal, &options);

	*ret_run = rule == APPROVAL_RUN;
	if (rule != APPROVAL_ASK)
		return 0;
	if (is_allowed(c, options, ret_run, e))
		return -1;
	if (!*ret_run)
		(void)refuse(
			c, "not_allowed",
			"a person has to allow this call, and a child agent asks nobody; leave it "
			"to the agent that gave you the task",
			refusal);
	return 0;
}
