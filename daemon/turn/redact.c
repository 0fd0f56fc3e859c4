#include "daemon/turn/redact.h"

#include "common/json.h"

#include <string.h>

#define REDACTED     "[redacted]"
#define NAME_MAX_LEN 32

/* What providers call that which only they can read, and what others call a secret. */
static const char *const secrets[] = {
	"encryptedcontent", "encryptedfunctionargs", "secret", "password", "apikey",
};

/* Case and underscores of a name do not count. */
static bool is_secret(const char *key)
{
	char plain[NAME_MAX_LEN];
	size_t n = 0;

	for (; *key; key++) {
		if (*key == '_')
			continue;
		if (n == sizeof(plain) - 1)
			return false;
		plain[n++] = (char)(*key >= 'A' && *key <= 'Z' ? *key - 'A' + 'a' : *key);
	}
	plain[n] = '\0';
	for (size_t i = 0; i < ARRAY_LEN(secrets); i++)
		if (strcmp(secrets[i], plain) == 0)
			return true;
	return false;
}

struct redaction {
	struct json *copy;
	bool found;
};

static struct json *redact(const struct json *v, bool *found);

static void redact_member(void *ctx, const char *key, const struct json *value)
{
	struct redaction *r = ctx;

	if (is_secret(key)) {
		json_put_str(r->copy, key, REDACTED);
		r->found = true;
	} else {
		json_put(r->copy, key, redact(value, &r->found));
	}
}

/* A copy without secrets.  The parser bounds the depth. */
static struct json *redact(const struct json *v, bool *found) /* NOLINT(misc-no-recursion) */
{
	struct redaction r = { .found = false };

	if (json_type(v) == JSON_OBJECT) {
		r.copy = json_new_object();
		json_each(v, redact_member, &r);
		*found = *found || r.found;
		return r.copy;
	}
	if (json_type(v) != JSON_ARRAY)
		return json_copy(v);
	r.copy = json_new_array();
	for (size_t i = 0; i < json_len(v); i++)
		json_push(r.copy, redact(json_at(v, i), found));
	return r.copy;
}

/* Whether text that is no JSON has a quoted secret name: it cannot be said what is its value. */
static bool may_name_secret(const char *text, size_t len)
{
	char name[NAME_MAX_LEN + 8];
	size_t n = sizeof(name); /* beyond the longest: not within quotes that matter */

	for (size_t i = 0; i < len; i++) {
		if (text[i] == '"') {
			if (n < sizeof(name)) {
				name[n] = '\0';
				if (is_secret(name))
					return true;
			}
			n = 0;
		} else if (n < sizeof(name)) {
			name[n++] = text[i];
		}
	}
	return false;
}

bool redact_arguments(const struct item *call, struct buf *out)
{
	auto_json struct json *doc = NULL, *copy = NULL;
	struct err e = ERR_INIT;
	bool found = false;

	if (json_parse(call->body, call->body_len, &doc, &e)) {
		found = may_name_secret(call->body, call->body_len);
		if (found)
			buf_adds(out, REDACTED);
		return found;
	}
	copy = redact(doc, &found);
	if (found)
		json_write(copy, out);
	return found;
}
