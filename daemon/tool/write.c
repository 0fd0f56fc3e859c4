#include "daemon/tool/tool.h"

#include "common/fd.h"

static int run_write(const struct tool_context *c, const struct item *call,
                     struct tool_outcome *ret, struct err *e)
{
	static const struct json_field fields[] = {
		{ "path", JSON_STRING, true, false },
		{ "content", JSON_STRING, true, false },
	};
	auto_buf struct buf text = BUF_INIT(TOOL_RESULT_MAX);
	const struct json *v[ARRAY_LEN(fields)];
	auto_json struct json *doc = NULL;
	auto_free char *path = NULL;
	const struct sandbox_use use = { c->sandboxes, c->tenant, c->cancel };

	if (tool_arguments(call, fields, ARRAY_LEN(fields), v, &doc, ret))
		return 0;
	path = tool_path(c->cwd, json_str(v[0]));
	if (!path)
		return tool_refuse(ret, "invalid_arguments", "path: too long");
	if (sandbox_write(&use, path, json_str(v[1]), json_str_len(v[1]), e))
		return tool_refuse_with(ret, e);
	buf_addf(&text, "wrote %zu bytes to %s", json_str_len(v[1]), path);
	tool_body(ret, &text);
	json_put_str(ret->details, "reason", "done");
	return 0;
}

const struct tool tool_write_file = {
	.shown = { "write_file", "Make a file, or replace one, with exactly this content.",
	           SCHEMA_OBJECT(SCHEMA_PATH(SCHEMA_PLACE) "," SCHEMA_TEXT("content", "all of it"),
	                         "\"path\",\"content\"") },
	.run = run_write,
	.writes = true,
};
