/*
 * Targets of requests.  Beside the reader stands what RFC 3986 and the API allow, said once
 * more in another way; both must agree on every target, and what was read must be the same
 * when it is written again with every byte that may be escaped in an escape.
 */
#include "fuzz/fuzz.h"

#include "common/utf8.h"
#include "daemon/http/target.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

/* Bytes of text with its escapes undone; SIZE_MAX when one is malformed or a NUL. */
static size_t undo(const char *text, size_t len, bool plus, char *ret)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		char hex[3] = { 0 };

		ret[n++] = plus && text[i] == '+' ? ' ' : text[i];
		if (text[i] != '%')
			continue;
		if (len - i < 3 || !isxdigit((unsigned char)text[i + 1]) ||
		    !isxdigit((unsigned char)text[i + 2]))
			return SIZE_MAX;
		memcpy(hex, text + i + 1, 2);
		ret[n - 1] = (char)strtoul(hex, NULL, 16);
		if (!ret[n - 1])
			return SIZE_MAX;
		i += 2;
	}
	return n;
}

static size_t count_of(const char *text, size_t len, char c)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++)
		n += text[i] == c;
	return n;
}

/* RFC 3986: pchar and "/", as they may stand. */
static bool is_path_text(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char)text[i]) && !strchr("-._~!$&'()*+,;=:@/%", text[i]))
			return false;
	return true;
}

static bool has_bad_segment(const char *path)
{
	size_t len = strlen(path);
	char *closed = room_for(len + 2);
	bool bad;

	memcpy(closed, path, len);
	closed[len] = '/';
	closed[len + 1] = '\0';
	bad = len > 1 && (strstr(closed, "//") || strstr(closed, "/./") || strstr(closed, "/../"));
	free(closed);
	return bad;
}

/* Is it a path?  ret has room for len + 1 bytes. */
static bool path_allowed(const char *text, size_t len, char *ret)
{
	size_t n = undo(text, len, false, ret);

	if (n == SIZE_MAX || !is_path_text(text, len) || text[0] != '/')
		return false;
	ret[n] = '\0';
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)ret[i] < 0x20 || ret[i] == 0x7f)
			return false;
	return count_of(ret, n, '/') == count_of(text, len, '/') && !count_of(ret, n, '\\') &&
	       utf8_valid(ret, n) && !has_bad_segment(ret);
}

static size_t escape(const char *text, bool keep_slash, char *ret)
{
	static const char hex[] = "0123456789abcDEF";
	size_t n = 0;

	for (; *text; text++) {
		if (keep_slash && *text == '/') {
			ret[n++] = '/';
			continue;
		}
		ret[n++] = '%';
		ret[n++] = hex[(unsigned char)*text >> 4];
		ret[n++] = hex[(unsigned char)*text & 15];
	}
	ret[n] = '\0';
	return n;
}

static void check_path(const char *text, size_t len)
{
	char *wanted = room_for(len + 1), *path = text_of(text, len);
	bool allowed = path_allowed(text, len, wanted);
	const char *fault = target_path(path);

	demand(allowed == !fault);
	if (!fault) {
		char *again = room_for(3 * len + 1);

		demand(strcmp(path, wanted) == 0);
		escape(path, true, again);
		demand(!target_path(again) && strcmp(again, path) == 0);
		free(again);
	}
	free(path);
	free(wanted);
}

static bool query_text_allowed(const char *text, size_t len, char *ret)
{
	size_t n = undo(text, len, true, ret);

	for (size_t i = 0; i < len; i++)
		if (!isgraph((unsigned char)text[i]) || text[i] == '#')
			return false;
	if (n == SIZE_MAX || !utf8_valid(ret, n))
		return false;
	ret[n] = '\0';
	return true;
}

/* Is name=value at text what the reader says of it?  Returns false when it has to be refused. */
static bool same_parameter(const char *text, size_t len, const struct target_query *q, size_t i)
{
	const char *sign = memchr(text, '=', len);
	size_t name_len = sign ? (size_t)(sign - text) : len;
	size_t value_len = sign ? len - name_len - 1 : 0;
	char *name = room_for(name_len + 1), *value = room_for(value_len + 1);
	bool allowed = query_text_allowed(text, name_len, name) &&
	               query_text_allowed(sign ? sign + 1 : "", value_len, value) && *name;
	if (allowed && q) {
		demand(i < q->count);
		demand(strcmp(q->v[i].name, name) == 0 && strcmp(q->v[i].value, value) == 0);
		demand(target_value(q, name) == q->v[i].value); /* so no name stands there twice */
	}
	free(name);
	free(value);
	return allowed;
}

/* Goes through a query; q NULL: which fault it would have is not known, only whether one. */
static bool query_allowed(const char *text, const struct target_query *q, size_t *ret_count)
{
	size_t n = 0;

	while (*text) {
		size_t len = strcspn(text, "&");

		if (len && !same_parameter(text, len, q, n))
			return false;
		n += len > 0;
		text += len + (text[len] == '&');
	}
	*ret_count = n;
	return n <= HTTP_QUERY_MAX;
}

static void write_query(const struct target_query *q, char *ret)
{
	for (size_t i = 0; i < q->count; i++) {
		ret += escape(q->v[i].name, false, ret);
		*ret++ = '=';
		ret += escape(q->v[i].value, false, ret);
		*ret++ = '&';
	}
	*ret = '\0';
}

static void check_query(const char *text)
{
	size_t len = strlen(text), n = 0;
	char *query = text_of(text, len);
	char *written = room_for(3 * len + (size_t)2 * HTTP_QUERY_MAX + 1);
	struct target_query q, again;
	const char *fault = target_query(query, &q);

	demand(q.count <= HTTP_QUERY_MAX);
	if (!fault) {
		demand(query_allowed(text, &q, &n) && n == q.count);
		write_query(&q, written);
		demand(!target_query(written, &again) && again.count == q.count);
		for (size_t i = 0; i < q.count; i++)
			demand(strcmp(q.v[i].name, again.v[i].name) == 0 &&
			       strcmp(q.v[i].value, again.v[i].value) == 0);
	} else {
		demand(!query_allowed(text, NULL, &n) || strstr(fault, "twice"));
	}
	free(query);
	free(written);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *target = text_of(data, size);
	char *whole = text_of(target, strlen(target));
	char *query = target_split(target);

	demand(!strchr(target, '?') && strncmp(target, whole, strlen(target)) == 0);
	demand(query ? whole[strlen(target)] == '?' &&
	                       strcmp(query, whole + strlen(target) + 1) == 0
	             : strcmp(target, whole) == 0);
	check_path(target, strlen(target));
	if (query)
		check_query(query);
	free(whole);
	free(target);
	return 0;
}
