#include "daemon/api/history.h"

#include "daemon/api/api.h"
#include "daemon/api/public.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_TURNS 100                       /* limit's bound */
#define PAGE_BYTES ((size_t)8 * 1024 * 1024) /* of text in a page, about; at least one turn */

/*
 * Shown, but never given to a model as it is: what was discarded, what can be read of its
 * reasoning, and a call without a result in a turn that has ended.
 */
static bool for_display(const struct turn *t, const struct item *item)
{
	if (item->kind == ITEM_TOOL_CALL)
		return turn_state_terminal(t->state) && item->call_state != CALL_DONE;
	return item->kind == ITEM_DISCARDED || item->kind == ITEM_REASONING;
}

/* False when there is no room for more. */
static bool push_item(struct json *items, struct json *display, const struct turn *t,
                      const struct item *item, struct public_budget *budget)
{
	struct json *seen = NULL, *o = NULL;

	if (item->kind == ITEM_REASONING && !(seen = public_reasoning(item, budget)))
		return false;
	if (seen)
		json_push(items, seen);
	if (seen && !item->body_len)
		return true;
	o = public_item(item, budget);
	if (o)
		json_push(for_display(t, item) ? display : items, o);
	return o != NULL;
}

static struct json *error_json(const struct turn *t)
{
	struct json *error = json_new_object();

	json_put_str(error, "code", t->error_code);
	json_put_str(error, "message", t->error);
	return error;
}

static struct json *turn_json(const struct turn *t, const struct item_list *list,
                              struct public_budget *budget)
{
	struct json *o = json_new_object(), *items = json_new_array(), *display = json_new_array();

	for (size_t i = 0; i < list->count; i++)
		if (!push_item(items, display, t, &list->items[i], budget))
			break;
	json_put_str(o, "id", t->id.text);
	json_put_str(o, "sessionId", t->session.text);
	json_put_str(o, "clientRequestId",
	             t->client_request.text[0] ? t->client_request.text : NULL);
	json_put_str(o, "status", turn_state_name(t->state));
	json_put_time(o, "createdAt", t->created_ms);
	json_put_time(o, "startedAt", t->started_ms);
	json_put_time(o, "finishedAt", t->finished_ms);
	public_put_usage(o, t);
	if (t->error_code[0])
		json_put(o, "error", error_json(t));
	else
		json_put_null(o, "error");
	public_put_attachments(o, t);
	json_put(o, "items", items);
	json_put(o, "displayItems", display);
	json_put_bool(o, "projectionTruncated", budget->exceeded || list->count == ITEMS_SHOWN);
	return o;
}

/* -- a page, from its last turn to its first ---------------------------------------------- */

struct page {
	const struct api *api;
	const struct uuid *tenant;
	struct json *turns[PAGE_TURNS];
	size_t count;
	size_t bytes;
	int rc;
	struct err e;
};

static size_t text_bytes(const struct item_list *list)
{
	size_t n = 0;

	for (size_t i = 0; i < list->count; i++)
		n += list->items[i].body_len;
	return n;
}

static bool add_turn(void *ctx, const struct turn *t)
{
	struct public_budget budget = PUBLIC_BUDGET;
	struct item_list list = { 0 };
	struct page *p = ctx;

	p->rc = turn_items_shown(p->api->store, p->tenant, &t->id, &list, &p->e);
	if (p->rc)
		return false;
	p->bytes += text_bytes(&list);
	p->turns[p->count++] = turn_json(t, &list, &budget);
	item_list_release(&list);
	return p->bytes < PAGE_BYTES;
}

static struct json *page_json(const struct session *s, const struct history_page *at,
                              struct page *p)
{
	struct json *o = json_new_object(), *data = json_new_array();
	uint64_t first = at->end - p->count;

	json_put(o, "session", api_session_json(s));
	for (size_t i = 0; i < p->count; i++) {
		struct json *entry = json_new_object();

		json_put_int(entry, "index", (int64_t)(first + i));
		json_put(entry, "turn", p->turns[p->count - 1 - i]);
		json_push(data, entry);
	}
	json_put(o, "data", data);
	json_put_int(o, "generationStart", 0);
	json_put_int(o, "total", (int64_t)at->total);
	json_put_bool(o, "hasOlder", first > 0);
	json_put_bool(o, "hasNewer", at->end < at->total);
	if (first > 0)
		json_put_int(o, "nextCursor", (int64_t)first);
	else
		json_put_null(o, "nextCursor");
	return o;
}

/* "cursor", also called "before": only turns of a lower index. */
static bool read_before(const struct http_request *req, struct http_response *res, uint64_t *ret)
{
	const char *cursor = http_query(req, "cursor"), *before = http_query(req, "before");
	const char *text = cursor ? cursor : before;

	*ret = UINT64_MAX;
	if (!text)
		return true;
	if (cursor && before) {
		http_error(req, res, 400, "invalid_query", "cursor and before are the same");
		return false;
	}
	if (!*text || text[strspn(text, "0123456789")]) {
		http_error(req, res, 400, "invalid_cursor", "cursor: not the index of a turn");
		return false;
	}
	errno = 0;
	*ret = strtoull(text, NULL, 10);
	if (errno == 0 && *ret <= INT64_MAX)
		return true;
	http_error(req, res, 400, "invalid_turn_cursor", "cursor: more than a turn's index can be");
	return false;
}

static void answer_history(const struct http_request *req, struct http_response *res,
                           struct history_page *at, struct page *p)
{
	struct err e = ERR_INIT;
	struct session s;
	int rc = session_get(p->api->store, p->tenant, at->session, &s, &e);

	if (rc == 0)
		rc = turn_history(p->api->store, p->tenant, at, add_turn, p, &e);
	if (rc == 0 && p->rc == 0) {
		api_json(res, 200, page_json(&s, at, p));
		return;
	}
	for (size_t i = 0; i < p->count; i++)
		json_free(&p->turns[i]);
	api_fail_about(req, res, "session", rc ? &e : &p->e);
}

void history_show(const struct http_request *req, struct http_response *res, void *ctx)
{
	static const char *const known[] = { "cursor", "before", "limit", NULL };
	struct page p = { .api = ctx, .tenant = api_tenant(req) };
	struct history_page at = { 0 };
	struct uuid id;

	if (!api_query_known(req, res, known) || !api_limit(req, res, &at.limit) ||
	    !read_before(req, res, &at.before))
		return;
	if (!uuid_parse(req->params[0], &id)) {
		api_not_found(req, res, "session");
		return;
	}
	at.session = &id;
	answer_history(req, res, &at, &p);
}
