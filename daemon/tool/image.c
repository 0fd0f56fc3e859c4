#include "daemon/tool/image.h"

#include "daemon/tool/help.h"

#include <inttypes.h>
#include <string.h>

static const struct {
	const char *type;
	const char *magic;
	size_t len;
} types[] = {
	{ "image/png", "\x89PNG\r\n\x1a\n", 8 },
	{ "image/jpeg", "\xff\xd8\xff", 3 },
	{ "image/gif", "GIF87a", 6 },
	{ "image/gif", "GIF89a", 6 },
};

const char *image_type(const char *data, size_t len)
{
	for (size_t i = 0; i < ARRAY_LEN(types); i++)
		if (len >= types[i].len && memcmp(data, types[i].magic, types[i].len) == 0)
			return types[i].type;
	if (len >= 12 && memcmp(data, "RIFF", 4) == 0 && memcmp(data + 8, "WEBP", 4) == 0)
		return "image/webp";
	return NULL;
}

static void take(void *ctx, int stream, const char *data, size_t len)
{
	(void)stream;
	buf_add(ctx, data, len);
}

static int tell(const char *type, uint64_t size, const char *what, struct tool_outcome *ret)
{
	auto_buf struct buf text = BUF_INIT(TOOL_RESULT_MAX);
	struct json *image = json_new_object();

	buf_addf(&text, "[%s, %" PRIu64 " bytes%s]", type, size, what);
	tool_body(ret, &text);
	ret->result.total_bytes = size;
	json_put_str(ret->details, "reason", "done");
	json_put_str(image, "mimeType", type);
	json_put_int(image, "size", (int64_t)size);
	json_put_bool(image, "shown", ret->image.data != NULL);
	json_put(ret->details, "image", image);
	return 0;
}

int image_read(const struct tool_context *c, const char *path, const char *type, uint64_t size,
               struct tool_outcome *ret, struct err *e)
{
	const struct sandbox_use use = { c->sandboxes, c->tenant, c->cancel };
	auto_buf struct buf data = BUF_INIT(IMAGE_MAX);
	struct output_sink sink = { take, &data };
	struct file_range range = { .limit = IMAGE_MAX };

	if (!c->sees_images)
		return tell(type, size, "; this model cannot see images", ret);
	if (size > IMAGE_MAX)
		return tell(type, size, "; too large to be shown, at most 3145728", ret);
	if (sandbox_read(&use, path, &range, &sink, e))
		return tool_refuse_with(ret, e);
	if (range.size > IMAGE_MAX || buf_failed(&data) ||
	    !image_type(data.data ? data.data : "", data.len))
		return tool_refuse(ret, "changed", "the file was changed while it was read");
	ret->image.len = data.len;
	ret->image.data = buf_take(&data);
	ret->image.type = image_type(ret->image.data, ret->image.len);
	return tell(ret->image.type, range.size,
	            "; shown while the turn goes on, of several the last ones", ret);
}
