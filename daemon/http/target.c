#include "daemon/http/target.h"

#include "common/utf8.h"

#include <stdbool.h>
#include <string.h>

static const char path_chars[] = "/-._~!$&'()*+,;=:@0123456789"
				 "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

char *target_split(char *target)
{
	char *query = strchr(target, '?');

	if (query)
		*query++ = '\0';
	return query;
}

/* -- path --------------------------------------------------------------------------------- */

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* The byte that %XX at p stands for; -1 when it is malformed or NUL. */
static int percent(const char *p)
{
	int high = hex_digit(p[1]);
	int low = high < 0 ? -1 : hex_digit(p[2]);

	return low < 0 || high + low == 0 ? -1 : high * 16 + low;
}

static const char *decode_path(char *path)
{
	char *out = path;

	if (path[0] != '/')
		return "the path must begin with a slash";
	for (const char *p = path; *p; p++) {
		int c = (unsigned char)*p;

		if (c == '%') {
			c = percent(p);
			if (c < 0x20 || c == 0x7f || c == '/' || c == '\\')
				return "the path has an escape that is not allowed";
			p += 2;
		} else if (!strchr(path_chars, c)) {
			return "the path has a character that is not allowed";
		}
		*out++ = (char)c;
	}
	*out = '\0';
	return utf8_valid(path, (size_t)(out - path)) ? NULL : "the path is not UTF-8";
}

static const char *check_segments(const char *path)
{
	if (!path[1])
		return NULL;
	while (*path) {
		size_t len = strcspn(++path, "/");

		if (!len)
			return "the path has an empty segment";
		if (path[0] == '.' && (len == 1 || (len == 2 && path[1] == '.')))
			return "the path has a dot segment";
		path += len;
	}
	return NULL;
}

const char *target_path(char *path)
{
	const char *fault = decode_path(path);

	return fault ? fault : check_segments(path);
}

/* -- query -------------------------------------------------------------------------------- */

const char *target_value(const struct target_query *q, const char *name)
{
	for (size_t i = 0; i < q->count; i++)
		if (strcmp(q->v[i].name, name) == 0)
			return q->v[i].value;
	return NULL;
}

static bool decode_query_text(char *text)
{
	char *out = text;

	for (const char *p = text; *p; p++) {
		int c = (unsigned char)*p;

		if (c == '%') {
			c = percent(p);
			if (c < 0)
				return false;
			p += 2;
		} else if (c == '+') {
			c = ' ';
		} else if (c <= 0x20 || c >= 0x7f || c == '#') {
			return false;
		}
		*out++ = (char)c;
	}
	*out = '\0';
	return utf8_valid(text, (size_t)(out - text));
}

static const char *add_parameter(struct target_query *to, char *name)
{
	char *value = strchr(name, '=');

	if (value)
		*value++ = '\0';
	else
		value = name + strlen(name);
	if (!decode_query_text(name) || !decode_query_text(value))
		return "the query is not well-formed percent-encoded UTF-8";
	if (!*name)
		return "the query has a parameter without a name";
	if (target_value(to, name))
		return "the query has a parameter twice";
	if (to->count == HTTP_QUERY_MAX)
		return "the query has too many parameters";
	to->v[to->count].name = name;
	to->v[to->count++].value = value;
	return NULL;
}

const char *target_query(char *query, struct target_query *ret)
{
	const char *fault = NULL;

	ret->count = 0;
	while (query && !fault) {
		char *next = strchr(query, '&');

		if (next)
			*next++ = '\0';
		if (*query)
			fault = add_parameter(ret, query);
		query = next;
	}
	return fault;
}
