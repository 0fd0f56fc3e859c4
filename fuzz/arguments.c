/*
 * Arguments of a model's calls: what does not fit the schema that the model was shown is
 * refused, and what reaches the sandbox keeps its bounds.  Here the sandbox is this program.
 * The first byte chooses the tool, the second what the sandbox answers; then come the
 * arguments, up to the first NUL, and what the sandbox has as the text of a file or a command.
 */
#include "fuzz/fuzz.h"

#include "common/attr.h"
#include "common/fd.h"
#include "common/utf8.h"
#include "daemon/tool/content.h"
#include "daemon/tool/help.h"
#include "daemon/tool/image.h"

#include <stdbool.h>

#define CWD      "/workspace/here"
#define ARGS_MAX 20
#define VERSION  "of the file"

/* The second byte: a number of an answer below, and this. */
#define SEES_IMAGES 0x80

static const int answers[] = {
	0,
	SANDBOX_NOT_FOUND,
	SANDBOX_TOO_LARGE,
	SANDBOX_CHANGED,
	SANDBOX_LOST,
	SANDBOX_CANCELLED,
	SANDBOX_START_FAILED,
	0,
};

static struct {
	char *text;
	size_t len;
	uint8_t answer;
	unsigned int calls;
	struct buf written; /* by the last change */
} box;

/* -- the sandbox ------------------------------------------------------------------------------ */

static int answer(struct err *e)
{
	int code = answers[box.answer % ARRAY_LEN(answers)];

	demand(++box.calls < 1000);
	return code ? err_set(e, code, "the sandbox says so") : 0;
}

static void check_path(const char *path)
{
	demand(path[0] == '/' && strlen(path) <= 8200 && utf8_valid(path, strlen(path)));
}

static void check_id(const char *id)
{
	demand(id && utf8_valid(id, strlen(id)));
}

/* How many bytes of the text are from offset on, at most limit. */
static size_t give(uint64_t offset, uint64_t limit, const struct output_sink *sink)
{
	size_t n = offset < box.len ? box.len - (size_t)offset : 0, half;

	n = n < limit ? n : (size_t)limit;
	half = n / 2;
	if (half)
		sink->take(sink->ctx, 1, box.text + offset, half);
	if (n - half)
		sink->take(sink->ctx, 1, box.text + offset + half, n - half);
	return n;
}

int sandbox_read(const struct sandbox_use *use, const char *path, struct file_range *range,
                 const struct output_sink *sink, struct err *e)
{
	(void)use;
	check_path(path);
	demand(range->limit >= 1 && range->limit <= CONTENT_FILE_MAX);
	demand(range->offset < UINT64_C(1) << 53);
	if (answer(e))
		return -1;
	range->size = box.len;
	range->bytes = give(range->offset, range->limit, sink);
	(void)snprintf(range->version, sizeof(range->version), VERSION);
	return 0;
}

int sandbox_write(const struct sandbox_use *use, const char *path, const char *data, size_t len,
                  struct err *e)
{
	(void)use;
	check_path(path);
	demand(utf8_valid(data, len));
	return answer(e);
}

int sandbox_change(const struct sandbox_use *use, const struct file_change *files, size_t n,
                   struct err *e)
{
	(void)use;
	demand(n >= 1 && n <= FILE_CHANGES_MAX);
	buf_reset(&box.written);
	for (size_t i = 0; i < n; i++) {
		check_path(files[i].path);
		demand(!files[i].removes || !files[i].len);
		demand(files[i].len <= 2 * CONTENT_FILE_MAX);
		if (files[i].like)
			check_path(files[i].like);
		if (files[i].expect)
			demand(!files[i].expect[0] || strcmp(files[i].expect, VERSION) == 0);
		buf_add(&box.written, files[i].data, files[i].len);
	}
	return answer(e);
}

