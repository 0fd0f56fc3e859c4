#include "daemon/harness/outcome.h"

#include "common/utf8.h"

#include <stdio.h>
#include <string.h>

void outcome_init(struct outcome *o)
{
	*o = (struct outcome){ .errors = BUF_INIT(OUTCOME_ERRORS_MAX) };
}

void outcome_release(struct outcome *o)
{
	buf_release(&o->errors);
}

static bool has_text(const struct outcome *o, const char *text, size_t len)
{
	const char *at = o->errors.data;

	while (at && *at) {
		size_t line = strcspn(at, "\n");

		if (line == len && memcmp(at, text, len) == 0)
			return true;
		at += line + (at[line] == '\n');
	}
	return false;
}

/* One line of it; an error without a text still is one. */
static void add_text(struct outcome *o, const char *text)
{
	size_t len = text ? strcspn(text, "\n") : 0;

	o->count++;
	if (len > OUTCOME_TEXT_MAX)
		len = utf8_whole(text, OUTCOME_TEXT_MAX);
	if (!len || has_text(o, text, len) || o->errors.len + len + 1 > OUTCOME_ERRORS_MAX)
		return;
	if (o->errors.len)
		buf_addc(&o->errors, '\n');
	buf_add(&o->errors, text, len);
}

static void add_code(struct outcome *o, const char *code)
{
	bool better = !o->code[0] || strcmp(o->code, "unknown") == 0;

	if (code && strlen(code) <= OUTCOME_CODE_MAX && better)
		(void)snprintf(o->code, sizeof(o->code), "%s", code);
}

void outcome_add(struct outcome *o, const struct json *error)
{
	if (json_type(error) == JSON_OBJECT) {
		add_code(o, json_str(json_get(error, "code")));
		add_text(o, json_str(json_get(error, "message")));
	} else {
		add_text(o, json_str(error));
	}
}

/* The texts stand twice in a result; the flat list of them is the one that counts. */
void outcome_take(struct outcome *o, const struct json *result)
{
	const struct json *errors = json_get(result, "errors");
	const struct json *texts = json_get(result, "error_messages");

	o->cancelled = json_bool(json_get(result, "cancelled"));
	for (size_t i = 0; i < json_len(texts); i++)
		outcome_add(o, json_at(texts, i));
	for (size_t i = 0; i < json_len(errors); i++) {
		if (json_len(texts))
			add_code(o, json_str(json_get(json_at(errors, i), "code")));
		else
			outcome_add(o, json_at(errors, i));
	}
}

static uint64_t tokens(const struct json *v)
{
	int64_t n = v && json_type(v) == JSON_INT ? json_int(v) : 0;

	if (n <= 0)
		return 0;
	return n < OUTCOME_TOKENS_MAX ? (uint64_t)n : OUTCOME_TOKENS_MAX;
}

struct outcome_usage outcome_usage(const struct json *usage)
{
	return (struct outcome_usage){ tokens(json_get(usage, "input")),
		                       tokens(json_get(usage, "output")) };
}
