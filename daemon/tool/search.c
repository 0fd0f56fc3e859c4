/*
 * search: ripgrep in the sandbox.  What the model gives is one argument each, behind its
 * option's "=" or behind "--", and no configuration of the tenant's is read.
 */
#include "daemon/tool/tool.h"

#include "common/utf8.h"
#include "daemon/tool/output.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARGS_MAX    20
#define SEARCH_MS   60000
#define ERRORS_MAX  ((size_t)4096)
#define CONTEXT_MAX INT64_C(20)

enum {
	A_PATTERN,
	A_PATH,
	A_GLOB,
	A_MODE,
	A_LITERAL,
	A_CASE,
	A_ALL,
	A_CONTEXT,
	A_COUNT
};

static const struct json_field fields[A_COUNT] = {
	[A_PATTERN] = { "pattern", JSON_STRING, true, false },
	[A_PATH] = { "path", JSON_STRING, false, true },
	[A_GLOB] = { "glob", JSON_STRING, false, true },
	[A_MODE] = { "mode", JSON_STRING, false, true },
	[A_LITERAL] = { "literal", JSON_BOOL, false, true },
	[A_CASE] = { "ignoreCase", JSON_BOOL, false, true },
	[A_ALL] = { "all", JSON_BOOL, false, true },
	[A_CONTEXT] = { "context", JSON_INT, false, true },
};

struct search {
	const char *argv[ARGS_MAX]; /* borrowed, but for those below */
	size_t n;
	char *pattern, *glob, *path; /* owned */
	char context[32];
	struct output output;
	struct buf errors; /* the beginning of standard error */
};

static void search_free(struct search **s)
{
	if (*s) {
		free((*s)->pattern);
		free((*s)->glob);
		free((*s)->path);
		buf_release(&(*s)->errors);
	}
	free(*s);
	*s = NULL;
}

static void take(void *ctx, int stream, const char *data, size_t len)
{
	struct search *s = ctx;
	size_t room = ERRORS_MAX - s->errors.len;

	if (stream == 2)
		buf_add(&s->errors, data, len < room ? len : room);
	else
		output_take(&s->output, data, len);
}

static void add(struct search *s, const char *argument)
{
	if (s->n < ARGS_MAX - 1)
		s->argv[s->n++] = argument;
}

static void add_if(struct search *s, const struct json *flag, const char *argument)
{
	if (flag && json_bool(flag))
		add(s, argument);
}

/* "--name=value"; owned by the caller. */
static char *option(const char *name, const struct json *value)
{
	auto_buf struct buf b = BUF_INIT((size_t)1 << 17);

	buf_addf(&b, "--%s=%s", name, json_str(value));
	return buf_failed(&b) ? NULL : buf_take(&b);
}

static const char *mode_option(const struct json *mode)
{
	static const char *const modes[][2] = {
		{ "content", "--line-number" },
		{ "files", "--files-with-matches" },
		{ "count", "--count" },
	};

	for (size_t i = 0; i < ARRAY_LEN(modes); i++)
		if (!mode || strcmp(json_str(mode), modes[i][0]) == 0)
			return modes[i][1];
	return NULL;
}

/* 0, or -1 with *ret filled. */
static int prepare(struct search *s, const char *cwd, const struct json *const *v,
                   struct tool_outcome *ret)
{
	const char *mode = mode_option(v[A_MODE]);
	int64_t context;

	if (!mode) {
		(void)tool_refuse(ret, "invalid_arguments", "mode: content, files or count");
		return -1;
	}
	if (!tool_bounded(v[A_CONTEXT], "context", 1, CONTEXT_MAX, &context, ret))
		return -1;
	s->pattern = option("regexp", v[A_PATTERN]);
	s->glob = v[A_GLOB] ? option("glob", v[A_GLOB]) : NULL;
	s->path = tool_path(cwd, v[A_PATH] ? json_str(v[A_PATH]) : cwd);
	if (!s->pattern || !s->path || (v[A_GLOB] && !s->glob)) {
		(void)tool_refuse(ret, "invalid_arguments", "pattern, glob or path: too long");
		return -1;
	}
	add(s, "rg");
	add(s, "--no-config");
	add(s, "--color=never");
	add(s, "--no-heading");
	add(s, "--with-filename");
	add(s, "--sort=path");
	add(s, "--binary");
	add(s, "--max-columns=500");
	add(s, "--max-columns-preview");
	add(s, mode);
	add_if(s, v[A_LITERAL], "--fixed-strings");
	add_if(s, v[A_CASE], "--ignore-case");
	add_if(s, v[A_ALL], "--hidden");
	add_if(s, v[A_ALL], "--no-ignore");
	(void)snprintf(s->context, sizeof(s->context), "--context=%" PRId64, context);
	if (v[A_CONTEXT])
		add(s, s->context);
	if (s->glob)
		add(s, s->glob);
	add(s, s->pattern);
	add(s, "--");
	add(s, s->path);
	return 0;
}

