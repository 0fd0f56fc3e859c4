#include "daemon/turn/tools.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/fd.h"
#include "common/utf8.h"
#include "daemon/turn/output.h"
#include "daemon/turn/tool_help.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define RESULT_MAX        ((size_t)512 * 1024) /* bytes of a result's text; repair can triple output */
#define PROGRESS_CHARS    16383
#define PROGRESS_MS       100 /* between two pieces of live output */
#define SHELL_TIMEOUT     INT64_C(120000)
#define SHELL_TIMEOUT_MAX INT64_C(3600000)
#define READ_MAX          INT64_C(65536)
#define LIST_MAX          INT64_C(1000)
#define LIST_MARK         64              /* bytes of "[N of M entries]" at most */
#define DETAILS_MAX       ((size_t)65536) /* bytes of them as JSON; the store's bound */

void tool_outcome_release(struct tool_outcome *o)
{
	free(o->result.body);
	free(o->result.details);
	o->result.body = o->result.details = NULL;
	json_free(&o->details);
}

void tool_outcome_store_details(struct tool_outcome *o)
{
	auto_buf struct buf text = BUF_INIT(DETAILS_MAX);

	json_write(o->details, &text);
	free(o->result.details);
	o->result.details = buf_failed(&text) ? NULL : buf_take(&text);
}

/* -- results ---------------------------------------------------------------------- */

void tool_begin(const struct item *call, struct tool_outcome *ret)
{
	*ret = (struct tool_outcome){ .result = { .kind = ITEM_TOOL_RESULT } };
	memcpy(ret->result.call_id, call->call_id, sizeof(ret->result.call_id));
	memcpy(ret->result.tool, call->tool, sizeof(ret->result.tool));
	ret->details = json_new_object();
}

static void set_body(struct tool_outcome *ret, struct buf *text)
{
	ret->result.body_len = text->len;
	ret->result.body = buf_take(text);
	if (!ret->result.body)
		ret->result.body_len = 0;
}

/* "error: code: text", the form in which a model sees a mistake of its own. */
int tool_refuse(struct tool_outcome *ret, const char *code, const char *text)
{
	auto_buf struct buf body = BUF_INIT(RESULT_MAX);

	buf_addf(&body, "error: %s: %s", code, text);
	set_body(ret, &body);
	json_put_str(ret->details, "reason", code);
	return 0;
}

static const struct {
	int code;
	const char *name;
} guest_errors[] = {
	{ SANDBOX_LOST, "lost" },
	{ SANDBOX_OOM, "oom" },
	{ SANDBOX_PIDS, "pids" },
	{ SANDBOX_DISK_FULL, "disk_full" },
	{ SANDBOX_NOT_FOUND, "not_found" },
	{ SANDBOX_NOT_EXECUTABLE, "not_executable" },
	{ SANDBOX_NO_CWD, "no_cwd" },
	{ SANDBOX_NOT_A_FILE, "not_a_file" },
	{ SANDBOX_NOT_A_DIRECTORY, "not_a_directory" },
	{ SANDBOX_DENIED, "denied" },
	{ SANDBOX_EXISTS, "exists" },
	{ SANDBOX_NO_SPACE, "no_space" },
	{ SANDBOX_TOO_LARGE, "too_large" },
	{ SANDBOX_INVALID, "invalid" },
	{ SANDBOX_BUSY, "busy" },
	{ SANDBOX_AGAIN, "again" },
	{ SANDBOX_IO, "io" },
};

/* What the guest refused becomes a result; what the sandbox as a whole could not do stays an error.
 */
static int refuse_with(struct tool_outcome *ret, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(guest_errors); i++)
		if (guest_errors[i].code == e->code)
			return tool_refuse(ret, guest_errors[i].name, e->text);
	return -1;
}

/* -- arguments ---------------------------------------------------------------------- */

/*
 * Parse and match arguments; 0, or -1 with *ret filled.  *ret_doc owns the values.
 */
int tool_arguments(const struct item *call, const struct json_field *fields, size_t n,
                   const struct json **values, struct json **ret_doc, struct tool_outcome *ret)
{
	struct json_faults faults = { 0 };
	struct err e = ERR_INIT;

	if (json_parse(call->body, call->body_len, ret_doc, &e)) {
		(void)tool_refuse(ret, "invalid_arguments", e.text);
		return -1;
	}
	if (!json_fields(*ret_doc, "", fields, n, values, &faults)) {
		(void)tool_refuse(ret, "invalid_arguments", faults.first.text);
		return -1;
	}
	return 0;
}