int sandbox_list(const struct sandbox_use *use, const char *path, struct file_listing *listing,
                 const struct output_sink *sink, struct err *e)
{
	static const char entry[] = "{\"name\":\"a\"}\n";

	(void)use;
	check_path(path);
	demand(listing->limit >= 1 && listing->limit <= 1000);
	if (answer(e))
		return -1;
	listing->total = box.len;
	listing->entries = box.len < listing->limit ? box.len : listing->limit;
	for (uint64_t i = 0; i < listing->entries; i++)
		sink->take(sink->ctx, 1, entry, strlen(entry));
	return 0;
}

/* What the model gives is one argument each, and no option of its own. */
static void check_search(const char *const *argv)
{
	size_t n = 0, patterns = 0;

	demand(strcmp(argv[0], "rg") == 0 && strcmp(argv[1], "--no-config") == 0);
	while (argv[n])
		n++;
	demand(n >= 4 && n < ARGS_MAX && strcmp(argv[n - 2], "--") == 0);
	check_path(argv[n - 1]);
	for (size_t i = 1; i < n - 2; i++) {
		demand(strncmp(argv[i], "--", 2) == 0 && argv[i][2]);
		patterns += strncmp(argv[i], "--regexp=", 9) == 0;
	}
	demand(patterns == 1);
}

static void check_spec(const struct exec_spec *spec)
{
	check_path(spec->cwd);
	demand(!spec->argv != !spec->shell && !spec->input_len);
	demand(spec->timeout_ms <= 3600000);
	if (spec->argv)
		check_search(spec->argv);
	else
		demand(utf8_valid(spec->shell, strlen(spec->shell)));
}

const char *exec_reason_name(enum exec_reason reason)
{
	return reason == EXEC_EXITED ? "exited" : "other";
}

int sandbox_exec(const struct sandbox_use *use, const struct exec_spec *spec,
                 const struct output_sink *sink, struct exec_result *ret, struct err *e)
{
	(void)use;
	check_spec(spec);
	demand(spec->timeout_ms > 0);
	if (answer(e))
		return -1;
	*ret = (struct exec_result){ .reason = (enum exec_reason)(box.len % (EXEC_DISK_FULL + 1)),
		                     .code = (int)(box.len % 257) - 1,
		                     .signal = box.len % 3 ? 0 : 9,
		                     .survivors = box.len % 5 ? 0 : 2 };
	sink->take(sink->ctx, 2, "a word\n", box.len % 7);
	ret->stdout_bytes = give(0, UINT64_MAX, sink);
	if (box.len % 2)
		(void)snprintf(ret->output, sizeof(ret->output), "o-1");
	return 0;
}

static struct command_state state(void)
{
	struct command_state s = { .total = box.len, .code = box.len % 2 ? 1 : -1 };

	(void)snprintf(s.reason, sizeof(s.reason), "%s", box.len % 3 ? "exited" : "");
	return s;
}

int sandbox_background(const struct sandbox_use *use, const struct exec_spec *spec,
                       char ret_id[SANDBOX_OUTPUT_ID], struct err *e)
{
	(void)use;
	check_spec(spec);
	(void)snprintf(ret_id, SANDBOX_OUTPUT_ID, "c-1");
	return answer(e);
}

int sandbox_output(const struct sandbox_use *use, const char *id, struct output_range *range,
                   const struct output_sink *sink, struct err *e)
{
	(void)use;
	check_id(id);
	demand(range->offset < UINT64_C(1) << 53 && range->limit <= UINT32_MAX);
	demand(range->wait_ms <= 60000);
	if (answer(e))
		return -1;
	range->start = range->offset < box.len ? range->offset : box.len;
	range->bytes = give(range->start, range->limit, sink);
	range->gap_from = range->gap_to = 0;
	range->state = state();
	return 0;
}

int sandbox_input(const struct sandbox_use *use, const char *id, const char *data, bool end,
                  struct err *e)
{
	(void)use;
	(void)end;
	check_id(id);
	demand(strlen(data) <= 65536 && utf8_valid(data, strlen(data)));
	return answer(e);
}

int sandbox_stop_command(const struct sandbox_use *use, const char *id, struct command_state *ret,
                         struct err *e)
{
	(void)use;
	check_id(id);
	*ret = state();
	return answer(e);
}

