/*
 * api.h - the resources of the HTTP API: parse, call, render.  No rules, no SQL.
 *
 * One file per resource.  The principal of a request is a struct caller; the context of
 * every handler is a struct api.
 */
#ifndef DAEMON_API_API_H
#define DAEMON_API_API_H

#include "common/json.h"
#include "daemon/event/bus.h"
#include "daemon/http/http.h"
#include "daemon/setup/setups.h"
#include "daemon/status/status.h"
#include "daemon/store/session.h"
#include "daemon/store/turn.h"
#include "daemon/tenant/roster.h"
#include "daemon/turn/render.h"
#include "daemon/turn/turns.h"

struct api {
	struct roster *roster;
	struct store *store;
	struct turns *turns;
	struct bus *bus;
	struct setups *setups;
	const char *boundary; /* profile, for /readyz */
	const struct status_of *status;
	unsigned char operator_digest[TOKEN_DIGEST]; /* of the token for /metrics */
};

/* All routes, ended by method NULL; static. */
const struct http_route *api_routes(void);

/* For struct http_conf: the caller of a token, its end, and whether the token still counts. */
const void *api_authenticate(void *ctx, const char *token, size_t len);
void api_release(void *ctx, const void *principal);
bool api_still(void *ctx, const void *principal);
bool api_is_operator(void *ctx, const char *token, size_t len);

/* Likewise: tenants share what there is of workers. */
const struct uuid *api_party(void *ctx, const void *principal);

/* The OpenAPI document that /openapi.json serves. */
extern const char api_openapi[];
extern const size_t api_openapi_len;

/* -- shared by the resources -- */

static inline const struct tenant *api_caller(const struct http_request *req)
{
	return ((const struct caller *)req->principal)->tenant;
}

static inline const struct uuid *api_tenant(const struct http_request *req)
{
	return &api_caller(req)->id;
}

/* Answer with the status and code that belong to e. */
void api_fail(const struct http_request *req, struct http_response *res, const struct err *e);

/* 404 with the code of a resource ("session" gives session_not_found). */
void api_not_found(const struct http_request *req, struct http_response *res, const char *what);

/* As api_fail, but a missing row is a missing resource of that kind. */
void api_fail_about(const struct http_request *req, struct http_response *res, const char *what,
                    const struct err *e);

/* Status and body; takes o. */
void api_json(struct http_response *res, int status, struct json *o);

/*
 * Parse the body as an object against a closed table (common/json.h).  On failure the
 * answer (400 invalid_json with path or position) is made and false returned.  An empty
 * body counts as {}.  The caller owns *ret_doc, which the values point into.  There may be
 * no query either.
 */
bool api_body(const struct http_request *req, struct http_response *res,
              const struct json_field *fields, size_t n, const struct json **values,
              struct json **ret_doc);

/* 400 invalid_query unless every query parameter is one of names (ended by NULL). */
bool api_query_known(const struct http_request *req, struct http_response *res,
                     const char *const *names);

/* As api_query_known, for a route that has no query parameters. */
bool api_no_query(const struct http_request *req, struct http_response *res);

/* As api_body, for a route that takes no body, or {}. */
bool api_no_body(const struct http_request *req, struct http_response *res);

/* A "cursor" is the place of a page's last row, "<ms>.<id>"; *ret_ms is 0 when there is none. */
bool api_keyset(const struct http_request *req, struct http_response *res, uint64_t *ret_ms,
                struct uuid *ret_id);

/* "nextCursor" of a page: the place of its last row when there are more, else null. */
void api_put_keyset(struct json *page, bool more, uint64_t ms, const struct uuid *id);

/* What a request asks for, for the digest that recognises it when it is sent again. */
struct api_asked {
	const char *what;    /* names the kind of request */
	const char *subject; /* id that its path names, or "" */
	const struct json *const *values;
	size_t n;
};

/* A client request id in either case; false with the answer made when it is no UUID. */
bool api_client_id(const struct http_request *req, struct http_response *res, const struct json *v,
                   struct uuid *ret);

/*
 * The client request id v (may be NULL) with the digest of what is asked; *ret_key is
 * *room, or NULL without an id.  False with the answer made when it is no UUID.
 */
bool api_client_request(const struct http_request *req, struct http_response *res,
                        const struct json *v, const struct api_asked *asked,
                        struct client_request *room, const struct client_request **ret_key);

/* "limit": 1 to 100, default 50; false with the answer made when it is something else. */
bool api_limit(const struct http_request *req, struct http_response *res, size_t *ret_limit);

struct json *api_session_json(const struct session *s);

/* The turn as rows of a list have it: with the beginning of its input. */
struct json *api_turn_row_json(const struct turn *t);

struct json *api_turn_json(const struct turn *t);

#endif
