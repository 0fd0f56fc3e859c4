/*
 * The strict reader of JSON beside another library's.  What ours takes, the other takes, too,
 * and both read the same value; what ours alone refuses is one of the bounds of json.h.
 */
#include "fuzz/fuzz.h"

#include "common/json.h"
#include "fuzz/other_json.h"

#include <string.h>

/* Bounds that only our reader has. */
static bool is_ours(const char *why)
{
	static const char *const bounds[] = { "integer beyond 9007199254740991",
		                              "more than 64 levels",
		                              "number of more than 512 characters" };

	for (size_t i = 0; i < ARRAY_LEN(bounds); i++)
		if (strstr(why, bounds[i]))
			return true;
	return false;
}

/* What we write is what we read, and the other library reads the same out of it. */
static void round_trip(const char *text, size_t len)
{
	auto_buf struct buf once = BUF_INIT(8 * len + 64), twice = BUF_INIT(8 * len + 64);
	auto_json struct json *v = NULL, *again = NULL;
	struct err e = ERR_INIT;

	demand(json_parse(text, len, &v, &e) == 0);
	json_write(v, &once);
	demand(!buf_failed(&once));
	demand(json_parse(once.data, once.len, &again, &e) == 0);
	json_write(again, &twice);
	demand(twice.len == once.len && memcmp(twice.data, once.data, once.len) == 0);
	demand(other_json_same(text, len, once.data, once.len));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	struct err e = ERR_INIT;
	bool ours = json_check(text, size, &e) == 0, other = other_json_reads(text, size);

	/* The other one overlooks a NUL behind a number. */
	if (size && memchr(text, '\0', size))
		demand(!ours);
	else
		demand(ours ? other : !other || is_ours(e.text));
	if (ours)
		round_trip(text, size);
	return 0;
}
