#include "daemon/tool/help.h"

#include "common/buf.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES  8200
#define DETAILS_MAX ((size_t)65536) /* bytes of them as JSON; the store's bound */

void tool_outcome_release(struct tool_outcome *o)
{
	free(o->result.body);
	free(o->result.details);
	o->result.body = o->result.details = NULL;
	free(o->image.data);
	o->image.data = NULL;
	json_free(&o->details);
}

void tool_outcome_store_details(struct tool_outcome *o)
{
	auto_buf struct buf text = BUF_INIT(DETAILS_MAX);

	json_write(o->details, &text);
	free(o->result.details);
	o->result.details = buf_failed(&text) ? NULL : buf_take(&text);
}

/* -- results ---------------------------------------------------------------------- */

void tool_begin(const struct item *call, struct tool_outcome *ret)
{
	*ret = (struct tool_outcome){ .result = { .kind = ITEM_TOOL_RESULT } };
	memcpy(ret->result.call_id, call->call_id, sizeof(ret->result.call_id));
	memcpy(ret->result.tool, call->tool, sizeof(ret->result.tool));
	ret->details = json_new_object();
}

void tool_body(struct tool_outcome *ret, struct buf *text)
{
	ret->result.body_len = text->len;
	ret->result.body = buf_take(text);
	if (!ret->result.body)
		ret->result.body_len = 0;
}

void tool_put_output(struct tool_outcome *ret, const char *id, struct buf *text)
{
	if (!*id)
		return;
	buf_addf(text, "%s[more of it: read_output with id %s]",
	         text->len && text->data[text->len - 1] != '\n' ? "\n" : "", id);
	json_put_str(ret->details, "outputId", id);
}

int tool_refuse(struct tool_outcome *ret, const char *code, const char *text)
{
	auto_buf struct buf body = BUF_INIT(TOOL_RESULT_MAX);

	buf_addf(&body, "error: %s: %s", code, text);
	tool_body(ret, &body);
	json_put_str(ret->details, "reason", code);
	return 0;
}

static const struct {
	int code;
	const char *name;
} guest_errors[] = {
	{ SANDBOX_LOST, "lost" },
	{ SANDBOX_OOM, "oom" },
	{ SANDBOX_PIDS, "pids" },
	{ SANDBOX_DISK_FULL, "disk_full" },
	{ SANDBOX_NOT_FOUND, "not_found" },
	{ SANDBOX_NOT_EXECUTABLE, "not_executable" },
	{ SANDBOX_NO_CWD, "no_cwd" },
	{ SANDBOX_NOT_A_FILE, "not_a_file" },
	{ SANDBOX_NOT_A_DIRECTORY, "not_a_directory" },
	{ SANDBOX_DENIED, "denied" },
	{ SANDBOX_EXISTS, "exists" },
	{ SANDBOX_NO_SPACE, "no_space" },
	{ SANDBOX_TOO_LARGE, "too_large" },
	{ SANDBOX_INVALID, "invalid" },
	{ SANDBOX_BUSY, "busy" },
	{ SANDBOX_AGAIN, "again" },
	{ SANDBOX_CHANGED, "changed" },
	{ SANDBOX_IO, "io" },
};

int tool_refuse_with(struct tool_outcome *ret, struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(guest_errors); i++)
		if (guest_errors[i].code == e->code)
			return tool_refuse(ret, guest_errors[i].name, e->text);
	return -1;
}

/* -- arguments ---------------------------------------------------------------------- */

int tool_arguments(const struct item *call, const struct json_field *fields, size_t n,
                   const struct json **values, struct json **ret_doc, struct tool_outcome *ret)
{
	struct json_faults faults = { 0 };
	struct err e = ERR_INIT;

	if (json_parse(call->body, call->body_len, ret_doc, &e)) {
		(void)tool_refuse(ret, "invalid_arguments", e.text);
		return -1;
	}
	if (!json_fields(*ret_doc, "", fields, n, values, &faults)) {
		(void)tool_refuse(ret, "invalid_arguments", faults.first.text);
		return -1;
	}
	return 0;
}

bool tool_bounded(const struct json *v, const char *name, int64_t fallback, int64_t max,
                  int64_t *ret_value, struct tool_outcome *ret)
{
	struct err e = ERR_INIT;

	*ret_value = v ? json_int(v) : fallback;
	if (*ret_value >= 1 && *ret_value <= max)
		return true;
	(void)err_set(&e, EINVAL, "%s: %" PRId64 " is not from 1 to %" PRId64, name, *ret_value,
	              max);
	(void)tool_refuse(ret, "invalid_arguments", e.text);
	return false;
}

char *tool_path(const char *cwd, const char *path)
{
	auto_buf struct buf out = BUF_INIT(PATH_BYTES);

	if (path[0] != '/')
		buf_addf(&out, "%s/", cwd);
	buf_adds(&out, path);
	return buf_failed(&out) ? NULL : buf_take(&out);
}

bool tool_guest_answered(int code)
{
	for (size_t i = 0; i < ARRAY_LEN(guest_errors); i++)
		if (guest_errors[i].code == code)
			return code != SANDBOX_LOST;
	return false;
}
