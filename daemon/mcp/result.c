#include "daemon/mcp/result.h"

#include "common/utf8.h"
#include "daemon/mcp/client.h"

#include <string.h>

#define WORD_MAX ((size_t)200) /* bytes of a name or an address */

static const char *text_of(const struct json *v, const char *key)
{
	const char *text = json_str(json_get(v, key));

	return text ? text : "";
}

/* As much of it as is shown beside something else. */
static void put_word(struct buf *out, const char *text)
{
	size_t len = strlen(text);

	buf_add(out, text, len > WORD_MAX ? utf8_whole(text, WORD_MAX) : len);
}

static void put_media(struct buf *out, const char *kind, const struct json *item)
{
	buf_addf(out, "[%s: ", kind);
	put_word(out, text_of(item, "mimeType"));
	buf_addf(out, ", %zu bytes, not shown]", strlen(text_of(item, "data")) / 4 * 3);
}

static void put_resource(struct buf *out, const struct json *resource)
{
	const char *text = json_str(json_get(resource, "text"));

	buf_adds(out, "[resource: ");
	put_word(out, text_of(resource, "uri"));
	if (text)
		buf_addf(out, "]\n%s", text);
	else
		buf_addf(out, ", %zu bytes, not shown]", strlen(text_of(resource, "blob")) / 4 * 3);
}

static void put_link(struct buf *out, const struct json *item)
{
	buf_adds(out, "[link: ");
	put_word(out, text_of(item, "uri"));
	buf_addc(out, ' ');
	put_word(out, text_of(item, "name"));
	buf_addc(out, ']');
}

static void put_other(struct buf *out, const char *type)
{
	buf_adds(out, "[");
	put_word(out, type);
	buf_adds(out, ", not shown]");
}

static void put_item(struct buf *out, const struct json *item)
{
	const char *type = text_of(item, "type");

	if (out->len)
		buf_addc(out, '\n');
	if (strcmp(type, "text") == 0)
		buf_adds(out, text_of(item, "text"));
	else if (strcmp(type, "image") == 0 || strcmp(type, "audio") == 0)
		put_media(out, type, item);
	else if (strcmp(type, "resource") == 0)
		put_resource(out, json_get(item, "resource"));
	else if (strcmp(type, "resource_link") == 0)
		put_link(out, item);
	else
		put_other(out, *type ? type : "content without a type");
}

int mcp_result_read(const struct json *result, struct mcp_result *ret, struct err *e)
{
	const struct json *content = json_get(result, "content");
	const struct json *structured = json_get(result, "structuredContent");
	auto_buf struct buf out = BUF_INIT(2 * MCP_MESSAGE_MAX);

	if (content && json_type(content) != JSON_ARRAY)
		return err_set(e, MCP_MALFORMED, "the content of the server's result is no list");
	if (!content && !structured)
		return err_set(e, MCP_MALFORMED, "the server's result has no content");
	for (size_t i = 0; content && i < json_len(content); i++)
		put_item(&out, json_at(content, i));
	if (!out.len && structured)
		json_write(structured, &out);
	buf_adds(&out, "");
	if (buf_failed(&out))
		return err_set(e, MCP_TOO_LARGE, "the server's result is too large");
	ret->is_error = json_bool(json_get(result, "isError"));
	ret->len = out.len;
	ret->text = buf_take(&out);
	return ret->text ? 0 : err_set(e, MCP_TOO_LARGE, "no memory for the server's result");
}
