#include "daemon/turn/guard.h"

#include "common/json.h"

#include <string.h>

static bool is_answer(const struct item *item)
{
	return item->kind != ITEM_USER && item->kind != ITEM_TOOL_RESULT;
}

size_t guard_steps(const struct item_list *items)
{
	size_t n = 0;

	for (size_t i = 1; i < items->count; i++)
		n += is_answer(&items->items[i]) && !is_answer(&items->items[i - 1]);
	return n;
}

/* The call of the result at index i; NULL when it is not there. */
static const struct item *call_of(const struct item_list *items, size_t i)
{
	const struct item *result = &items->items[i];

	while (i-- > 0)
		if (items->items[i].kind == ITEM_TOOL_CALL &&
		    strcmp(items->items[i].call_id, result->call_id) == 0)
			return &items->items[i];
	return NULL;
}

static bool failed(const struct item *result)
{
	auto_json struct json *details = NULL;
	struct err ignored = ERR_INIT;

	if (result->body_len >= 7 && memcmp(result->body, "error: ", 7) == 0)
		return true;
	if (!result->details ||
	    json_parse(result->details, strlen(result->details), &details, &ignored))
		return false;
	return json_int(json_get(details, "exitCode")) || json_int(json_get(details, "signal"));
}

static bool same(const struct item *a, const struct item *b)
{
	return strcmp(a->tool, b->tool) == 0 && a->body_len == b->body_len &&
	       (a->body_len == 0 || memcmp(a->body, b->body, a->body_len) == 0);
}

const struct item *guard_loop(const struct item_list *items)
{
	const struct item *last = NULL, *call = NULL;
	size_t n = 0;

	for (size_t i = items->count; i-- > 0 && n < GUARD_REPEATS;) {
		const struct item *result = &items->items[i], *its;

		if (result->kind != ITEM_TOOL_RESULT)
			continue;
		its = call_of(items, i);
		if (!its || !failed(result) || (last && !(same(result, last) && same(its, call))))
			return NULL;
		last = result;
		call = its;
		n++;
	}
	return n == GUARD_REPEATS ? call : NULL;
}
