#include "daemon/tool/tool.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/utf8.h"
#include "daemon/tool/command.h"
#include "daemon/tool/output.h"

#include <inttypes.h>
#include <stdlib.h>

#define PROGRESS_CHARS    16383
#define PROGRESS_MS       100 /* between two pieces of live output */
#define SHELL_TIMEOUT     INT64_C(120000)
#define SHELL_TIMEOUT_MAX INT64_C(3600000)

/* -- live output ---------------------------------------------------------------------- */

struct capture {
	const struct tool_context *context;
	struct output output;
	struct buf pending; /* raw bytes not yet shown */
	uint64_t shown_ms;
	bool skipped;
};

static struct capture *capture_new(const struct tool_context *c)
{
	struct capture *cap = malloc(sizeof(*cap));

	if (!cap)
		return NULL;
	cap->context = c;
	cap->pending = (struct buf)BUF_INIT(PROGRESS_CHARS);
	cap->shown_ms = 0;
	cap->skipped = false;
	output_init(&cap->output);
	return cap;
}

static void capture_free(struct capture **cap)
{
	if (*cap)
		buf_release(&(*cap)->pending);
	free(*cap);
	*cap = NULL;
}

static void show(struct capture *cap, size_t len)
{
	auto_buf struct buf text = BUF_INIT((size_t)3 * PROGRESS_CHARS);

	if (len == 0)
		return;
	(void)utf8_repair(cap->pending.data, len, &text);
	cap->context->progress(cap->context->ctx, text.data, text.len, cap->skipped);
	buf_consume(&cap->pending, len);
	cap->skipped = false;
	cap->shown_ms = clock_mono_ms();
}

/* Live output is a view: at most one piece every PROGRESS_MS, marked when bytes were left out. */
static void capture_take(void *ctx, int stream, const char *data, size_t len)
{
	struct capture *cap = ctx;
	size_t room = PROGRESS_CHARS - cap->pending.len;

	(void)stream;
	output_take(&cap->output, data, len);
	buf_add(&cap->pending, data, len < room ? len : room);
	if (clock_mono_ms() - cap->shown_ms >= PROGRESS_MS && cap->pending.len)
		show(cap, utf8_whole(cap->pending.data, cap->pending.len));
	if (len > room)
		cap->skipped = true;
}

/* -- shell ---------------------------------------------------------------------- */

static void describe_end(const struct exec_result *r, int64_t timeout_ms, struct buf *text)
{
	const char *gap = text->len && text->data[text->len - 1] != '\n' ? "\n" : "";

	switch (r->reason) {
	case EXEC_EXITED:
		if (r->signal)
			buf_addf(text, "%s[killed by signal %d]", gap, r->signal);
		else if (r->code)
			buf_addf(text, "%s[exit code %d]", gap, r->code);
		if (r->survivors)
			buf_addf(text, "%s[%u of its processes live on]", text->len ? "\n" : "",
			         r->survivors);
		break;
	case EXEC_TIMEOUT:
		buf_addf(text, "%s[ended after %" PRId64 " ms: timeout]", gap, timeout_ms);
		break;
	case EXEC_CANCELLED:
		buf_addf(text, "%s[cancelled]", gap);
		break;
	case EXEC_LOST:
	case EXEC_OOM:
	case EXEC_PIDS:
	case EXEC_DISK_FULL:
		buf_addf(text, "%s[%s: the sandbox ended while the command ran]", gap,
		         exec_reason_name(r->reason));
		break;
	}
}

static void put_number(struct json *o, const char *key, bool known, int64_t value)
{
	if (known)
		json_put_int(o, key, value);
	else
		json_put_null(o, key);
}

static void finish_shell(struct capture *cap, const struct exec_result *r, int64_t timeout_ms,
                         struct tool_outcome *ret)
{
	auto_buf struct buf text = BUF_INIT(TOOL_RESULT_MAX);

	show(cap, cap->pending.len);
	ret->result.truncated = output_render(&cap->output, &text, &ret->result.lossy);
	ret->result.total_bytes = cap->output.total;
	describe_end(r, timeout_ms, &text);
	tool_put_output(ret, r->output, &text);
	tool_body(ret, &text);
	json_put_str(ret->details, "reason", exec_reason_name(r->reason));
	put_number(ret->details, "exitCode", r->reason == EXEC_EXITED && r->code >= 0, r->code);
	put_number(ret->details, "signal", r->signal > 0, r->signal);
	json_put_int(ret->details, "survivors", r->survivors);
}

static int run_shell(const struct tool_context *c, const struct item *call,
                     struct tool_outcome *ret, struct err *e)
{
	static const struct json_field fields[] = {
		{ "command", JSON_STRING, true, false },
		{ "cwd", JSON_STRING, false, true },
		{ "timeoutMs", JSON_INT, false, true },
		{ "background", JSON_BOOL, false, true },
	};
	__attribute__((cleanup(capture_free))) struct capture *cap = capture_new(c);
	struct output_sink sink = { capture_take, cap };
	const struct json *v[ARRAY_LEN(fields)];
	auto_json struct json *doc = NULL;
	auto_free char *cwd = NULL;
	struct exec_result result;
	struct exec_spec spec;
	int64_t timeout_ms;
	const struct sandbox_use use = { c->sandboxes, c->tenant, c->cancel };

	if (tool_arguments(call, fields, ARRAY_LEN(fields), v, &doc, ret) ||
	    !tool_bounded(v[2], "timeoutMs", SHELL_TIMEOUT, SHELL_TIMEOUT_MAX, &timeout_ms, ret))
		return 0;
	cwd = tool_path(c->cwd, v[1] ? json_str(v[1]) : c->cwd);
	if (!cap || !cwd)
		return tool_refuse(ret, "invalid_arguments", "cwd: too long");
	spec = (struct exec_spec){ .shell = json_str(v[0]),
		                   .cwd = cwd,
		                   .timeout_ms = (uint64_t)timeout_ms,
		                   .keep = 2 * OUTPUT_HALF };
	if (v[3] && json_bool(v[3])) {
		spec.timeout_ms = v[2] ? (uint64_t)timeout_ms : 0;
		return command_start(c, &spec, ret, e);
	}
	if (sandbox_exec(&use, &spec, &sink, &result, e))
		return tool_refuse_with(ret, e);
	if (result.reason == EXEC_CANCELLED)
		return err_set(e, SANDBOX_CANCELLED, "cancelled");
	finish_shell(cap, &result, timeout_ms, ret);
	return 0;
}

const struct tool tool_shell = {
	.shown = { "shell",
	           "Run a command line with sh in the sandbox and wait for its end. Returns what it "
	           "wrote and its exit code; long output is cut in the middle, and read_output "
	           "has more of it. In the background it goes on after the call; shell_read, "
	           "shell_write and shell_stop take the id that is returned.",
	           SCHEMA_OBJECT(
			   SCHEMA_TEXT("command", "the command line") "," SCHEMA_TEXT("cwd", "where it runs; default: the session's working directory") "," SCHEMA_INT(
				   "timeoutMs", "1", "3600000",
				   "milliseconds; default 120000, in the background none") "," SCHEMA_BOOL("background",
	                                                                                                   "do not wait for its end; default false"),
			   "\"command\"") },
	.run = run_shell,
	.writes = true,
};
