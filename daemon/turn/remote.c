#include "daemon/turn/remote.h"

#include "common/fd.h"
#include "daemon/mcp/tools.h"
#include "daemon/tool/help.h"
#include "daemon/tool/output.h"
#include "daemon/turn/offered.h"
#include "daemon/turn/redact.h"

#include <stdlib.h>
#include <string.h>

bool remote_is(const struct item *call)
{
	return mcp_is_name(call->tool);
}

/* -- which there are ----------------------------------------------------------------------------
 */

static bool allowed(void *ctx, const char *server)
{
	const struct run *r = ctx;

	return r->conf->roster && roster_allows_mcp(r->conf->roster, &r->job->tenant, server);
}

static void tell_missing(void *ctx, const char *text)
{
	struct json *data = json_new_object();

	json_put_str(data, "text", text);
	json_put_bool(data, "truncated", false);
	run_publish(ctx, "warning", data);
}

static struct mcp_tools *get(struct run *r)
{
	const struct mcp_turn turn = { .mcp = r->conf->mcp,
		                       .tenant = r->job->tenant,
		                       .cancel = &r->job->cancel,
		                       .allowed = allowed,
		                       .missing = tell_missing,
		                       .ctx = r };

	if (r->remote && mcp_tools_changed(r->remote))
		mcp_tools_free(&r->remote);
	if (!r->remote)
		r->remote = mcp_tools_get(&turn);
	return r->remote;
}

void remote_forget(struct run *r)
{
	mcp_tools_free(&r->remote);
	free(r->offered);
	r->offered = NULL;
}

const struct model_tool *remote_offer(struct run *r, size_t *ret_count)
{
	size_t own, theirs = 0;
	const struct model_tool *ours = offered_tools(&own);
	const struct model_tool *remote;

	if (!r->conf->mcp) {
		*ret_count = own;
		return ours;
	}
	remote = mcp_tools_offered(get(r), &theirs);
	free(r->offered);
	r->offered = calloc(own + theirs, sizeof(*r->offered));
	if (!r->offered)
		abort();
	memcpy(r->offered, ours, own * sizeof(*ours));
	memcpy(r->offered + own, remote, theirs * sizeof(*remote));
	*ret_count = own + theirs;
	return r->offered;
}

/* -- one call -----------------------------------------------------------------------------------
 */

/* Nobody is shown it, and it is not for a server of somebody else's. */
static bool has_secret(const struct item *call)
{
	auto_buf struct buf shown = BUF_INIT(REDACT_MAX);

	return redact_arguments(call, &shown);
}

bool remote_judge(struct run *r, const struct item *call, bool *ret_writes,
                  struct tool_outcome *refusal)
{
	enum mcp_known known = mcp_tools_know(get(r), call->tool);
	struct err e = ERR_INIT;

	*ret_writes = known != MCP_READ_ONLY;
	if (known == MCP_UNKNOWN) {
		tool_refused(call, "unknown_tool", "it is not there, or its server is not",
		             refusal);
		return false;
	}
	if (rpc_arguments_check(call->body, call->body_len, &e) < 0) {
		tool_refused(call, "invalid_arguments", e.text, refusal);
		return false;
	}
	if (has_secret(call)) {
		tool_refused(call, "not_shown", "they hold a secret, and no server is sent one",
		             refusal);
		return false;
	}
	return true;
}

bool remote_reads(struct run *r, const struct item *call)
{
	struct err e = ERR_INIT;

	return mcp_tools_know(get(r), call->tool) == MCP_READ_ONLY &&
	       rpc_arguments_check(call->body, call->body_len, &e) == 0 && !has_secret(call);
}

static const char *code_name(int code)
{
	static const struct {
		int code;
		const char *name;
	} names[] = {
		{ MCP_TIMEOUT, "timeout" },
		{ MCP_UNREACHABLE, "unreachable" },
		{ MCP_CUT, "cut" },
		{ MCP_REFUSED, "refused" },
		{ MCP_EXPIRED, "refused" },
		{ MCP_BAD, "refused" },
		{ MCP_MALFORMED, "malformed" },
		{ MCP_TOO_LARGE, "too_large" },
		{ MCP_ERROR, "tool_error" },
	};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (names[i].code == code)
			return names[i].name;
	return "failed";
}

/* Not what a server answered itself, which says it as well as it can. */
static int refuse(struct tool_outcome *ret, const struct err *cause, bool sent)
{
	const char *code = code_name(cause->code);
	bool unknown = sent && cause->code != MCP_ERROR && strcmp(code, "refused") != 0;
	auto_buf struct buf text = BUF_INIT(4096);

	buf_addf(&text, "%s%s", cause->text,
	         unknown ? "; the call may or may not have had an effect" : "");
	return tool_refuse(ret, code, text.data);
}

static void show(const struct mcp_result *got, struct tool_outcome *ret)
{
	auto_free struct output *output = malloc(sizeof(*output));
	auto_buf struct buf text = BUF_INIT(TOOL_RESULT_MAX);

	if (!output)
		abort();
	output_init(output);
	output_take(output, got->text, got->len);
	if (got->is_error)
		buf_adds(&text, "error: tool_error: ");
	ret->result.truncated = output_render(output, &text, &ret->result.lossy);
	ret->result.total_bytes = output->total;
	tool_body(ret, &text);
	json_put_str(ret->details, "reason", got->is_error ? "tool_error" : "done");
}

int remote_run(struct run *r, const struct item *call, struct tool_outcome *ret, struct err *e)
{
	const struct mcp_call sent = { call->tool, call->body, call->body_len };
	struct mcp_result got = { NULL, 0, false };
	struct err cause = ERR_INIT;
	bool was_sent = false;

	tool_begin(call, ret);
	if (mcp_tools_call(r->remote, &sent, &got, &was_sent, &cause) == 0) {
		show(&got, ret);
		free(got.text);
		return 0;
	}
	if (cause.code != MCP_CANCELLED)
		return refuse(ret, &cause, was_sent);
	tool_outcome_release(ret);
	return err_set(e, SANDBOX_CANCELLED, "cancelled");
}
