#include "daemon/api/api.h"
#include "daemon/api/engine.h"
#include "daemon/api/events.h"
#include "daemon/api/history.h"
#include "daemon/api/requests.h"
#include "daemon/api/sessions.h"
#include "daemon/api/setup.h"
#include "daemon/api/turns.h"
#include "daemon/model/model.h"

static void health(const struct http_request *req, struct http_response *res, void *ctx)
{
	(void)req;
	(void)ctx;
	buf_adds(&res->body, "{\"ok\":true}");
}

static void ready(const struct http_request *req, struct http_response *res, void *ctx)
{
	struct api *api = ctx;
	struct err e = ERR_INIT;
	struct json *o;

	if (store_ping(api->store, &e)) {
		api_fail(req, res, &e);
		return;
	}
	o = json_new_object();
	json_put_bool(o, "ready", true);
	json_put_str(o, "boundary", api->boundary);
	api_json(res, 200, o);
}

static void openapi(const struct http_request *req, struct http_response *res, void *ctx)
{
	(void)req;
	(void)ctx;
	buf_add(&res->body, api_openapi, api_openapi_len);
}

static void metrics(const struct http_request *req, struct http_response *res, void *ctx)
{
	const struct api *api = ctx;

	(void)req;
	res->content_type = "text/plain; version=0.0.4; charset=utf-8";
	status_metrics(api->status, &res->body);
}

static struct json *model_json(const struct model *m)
{
	struct json *o = json_new_object(), *efforts = json_new_array();

	for (enum effort i = EFFORT_NONE; i < EFFORTS; i++)
		if (m->reasoning.efforts & 1U << i)
			json_push_str(efforts, effort_name(i));
	json_put_str(o, "id", m->id);
	json_put_str(o, "label", m->label);
	json_put_str(o, "provider", m->provider);
	json_put_str(o, "connection", m->connection);
	json_put_str(o, "transportModel", m->transport_model);
	json_put_str(o, "dialect", m->dialect);
	if (m->context_window)
		json_put_int(o, "contextWindow", m->context_window);
	else
		json_put_null(o, "contextWindow");
	json_put_bool(o, "images", m->sees_images);
	json_put(o, "efforts", efforts);
	return o;
}

static void models(const struct http_request *req, struct http_response *res, void *ctx)
{
	struct json *o, *data;

	(void)ctx;
	if (!api_no_query(req, res))
		return;
	o = json_new_object();
	data = json_new_array();
	for (size_t i = 0; i < model_count(); i++)
		if (registry_model_allowed(api_caller(req), model_at(i)->id))
			json_push(data, model_json(model_at(i)));
	json_put(o, "data", data);
	api_json(res, 200, o);
}

const struct http_route *api_routes(void)
{
	static const struct http_route routes[] = {
		{ "GET", "/healthz", health, HTTP_OPEN | HTTP_INLINE },
		{ "GET", "/readyz", ready, HTTP_OPEN | HTTP_DRAINS },
		{ "GET", "/metrics", metrics, HTTP_OPERATOR | HTTP_INLINE },
		{ "GET", "/openapi.json", openapi, HTTP_OPEN | HTTP_INLINE },
		{ "GET", "/v1/models", models, HTTP_INLINE },
		{ "GET", "/v1/sessions", sessions_list, 0 },
		{ "POST", "/v1/sessions", sessions_create, HTTP_DRAINS },
		{ "GET", "/v1/sessions/{id}", sessions_show, 0, sessions_show_all },
		{ "PATCH", "/v1/sessions/{id}", sessions_change, HTTP_DRAINS },
		{ "DELETE", "/v1/sessions/{id}", sessions_delete, HTTP_DRAINS },
		{ "POST", "/v1/sessions/{id}/fork", sessions_fork, HTTP_DRAINS },
		{ "POST", "/v1/sessions/{id}/setup", sessions_setup, HTTP_DRAINS },
		{ "GET", "/v1/sessions/{id}/history", history_show, 0 },
		{ "POST", "/v1/sessions/{id}/turns", turns_create, HTTP_DRAINS },
		{ "GET", "/v1/turns", turns_list, 0 },
		{ "GET", "/v1/turns/{id}", turns_show, 0 },
		{ "GET", "/v1/turns/{id}/agents", agents_list, 0 },
		{ "GET", "/v1/turns/{id}/lines", lines_list, 0 },
		{ "GET", "/v1/turns/{id}/result", turns_result, 0 },
		{ "POST", "/v1/turns/{id}/cancel", turns_end, HTTP_URGENT },
		{ "GET", "/v1/requests", requests_list, 0 },
		{ "POST", "/v1/requests/{id}/resolve", requests_resolve, 0 },
		{ "GET", "/v1/events", events_stream, HTTP_STREAM },
		{ 0 },
	};

	return routes;
}
