/*
 * test_routes.h - for the tests of daemon/http: handlers, and a server that has them.
 */
#ifndef DAEMON_HTTP_TEST_ROUTES_H
#define DAEMON_HTTP_TEST_ROUTES_H

#include "daemon/http/test_client.h"

#define POST "POST /v1/echo HTTP/1.1\r\n" AUTH "Content-Type: application/json\r\n"

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER; /* held: /v1/slow does not end */
static bool gate_held;                                   /* by the test */
static atomic_int inside;                                /* handlers in /v1/slow */
static atomic_int sources_closed;

static inline void hold_gate(void)
{
	pthread_mutex_lock(&gate);
	gate_held = true;
}

static inline void open_gate(void)
{
	gate_held = false;
	pthread_mutex_unlock(&gate);
}

static inline void add_parameter(void *ctx, const char *name, const char *value)
{
	buf_addf(ctx, " %s=<%s>", name, value);
}

static inline void handle_echo(const struct http_request *req, struct http_response *res, void *ctx)
{
	(void)ctx;
	res->content_type = "text/plain";
	buf_addf(&res->body, "%s %s", req->method, req->path);
	for (size_t i = 0; i < HTTP_PARAMS_MAX && req->params[i]; i++)
		buf_addf(&res->body, " {%s}", req->params[i]);
	http_each_query(req, add_parameter, &res->body);
	if (http_header(req, "x-note"))
		buf_addf(&res->body, " note=%s", http_header(req, "X-Note"));
	buf_addf(&res->body, " as=%s", req->principal ? (const char *)req->principal : "nobody");
	buf_addf(&res->body, " body=%zu:", req->body_len);
	buf_add(&res->body, req->body, req->body_len);
}

static inline void handle_empty(const struct http_request *req, struct http_response *res,
                                void *ctx)
{
	(void)req;
	(void)ctx;
	res->status = 204;
}

static inline void handle_slow(const struct http_request *req, struct http_response *res, void *ctx)
{
	atomic_fetch_add(&inside, 1);
	pthread_mutex_lock(&gate);
	pthread_mutex_unlock(&gate);
	handle_echo(req, res, ctx);
	atomic_fetch_sub(&inside, 1);
}

static inline void handle_wrong(const struct http_request *req, struct http_response *res,
                                void *ctx)
{
	(void)ctx;
	http_set_header(res, "X-Note", "one\r\nSet-Cookie: two");
	http_error(req, res, 422, "some_code", "quote \" and bad byte \xff and\nline");
}

static inline void handle_huge(const struct http_request *req, struct http_response *res, void *ctx)
{
	(void)req;
	(void)ctx;
	res->body.max = 10;
	buf_adds(&res->body, "this does not fit");
}

static inline int no_next(void *ctx, const char **data, size_t *len)
{
	(void)ctx;
	*data = NULL;
	*len = 0;
	return 0;
}

static inline void count_close(void *ctx)
{
	(void)ctx;
	atomic_fetch_add(&sources_closed, 1);
}

static inline void handle_stream(const struct http_request *req, struct http_response *res,
                                 void *ctx)
{
	(void)req;
	(void)ctx;
	res->stream = (struct stream_source){ .next = no_next, .close = count_close };
}

static const struct http_route routes[] = {
	{ "GET", "/", handle_echo, HTTP_OPEN | HTTP_INLINE },
	{ "GET", "/healthz", handle_echo, HTTP_OPEN | HTTP_INLINE },
	{ "GET", "/v1/echo", handle_echo, 0 },
	{ "POST", "/v1/echo", handle_echo, 0 },
	{ "PATCH", "/v1/echo", handle_echo, HTTP_INLINE },
	{ "DELETE", "/v1/items/{id}", handle_empty, 0 },
	{ "GET", "/v1/items/fixed", handle_echo, 0 },
	{ "GET", "/v1/items/{id}", handle_echo, 0 },
	{ "GET", "/v1/items/{id}/parts/{part}", handle_echo, 0 },
	{ "GET", "/v1/slow", handle_slow, 0 },
	{ "GET", "/v1/wrong", handle_wrong, 0 },
	{ "GET", "/v1/huge", handle_huge, 0 },
	{ "POST", "/v1/work", handle_echo, HTTP_DRAINS },
	{ "GET", "/v1/events", handle_stream, HTTP_STREAM },
	{ "GET", "/v1/unmarked", handle_stream, 0 },
	{ 0 },
};

static struct http_server *server;

static inline int set_up(void **state)
{
	struct http_conf conf = test_conf(routes);

	(void)state;
	server = test_server(&conf);
	return 0;
}

/* Also of what a test that failed has left. */
static inline int tear_down(void **state)
{
	(void)state;
	if (gate_held)
		open_gate();
	http_stop(&server);
	atomic_store(&sources_closed, 0);
	return server ? -1 : 0;
}

/* With a server as test_conf() says, or one that the test starts; it is stopped behind both. */
#define SERVED(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
#define ALONE(test)  cmocka_unit_test_teardown(test, tear_down)

#endif
