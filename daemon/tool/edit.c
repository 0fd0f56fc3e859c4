#include "daemon/tool/tool.h"

#include "daemon/tool/content.h"

#include <inttypes.h>
#include <string.h>

enum {
	A_PATH,
	A_OLD,
	A_NEW,
	A_ALL,
	A_COUNT
};

static const struct json_field fields[A_COUNT] = {
	[A_PATH] = { "path", JSON_STRING, true, false },
	[A_OLD] = { "oldText", JSON_STRING, true, false },
	[A_NEW] = { "newText", JSON_STRING, true, false },
	[A_ALL] = { "replaceAll", JSON_BOOL, false, true },
};

struct place {
	size_t count; /* how often it is there, overlaps aside */
	size_t line;  /* of the first one */
};

/* Copy data to out with each text replaced by another one. */
static struct place replace(const struct buf *data, const struct json *old, const struct json *new,
                            struct buf *out)
{
	const char *at = data->data, *end = at + data->len, *found;
	size_t n = json_str_len(old);
	struct place p = { 0 };

	while (at < end && (found = memmem(at, (size_t)(end - at), json_str(old), n))) {
		if (!p.count++)
			for (const char *c = data->data; c < found; c++)
				p.line += *c == '\n';
		buf_add(out, at, (size_t)(found - at));
		buf_add(out, json_str(new), json_str_len(new));
		at = found + n;
	}
	buf_add(out, at, (size_t)(end - at));
	p.line++;
	return p;
}

static int refuse_place(const struct content *c, size_t count, struct tool_outcome *ret)
{
	struct err e = ERR_INIT;

	if (!count) {
		(void)err_set(&e, 0, "%s: oldText is not in it", c->path);
		return tool_refuse(ret, "no_match", e.text);
	}
	(void)err_set(&e, 0,
	              "%s: oldText is in it %zu times; give more of what is around it, or "
	              "replaceAll",
	              c->path, count);
	return tool_refuse(ret, "ambiguous", e.text);
}

static int store(const struct sandbox_use *use, const struct content *c, const struct buf *out,
                 struct tool_outcome *ret, struct err *e)
{
	const struct file_change change = {
		.path = c->path, .data = out->data, .len = out->len, .expect = c->version
	};

	return sandbox_change(use, &change, 1, e) ? tool_refuse_with(ret, e) : 1;
}

static int edit(const struct sandbox_use *use, struct content *c, const struct json *const *v,
                struct tool_outcome *ret, struct err *e)
{
	auto_buf struct buf out = BUF_INIT(2 * CONTENT_FILE_MAX), text = BUF_INIT(TOOL_RESULT_MAX);
	struct place p;
	int rc;

	if (content_read(use, c, e))
		return tool_refuse_with(ret, e);
	p = replace(&c->data, v[A_OLD], v[A_NEW], &out);
	if (!p.count || (p.count > 1 && !(v[A_ALL] && json_bool(v[A_ALL]))))
		return refuse_place(c, p.count, ret);
	if (buf_failed(&out))
		return tool_refuse(ret, "too_large", "the file would become too large");
	rc = store(use, c, &out, ret, e);
	if (rc != 1)
		return rc;
	buf_addf(&text, "replaced %zu %s in %s, the first at line %zu", p.count,
	         p.count == 1 ? "place" : "places", c->path, p.line);
	tool_body(ret, &text);
	json_put_str(ret->details, "reason", "done");
	json_put_int(ret->details, "replaced", (int64_t)p.count);
	return 0;
}

static int run_edit(const struct tool_context *c, const struct item *call, struct tool_outcome *ret,
                    struct err *e)
{
	const struct sandbox_use use = { c->sandboxes, c->tenant, c->cancel };
	auto_content struct content content = CONTENT_INIT;
	const struct json *v[A_COUNT];
	auto_json struct json *doc = NULL;

	if (tool_arguments(call, fields, A_COUNT, v, &doc, ret))
		return 0;
	content.path = tool_path(c->cwd, json_str(v[A_PATH]));
	if (!content.path)
		return tool_refuse(ret, "invalid_arguments", "path: too long");
	if (!json_str_len(v[A_OLD]))
		return tool_refuse(ret, "invalid_arguments", "oldText: must not be empty");
	if (json_str_len(v[A_OLD]) == json_str_len(v[A_NEW]) &&
	    memcmp(json_str(v[A_OLD]), json_str(v[A_NEW]), json_str_len(v[A_OLD])) == 0)
		return tool_refuse(ret, "invalid_arguments", "newText: the same as oldText");
	return edit(&use, &content, v, ret, e);
}

const struct tool tool_edit_file = {
	.shown = { "edit_file",
	           "Replace a text in a file by another one. The old text must be there exactly "
	           "once, or replaceAll must be true.",
	           SCHEMA_OBJECT(
			   SCHEMA_PATH(SCHEMA_PLACE) "," SCHEMA_TEXT("oldText", "what is there, to the letter") "," SCHEMA_TEXT(
				   "newText",
				   "what shall be there instead") "," SCHEMA_BOOL("replaceAll",
	                                                                          "every place; default false"),
			   "\"path\",\"oldText\",\"newText\"") },
	.run = run_edit,
	.writes = true,
};
