/*
 * A client request id makes a request happen once.  The digest says what was asked for,
 * so that the same id with something else is an error and not a wrong answer.
 */
#include "daemon/api/api.h"

#include <sodium.h>
#include <string.h>

#define DEEP_MAX ((size_t)1 << 20) /* bytes of an object as JSON */

static void add(crypto_hash_sha256_state *hash, const void *data, size_t len)
{
	(void)crypto_hash_sha256_update(hash, data, len);
}

static void add_deep(crypto_hash_sha256_state *hash, const struct json *v)
{
	auto_buf struct buf text = BUF_INIT(DEEP_MAX);

	json_write(v, &text);
	add(hash, "o", 1);
	add(hash, &(uint64_t){ text.len }, sizeof(uint64_t));
	add(hash, text.data, text.len);
}

/* Each value says its type and length, so that no two lists of values look alike. */
static void add_value(crypto_hash_sha256_state *hash, const struct json *v)
{
	bool text = v && json_type(v) == JSON_STRING;
	int64_t number = text ? (int64_t)json_str_len(v) : v ? json_int(v) : 0;

	if (v && json_type(v) == JSON_OBJECT) {
		add_deep(hash, v);
		return;
	}
	add(hash, !v ? "-" : text ? "s" : "i", 1);
	add(hash, &number, sizeof(number));
	if (text)
		add(hash, json_str(v), json_str_len(v));
}

bool api_client_id(const struct http_request *req, struct http_response *res, const struct json *v,
                   struct uuid *ret)
{
	char text[sizeof(ret->text)] = "";
	const char *given = json_str(v);

	if (json_str_len(v) < sizeof(text))
		for (size_t i = 0; given[i]; i++)
			text[i] = (char)(given[i] >= 'A' && given[i] <= 'F' ? given[i] - 'A' + 'a'
			                                                    : given[i]);
	if (uuid_parse(text, ret))
		return true;
	http_error(req, res, 400, "invalid_json", "clientRequestId: not a UUID");
	return false;
}

bool api_client_request(const struct http_request *req, struct http_response *res,
                        const struct json *v, const struct api_asked *asked,
                        struct client_request *room, const struct client_request **ret_key)
{
	static const char label[] = "cloister client request 1";
	crypto_hash_sha256_state hash;

	*ret_key = NULL;
	if (!v)
		return true;
	if (!api_client_id(req, res, v, &room->id))
		return false;
	(void)crypto_hash_sha256_init(&hash);
	add(&hash, label, sizeof(label));
	add(&hash, asked->what, strlen(asked->what) + 1);
	add(&hash, asked->subject, strlen(asked->subject) + 1);
	for (size_t i = 0; i < asked->n; i++)
		add_value(&hash, asked->values[i]);
	(void)crypto_hash_sha256_final(&hash, room->digest);
	*ret_key = room;
	return true;
}
