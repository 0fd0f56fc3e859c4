/*
 * apply_patch: what the patch makes of the files is computed here, and changed in the
 * sandbox at once, provided that no file was changed since it was read.
 */
#include "daemon/tool/tool.h"

#include "daemon/tool/content.h"
#include "daemon/tool/patch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TOTAL_MAX ((size_t)16 << 20) /* bytes of all files read, and of all written */

_Static_assert(2 * PATCH_SECTIONS_MAX <= FILE_CHANGES_MAX, "a move is two changes");

struct result {
	char *path; /* where it is afterwards; owned, absolute */
	struct content old;
	struct buf data;
};

struct work {
	const struct sandbox_use *use;
	const char *cwd;
	struct patch patch;
	struct result results[PATCH_SECTIONS_MAX];
	struct file_change changes[FILE_CHANGES_MAX];
	size_t n;
	size_t read, written; /* bytes */
};

static void work_free(struct work **w)
{
	for (size_t i = 0; *w && i < PATCH_SECTIONS_MAX; i++) {
		free((*w)->results[i].path);
		content_release(&(*w)->results[i].old);
		buf_release(&(*w)->results[i].data);
	}
	if (*w)
		patch_release(&(*w)->patch);
	free(*w);
	*w = NULL;
}

/* The names of the results; -1 when one is too long. */
static int name(struct work *w, const struct patch_section *s, struct result *r, struct err *e)
{
	r->old = (struct content)CONTENT_INIT;
	r->data = (struct buf)BUF_INIT(2 * CONTENT_FILE_MAX);
	r->old.path = tool_path(w->cwd, s->path);
	r->path = tool_path(w->cwd, s->to ? s->to : s->path);
	return r->old.path && r->path ? 0 : err_set(e, SANDBOX_INVALID, "a path is too long");
}

static void change(struct work *w, struct file_change c)
{
	w->changes[w->n++] = c;
}

static int compute(struct work *w, const struct patch_section *s, struct result *r, struct err *e)
{
	if (name(w, s, r, e))
		return -1;
	if (s->kind == PATCH_DELETE) {
		change(w, (struct file_change){ .path = r->path, .removes = true });
		return 0;
	}
	if (s->kind == PATCH_UPDATE && content_read(w->use, &r->old, e))
		return -1;
	if (patch_apply(&w->patch, s, &r->old.data, &r->data, e))
		return err_wrap(e, "%s", r->old.path);
	w->read += r->old.data.len;
	w->written += r->data.len;
	if (w->read > TOTAL_MAX || w->written > TOTAL_MAX)
		return err_set(e, SANDBOX_TOO_LARGE, "the files have more than %zu bytes in all",
		               TOTAL_MAX);
	change(w,
	       (struct file_change){ .path = r->path,
	                             .data = r->data.data,
	                             .len = r->data.len,
	                             .expect = s->kind == PATCH_ADD || s->to ? "" : r->old.version,
	                             .like = s->to ? r->old.path : NULL });
	if (s->to)
		change(w, (struct file_change){
				  .path = r->old.path, .removes = true, .expect = r->old.version });
	return 0;
}

static void describe(const struct work *w, struct tool_outcome *ret)
{
	static const char letters[] = {
		[PATCH_ADD] = 'A', [PATCH_DELETE] = 'D', [PATCH_UPDATE] = 'M'
	};
	auto_buf struct buf text = BUF_INIT(TOOL_RESULT_MAX);

	for (size_t i = 0; i < w->patch.section_count; i++) {
		const struct patch_section *s = &w->patch.sections[i];
		const struct result *r = &w->results[i];

		buf_addf(&text, "%c %s", letters[s->kind], r->old.path);
		buf_addf(&text, s->to ? " -> %s\n" : "\n", r->path);
	}
	tool_body(ret, &text);
	json_put_str(ret->details, "reason", "done");
	json_put_int(ret->details, "files", (int64_t)w->patch.section_count);
}

static int apply(struct work *w, struct tool_outcome *ret, struct err *e)
{
	for (size_t i = 0; i < w->patch.section_count; i++) {
		if (compute(w, &w->patch.sections[i], &w->results[i], e) == 0)
			continue;
		return e->code == EINVAL ? tool_refuse(ret, "no_match", e->text)
		                         : tool_refuse_with(ret, e);
	}
	if (sandbox_change(w->use, w->changes, w->n, e))
		return tool_refuse_with(ret, e);
	describe(w, ret);
	return 0;
}

static int run_apply(const struct tool_context *c, const struct item *call,
                     struct tool_outcome *ret, struct err *e)
{
	static const struct json_field fields[] = { { "patch", JSON_STRING, true, false } };
	const struct sandbox_use use = { c->sandboxes, c->tenant, c->cancel };
	__attribute__((cleanup(work_free))) struct work *w = calloc(1, sizeof(*w));
	const struct json *v[ARRAY_LEN(fields)];
	auto_json struct json *doc = NULL;

	if (tool_arguments(call, fields, ARRAY_LEN(fields), v, &doc, ret))
		return 0;
	if (!w)
		return err_set(e, ENOMEM, "no memory for a patch");
	w->use = &use;
	w->cwd = c->cwd;
	if (patch_parse(json_str(v[0]), json_str_len(v[0]), &w->patch, e))
		return tool_refuse(ret, "invalid_patch", e->text);
	return apply(w, ret, e);
}

const struct tool tool_apply_patch = {
	.shown = { "apply_patch",
	           "Add, update, move and delete files, all of them or none. The patch is lines: "
	           "*** Begin Patch, then for each file *** Add File: PATH with lines of content "
	           "each after +, or *** Delete File: PATH, or *** Update File: PATH, perhaps with "
	           "*** Move to: PATH below it, and hunks; last *** End Patch. A hunk begins with @@ "
	           "alone, or with @@ and a space and a line that stands before it, and has lines "
	           "after a space (kept), after - (removed) and after + (added). What a hunk keeps "
	           "and removes must be there exactly once.",
	           SCHEMA_OBJECT(SCHEMA_TEXT("patch", "the patch"), "\"patch\"") },
	.run = run_apply,
	.writes = true,
};
