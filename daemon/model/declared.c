#include "daemon/model/declared.h"

#include "common/fd.h"
#include "daemon/tenant/trusted.h"

#include <errno.h>

static void read_document(const struct declared_file *file, const struct json *document,
                          struct json_faults *faults)
{
	const struct json_field whole[] = {
		{ "version", JSON_INT, .required = true },
		{ file->list, JSON_ARRAY, .required = true },
	};
	const struct json *found[ARRAY_LEN(whole)];
	size_t n;

	(void)json_fields(document, "", whole, ARRAY_LEN(whole), found, faults);
	if (found[0] && json_int(found[0]) != 1)
		json_fault(faults, "version", "must be 1");
	n = json_len(found[1]);
	if (found[1] && (n < 1 || n > file->most))
		json_fault(faults, file->list, "%zu entries, must be 1 to %zu", n, file->most);
	for (size_t i = 0; i < n && i < file->most; i++) {
		char at[32];

		json_path_index(at, sizeof(at), file->list, i);
		file->entry(file->ctx, json_at(found[1], i), at, faults);
	}
}

static int open_document(const char *path, struct json **ret, struct err *e)
{
	auto_free char *text = NULL;
	size_t len;

	if (trusted_read(path, TRUSTED_CONFIG, DECLARED_BYTES_MAX, &text, &len, e) < 0)
		return -1;
	return json_parse(text, len, ret, e) < 0 ? err_wrap(e, "%.200s", path) : 0;
}

int declared_read(const struct declared_file *file, struct err *e)
{
	struct json_lines to = { .line = file->line, .ctx = file->line_ctx };
	struct json_faults faults = { .report = json_report_line, .ctx = &to };
	auto_json struct json *document = NULL;
	struct err cause = ERR_INIT;

	if (open_document(file->path, &document, &cause) < 0)
		json_fault(&faults, "", "%s", cause.text);
	else
		read_document(file, document, &faults);
	return faults.count ? err_set(e, EINVAL, "%.200s: %zu fault%s", file->path, faults.count,
	                              faults.count == 1 ? "" : "s")
	                    : 0;
}
