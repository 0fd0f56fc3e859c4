/*
 * What arrives here was written by anybody, and its names end up as names in a sandbox: so
 * they are single components of a path, and no terminal or list is confused by one.  The
 * bytes are looked at no further than to see that an image is what it says.
 */
#include "daemon/api/attachments.h"

#include "common/fd.h"
#include "common/utf8.h"

#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IMAGES_MAX 1
#define NAME_BYTES 255 /* bytes */
#define TYPE_MAX   255
#define PATH_SIZE  64

struct reading {
	const struct http_request *req;
	struct http_response *res;
	struct attachments *to;
};

static const struct image_type {
	const char *mime, *name;
	const char *magic;
	size_t len;
	const char *more; /* at byte 8 */
} image_types[] = {
	{ "image/jpeg", "image.jpg", "\xff\xd8\xff", 3, NULL },
	{ "image/png", "image.png", "\x89PNG\r\n\x1a\n", 8, NULL },
	{ "image/gif", "image.gif", "GIF87a", 6, NULL },
	{ "image/gif", "image.gif", "GIF89a", 6, NULL },
	{ "image/webp", "image.webp", "RIFF", 4, "WEBP" },
	{ "image/bmp", "image.bmp", "BM", 2, NULL },
};

void attachments_release(struct attachments *a)
{
	for (size_t i = 0; i < a->count; i++)
		free(a->v[i].data);
	json_free(&a->list);
	*a = (struct attachments){ .count = 0 };
}

static bool refuse(const struct reading *r, const char *code, const char *fmt, ...)
	printf_like(3, 4);

static bool refuse(const struct reading *r, const char *code, const char *fmt, ...)
{
	char text[200];
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	http_error(r->req, r->res, 422, code, "%s", text);
	return false;
}

static bool invalid(const struct reading *r, const char *path, const char *what)
{
	return refuse(r, "invalid_attachment", "%s: %s", path, what);
}

/* -- names and types ------------------------------------------------------------------- */

/* Control characters of ASCII and, as UTF-8, of Latin-1. */
static bool has_control(const char *text)
{
	const unsigned char *at = (const unsigned char *)text;

	for (; *at; at++)
		if (*at < 0x20 || *at == 0x7f || (*at == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0))
			return true;
	return false;
}

static bool is_name(const struct json *v)
{
	const char *name = json_str(v);
	size_t len = json_str_len(v);

	return len >= 1 && len <= NAME_BYTES && strlen(name) == len && utf8_valid(name, len) &&
	       !strpbrk(name, "/\\") && !has_control(name) && strcmp(name, ".") != 0 &&
	       strcmp(name, "..") != 0;
}

/* Two tokens of RFC 9110 with a slash between them. */
static bool is_media_type(const struct json *v)
{
	static const char token[] = "!#$%&'*+-.^_`|~0123456789"
				    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
	const char *type = json_str(v);
	size_t len = json_str_len(v), first = strspn(type, token), second;

	if (len > TYPE_MAX || !first || type[first] != '/')
		return false;
	second = strspn(type + first + 1, token);
	return second && first + 1 + second == len;
}

static const struct image_type *image_type(const struct json *mime, const struct attachment *a)
{
	const struct image_type *found = NULL;

	for (size_t i = 0; i < ARRAY_LEN(image_types); i++) {
		const struct image_type *t = &image_types[i];

		if (strlen(t->mime) != json_str_len(mime) || strcmp(t->mime, json_str(mime)) != 0)
			continue;
		if (!a)
			return t;
		if (a->len >= t->len && memcmp(a->data, t->magic, t->len) == 0 &&
		    (!t->more || (a->len >= 12 && memcmp(a->data + 8, t->more, 4) == 0)))
			found = t;
	}
	return found;
}

/* -- bytes ------------------------------------------------------------------------------- */

static size_t decoded_size(const char *text, size_t len)
{
	size_t padding = 0;

	while (padding < 2 && padding < len && text[len - 1 - padding] == '=')
		padding++;
	return len / 4 * 3 - (len >= 4 ? padding : 0);
}

/* The decoder takes a byte above 0x7f for a digit, too. */
static bool is_base64(const char *text, size_t len)
{
	static const char digits[] = "+/0123456789"
				     "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
	size_t plain = strspn(text, digits);

	return len % 4 == 0 && len - plain <= 2 && plain + strspn(text + plain, "=") == len;
}

static bool decode(const struct reading *r, const char *path, const struct json *v)
{
	struct attachments *to = r->to;
	struct attachment *a = &to->v[to->count];
	const char *text = json_str(v);
	size_t len = json_str_len(v), size = decoded_size(text, len);

	if (!len)
		return invalid(r, path, "empty");
	if (size > ATTACHMENTS_BYTES_MAX || to->bytes + size > ATTACHMENTS_BYTES_MAX)
		return refuse(r, "attachments_too_large",
		              "%s: the attachments have more than %zu bytes", path,
		              ATTACHMENTS_BYTES_MAX);
	a->data = malloc(size + 1);
	if (!a->data) {
		http_error(r->req, r->res, 500, "internal_error", "no memory for an attachment");
		return false;
	}
	to->count++; /* owned from here on */
	if (!is_base64(text, len) ||
	    sodium_base642bin((unsigned char *)a->data, size, text, len, NULL, &a->len, NULL,
	                      sodium_base64_VARIANT_ORIGINAL))
		return invalid(r, path, "not base64 (RFC 4648, with padding, without line breaks)");
	to->bytes += a->len;
	return true;
}

