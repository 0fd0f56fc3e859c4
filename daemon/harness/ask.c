#include "daemon/harness/ask.h"

#include <errno.h>
#include <string.h>

static const char *text_at(const struct json *o, const char *key)
{
	const struct json *v = json_get(o, key);

	return v && json_type(v) == JSON_STRING && json_str_len(v) ? json_str(v) : NULL;
}

/* Of a question, which may also be a mere text. */
static const char *question_text(const struct json *q)
{
	const char *text;

	if (json_type(q) == JSON_STRING)
		return json_str_len(q) ? json_str(q) : NULL;
	text = text_at(q, "question");
	return text ? text : text_at(q, "text");
}

static const char *label_of(const struct json *option)
{
	if (json_type(option) == JSON_STRING)
		return json_str_len(option) ? json_str(option) : NULL;
	return text_at(option, "label");
}

static int check_options(const struct json *q, size_t number, struct err *e)
{
	const struct json *options = json_get(q, "options");

	if (!options || json_type(options) == JSON_NULL)
		return 0;
	if (json_type(options) != JSON_ARRAY || json_len(options) > ASK_OPTIONS_MAX)
		return err_set(e, EINVAL, "question %zu: options: not a list of at most %d", number,
		               ASK_OPTIONS_MAX);
	for (size_t i = 0; i < json_len(options); i++)
		if (!label_of(json_at(options, i)))
			return err_set(e, EINVAL, "question %zu: option %zu has no label", number,
			               i + 1);
	return 0;
}

static int read_questions(const struct json *data, struct ask *a, struct err *e)
{
	a->questions = json_get(data, "questions");
	a->count = json_len(a->questions);
	if (!a->count || a->count > ASK_QUESTIONS_MAX)
		return err_set(e, EINVAL, "questions: not a list of 1 to %d", ASK_QUESTIONS_MAX);
	for (size_t i = 0; i < a->count; i++) {
		const struct json *q = json_at(a->questions, i);

		if (!question_text(q))
			return err_set(e, EINVAL, "question %zu has no text", i + 1);
		if (check_options(q, i + 1, e))
			return -1;
	}
	return 0;
}

int ask_read(const struct json *data, struct ask *ret, struct err *e)
{
	const char *kind = text_at(data, "kind");

	*ret = (struct ask){ .id = text_at(data, "ask_id") };
	if (ret->id && strlen(ret->id) > ASK_ID_MAX)
		return err_set(e, EINVAL, "ask_id: longer than %d bytes", ASK_ID_MAX);
	if (!kind || strcmp(kind, "confirm") != 0)
		return read_questions(data, ret, e);
	ret->confirm = true;
	ret->count = 1;
	ret->prompt = text_at(data, "prompt");
	return ret->prompt ? 0 : err_set(e, EINVAL, "prompt: missing");
}

const char *ask_text(const struct ask *a, size_t i)
{
	return a->confirm ? a->prompt : question_text(json_at(a->questions, i));
}

struct json *ask_options(const struct ask *a, size_t i)
{
	const struct json *options = json_get(json_at(a->questions, i), "options");
	struct json *all = json_new_array();

	if (a->confirm) {
		json_push_str(all, ASK_YES);
		json_push_str(all, ASK_NO);
		return all;
	}
	for (size_t k = 0; k < json_len(options); k++)
		json_push_str(all, label_of(json_at(options, k)));
	json_push_str(all, "custom");
	return all;
}

const char *ask_default(const struct ask *a)
{
	return a->confirm ? ASK_NO : ASK_UNANSWERED;
}