int sandbox_commands(const struct sandbox_use *use,
                     void (*fn)(void *ctx, const char *id, const char *command,
                                const struct command_state *state),
                     void *ctx, struct err *e)
{
	const struct command_state s = state();

	(void)use;
	if (answer(e))
		return -1;
	for (size_t i = 0; i < box.len && i < 32; i++)
		fn(ctx, "c-1", "make", &s);
	return 0;
}

/* -- a second reader: the schema that the model is shown ----------------------------------------
 */

static bool is_type(const struct json *v, const char *type)
{
	static const struct {
		const char *name;
		enum json_type type;
	} types[] = {
		{ "string", JSON_STRING }, { "integer", JSON_INT },   { "boolean", JSON_BOOL },
		{ "array", JSON_ARRAY },   { "object", JSON_OBJECT },
	};

	for (size_t i = 0; i < ARRAY_LEN(types); i++)
		if (strcmp(types[i].name, type) == 0)
			return json_type(v) == types[i].type;
	demand(!"a type that is known here");
	return false;
}

static bool is_one_of(const struct json *list, const char *word)
{
	for (size_t i = 0; i < json_len(list); i++)
		if (strcmp(json_str(json_at(list, i)), word) == 0)
			return true;
	return false;
}

/* Objects within arrays are looked at one level down, which is as deep as schemas go. */
struct fitting {
	const struct json *properties, *required;
	bool fits;
};

static bool fits_flat(const struct json *schema, const struct json *v)
{
	const struct json *low = json_get(schema, "minimum"), *high = json_get(schema, "maximum");
	const struct json *words = json_get(schema, "enum");

	return is_type(v, json_str(json_get(schema, "type"))) &&
	       (!low || json_int(v) >= json_int(low)) && (!high || json_int(v) <= json_int(high)) &&
	       (!words || is_one_of(words, json_str(v)));
}

static void fit_step(void *ctx, const char *key, const struct json *v)
{
	struct fitting *f = ctx;
	const struct json *schema = json_get(f->properties, key);

	f->fits = f->fits && schema && v && fits_flat(schema, v);
}

static bool has_all(const struct json *required, const struct json *object)
{
	for (size_t i = 0; i < json_len(required); i++)
		if (!json_get(object, json_str(json_at(required, i))))
			return false;
	return true;
}

static bool fits_items(const struct json *schema, const struct json *list)
{
	const struct json *items = json_get(schema, "items");
	const struct json *required = json_get(items, "required");
	struct fitting f = { json_get(items, "properties"), required, true };

	if ((int64_t)json_len(list) < json_int(json_get(schema, "minItems")) ||
	    (int64_t)json_len(list) > json_int(json_get(schema, "maxItems")))
		return false;
	for (size_t i = 0; i < json_len(list) && f.fits; i++) {
		f.fits = json_type(json_at(list, i)) == JSON_OBJECT &&
		         has_all(required, json_at(list, i));
		if (f.fits)
			json_each(json_at(list, i), fit_step, &f);
	}
	return f.fits;
}

/* null stands for what need not be there. */
static void fit(void *ctx, const char *key, const struct json *v)
{
	struct fitting *f = ctx;
	const struct json *schema = json_get(f->properties, key);

	if (!schema)
		f->fits = false;
	else if (!v || json_type(v) == JSON_NULL)
		f->fits = f->fits && !is_one_of(f->required, key);
	else if (json_get(schema, "items"))
		f->fits = f->fits && json_type(v) == JSON_ARRAY && fits_items(schema, v);
	else
		f->fits = f->fits && fits_flat(schema, v);
}

static bool fits(const struct model_tool *tool, const struct item *call)
{
	auto_json struct json *schema = NULL, *v = NULL;
	struct err e = ERR_INIT;
	struct fitting f = { .fits = true };

	demand(json_parse(tool->schema, strlen(tool->schema), &schema, &e) == 0);
	if (json_parse(call->body, call->body_len, &v, &e) || json_type(v) != JSON_OBJECT)
		return false;
	f.properties = json_get(schema, "properties");
	f.required = json_get(schema, "required");
	demand(!json_bool(json_get(schema, "additionalProperties")));
	if (has_all(f.required, v))
		json_each(v, fit, &f);
	else
		f.fits = false;
	return f.fits;
}

