/*
 * The way of one request.
 *
 *   head      checked (request.c), route found, token checked
 *   body      collected up to max_body
 *   running   in the loop thread, or suspended and with a worker
 *   ready     resumed; the answer is queued in libmicrohttpd
 *   sending   until libmicrohttpd says that it is done with it
 *
 * An answer from the first call of the access handler makes libmicrohttpd close the
 * connection.  That is wanted when the request is malformed or its body is not going
 * to be read; every other refusal waits for the last call, which keeps the connection.
 */
#include "daemon/http/server.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/log.h"
#include "daemon/metrics/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define ANSWER_FACTOR 10 /* an answer may take this many times as long as a request */

static struct http_response empty_response(void)
{
	return (struct http_response){
		.status = 200,
		.content_type = "application/json",
		.body = BUF_INIT(HTTP_RESPONSE_MAX),
	};
}

struct http_exchange *exchange_new(struct http_server *s, struct MHD_Connection *mhd,
                                   const char *target)
{
	size_t len = strlen(target);
	struct http_exchange *ex = calloc(1, sizeof(*ex) + 2 * (len + 1));

	if (!ex)
		return NULL;
	ex->server = s;
	ex->mhd = mhd;
	ex->begun_us = clock_mono_us();
	ex->res = empty_response();
	ex->stream_fd = -1;
	ex->body.max = s->conf.max_body;
	ex->req.inner = ex;
	ex->req.body = "";
	ex->target_len = len;
	memcpy(ex->target, target, len + 1);
	ex->split = ex->target + len + 1;
	return ex;
}

/* NULL = one of those whom nobody knows, who are one party. */
static const struct uuid *party_of(const struct http_exchange *ex)
{
	const struct http_conf *conf = &ex->server->conf;

	if (!conf->party || !ex->req.principal)
		return NULL;
	return conf->party(conf->ctx, ex->req.principal);
}

/* Whose share of the room for bodies this one takes; they outlive their principals. */
static struct uuid payer_of(const struct http_exchange *ex)
{
	const struct uuid *party = party_of(ex);

	if (party)
		return *party;
	return (struct uuid){ .text = { ex->req.principal ? '*' : '\0' } };
}

static void release_body(struct http_exchange *ex)
{
	budget_give(&ex->server->bodies, &ex->body_party, ex->body_taken);
	ex->body_taken = 0;
	ex->req.body = "";
	ex->req.body_len = 0;
	buf_release(&ex->body);
}

static void close_source(struct http_exchange *ex)
{
	struct stream_source *source = &ex->res.stream;

	if (ex->stream_slot)
		stream_unreserve(ex->server->streams);
	ex->stream_slot = false;
	fd_close(&ex->stream_fd);
	if (source->next && !ex->stream_out)
		source->close(source->ctx);
	source->next = NULL;
}

void exchange_free(struct http_exchange *ex)
{
	const struct http_conf *conf = &ex->server->conf;

	close_source(ex);
	/* A stream keeps the principal for as long as it lives. */
	if (ex->req.principal && !ex->stream_out && conf->release)
		conf->release(conf->ctx, ex->req.principal);
	buf_release(&ex->res.body);
	release_body(ex);
	free(ex);
}

/* -- answering ----------------------------------------------------------------------- */
/*
 * Body of an event stream as libmicrohttpd sees it: one comment; then a duplicate of the socket
 * goes to the stream thread, and the end is reported.  libmicrohttpd closes its
 * own descriptor without a shutdown (MHD_USE_TURBO), so the connection lives on.
 */
static ssize_t stream_reader(void *cls, uint64_t pos, char *buf, size_t max)
{
	static const char first[] = ": ok\n\n";
	struct http_exchange *ex = cls;

	if (pos == 0 && max >= sizeof(first) - 1) {
		memcpy(buf, first, sizeof(first) - 1);
		return sizeof(first) - 1;
	}
	if (stream_adopt(ex->server->streams, ex->stream_fd, &ex->res.stream, ex->req.principal)) {
		ex->stream_fd = -1;
		ex->stream_out = true;
		metric_count(METRIC_STREAMS, 0);
		ex->stream_slot = false;
	} else {
		log_warn("http: event stream: %m");
	}
	return MHD_CONTENT_READER_END_OF_STREAM;
}

static struct MHD_Response *stream_response(struct http_exchange *ex)
{
	struct MHD_Response *r =
		MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 64, stream_reader, ex, NULL);

	if (!r)
		return NULL;
	if (MHD_set_response_options(r, MHD_RF_HTTP_1_0_COMPATIBLE_STRICT, MHD_RO_END) == MHD_YES &&
	    response_stream_headers(ex, r))
		return r;
	MHD_destroy_response(r);
	return NULL;
}

