/* Alone, because both libraries have names that begin with json_. */
#include "fuzz/other_json.h"

#include <jansson.h>

static json_t *load(const char *text, size_t len)
{
	json_error_t why;

	return json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
}

bool other_json_reads(const char *text, size_t len)
{
	json_t *v = load(text, len);
	bool read = v != NULL;

	json_decref(v);
	return read;
}

bool other_json_same(const char *a, size_t a_len, const char *b, size_t b_len)
{
	json_t *x = load(a, a_len), *y = load(b, b_len);
	bool same = x && y && json_equal(x, y) == 1;

	json_decref(x);
	json_decref(y);
	return same;
}