/* The integer in v, or its default when absent; false with *ret filled when out of bounds. */
bool tool_bounded(const struct json *v, const char *name, int64_t fallback, int64_t max,
                  int64_t *ret_value, struct tool_outcome *ret)
{
	struct err e = ERR_INIT;

	*ret_value = v ? json_int(v) : fallback;
	if (*ret_value >= 1 && *ret_value <= max)
		return true;
	(void)err_set(&e, EINVAL, "%s: %" PRId64 " is not from 1 to %" PRId64, name, *ret_value,
	              max);
	(void)tool_refuse(ret, "invalid_arguments", e.text);
	return false;
}

/* An absolute path from one that may be relative to cwd; owned by the caller. */
static char *absolute(const char *cwd, const char *path)
{
	auto_buf struct buf out = BUF_INIT(8200);

	if (path[0] != '/')
		buf_addf(&out, "%s/", cwd);
	buf_adds(&out, path);
	return buf_failed(&out) ? NULL : buf_take(&out);
}

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
	auto_buf struct buf text = BUF_INIT(RESULT_MAX);

	show(cap, cap->pending.len);
	ret->result.truncated = output_render(&cap->output, &text, &ret->result.lossy);
	ret->result.total_bytes = cap->output.total;
	describe_end(r, timeout_ms, &text);
	set_body(ret, &text);
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
	cwd = absolute(c->cwd, v[1] ? json_str(v[1]) : c->cwd);
	if (!cap || !cwd)
		return tool_refuse(ret, "invalid_arguments", "cwd: too long");
	spec = (struct exec_spec){ .shell = json_str(v[0]),
		                   .cwd = cwd,
		                   .timeout_ms = (uint64_t)timeout_ms };
	if (sandbox_exec(&use, &spec, &sink, &result, e))
		return refuse_with(ret, e);
	if (result.reason == EXEC_CANCELLED)
		return err_set(e, SANDBOX_CANCELLED, "cancelled");
	finish_shell(cap, &result, timeout_ms, ret);
	return 0;
}

/* -- files ---------------------------------------------------------------------- */

static void finish_read(const struct output *output, const struct file_range *range,
                        struct tool_outcome *ret)
{
	auto_buf struct buf text = BUF_INIT(RESULT_MAX);

	(void)output_render(output, &text, &ret->result.lossy);
	ret->result.truncated = range->offset + range->bytes < range->size;
	ret->result.total_bytes = range->size;
	if (ret->result.truncated)
		buf_addf(&text,
		         "\n[%" PRIu64 " of %" PRIu64 " bytes; go on with offset %" PRIu64 "]",
		         range->bytes, range->size, range->offset + range->bytes);
	set_body(ret, &text);
	json_put_str(ret->details, "reason", "done");
}

static void take_output(void *ctx, int stream, const char *data, size_t len)
{
	(void)stream;
	output_take(ctx, data, len);
}

static int run_read(const struct tool_context *c, const struct item *call, struct tool_outcome *ret,
                    struct err *e)
{
	static const struct json_field fields[] = {
		{ "path", JSON_STRING, true, false },
		{ "offset", JSON_INT, false, true },
		{ "limit", JSON_INT, false, true },
	};
	auto_free struct output *output = malloc(sizeof(*output));
	struct output_sink sink = { take_output, output };
	const struct json *v[ARRAY_LEN(fields)];
	auto_json struct json *doc = NULL;
	auto_free char *path = NULL;
	struct file_range range = { 0 };
	int64_t limit;
	const struct sandbox_use use = { c->sandboxes, c->tenant, c->cancel };

	if (tool_arguments(call, fields, ARRAY_LEN(fields), v, &doc, ret) ||
	    !tool_bounded(v[2], "limit", READ_MAX, READ_MAX, &limit, ret))
		return 0;
	path = absolute(c->cwd, json_str(v[0]));
	if (!output || !path || (v[1] && json_int(v[1]) < 0))
		return tool_refuse(ret, "invalid_arguments", "path too long, or offset below 0");
	range.offset = v[1] ? (uint64_t)json_int(v[1]) : 0;
	range.limit = (uint64_t)limit;
	output_init(output);
	if (sandbox_read(&use, path, &range, &sink, e))
		return refuse_with(ret, e);
	finish_read(output, &range, ret);
	return 0;
}

static int run_write(const struct tool_context *c, const struct item *call,
                     struct tool_outcome *ret, struct err *e)
{
	static const struct json_field fields[] = {
		{ "path", JSON_STRING, true, false },
		{ "content", JSON_STRING, true, false },
	};
	auto_buf struct buf text = BUF_INIT(RESULT_MAX);
	const struct json *v[ARRAY_LEN(fields)];
	auto_json struct json *doc = NULL;
	auto_free char *path = NULL;
	const struct sandbox_use use = { c->sandboxes, c->tenant, c->cancel };