static void admit_stream(struct http_exchange *ex)
{
	if (!(ex->route->flags & HTTP_STREAM)) {
		log_error("http: route %s is not marked HTTP_STREAM", ex->route->pattern);
		close_source(ex);
		http_error(&ex->req, &ex->res, 500, "internal_error", "internal error");
	} else if (atomic_load(&ex->server->stopping)) {
		close_source(ex);
		exchange_refuse_stopping(ex);
	} else if (!stream_reserve(ex->server->streams)) {
		close_source(ex);
		http_error(&ex->req, &ex->res, 429, "event_subscriber_limit",
		           "too many event streams are open (at most %u)",
		           ex->server->conf.max_streams);
		http_set_header(&ex->res, "Retry-After", "1");
	} else {
		ex->stream_slot = true;
		ex->stream_fd = fcntl(ex->connection->fd, F_DUPFD_CLOEXEC, 0);
		if (ex->stream_fd >= 0)
			return;
		close_source(ex);
		exchange_refuse_short(ex);
	}
}

void exchange_count(const struct http_exchange *ex)
{
	size_t route = ex->route ? (size_t)(ex->route - ex->server->conf.routes) : METRIC_ROUTES;

	metric_request(route, ex->res.status, clock_mono_us() - ex->begun_us);
}

static enum MHD_Result answer(struct http_exchange *ex)
{
	struct http_server *s = ex->server;
	struct MHD_Response *r;
	enum MHD_Result queued;

	release_body(ex);
	if (ex->res.stream.next)
		admit_stream(ex);
	r = ex->res.stream.next ? stream_response(ex) : response_build(ex);
	if (!r) {
		log_error("http: request %s: no memory for the answer", ex->req.request_id);
		return MHD_NO;
	}
	exchange_count(ex);
	ex->stage = STAGE_SENDING;
	s->sending++;
	connection_set_deadline(ex->connection,
	                        clock_mono_ms() + ANSWER_FACTOR * (uint64_t)s->conf.request_ms);
	queued = queue_response(ex->mhd, (unsigned int)ex->res.status, r);
	MHD_destroy_response(r);
	return queued;
}

/* Answer now, without reading what may still come, and close. */
static enum MHD_Result answer_and_close(struct http_exchange *ex)
{
	ex->connection->linger = true;
	return answer(ex);
}

void exchange_refuse_stopping(struct http_exchange *ex)
{
	http_error(&ex->req, &ex->res, 503, "server_stopping",
	           "the server takes no more work until its next start");
	http_set_header(&ex->res, "Retry-After", "1");
}

void exchange_refuse_short(struct http_exchange *ex)
{
	http_error(&ex->req, &ex->res, 503, "busy", "the server is short of descriptors or memory");
	http_set_header(&ex->res, "Retry-After", "1");
}

/* -- head ------------------------------------------------------------------------------ */
static bool authenticate(struct http_exchange *ex)
{
	const struct http_conf *conf = &ex->server->conf;
	const char *token = NULL;
	size_t len = 0;
	struct uuid payer;

	(void)request_token(ex, &token, &len);
	if (conf->authenticate)
		ex->req.principal = conf->authenticate(conf->ctx, token, len);
	if (!ex->req.principal) {
		gate_refuse(ex, token != NULL);
		return false;
	}
	payer = payer_of(ex);
	connection_keep(ex->connection, &payer);
	return true;
}

/* The answer depends on nothing of a tenant's. */
static bool admit_operator(struct http_exchange *ex)
{
	static const struct uuid operators = { .text = "+" };
	const struct http_conf *conf = &ex->server->conf;
	const char *token = NULL;
	size_t len = 0;

	if (!conf->is_operator) {
		http_error(&ex->req, &ex->res, 404, "route_not_found", "no such route");
		return false;
	}
	(void)request_token(ex, &token, &len);
	if (token && conf->is_operator(conf->ctx, token, len)) {
		connection_keep(ex->connection, &operators);
		return true;
	}
	gate_refuse(ex, token != NULL);
	return false;
}

static bool find_route(struct http_exchange *ex, const struct router_match *m)
{
	ex->route = m->route;
	if (m->route)
		return true;
	if (!m->path_known) {
		http_error(&ex->req, &ex->res, 404, "route_not_found", "no such route");
		return false;
	}
	http_error(&ex->req, &ex->res, 405, "method_not_allowed",
	           "the route does not take this method");
	http_set_header(&ex->res, "Allow", "%s", m->allow);
	return false;
}

/* May this request be read to its end and handled?  False with the answer in ex->res. */
static bool admit(struct http_exchange *ex)
{
	struct http_server *s = ex->server;
	struct router_match m;

	if (gate_preflight(ex))
		return false;
	router_find(s->conf.routes, ex, &m);
	if (m.route && (m.route->flags & HTTP_OPERATOR) ? !admit_operator(ex)
	                                                : !m.open && !authenticate(ex))
		return false;
	if (!find_route(ex, &m))
		return false;
	if (atomic_load(&s->stopping) ||
	    ((ex->route->flags & HTTP_DRAINS) && atomic_load(&s->draining))) {
		exchange_refuse_stopping(ex);
		return false;
	}
	if (ex->head.length > s->conf.max_body) {
		http_error(&ex->req, &ex->res, 413, "request_too_large",
		           "the body may have at most %zu bytes", s->conf.max_body);
		return false;
	}
	return true;
}

