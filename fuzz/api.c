/*
 * Requests to each route, behind the server that read their heads: what reaches the store and
 * the turns keeps its bounds, and each answer is JSON with a status of its route.  Here the
 * store, the turns, the set-ups and the events are this program: fuzz/api_*.c.
 *
 * The first byte chooses the route, the second what the store says and who asks; then come, up
 * to a NUL each, what stands at {id} in the path, the query and Last-Event-ID, and the body.
 */
#include "fuzz/api.h"
#include "fuzz/fuzz.h"

#include "common/attr.h"
#include "common/utf8.h"
#include "daemon/api/api.h"

#include <sodium.h>

const struct uuid row_id = { "0191d2b4-0000-7000-8000-00000000000a" };

struct given given;

int store_says(struct err *e)
{
	static const int codes[] = {
		0,          STORE_NOT_FOUND,   STORE_UNAVAILABLE, STORE_CONFLICT,
		STORE_BUSY, STORE_TENANT_FULL, STORE_KEY_REUSED,  0,
	};
	int code = codes[given.choice % ARRAY_LEN(codes)];

	given.calls++;
	return code ? err_set(e, code, "the store says so") : 0;
}

/* -- the server, which has read the head ------------------------------------------------------ */

const char *http_query(const struct http_request *r, const char *name)
{
	(void)r;
	return target_value(&given.query, name);
}

void http_each_query(const struct http_request *r,
                     void (*fn)(void *ctx, const char *name, const char *value), void *ctx)
{
	(void)r;
	for (size_t i = 0; i < given.query.count; i++)
		fn(ctx, given.query.v[i].name, given.query.v[i].value);
}

const char *http_header(const struct http_request *r, const char *name)
{
	(void)r;
	return strcmp(name, "Last-Event-ID") == 0 ? given.last_event : NULL;
}

/* -- answers ---------------------------------------------------------------------------------- */

static void check_error(int status, const struct json *doc)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz_0123456789";
	const struct json *error = json_get(doc, "error");
	const char *code = json_str(json_get(error, "code"));

	demand(code && *code && strspn(code, letters) == strlen(code));
	demand(json_str_len(json_get(error, "message")) > 0);
	demand(strcmp(json_str(json_get(error, "requestId")), "1") == 0);
	/* What the store may not say there is a fault of the server's own. */
	demand(status < 500 || given.calls || status == 503);
}

static void check_answer(const struct http_route *route, const struct http_response *res)
{
	auto_json struct json *doc = NULL;
	struct err e = ERR_INIT;
	int status = res->status ? res->status : 200;

	demand(!buf_failed(&res->body));
	if (res->stream.next) {
		demand(status == 200 && !res->body.len && route->flags & HTTP_STREAM);
		return;
	}
	demand((status == 204) == !res->body.len);
	if (status == 204)
		return;
	demand(json_parse(res->body.data, res->body.len, &doc, &e) == 0);
	demand((status >= 200 && status <= 202) || (status >= 400 && status <= 599));
	if (status >= 400)
		check_error(status, doc);
	else
		demand(given.calls || route->flags & HTTP_INLINE);
}

static int ask(const struct http_route *route, const struct http_request *req, bool together)
{
	struct api api = { .boundary = "development" };
	struct http_response res = { .body = BUF_INIT((size_t)64 << 20) }, *const all = &res;

	given.calls = 0;
	if (together && route->handle_all)
		route->handle_all(&req, &all, 1, &api);
	else
		route->handle(req, &res, &api);
	check_answer(route, &res);
	if (res.stream.next) {
		const char *data;
		size_t len;

		demand(res.stream.next(res.stream.ctx, &data, &len) >= 0);
		res.stream.close(res.stream.ctx);
	}
	demand(!subscribed);
	buf_release(&res.body);
	return res.stream.next ? 200 : res.status;
}

/* -- an input --------------------------------------------------------------------------------- */

struct rest {
	const uint8_t *at;
	size_t len;
};

static char *cut(struct rest *r)
{
	const uint8_t *stop = r->len ? memchr(r->at, '\0', r->len) : NULL;
	size_t len = stop ? (size_t)(stop - r->at) : r->len;
	char *text = text_of(r->at, len);

	len += stop != NULL;
	r->at += len;
	r->len -= len;
	return text;
}

static const struct http_route *choose(uint8_t number)
{
	const struct http_route *routes = api_routes();
	size_t n = 0;

	while (routes[n].method)
		n++;
	demand(n > 0);
	/* One is no JSON, the other has a number that our reader does not take; neither reads. */
	if (routes[number % n].flags & HTTP_OPERATOR ||
	    strcmp(routes[number % n].pattern, "/openapi.json") == 0)
		return &routes[0];
	return &routes[number % n];
}

static void run(const struct http_route *route, struct rest *rest)
{
	static char ids[1][TENANT_MODEL_MAX + 1] = { "another" };
	struct tenant tenant = { .id = { "0191d2b4-0000-7000-8000-000000000001" },
		                 .models = { given.choice & HAS_MODELS, ids, 1 },
		                 .approvals =
		                         given.choice & IS_ASKED ? TENANT_ASK : TENANT_SANDBOX };
	const struct caller caller = { .tenant = &tenant };
	char *id = cut(rest), *query = cut(rest), *last = cut(rest), *body;
	struct http_request req = { .method = route->method,
		                    .path = route->pattern,
		                    .params = { id },
		                    .body_len = rest->len,
		                    .request_id = "1",
		                    .principal = &caller };

	req.body = body = text_of(rest->at, rest->len);
	given.last_event = *last ? last : NULL;
	given.keyed = false;
	if (utf8_valid(id, strlen(id)) && !target_query(*query ? query : NULL, &given.query)) {
		int status = ask(route, &req, false);

		demand(ask(route, &req, true) == status);
	}
	free(id);
	free(query);
	free(last);
	free(body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rest rest = { data + 2, size - 2 };

	if (size < 2)
		return 0;
	demand(sodium_init() >= 0);
	given.choice = data[1];
	run(choose(data[0]), &rest);
	return 0;
}
