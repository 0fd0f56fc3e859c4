#include "daemon/sandbox/call.h"

#include "common/fd.h"
#include "daemon/metrics/metrics.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LINE_MAX_BYTES 4096 /* a name of 255 bytes, escaped, and numbers */
#define ENTRIES_MAX    10000
#define READ_MAX       ((uint64_t)1 << 40)
#define OFFSET_MAX     (((uint64_t)1 << 53) - 1) /* what JSON holds exactly */

static struct json *start_of(const char *op, const char *path)
{
	struct json *start = json_new_object();

	json_put_str(start, "op", op);
	json_put_str(start, "path", path);
	return start;
}

/* -- read ------------------------------------------------------------------------------------ */

struct read_output {
	const struct output_sink *sink;
	struct file_range *range;
};

static int take_content(void *ctx, int stream, const char *data, size_t len, struct err *e)
{
	struct read_output *out = ctx;

	if (len > out->range->limit - out->range->bytes)
		return err_set(e, EPROTO, "more of a file than was asked for");
	out->range->bytes += len;
	out->sink->take(out->sink->ctx, stream, data, len);
	return 0;
}

int sandbox_read(const struct sandbox_use *use, const char *path, struct file_range *range,
                 const struct output_sink *sink, struct err *e)
{
	static const struct json_field fields[] = { { "size", JSON_INT, true, false },
		                                    { "bytes", JSON_INT, true, false },
		                                    { "version", JSON_STRING, false, false } };
	const struct json *v[3];
	auto_exit struct call_exit result = { fields, 3, v, NULL };
	auto_call struct call c = CALL_INIT;
	auto_json struct json *start = start_of("read", path);
	struct read_output out = { .sink = sink, .range = range };
	struct call_plan plan = { .start = start, .streams = 1, .take = take_content, .ctx = &out };

	range->size = range->bytes = 0;
	if (range->offset > OFFSET_MAX || range->limit > READ_MAX)
		return err_set(e, SANDBOX_INVALID, "offset or limit is too large");
	json_put_int(start, "offset", (int64_t)range->offset);
	json_put_int(start, "limit", (int64_t)range->limit);
	if (call_run(&c, use, &plan, e) < 0 || call_result(&c, &plan, &result, e) < 0)
		return -1;
	if ((uint64_t)json_int(v[1]) != range->bytes)
		return call_lie(&c, "EXIT of a read with another count than was sent", e);
	if (v[2] && json_str_len(v[2]) >= sizeof(range->version))
		return call_lie(&c, "EXIT of a read with a version that is too long", e);
	(void)snprintf(range->version, sizeof(range->version), "%s", v[2] ? json_str(v[2]) : "");
	range->size = (uint64_t)json_int(v[0]);
	metric_add(METRIC_FILE_BYTES, 0, range->bytes);
	return 0;
}

/* -- write ----------------------------------------------------------------------------------- */

static int take_nothing(void *ctx, int stream, const char *data, size_t len, struct err *e)
{
	(void)ctx, (void)stream, (void)data, (void)len;
	return err_set(e, EPROTO, "output of a call that has none");
}

int sandbox_write(const struct sandbox_use *use, const char *path, const char *data, size_t len,
                  struct err *e)
{
	static const struct json_field fields[] = { { "bytes", JSON_INT, true, false } };
	const struct json *v[1];
	auto_exit struct call_exit result = { fields, 1, v, NULL };
	auto_call struct call c = CALL_INIT;
	auto_json struct json *start = start_of("write", path);
	struct call_plan plan = { .start = start,
		                  .has_input = true,
		                  .input = data,
		                  .input_len = len,
		                  .take = take_nothing };

	if (call_run(&c, use, &plan, e) < 0 || call_result(&c, &plan, &result, e) < 0)
		return -1;
	if (!c.input_ended || (uint64_t)json_int(v[0]) != len)
		return call_lie(&c, "EXIT of a write with another count than was sent", e);
	metric_add(METRIC_FILE_BYTES, 1, len);
	return 0;
}

/* -- change ---------------------------------------------------------------------------------- */

#define CONTENT_MAX ((size_t)64 << 20)

static struct json *change_of(const struct file_change *f)
{
	struct json *o = json_new_object();

	json_put_str(o, "path", f->path);
	if (f->removes)
		json_put_bool(o, "remove", true);
	else
		json_put_int(o, "bytes", (int64_t)f->len);
	if (f->expect)
		json_put_str(o, "expect", *f->expect ? f->expect : "absent");
	if (f->like)
		json_put_str(o, "like", f->like);
	return o;
}

int sandbox_change(const struct sandbox_use *use, const struct file_change *files, size_t n,
                   struct err *e)
{
	static const struct json_field fields[] = { { "files", JSON_INT, true, false },
		                                    { "bytes", JSON_INT, true, false } };
	const struct json *v[2];
	auto_exit struct call_exit result = { fields, 2, v, NULL };
	auto_call struct call c = CALL_INIT;
	auto_json struct json *start = json_new_object();
	auto_buf struct buf content = BUF_INIT(CONTENT_MAX);
	struct call_plan plan = { .start = start, .has_input = true, .take = take_nothing };
	struct json *list = json_new_array();