static void refuse_bodies(struct http_exchange *ex)
{
	http_error(&ex->req, &ex->res, 503, "busy",
	           "the bodies of requests that are under way take up the room for them");
	http_set_header(&ex->res, "Retry-After", "1");
}

/* Have room for a body of so many bytes.  False with the answer in ex->res. */
static bool take_room(struct http_exchange *ex, uint64_t len)
{
	if (len <= ex->body_taken)
		return true;
	ex->body_party = payer_of(ex);
	if (budget_take(&ex->server->bodies, &ex->body_party, len - ex->body_taken)) {
		ex->body_taken = len;
		return true;
	}
	refuse_bodies(ex);
	return false;
}

static enum MHD_Result take_head(struct http_exchange *ex, const char *method, const char *url,
                                 const char *version)
{
	if (!request_check(ex, method, url, version))
		return answer_and_close(ex);
	connection_keep_no_more(ex->connection);
	ex->refused = !admit(ex) || !take_room(ex, ex->head.length);
	if (ex->refused && ex->head.has_body)
		return answer_and_close(ex);
	ex->stage = STAGE_BODY;
	return MHD_YES;
}

/* -- body ------------------------------------------------------------------------------ */
static bool add_body(struct http_exchange *ex, const char *data, size_t len)
{
	size_t max = ex->server->conf.max_body;

	if (len <= max - ex->body.len && !take_room(ex, ex->body.len + len))
		return false;
	buf_add(&ex->body, data, len);
	if (!buf_failed(&ex->body))
		return true;
	http_error(&ex->req, &ex->res, 413, "request_too_large",
	           "the body may have at most %zu bytes", max);
	return false;
}

static enum MHD_Result take_body(struct http_exchange *ex, const char *data, size_t *len)
{
	bool added = add_body(ex, data, *len);

	*len = 0;
	if (added)
		return MHD_YES;
	/* Only a chunked body gets here, and libmicrohttpd takes no answer in its middle. */
	response_send_raw(ex, ex->connection->fd);
	exchange_count(ex);
	ex->connection->linger = true;
	return MHD_NO;
}

void exchange_run(struct http_exchange *ex)
{
	log_request(ex->req.request_id);
	ex->route->handle(&ex->req, &ex->res, ex->server->conf.ctx);
	log_request(NULL);
}

/* What is logged is about the first one, unless the handler says about whom. */
void exchange_run_all(struct http_exchange *first)
{
	const struct http_request *reqs[HTTP_BATCH_MAX];
	struct http_response *answers[HTTP_BATCH_MAX];
	size_t n = 0;

	if (!first->next) {
		exchange_run(first);
		return;
	}
	for (struct http_exchange *ex = first; ex; ex = ex->next) {
		reqs[n] = &ex->req;
		answers[n++] = &ex->res;
	}
	log_request(first->req.request_id);
	first->route->handle_all(reqs, answers, n, first->server->conf.ctx);
	log_request(NULL);
}

static enum MHD_Result refuse_busy(struct http_exchange *ex, enum worker_answer why)
{
	http_error(&ex->req, &ex->res, 503, "busy", "%s",
	           why == WORKER_PARTY_FULL ? "too many requests of this tenant are waiting"
	                                    : "too many requests are waiting");
	http_set_header(&ex->res, "Retry-After", "1");
	return answer(ex);
}

static enum MHD_Result hand_to_worker(struct http_exchange *ex)
{
	struct http_server *s = ex->server;
	enum worker_answer submitted;

	/* Only the loop thread resumes, so it cannot be back before it is suspended. */
	ex->stage = STAGE_RUNNING;
	if (atomic_load(&s->stopping)) {
		exchange_refuse_stopping(ex);
		return answer(ex);
	}
	submitted = worker_submit(ex->route->flags & HTTP_URGENT ? s->urgent : s->workers,
	                          party_of(ex), ex);
	if (submitted != WORKER_TAKEN)
		return refuse_busy(ex, submitted);
	s->running++;
	connection_set_deadline(ex->connection, 0);
	connection_suspend(ex->mhd, &s->conf);
	return MHD_YES;
}

static enum MHD_Result take_end(struct http_exchange *ex)
{
	if (ex->refused)
		return answer(ex);
	if (!request_media_type_ok(ex)) {
		http_error(&ex->req, &ex->res, 415, "unsupported_media_type",
		           "the body must be application/json");
		return answer(ex);
	}
	if (ex->body.len > 0) {
		ex->req.body = ex->body.data;
		ex->req.body_len = ex->body.len;
	}
	if (!(ex->route->flags & HTTP_INLINE))
		return hand_to_worker(ex);
	exchange_run(ex);
	return answer(ex);
}

enum MHD_Result exchange_step(struct http_exchange *ex, const char *method, const char *url,
                              const char *version, const char *data, size_t *len)
{
	switch (ex->stage) {
	case STAGE_HEAD:
		return take_head(ex, method, url, version);
	case STAGE_BODY:
		return *len > 0 ? take_body(ex, data, len) : take_end(ex);
	case STAGE_READY:
		return answer(ex);
	case STAGE_RUNNING:
	case STAGE_SENDING:
	default:
		return MHD_YES;
	}
}
