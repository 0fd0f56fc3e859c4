/*
 * What commands have written, after the call that ran them: read_output; and commands that
 * run in the background: shell_read, shell_write, shell_stop.
 */
#include "daemon/tool/tool.h"

#include "common/utf8.h"
#include "daemon/tool/command.h"
#include "daemon/tool/lines.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define READ_MAX  INT64_C(65536)
#define LINES_MAX INT64_C(10000)
#define WAIT_MAX  INT64_C(60000)

#define ID_WHAT "as the result of the command says"

static void take_bytes(void *ctx, int stream, const char *data, size_t len)
{
	(void)stream;
	buf_add(ctx, data, len);
}

static void take_lines(void *ctx, int stream, const char *data, size_t len)
{
	(void)stream;
	lines_take(ctx, data, len);
}

static const char *gap_before(const struct buf *text)
{
	return text->len && text->data[text->len - 1] != '\n' ? "\n" : "";
}

static bool has_gap(const struct output_range *r)
{
	return r->gap_from < r->gap_to;
}

static void put_gap(const struct output_range *r, struct buf *text)
{
	if (has_gap(r))
		buf_addf(text, "%s[bytes %" PRIu64 " to %" PRIu64 " are not kept]",
		         gap_before(text), r->gap_from, r->gap_to - 1);
}

/* -- by bytes ------------------------------------------------------------------------------- */

static void finish_bytes(const struct buf *data, const struct output_range *r, bool state,
                         struct tool_outcome *ret)
{
	auto_buf struct buf text = BUF_INIT(TOOL_RESULT_MAX);
	uint64_t end = r->start + r->bytes;

	if (data->len)
		ret->result.lossy = utf8_repair(data->data, data->len, &text);
	ret->result.total_bytes = r->state.total;
	ret->result.truncated = end < r->state.total;
	if (r->start > 0 || end < r->state.total)
		buf_addf(&text,
		         "%s[bytes %" PRIu64 " to %" PRIu64 " of %" PRIu64
		         "; go on with offset %" PRIu64 "]",
		         gap_before(&text), r->start, end, r->state.total, end);
	put_gap(r, &text);
	if (state)
		command_describe(&r->state, &text);
	tool_body(ret, &text);
	command_details(&r->state, ret);
}

static int read_bytes(const struct sandbox_use *use, const char *id, struct output_range *r,
                      bool state, struct tool_outcome *ret, struct err *e)
{
	auto_buf struct buf data = BUF_INIT((size_t)READ_MAX);
	struct output_sink sink = { take_bytes, &data };

	if (sandbox_output(use, id, r, &sink, e))
		return tool_refuse_with(ret, e);
	finish_bytes(&data, r, state, ret);
	return 0;
}

/* -- by lines ------------------------------------------------------------------------------- */

/* Numbers of lines end at the gap; a search goes on behind it. */
static int scan(const struct sandbox_use *use, const char *id, struct lines *l,
                struct output_range *r, struct err *e)
{
	struct output_sink sink = { take_lines, l };

	*r = (struct output_range){ .limit = UINT32_MAX };
	if (sandbox_output(use, id, r, &sink, e))
		return -1;
	if (has_gap(r) && l->contains && !lines_done(l)) {
		uint64_t from = r->start + r->bytes;

		*r = (struct output_range){ .offset = r->gap_to, .limit = UINT32_MAX };
		lines_end(l, r->offset - from);
		if (sandbox_output(use, id, r, &sink, e))
			return -1;
	}
	lines_end(l, 0);
	return 0;
}

static void describe_lines(const struct lines *l, const struct output_range *r, struct buf *text)
{
	if (l->contains && !l->picked)
		buf_addf(text, "[no line contains it]");
	else if (l->contains)
		buf_addf(text, "%s[%" PRIu64 " lines, each after its offset%s]", gap_before(text),
		         l->picked, lines_done(l) ? "; there may be more" : "");
	else if (!l->picked)
		buf_addf(text, "[the output has %" PRIu64 " lines]", l->number);
	else
		buf_addf(text, "%s[lines %" PRIu64 " to %" PRIu64 " of %" PRIu64 "]",
		         gap_before(text), l->first, l->first + l->picked - 1, l->number);
	put_gap(r, text);
}

static int read_lines(const struct sandbox_use *use, const char *id, struct lines *l,
                      struct tool_outcome *ret, struct err *e)
{
	auto_buf struct buf text = BUF_INIT(TOOL_RESULT_MAX);
	struct output_range r;

	if (scan(use, id, l, &r, e))
		return tool_refuse_with(ret, e);
	if (l->out.len)
		ret->result.lossy = utf8_repair(l->out.data, l->out.len, &text);
	describe_lines(l, &r, &text);
	ret->result.truncated = lines_done(l) || l->cut || has_gap(&r);
	ret->result.total_bytes = r.state.total;
	tool_body(ret, &text);
	command_details(&r.state, ret);
	return 0;
}

/* -- read_output ---------------------------------------------------------------------------- */