	json_put_str(start, "op", "change");
	json_put(start, "files", list);
	for (size_t i = 0; i < n; i++) {
		json_push(list, change_of(&files[i]));
		if (!files[i].removes && files[i].len)
			buf_add(&content, files[i].data, files[i].len);
	}
	if (n < 1 || n > FILE_CHANGES_MAX || buf_failed(&content))
		return err_set(e, SANDBOX_INVALID, "1 to %d files of %zu bytes in all",
		               FILE_CHANGES_MAX, CONTENT_MAX);
	plan.input = content.data;
	plan.input_len = content.len;
	if (call_run(&c, use, &plan, e) < 0 || call_result(&c, &plan, &result, e) < 0)
		return -1;
	if (!c.input_ended || (uint64_t)json_int(v[0]) != n ||
	    (uint64_t)json_int(v[1]) != content.len)
		return call_lie(&c, "EXIT of a change with other counts than were sent", e);
	return 0;
}

/* -- list ------------------------------------------------------------------------------------ */

struct list_output {
	const struct output_sink *sink;
	struct file_listing *listing;
	struct buf line; /* the one that has not arrived whole */
};

static bool is_type(const char *type)
{
	return !strcmp(type, "file") || !strcmp(type, "directory") || !strcmp(type, "symlink") ||
	       !strcmp(type, "other");
}

static int check_line(const struct buf *line, struct err *e)
{
	static const struct json_field fields[] = { { "name", JSON_STRING, true, false },
		                                    { "type", JSON_STRING, true, false },
		                                    { "size", JSON_INT, true, false },
		                                    { "mtimeMs", JSON_INT, true, false },
		                                    { "lossy", JSON_BOOL, false, false } };
	const struct json *v[ARRAY_LEN(fields)];
	struct json_faults faults = { .count = 0 };
	auto_json struct json *doc = NULL;

	if (call_parse(line->data ? line->data : "", line->len, &doc, e) < 0)
		return err_wrap(e, "entry of a directory");
	if (!json_fields(doc, "", fields, ARRAY_LEN(fields), v, &faults))
		return err_set(e, EPROTO, "entry of a directory: %s", faults.first.text);
	if (!*json_str(v[0]) || strchr(json_str(v[0]), '/') || !is_type(json_str(v[1])) ||
	    json_int(v[2]) < 0 || (v[4] && !json_bool(v[4])))
		return err_set(e, EPROTO, "entry of a directory with a value that cannot be");
	return 0;
}

static int take_line(struct list_output *out, struct err *e)
{
	if (out->listing->entries == out->listing->limit)
		return err_set(e, EPROTO, "more entries than were asked for");
	if (check_line(&out->line, e) < 0)
		return -1;
	out->listing->entries++;
	buf_addc(&out->line, '\n');
	out->sink->take(out->sink->ctx, 1, out->line.data, out->line.len);
	buf_reset(&out->line);
	return 0;
}

static int take_lines(void *ctx, int stream, const char *data, size_t len, struct err *e)
{
	struct list_output *out = ctx;

	(void)stream;
	while (len) {
		const char *end = memchr(data, '\n', len);
		size_t n = end ? (size_t)(end - data) : len;

		if (n >= LINE_MAX_BYTES - out->line.len)
			return err_set(e, EPROTO, "entry of a directory that is too long");
		buf_add(&out->line, data, n);
		if (buf_failed(&out->line))
			return err_set(e, ENOMEM, "no memory for a directory");
		if (!end)
			return 0;
		if (take_line(out, e) < 0)
			return -1;
		data += n + 1;
		len -= n + 1;
	}
	return 0;
}

static int run_list(struct call *c, const struct sandbox_use *use, struct call_plan *plan,
                    struct err *e)
{
	static const struct json_field fields[] = { { "entries", JSON_INT, true, false },
		                                    { "total", JSON_INT, true, false } };
	const struct list_output *out = plan->ctx;
	const struct json *v[2];
	auto_exit struct call_exit result = { fields, 2, v, NULL };

	if (call_run(c, use, plan, e) < 0 || call_result(c, plan, &result, e) < 0)
		return -1;
	if (out->line.len || (uint64_t)json_int(v[0]) != out->listing->entries ||
	    json_int(v[1]) < json_int(v[0]))
		return call_lie(c, "EXIT of a list with another count than was sent", e);
	out->listing->total = (uint64_t)json_int(v[1]);
	return 0;
}

int sandbox_list(const struct sandbox_use *use, const char *path, struct file_listing *listing,
                 const struct output_sink *sink, struct err *e)
{
	auto_call struct call c = CALL_INIT;
	auto_json struct json *start = start_of("list", path);
	struct list_output out = { .sink = sink,
		                   .listing = listing,
		                   .line = BUF_INIT(LINE_MAX_BYTES + 1) };
	struct call_plan plan = { .start = start, .streams = 1, .take = take_lines, .ctx = &out };
	int ret;

	listing->entries = listing->total = 0;
	if (listing->limit < 1 || listing->limit > ENTRIES_MAX)
		return err_set(e, SANDBOX_INVALID, "a listing has 1 to %d entries", ENTRIES_MAX);
	json_put_int(start, "limit", listing->limit);
	ret = run_list(&c, use, &plan, e);
	buf_release(&out.line);
	return ret;
}
