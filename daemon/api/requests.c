#include "daemon/api/requests.h"

#include "daemon/api/api.h"
#include "daemon/turn/render.h"

#define LIST_MAX     200   /* open requests of a tenant that one answer holds */
#define VALUE_MAX    65536 /* bytes of an answer's value */
#define DECISION_MAX 65536 /* bytes; an option may be that long */

static void add_row(void *ctx, const struct request *q)
{
	json_push(ctx, request_json(q));
}

void requests_list(const struct http_request *req, struct http_response *res, void *ctx)
{
	static const char *const known[] = { "turnId", NULL };
	const char *turn = http_query(req, "turnId");
	struct api *api = ctx;
	struct json *data, *o;
	struct err e = ERR_INIT;
	struct uuid id;
	struct request_page page = { turn ? &id : NULL, LIST_MAX };

	if (!api_query_known(req, res, known))
		return;
	if (turn && !uuid_parse(turn, &id)) {
		http_error(req, res, 400, "invalid_query", "turnId: not a lower-case UUID");
		return;
	}
	data = json_new_array();
	if (request_list(api->store, api_tenant(req), &page, add_row, data, &e)) {
		json_free(&data);
		api_fail(req, res, &e);
		return;
	}
	o = json_new_object();
	json_put(o, "data", data);
	api_json(res, 200, o);
}

static void fail_resolve(const struct http_request *req, struct http_response *res,
                         const struct err *e)
{
	if (e->code == STORE_CONFLICT)
		http_error(req, res, 409, "request_not_resolved", "%s",
		           "the request is not open any more");
	else
		api_fail_about(req, res, "request", e);
}

void requests_resolve(const struct http_request *req, struct http_response *res, void *ctx)
{
	static const struct json_field fields[] = {
		{ "decision", JSON_STRING, true, false },
		{ "value", JSON_STRING, false, true },
	};
	const struct json *v[ARRAY_LEN(fields)];
	auto_json struct json *doc = NULL;
	struct request q = { 0 };
	struct answer answer;
	struct api *api = ctx;
	struct err e = ERR_INIT;
	struct uuid id;

	if (!uuid_parse(req->params[0], &id)) {
		api_not_found(req, res, "request");
		return;
	}
	if (!api_body(req, res, fields, ARRAY_LEN(fields), v, &doc))
		return;
	if (json_str_len(v[0]) > DECISION_MAX || (v[1] && json_str_len(v[1]) > VALUE_MAX)) {
		http_error(req, res, 400, "invalid_json", "%s: longer than %d bytes",
		           json_str_len(v[0]) > DECISION_MAX ? "decision" : "value", VALUE_MAX);
		return;
	}
	answer = (struct answer){ json_str(v[0]), v[1] ? json_str(v[1]) : NULL };
	if (turns_answer(api->turns, api_tenant(req), &id, &answer, &q, &e)) {
		fail_resolve(req, res, &e);
		return;
	}
	api_json(res, 200, request_json(&q));
	request_release(&q);
}