static void describe(const struct reading *r, const char *kind, const char *name, const char *mime)
{
	const struct attachment *a = &r->to->v[r->to->count - 1];
	unsigned char digest[crypto_hash_sha256_BYTES];
	char hex[2 * sizeof(digest) + 1];
	struct json *o = json_new_object();

	(void)crypto_hash_sha256(digest, (const unsigned char *)a->data, a->len);
	(void)sodium_bin2hex(hex, sizeof(hex), digest, sizeof(digest));
	json_put_str(o, "kind", kind);
	json_put_str(o, "name", name);
	json_put_str(o, "mimeType", mime);
	json_put_int(o, "size", (int64_t)a->len);
	json_put_str(o, "sha256", hex);
	json_push(r->to->list, o);
}

/* -- one of each ------------------------------------------------------------------------- */

static bool read_fields(const struct reading *r, const char *path, const struct json *o,
                        const struct json_field *fields, size_t n, const struct json **v)
{
	struct json_faults faults = { 0 };

	if (json_type(o) != JSON_OBJECT)
		json_fault(&faults, path, "must be an object");
	else if (json_fields(o, path, fields, n, v, &faults))
		return true;
	http_error(r->req, r->res, 400, "invalid_json", "%s", faults.first.text);
	return false;
}

static bool read_image(const struct reading *r, const char *path, const struct json *o)
{
	static const struct json_field fields[] = {
		{ "mimeType", JSON_STRING, true, false },
		{ "data", JSON_STRING, true, false },
	};
	const struct json *v[ARRAY_LEN(fields)];
	const struct image_type *type;
	char at[2 * PATH_SIZE];

	if (!read_fields(r, path, o, fields, ARRAY_LEN(fields), v))
		return false;
	json_path_field(at, sizeof(at), path, "mimeType");
	if (!image_type(v[0], NULL))
		return invalid(r, at,
		               "must be image/jpeg, image/png, image/gif, image/webp or "
		               "image/bmp");
	json_path_field(at, sizeof(at), path, "data");
	if (!decode(r, at, v[1]))
		return false;
	type = image_type(v[0], &r->to->v[r->to->count - 1]);
	if (!type)
		return invalid(r, at, "not an image of that type");
	describe(r, "image", type->name, type->mime);
	return true;
}

static bool read_file(const struct reading *r, const char *path, const struct json *o)
{
	static const struct json_field fields[] = {
		{ "name", JSON_STRING, true, false },
		{ "mimeType", JSON_STRING, true, false },
		{ "data", JSON_STRING, true, false },
	};
	const struct json *v[ARRAY_LEN(fields)];
	char at[2 * PATH_SIZE];

	if (!read_fields(r, path, o, fields, ARRAY_LEN(fields), v))
		return false;
	json_path_field(at, sizeof(at), path, "name");
	if (!is_name(v[0]))
		return invalid(r, at,
		               "must be a name of 1 to 255 bytes, not . or .., without slashes, "
		               "backslashes and control characters");
	json_path_field(at, sizeof(at), path, "mimeType");
	if (!is_media_type(v[1]))
		return invalid(r, at, "must be a media type without parameters, at most 255 bytes");
	json_path_field(at, sizeof(at), path, "data");
	if (!decode(r, at, v[2]))
		return false;
	describe(r, "file", json_str(v[0]), json_str(v[1]));
	return true;
}

/* -- all ----------------------------------------------------------------------------------- */

static bool read_all(const struct reading *r, const char *name, const struct json *array,
                     bool (*read)(const struct reading *r, const char *path, const struct json *o))
{
	char path[PATH_SIZE];

	for (size_t i = 0; i < json_len(array); i++) {
		json_path_index(path, sizeof(path), name, i);
		if (!read(r, path, json_at(array, i)))
			return false;
	}
	return true;
}

bool attachments_read(const struct http_request *req, struct http_response *res,
                      const struct json *images, const struct json *files, struct attachments *ret)
{
	const struct reading r = { req, res, ret };

	*ret = (struct attachments){ .count = 0 };
	if (json_len(images) > IMAGES_MAX)
		return refuse(&r, "invalid_attachment", "images: at most %d", IMAGES_MAX);
	if (json_len(images) + json_len(files) > ATTACHMENTS_MAX)
		return refuse(&r, "invalid_attachment", "files: at most %d, with the images",
		              ATTACHMENTS_MAX);
	ret->list = json_new_array();
	return read_all(&r, "images", images, read_image) &&
	       read_all(&r, "files", files, read_file);
}

bool attachments_put(const struct attachments *a, struct turn *t)
{
	auto_buf struct buf text = BUF_INIT(16384);

	if (!a->count)
		return true;
	json_write(a->list, &text);
	if (buf_failed(&text))
		return false;
	t->attachments = buf_take(&text);
	t->attachment_bytes = a->bytes;
	t->attached = a->v;
	t->attached_count = a->count;
	return t->attachments != NULL;
}