enum {
	A_ID,
	A_OFFSET,
	A_LIMIT,
	A_LINE,
	A_LINES,
	A_CONTAINS,
	A_COUNT
};

static int run_output(const struct tool_context *c, const struct item *call,
                      struct tool_outcome *ret, struct err *e)
{
	static const struct json_field fields[A_COUNT] = {
		[A_ID] = { "id", JSON_STRING, true, false },
		[A_OFFSET] = { "offset", JSON_INT, false, true },
		[A_LIMIT] = { "limit", JSON_INT, false, true },
		[A_LINE] = { "line", JSON_INT, false, true },
		[A_LINES] = { "lines", JSON_INT, false, true },
		[A_CONTAINS] = { "contains", JSON_STRING, false, true },
	};
	const struct sandbox_use use = { c->sandboxes, c->tenant, c->cancel };
	struct output_range range = { 0 };
	const struct json *v[A_COUNT];
	auto_json struct json *doc = NULL;
	int64_t limit, line, lines;
	struct lines l;
	int rc;

	if (tool_arguments(call, fields, A_COUNT, v, &doc, ret) ||
	    !tool_bounded(v[A_LIMIT], "limit", READ_MAX, READ_MAX, &limit, ret) ||
	    !tool_bounded(v[A_LINE], "line", 1, INT64_MAX, &line, ret) ||
	    !tool_bounded(v[A_LINES], "lines", LINES_MAX, LINES_MAX, &lines, ret))
		return 0;
	if (v[A_OFFSET] && json_int(v[A_OFFSET]) < 0)
		return tool_refuse(ret, "invalid_arguments", "offset: must not be negative");
	if ((v[A_OFFSET] || v[A_LIMIT]) + (v[A_LINE] != NULL) + (v[A_CONTAINS] != NULL) > 1 ||
	    (v[A_LINES] && (v[A_OFFSET] || v[A_LIMIT])))
		return tool_refuse(
			ret, "invalid_arguments",
			"either offset and limit, or line and lines, or contains and lines");
	range.offset = v[A_OFFSET] ? (uint64_t)json_int(v[A_OFFSET]) : 0;
	range.limit = (uint64_t)limit;
	if (!v[A_LINE] && !v[A_LINES] && !v[A_CONTAINS])
		return read_bytes(&use, json_str(v[A_ID]), &range, false, ret, e);
	lines_init(&l, (uint64_t)line, (uint64_t)lines,
	           v[A_CONTAINS] ? json_str(v[A_CONTAINS]) : NULL);
	rc = read_lines(&use, json_str(v[A_ID]), &l, ret, e);
	lines_release(&l);
	return rc;
}

const struct tool tool_read_output = {
	.shown = { "read_output",
	           "Read output of an earlier command that was cut, by bytes, by lines, or only lines "
	           "that contain a text.",
	           SCHEMA_OBJECT(
			   SCHEMA_TEXT("id", ID_WHAT) "," SCHEMA_INT("offset", "0", "9007199254740991", "first byte; default 0") "," SCHEMA_INT(
				   "limit", "1", "65536",
				   "bytes; default 65536") "," SCHEMA_INT("line", "1",
	                                                                  "9007199254740991",
	                                                                  "first line, from 1 on; instead of offset") "," SCHEMA_INT("lines",
	                                                                                                                             "1",
	                                                                                                                             "10000",
	                                                                                                                             "how many lines at most; default 10000") "," SCHEMA_TEXT("contains",
	                                                                                                                                                                                      "only lines that contain this text"),
			   "\"id\"") },
	.run = run_output,
};

/* -- shell_read ----------------------------------------------------------------------------- */

static void add_command(void *ctx, const char *id, const char *command,
                        const struct command_state *state)
{
	struct buf *text = ctx;

	buf_addf(text, "%s: %s", id, command);
	command_describe(state, text);
	buf_addc(text, '\n');
}

static int list_commands(const struct sandbox_use *use, struct tool_outcome *ret, struct err *e)
{
	auto_buf struct buf text = BUF_INIT(TOOL_RESULT_MAX);

	if (sandbox_commands(use, add_command, &text, e))
		return tool_refuse_with(ret, e);
	if (!text.len)
		buf_adds(&text, "[no command was started in the background]");
	tool_body(ret, &text);
	json_put_str(ret->details, "reason", "done");
	return 0;
}

/* The last limit bytes, when it was not said from where on. */
static int find_offset(const struct sandbox_use *use, const char *id, struct output_range *r,
                       struct err *e)
{
	struct output_range look = { .offset = UINT32_MAX, .wait_ms = r->wait_ms };
	struct output_sink sink = { take_bytes, NULL };

	if (sandbox_output(use, id, &look, &sink, e))
		return -1;
	r->wait_ms = 0;
	r->offset = look.state.total > r->limit ? look.state.total - r->limit : 0;
	return 0;
}

