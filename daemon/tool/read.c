/*
 * read_file: a part of a file by bytes or by lines, or an image.
 */
#include "daemon/tool/tool.h"

#include "common/fd.h"
#include "common/utf8.h"
#include "daemon/tool/image.h"
#include "daemon/tool/lines.h"
#include "daemon/tool/output.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define READ_MAX  INT64_C(65536)
#define LINES_MAX INT64_C(10000)
#define CHUNK     ((uint64_t)1 << 20)
#define SCAN_MAX  ((uint64_t)256 << 20) /* bytes looked at for a line */

enum {
	A_PATH,
	A_OFFSET,
	A_LIMIT,
	A_LINE,
	A_LINES,
	A_COUNT
};

static const struct json_field fields[A_COUNT] = {
	[A_PATH] = { "path", JSON_STRING, true, false },
	[A_OFFSET] = { "offset", JSON_INT, false, true },
	[A_LIMIT] = { "limit", JSON_INT, false, true },
	[A_LINE] = { "line", JSON_INT, false, true },
	[A_LINES] = { "lines", JSON_INT, false, true },
};

/* -- bytes ---------------------------------------------------------------------------------- */

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

static int read_bytes(const struct tool_context *c, const char *path, struct file_range *range,
                      struct tool_outcome *ret, struct err *e)
{
	const struct sandbox_use use = { c->sandboxes, c->tenant, c->cancel };
	auto_free struct output *output = malloc(sizeof(*output));
	struct output_sink sink = { take_output, output };
	bool whole = range->offset == 0 && range->limit == (uint64_t)READ_MAX;
	const char *type;

	if (!output)
		return err_set(e, ENOMEM, "no memory for a file");
	output_init(output);
	if (sandbox_read(&use, path, range, &sink, e))
		return tool_refuse_with(ret, e);
	type = whole ? image_type(output->head,
	                          output->total < OUTPUT_HALF ? output->total : OUTPUT_HALF)
	             : NULL;
	if (type)
		return image_read(c, path, type, range->size, ret, e);
	finish_read(output, range, ret);
	return 0;
}

/* -- lines ---------------------------------------------------------------------------------- */

static void take_lines(void *ctx, int stream, const char *data, size_t len)
{
	(void)stream;
	lines_take(ctx, data, len);
}

struct scan {
	uint64_t at, size;
	bool changed; /* under the reading */
};

static int scan_lines(const struct sandbox_use *use, const char *path, struct lines *l,
                      struct scan *s, struct err *e)
{
	struct output_sink sink = { take_lines, l };
	char version[FILE_VERSION_SIZE] = "";

	do {
		struct file_range range = { .offset = s->at, .limit = CHUNK };

		if (sandbox_read(use, path, &range, &sink, e))
			return -1;
		s->changed = *version && strcmp(version, range.version) != 0;
		memcpy(version, range.version, sizeof(version));
		s->at += range.bytes;
		s->size = range.size;
		if (!range.bytes)
			break;
	} while (!s->changed && !lines_done(l) && s->at < s->size && s->at < SCAN_MAX);
	if (s->at >= s->size)
		lines_end(l, 0);
	return 0;
}

static void describe_lines(const struct lines *l, const struct scan *s, struct buf *text)
{
	const char *gap = text->len && text->data[text->len - 1] != '\n' ? "\n" : "";

	if (!l->picked && s->at >= s->size)
		buf_addf(text, "[the file has %" PRIu64 " lines]", l->number);
	else if (!l->picked)
		buf_addf(text,
		         "[line %" PRIu64 " is not within the first %" PRIu64
		         " bytes; read by offset]",
		         l->first, s->at);
	else if (lines_done(l) || s->at < s->size)
		buf_addf(text, "%s[lines %" PRIu64 " to %" PRIu64 "; go on with line %" PRIu64 "]",
		         gap, l->first, l->first + l->picked - 1, l->first + l->picked);
}

static bool anything_left(const struct lines *l, const struct scan *s)
{
	return s->at < s->size || l->cut || l->number >= l->first + l->picked;
}

static int read_lines(const struct tool_context *c, const char *path, uint64_t first,
                      uint64_t count, struct tool_outcome *ret, struct err *e)
{
	const struct sandbox_use use = { c->sandboxes, c->tenant, c->cancel };
	auto_buf struct buf text = BUF_INIT(TOOL_RESULT_MAX);
	struct scan scan = { 0 };
	struct lines l;
	int rc;

	lines_init(&l, first, count, NULL);
	rc = scan_lines(&use, path, &l, &scan, e);
	if (rc == 0 && l.out.len)
		ret->result.lossy = utf8_repair(l.out.data, l.out.len, &text);
	ret->result.truncated = anything_left(&l, &scan);
	ret->result.total_bytes = scan.size;
	if (ret->result.truncated || !l.picked)
		describe_lines(&l, &scan, &text);
	lines_release(&l);
	if (rc)
		return tool_refuse_with(ret, e);
	if (scan.changed)
		return tool_refuse(ret, "changed", "the file was changed while it was read");
	tool_body(ret, &text);
	json_put_str(ret->details, "reason", "done");
	return 0;
}

/* -- both ----------------------------------------------------------------------------------- */

static int run_read(const struct tool_context *c, const struct item *call, struct tool_outcome *ret,
                    struct err *e)
{
	const struct json *v[A_COUNT];
	auto_json struct json *doc = NULL;
	auto_free char *path = NULL;
	struct file_range range = { 0 };
	int64_t limit, line, lines;

	if (tool_arguments(call, fields, A_COUNT, v, &doc, ret) ||
	    !tool_bounded(v[A_LIMIT], "limit", READ_MAX, READ_MAX, &limit, ret) ||
	    !tool_bounded(v[A_LINE], "line", 1, INT64_MAX, &line, ret) ||
	    !tool_bounded(v[A_LINES], "lines", LINES_MAX, LINES_MAX, &lines, ret))
		return 0;
	path = tool_path(c->cwd, json_str(v[A_PATH]));
	if (!path || (v[A_OFFSET] && json_int(v[A_OFFSET]) < 0))
		return tool_refuse(ret, "invalid_arguments", "path too long, or offset below 0");
	if ((v[A_LINE] || v[A_LINES]) && (v[A_OFFSET] || v[A_LIMIT]))
		return tool_refuse(ret, "invalid_arguments",
		                   "line: not together with offset and limit");
	if (v[A_LINE] || v[A_LINES])
		return read_lines(c, path, (uint64_t)line, (uint64_t)lines, ret, e);
	range.offset = v[A_OFFSET] ? (uint64_t)json_int(v[A_OFFSET]) : 0;
	range.limit = (uint64_t)limit;
	return read_bytes(c, path, &range, ret, e);
}

const struct tool tool_read_file = {
	.shown = { "read_file",
	           "Read a part of a file as text, by bytes or by lines, or see an image (PNG, JPEG, "
	           "GIF, WebP).",
	           SCHEMA_OBJECT(
			   SCHEMA_PATH(SCHEMA_PLACE) "," SCHEMA_INT("offset", "0", "9007199254740991", "first byte; default 0") "," SCHEMA_INT(
				   "limit", "1", "65536",
				   "bytes; default 65536") "," SCHEMA_INT("line", "1",
	                                                                  "9007199254740991",
	                                                                  "first line, from 1 on; instead of offset") "," SCHEMA_INT("lines",
	                                                                                                                             "1",
	                                                                                                                             "10000",
	                                                                                                                             "how many; default 10000"),
			   "\"path\"") },
	.run = run_read,
};