static void describe(const struct search *s, const struct exec_result *r, struct buf *text)
{
	if (r->reason == EXEC_TIMEOUT)
		buf_addf(text, "%s[stopped after %d ms: there may be more]", text->len ? "\n" : "",
		         SEARCH_MS);
	else if (r->reason != EXEC_EXITED)
		buf_addf(text, "%s[%s: the sandbox ended while it searched]", text->len ? "\n" : "",
		         exec_reason_name(r->reason));
	else if (r->code != 0 && r->code != 1)
		buf_addf(text, "%s[not everything was searched: exit code %d]",
		         text->len ? "\n" : "", r->code);
	else if (!s->output.total)
		buf_adds(text, "[no match]");
}

static void finish(struct search *s, const struct exec_result *r, struct tool_outcome *ret)
{
	auto_buf struct buf text = BUF_INIT(TOOL_RESULT_MAX), errors = BUF_INIT(3 * ERRORS_MAX);

	ret->result.truncated = output_render(&s->output, &text, &ret->result.lossy);
	ret->result.total_bytes = s->output.total;
	if (s->errors.len) {
		(void)utf8_repair(s->errors.data, s->errors.len, &errors);
		buf_addf(&text, "%s%s", text.len ? "\n" : "", errors.data);
	}
	describe(s, r, &text);
	tool_put_output(ret, r->output, &text);
	tool_body(ret, &text);
	json_put_str(ret->details, "reason", exec_reason_name(r->reason));
}

static int run_search(const struct tool_context *c, const struct item *call,
                      struct tool_outcome *ret, struct err *e)
{
	const struct sandbox_use use = { c->sandboxes, c->tenant, c->cancel };
	__attribute__((cleanup(search_free))) struct search *s = calloc(1, sizeof(*s));
	struct output_sink sink = { take, s };
	const struct json *v[A_COUNT];
	auto_json struct json *doc = NULL;
	struct exec_result result;
	struct exec_spec spec;

	if (!s)
		return err_set(e, ENOMEM, "no memory for a search");
	s->errors = (struct buf)BUF_INIT(ERRORS_MAX);
	output_init(&s->output);
	if (tool_arguments(call, fields, A_COUNT, v, &doc, ret) || prepare(s, c->cwd, v, ret))
		return 0;
	spec = (struct exec_spec){
		.argv = s->argv, .cwd = "/", .timeout_ms = SEARCH_MS, .keep = 2 * OUTPUT_HALF
	};
	if (sandbox_exec(&use, &spec, &sink, &result, e))
		return tool_refuse_with(ret, e);
	if (result.reason == EXEC_CANCELLED)
		return err_set(e, SANDBOX_CANCELLED, "cancelled");
	finish(s, &result, ret);
	return 0;
}

const struct tool tool_search = {
	.shown = { "search",
	           "Search files for a regular expression with ripgrep. Hidden files and what "
	           ".gitignore names are left out unless all is true.",
	           SCHEMA_OBJECT(
			   SCHEMA_TEXT("pattern", "regular expression, or text when literal is true") "," SCHEMA_PATH("file or directory; default: the session's working directory") "," SCHEMA_TEXT(
				   "glob",
				   "only files that match, like *.c or !test/**") ","
										  "\"mode\":{\"type\":\"string\",\"enum\":[\"content\",\"files\",\"count\"],"
										  "\"description\":\"matching lines (the default), names of files, or how many "
										  "lines match in each\"}," SCHEMA_BOOL("literal", "default false") "," SCHEMA_BOOL(
											  "ignoreCase",
											  "default false") "," SCHEMA_BOOL("all",
	                                                                                                                   "hidden and ignored files too; default false") "," SCHEMA_INT("context",
	                                                                                                                                                                                 "1",
	                                                                                                                                                                                 "20",
	                                                                                                                                                                                 "lines around each match; default none"),
			   "\"pattern\"") },
	.run = run_search,
};
