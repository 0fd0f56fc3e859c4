#include "daemon/tool/tool.h"

#include "common/fd.h"
#include "daemon/tool/output.h"

#include <inttypes.h>
#include <stdlib.h>

#define READ_MAX INT64_C(65536)

static void finish_read(const struct output *output, const struct file_range *range,
                        struct tool_outcome *ret)
{
	auto_buf struct buf text = BUF_INIT(TOOL_RESULT_MAX);

	(void)output_render(output, &text, &ret->result.lossy);
	ret->result.truncated = range->offset + range->bytes < range->size;
	ret->result.total_bytes = range->size;
	if (ret->result.truncated)
		buf_addf(&text,
		         "\n[%" PRIu64 " of %" PRIu64 " bytes; go on with offset %" PRIu64 "]",
		         range->bytes, range->size, range->offset + range->bytes);
	tool_body(ret, &text);
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
	path = tool_path(c->cwd, json_str(v[0]));
	if (!output || !path || (v[1] && json_int(v[1]) < 0))
		return tool_refuse(ret, "invalid_arguments", "path too long, or offset below 0");
	range.offset = v[1] ? (uint64_t)json_int(v[1]) : 0;
	range.limit = (uint64_t)limit;
	output_init(output);
	if (sandbox_read(&use, path, &range, &sink, e))
		return tool_refuse_with(ret, e);
	finish_read(output, &range, ret);
	return 0;
}

const struct tool tool_read_file = {
	.shown = { "read_file", "Read a part of a file as text.",
	           SCHEMA_OBJECT(
			   SCHEMA_PATH(SCHEMA_PLACE) "," SCHEMA_INT(
				   "offset", "0", "9007199254740991",
				   "first byte; default 0") "," SCHEMA_INT("limit", "1", "65536",
	                                                                   "bytes; default 65536"),
			   "\"path\"") },
	.run = run_read,
};
