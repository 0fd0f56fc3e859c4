/*
 * What a client attaches to a turn: names, types and base64, beside a second reader of all
 * three; and what an image is, as a tool of a model sees it.  0xff stands between attachments and
 * 0xfe between the fields of one: "image", a type and the data, or a name, a type and the data.
 */
#include "fuzz/fuzz.h"

#include "common/attr.h"
#include "common/utf8.h"
#include "daemon/api/attachments.h"
#include "daemon/tool/image.h"

#include <sodium.h>
#include <stdbool.h>

#define FIELDS 3

struct field {
	const char *at;
	size_t len;
};

/* -- a second reader -------------------------------------------------------------------------- */

static int digit(char c)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				     "0123456789+/";
	const char *at = c ? strchr(digits, c) : NULL;

	return at ? (int)(at - digits) : -1;
}

/* Four characters for up to three bytes; 0 when they are none, or could be written otherwise. */
static size_t read_group(const char *at, bool last, char ret[3])
{
	int v[4] = { digit(at[0]), digit(at[1]), digit(at[2]), digit(at[3]) };

	if (v[0] < 0 || v[1] < 0)
		return 0;
	ret[0] = (char)(v[0] << 2 | v[1] >> 4);
	if (v[2] < 0)
		return last && at[2] == '=' && at[3] == '=' && !(v[1] & 15);
	ret[1] = (char)(v[1] << 4 | v[2] >> 2);
	if (v[3] < 0)
		return last && at[3] == '=' && !(v[2] & 3) ? 2 : 0;
	ret[2] = (char)(v[2] << 6 | v[3]);
	return 3;
}

/* The bytes, for free(), or NULL. */
static char *read_base64(const struct field *f, size_t *ret_len)
{
	char *bytes = room_for(f->len);
	size_t n = 1;

	*ret_len = 0;
	for (size_t i = 0; n && i + 4 <= f->len; i += 4) {
		n = read_group(f->at + i, i + 4 == f->len, bytes + *ret_len);
		*ret_len += n;
	}
	if (n && f->len && f->len % 4 == 0)
		return bytes;
	free(bytes);
	return NULL;
}

static bool is_name(const struct field *f)
{
	if (f->len < 1 || f->len > 255 || !utf8_valid(f->at, f->len) ||
	    (f->len <= 2 && memcmp(f->at, "..", f->len) == 0))
		return false;
	for (size_t i = 0; i < f->len; i++) {
		unsigned char c = (unsigned char)f->at[i];

		if (c < ' ' || c == '/' || c == '\\' || c == 127)
			return false;
		if (c == 0xc2 && (unsigned char)f->at[i + 1] < 0xa0)
			return false;
	}
	return true;
}

static bool is_type(const struct field *f)
{
	size_t slashes = 0, run = 0;

	for (size_t i = 0; i < f->len; i++, run++) {
		if (f->at[i] <= ' ' || f->at[i] >= 127 || strchr("\"(),:;<=>?@[\\]{}", f->at[i]))
			return false;
		if (f->at[i] != '/')
			continue;
		if (!run || slashes++)
			return false;
		run = (size_t)-1;
	}
	return slashes == 1 && run && f->len <= 255;
}

static bool begins(const char *data, size_t len, const char *with, size_t with_len)
{
	return len >= with_len && memcmp(data, with, with_len) == 0;
}

static bool is_text(const struct field *f, const char *text)
{
	return f->len == strlen(text) && memcmp(f->at, text, f->len) == 0;
}

static bool is_image(const struct field *type, const char *data, size_t len)
{
	if (is_text(type, "image/jpeg"))
		return begins(data, len, "\xff\xd8\xff", 3);
	if (is_text(type, "image/png"))
		return begins(data, len, "\x89PNG\r\n\x1a\n", 8);
	if (is_text(type, "image/gif"))
		return begins(data, len, "GIF87a", 6) || begins(data, len, "GIF89a", 6);
	if (is_text(type, "image/bmp"))
		return begins(data, len, "BM", 2);
	return is_text(type, "image/webp") && begins(data, len, "RIFF", 4) && len >= 12 &&
	       begins(data + 8, 4, "WEBP", 4);
}

/* What a tool shows a model; it has no bitmaps. */
static void check_sniffing(const char *data, size_t len)
{
	static const char *const types[] = { "image/jpeg", "image/png", "image/gif", "image/webp" };
	const char *found = image_type(data, len), *wanted = "";

	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		const struct field type = { types[i], strlen(types[i]) };

		if (is_image(&type, data, len))
			wanted = types[i];
	}
	demand(strcmp(found ? found : "", wanted) == 0);
}