static int run_shell_read(const struct tool_context *c, const struct item *call,
                          struct tool_outcome *ret, struct err *e)
{
	static const struct json_field fields[] = {
		{ "id", JSON_STRING, false, true },
		{ "offset", JSON_INT, false, true },
		{ "limit", JSON_INT, false, true },
		{ "waitMs", JSON_INT, false, true },
	};
	const struct sandbox_use use = { c->sandboxes, c->tenant, c->cancel };
	const struct json *v[ARRAY_LEN(fields)];
	auto_json struct json *doc = NULL;
	struct output_range range = { 0 };
	int64_t limit, wait;

	if (tool_arguments(call, fields, ARRAY_LEN(fields), v, &doc, ret) ||
	    !tool_bounded(v[2], "limit", READ_MAX, READ_MAX, &limit, ret) ||
	    !tool_bounded(v[3], "waitMs", 1, WAIT_MAX, &wait, ret))
		return 0;
	if (v[1] && json_int(v[1]) < 0)
		return tool_refuse(ret, "invalid_arguments", "offset: must not be negative");
	if (!v[0])
		return list_commands(&use, ret, e);
	range.limit = (uint64_t)limit;
	range.wait_ms = v[3] ? (uint64_t)wait : 0;
	if (v[1])
		range.offset = (uint64_t)json_int(v[1]);
	else if (find_offset(&use, json_str(v[0]), &range, e))
		return tool_refuse_with(ret, e);
	return read_bytes(&use, json_str(v[0]), &range, true, ret, e);
}

const struct tool tool_shell_read = {
	.shown = { "shell_read",
	           "Read what a background command has written, and whether it runs. Without id: "
	           "list the background commands.",
	           SCHEMA_OBJECT(
			   SCHEMA_TEXT("id", ID_WHAT) "," SCHEMA_INT("offset", "0", "9007199254740991", "first byte; default: the last ones") "," SCHEMA_INT(
				   "limit", "1", "65536",
				   "bytes; default 65536") "," SCHEMA_INT("waitMs", "1", "60000",
	                                                                  "wait so long for output from offset on, or without offset for the end; default: not at all"),
			   "") },
	.run = run_shell_read,
};

/* -- shell_write, shell_stop ------------------------------------------------------------------ */

static int run_shell_write(const struct tool_context *c, const struct item *call,
                           struct tool_outcome *ret, struct err *e)
{
	static const struct json_field fields[] = {
		{ "id", JSON_STRING, true, false },
		{ "text", JSON_STRING, true, false },
		{ "end", JSON_BOOL, false, true },
	};
	const struct sandbox_use use = { c->sandboxes, c->tenant, c->cancel };
	auto_buf struct buf text = BUF_INIT(TOOL_RESULT_MAX);
	const struct json *v[ARRAY_LEN(fields)];
	auto_json struct json *doc = NULL;
	bool end;

	if (tool_arguments(call, fields, ARRAY_LEN(fields), v, &doc, ret))
		return 0;
	end = v[2] && json_bool(v[2]);
	if (json_str_len(v[1]) > (size_t)READ_MAX)
		return tool_refuse(ret, "invalid_arguments", "text: at most 65536 bytes");
	if (sandbox_input(&use, json_str(v[0]), json_str(v[1]), end, e))
		return tool_refuse_with(ret, e);
	buf_addf(&text, "wrote %zu bytes%s", json_str_len(v[1]), end ? " and ended its input" : "");
	tool_body(ret, &text);
	json_put_str(ret->details, "reason", "done");
	return 0;
}

const struct tool tool_shell_write = {
	.shown = { "shell_write", "Write to the standard input of a background command.",
	           SCHEMA_OBJECT(
			   SCHEMA_TEXT("id", ID_WHAT) "," SCHEMA_TEXT(
				   "text",
				   "as it is; a line needs its \\\\n") "," SCHEMA_BOOL("end",
	                                                                               "end its input after that; default false"),
			   "\"id\",\"text\"") },
	.run = run_shell_write,
	.writes = true,
};

static int run_shell_stop(const struct tool_context *c, const struct item *call,
                          struct tool_outcome *ret, struct err *e)
{
	static const struct json_field fields[] = { { "id", JSON_STRING, true, false } };
	const struct sandbox_use use = { c->sandboxes, c->tenant, c->cancel };
	auto_buf struct buf text = BUF_INIT(TOOL_RESULT_MAX);
	const struct json *v[ARRAY_LEN(fields)];
	auto_json struct json *doc = NULL;
	struct command_state state;

	if (tool_arguments(call, fields, ARRAY_LEN(fields), v, &doc, ret))
		return 0;
	if (sandbox_stop_command(&use, json_str(v[0]), &state, e))
		return tool_refuse_with(ret, e);
	buf_adds(&text, json_str(v[0]));
	command_describe(&state, &text);
	tool_body(ret, &text);
	command_details(&state, ret);
	return 0;
}

const struct tool tool_shell_stop = {
	.shown = { "shell_stop", "Kill a background command with all that it started.",
	           SCHEMA_OBJECT(SCHEMA_TEXT("id", ID_WHAT), "\"id\"") },
	.run = run_shell_stop,
	.writes = true,
};