/* -- results ---------------------------------------------------------------------------------- */

static void take_progress(void *ctx, const char *text, size_t len, bool skipped)
{
	(void)ctx;
	(void)skipped;
	demand(len > 0 && utf8_valid(text, len));
}

/* The text with each of the places changed, found one byte after the other. */
static void check_edit(const struct item *call)
{
	auto_buf struct buf wanted = BUF_INIT((size_t)64 << 20);
	auto_json struct json *v = NULL;
	const struct json *old, *new;
	struct err e = ERR_INIT;
	size_t n;

	demand(json_parse(call->body, call->body_len, &v, &e) == 0);
	old = json_get(v, "oldText");
	new = json_get(v, "newText");
	n = json_str_len(old);
	for (size_t i = 0; i < box.len;) {
		if (box.len - i >= n && memcmp(box.text + i, json_str(old), n) == 0) {
			buf_adds(&wanted, json_str(new));
			i += n;
		} else {
			buf_addc(&wanted, box.text[i++]);
		}
	}
	demand(wanted.len == box.written.len);
	demand(!wanted.len || memcmp(wanted.data, box.written.data, wanted.len) == 0);
}

static void check_image(const struct model_image *image)
{
	if (!image->data)
		return;
	demand(image->len == box.len && image->len <= IMAGE_MAX);
	demand(memcmp(image->data, box.text, box.len) == 0);
	demand(strcmp(image->type, image_type(box.text, box.len)) == 0);
}

static void check_outcome(const struct model_tool *tool, const struct item *call,
                          struct tool_outcome *o)
{
	const char *reason = json_str(json_get(o->details, "reason"));
	bool invalid = reason && strcmp(reason, "invalid_arguments") == 0;

	demand(o->result.kind == ITEM_TOOL_RESULT && strcmp(o->result.tool, call->tool) == 0);
	demand(o->result.body && o->result.body_len <= TOOL_RESULT_MAX);
	demand(o->result.body_len == strlen(o->result.body));
	demand(utf8_valid(o->result.body, o->result.body_len));
	demand(reason && (invalid || fits(tool, call)) && (!invalid || !box.calls));
	check_image(&o->image);
	tool_outcome_store_details(o);
	demand(o->result.details);
	if (strcmp(call->tool, "edit_file") == 0 && strcmp(reason, "done") == 0)
		check_edit(call);
}

static void run(const struct model_tool *tool, struct item *call)
{
	static const struct uuid tenant = { "0191d2b4-0000-7000-8000-000000000001" };
	const struct tool_context c = { .tenant = &tenant,
		                        .cwd = CWD,
		                        .sees_images = box.answer & SEES_IMAGES,
		                        .progress = take_progress };
	struct tool_outcome o;
	struct err e = ERR_INIT;

	(void)snprintf(call->tool, sizeof(call->tool), "%s", tool->name);
	if (tool_run(&c, call, &o, &e) == 0) {
		check_outcome(tool, call, &o);
		tool_outcome_release(&o);
	} else {
		demand(e.code == SANDBOX_CANCELLED || e.code == SANDBOX_START_FAILED);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct item call = { .kind = ITEM_TOOL_CALL, .call_id = "call" };
	const uint8_t *end;

	if (size < 2)
		return 0;
	end = memchr(data + 2, '\0', size - 2);
	call.body_len = end ? (size_t)(end - data - 2) : size - 2;
	call.body = text_of(data + 2, call.body_len);
	box.len = end ? size - 2 - call.body_len - 1 : 0;
	box.text = text_of(end ? end + 1 : data, box.len);
	box.answer = data[1];
	box.calls = 0;
	box.written = (struct buf)BUF_INIT((size_t)64 << 20);
	run(tool_shown(data[0] % tool_count()), &call);
	buf_release(&box.written);
	free(call.body);
	free(box.text);
	return 0;
}
