#include "daemon/tool/tool.h"

#include "common/fd.h"

#include <inttypes.h>

#define LIST_MAX  INT64_C(1000)
#define LIST_MARK 64 /* bytes of "[N of M entries]" at most */

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
	list->full = list->full || len > TOOL_RESULT_MAX - LIST_MARK - list->text.len;
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
	tool_body(ret, &list->text);
	json_put_str(ret->details, "reason", "done");
}

static int run_list(const struct tool_context *c, const struct item *call, struct tool_outcome *ret,
                    struct err *e)
{
	static const struct json_field fields[] = {
		{ "path", JSON_STRING, false, true },
		{ "limit", JSON_INT, false, true },
	};
	struct entries list = { .text = BUF_INIT(TOOL_RESULT_MAX) };
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
	path = tool_path(c->cwd, v[0] ? json_str(v[0]) : c->cwd);
	if (!path)
		return tool_refuse(ret, "invalid_arguments", "path: too long");
	listing.limit = (uint32_t)limit;
	rc = sandbox_list(&use, path, &listing, &sink, e);
	if (rc == 0)
		finish_list(&list, listing.total, ret);
	buf_release(&list.text);
	return rc ? tool_refuse_with(ret, e) : 0;
}

const struct tool tool_list_files = {
	.shown = { "list_files", "List a directory.",
	           SCHEMA_OBJECT(
			   SCHEMA_PATH("default: the session's working directory") "," SCHEMA_INT(
				   "limit", "1", "1000", "entries; default 1000"),
			   "") },
	.run = run_list,
};