/* -- one request ------------------------------------------------------------------------------ */

struct given {
	struct json *images, *files;
	struct attachment wanted[2][ATTACHMENTS_MAX]; /* images, files */
	size_t count[2];
	bool right;
};

/* Cut the next piece off rest; false when there is none. */
static bool cut(struct field *rest, int by, struct field *ret)
{
	const char *stop = rest->at ? memchr(rest->at, by, rest->len) : NULL;

	if (!rest->at)
		return false;
	ret->at = rest->at;
	ret->len = stop ? (size_t)(stop - rest->at) : rest->len;
	rest->at = stop ? stop + 1 : NULL;
	rest->len -= stop ? ret->len + 1 : ret->len;
	return true;
}

static void put(struct json *o, const char *key, const struct field *f)
{
	json_put_strn(o, key, f->at, f->len);
}

static void give(struct given *g, const struct field *f)
{
	bool file = !is_text(&f[0], "image");
	struct json *o = json_new_object();
	size_t len, *n = &g->count[file];
	char *data = read_base64(&f[2], &len);

	if (file)
		put(o, "name", &f[0]);
	put(o, "mimeType", &f[1]);
	put(o, "data", &f[2]);
	json_push(file ? g->files : g->images, o);
	g->right &= data && (file ? is_name(&f[0]) && is_type(&f[1]) : is_image(&f[1], data, len));
	if (data)
		check_sniffing(data, len);
	if (data && *n < ATTACHMENTS_MAX)
		g->wanted[file][*n] = (struct attachment){ data, len };
	else
		free(data);
	++*n;
}

static void give_all(struct given *g, const uint8_t *data, size_t size)
{
	struct field rest = { (const char *)data, size }, one, f[FIELDS] = { { NULL, 0 } };

	*g = (struct given){ json_new_array(), json_new_array(), .right = true };
	while (cut(&rest, 0xff, &one) && g->count[0] + g->count[1] < ATTACHMENTS_MAX + 2UL) {
		bool whole = true;

		for (size_t i = 0; i < FIELDS; i++)
			whole &= cut(&one, 0xfe, &f[i]);
		if (whole)
			give(g, f);
	}
	g->right &= g->count[0] <= 1 && g->count[0] + g->count[1] <= ATTACHMENTS_MAX;
}

static void give_back(struct given *g)
{
	for (size_t i = 0; i < 2; i++)
		for (size_t k = 0; k < ATTACHMENTS_MAX; k++)
			free(g->wanted[i][k].data);
	json_free(&g->images);
	json_free(&g->files);
}

static void check_taken(const struct given *g, const struct attachments *a)
{
	size_t bytes = 0;

	demand(a->count == g->count[0] + g->count[1] && json_len(a->list) == a->count);
	for (size_t i = 0; i < a->count; i++) {
		bool file = i >= g->count[0];
		const struct attachment *wanted = &g->wanted[file][file ? i - g->count[0] : i];
		const struct json *o = json_at(a->list, i);

		demand(wanted->data && a->v[i].len == wanted->len);
		demand(memcmp(a->v[i].data, wanted->data, wanted->len) == 0);
		demand(json_int(json_get(o, "size")) == (int64_t)wanted->len);
		demand(json_str_len(json_get(o, "sha256")) == 64);
		demand(strcmp(json_str(json_get(o, "kind")), file ? "file" : "image") == 0);
		bytes += wanted->len;
	}
	demand(a->bytes == bytes);
}

static void check_put(const struct attachments *a)
{
	struct json *again = NULL;
	struct err e = ERR_INIT;
	struct turn t = { 0 };

	demand(attachments_put(a, &t) && !t.attachments == !a->count);
	if (t.attachments) {
		demand(json_parse(t.attachments, strlen(t.attachments), &again, &e) == 0);
		demand(json_len(again) == a->count && t.attachment_bytes == a->bytes);
		json_free(&again);
	}
	free(t.attachments);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct http_request req = { .request_id = "1" };
	struct http_response res = { .body = BUF_INIT(16384) };
	auto_attachments struct attachments a = { .count = 0 };
	struct err e = ERR_INIT;
	struct given g;

	demand(sodium_init() >= 0);
	check_sniffing((const char *)data, size);
	give_all(&g, data, size);
	demand(attachments_read(&req, &res, g.images, g.files, &a) == g.right);
	if (g.right) {
		check_taken(&g, &a);
		check_put(&a);
	} else {
		demand(res.status == 422 && json_check(res.body.data, res.body.len, &e) == 0);
	}
	buf_release(&res.body);
	give_back(&g);
	return 0;
}