	if (tool_arguments(call, fields, ARRAY_LEN(fields), v, &doc, ret))
		return 0;
	path = absolute(c->cwd, json_str(v[0]));
	if (!path)
		return tool_refuse(ret, "invalid_arguments", "path: too long");
	if (sandbox_write(&use, path, json_str(v[1]), json_str_len(v[1]), e))
		return refuse_with(ret, e);
	buf_addf(&text, "wrote %zu bytes to %s", json_str_len(v[1]), path);
	set_body(ret, &text);
	json_put_str(ret->details, "reason", "done");
	return 0;
}

struct entries {
	struct buf text;
	uint64_t kept;
	bool full;
};

/* Called once for each entry.  The mark of those that are left out must still fit. */
static void take_entry(void *ctx, int stream, const char *data, size_t len)
{
	struct entries *list = ctx;

	(void)stream;
	list->full = list->full || len > RESULT_MAX - LIST_MARK - list->text.len;
	if (list->full)
		return;
	buf_add(&list->text, data, len);
	list->kept++;
}

static void finish_list(struct entries *list, uint64_t total, struct tool_outcome *ret)
{
	ret->result.truncated = list->kept < total;
	if (ret->result.truncated)
		buf_addf(&list->text, "[%" PRIu64 " of %" PRIu64 " entries]", list->kept, total);
	ret->result.total_bytes = list->text.len;
	set_body(ret, &list->text);
	json_put_str(ret->details, "reason", "done");
}

static int run_list(const struct tool_context *c, const struct item *call, struct tool_outcome *ret,
                    struct err *e)
{
	static const struct json_field fields[] = {
		{ "path", JSON_STRING, false, true },
		{ "limit", JSON_INT, false, true },
	};
	struct entries list = { .text = BUF_INIT(RESULT_MAX) };
	struct output_sink sink = { take_entry, &list };
	const struct json *v[ARRAY_LEN(fields)];
	auto_json struct json *doc = NULL;
	auto_free char *path = NULL;
	struct file_listing listing = { 0 };
	int64_t limit;
	int rc;
	const struct sandbox_use use = { c->sandboxes, c->tenant, c->cancel };

	if (tool_arguments(call, fields, ARRAY_LEN(fields), v, &doc, ret) ||
	    !tool_bounded(v[1], "limit", LIST_MAX, LIST_MAX, &limit, ret))
		return 0;
	path = absolute(c->cwd, v[0] ? json_str(v[0]) : c->cwd);
	if (!path)
		return tool_refuse(ret, "invalid_arguments", "path: too long");
	listing.limit = (uint32_t)limit;
	rc = sandbox_list(&use, path, &listing, &sink, e);
	if (rc == 0)
		finish_list(&list, listing.total, ret);
	buf_release(&list.text);
	return rc ? refuse_with(ret, e) : 0;
}

static const struct {
	const char *name;
	int (*run)(const struct tool_context *c, const struct item *call, struct tool_outcome *ret,
	           struct err *e);
	bool writes;
} tools[] = {
	{ "shell", run_shell, true },
	{ "read_file", run_read, false },
	{ "write_file", run_write, true },
	{ "list_files", run_list, false },
};

bool tool_writes(const struct item *call)
{
	for (size_t i = 0; i < ARRAY_LEN(tools); i++)
		if (strcmp(tools[i].name, call->tool) == 0)
			return tools[i].writes;
	return false; /* it is not known, and so not run */
}

int tool_run(const struct tool_context *c, const struct item *call, struct tool_outcome *ret,
             struct err *e)
{
	int rc = -1;

	tool_begin(call, ret);
	for (size_t i = 0; i < ARRAY_LEN(tools); i++) {
		if (strcmp(tools[i].name, call->tool) != 0)
			continue;
		rc = tools[i].run(c, call, ret, e);
		if (rc)
			tool_outcome_release(ret);
		return rc;
	}
	return tool_refuse(ret, "unknown_tool", call->tool);
}

/* -- what is not run ------------------------------------------------------------------ */

void tool_refused(const struct item *call, const char *code, const char *text,
                  struct tool_outcome *ret)
{
	tool_begin(call, ret);
	(void)tool_refuse(ret, code, text);
}

void tool_interrupted(const struct item *call, struct tool_outcome *ret)
{
	tool_refused(call, "interrupted",
	             "the daemon ended while this call ran; it may or may not have had an effect",
	             ret);
}

static void take_nothing(void *ctx, int stream, const char *data, size_t len)
{
	(void)ctx;
	(void)stream;
	(void)data;
	(void)len;
}

int tool_prove(const struct tool_context *c, struct err *e)
{
	const struct sandbox_use use = { c->sandboxes, c->tenant, c->cancel };
	struct output_sink sink = { take_nothing, NULL };
	struct file_listing listing = { .limit = 1 };

	if (sandbox_list(&use, "/", &listing, &sink, e) == 0)
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(guest_errors); i++)
		if (guest_errors[i].code == e->code && e->code != SANDBOX_LOST)
			return 0; /* the guest answered, so it runs */
	return -1;
}
