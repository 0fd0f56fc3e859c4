/*
 * exchange.h - one request and its answer, inside daemon/http.
 *
 * Born when the request line has arrived, freed when the last byte of the answer
 * is out or the connection is gone.  It belongs to the loop thread, except while
 * it is STAGE_RUNNING: then it belongs to the worker pool.
 */
#ifndef DAEMON_HTTP_EXCHANGE_H
#define DAEMON_HTTP_EXCHANGE_H

#include "common/id.h"
#include "daemon/http/http.h"
#include "daemon/http/target.h"

#include <microhttpd.h>

#define HTTP_RESPONSE_MAX 67108864 /* bytes in one answer */

struct connection;

enum exchange_stage {
	STAGE_HEAD,    /* the head arrives */
	STAGE_BODY,    /* head accepted, the body arrives */
	STAGE_RUNNING, /* suspended: queued for a worker, or with one */
	STAGE_READY,   /* the answer is known but not queued */
	STAGE_SENDING, /* libmicrohttpd has the answer */
};

/* What the request's headers say about its frame and its sender. */
struct http_head {
	unsigned int hosts, lengths, encodings, authorizations, request_ids, origins, forwards;
	const char *fault; /* first thing wrong; static text */
	const char *end;   /* of what was looked at so far, where libmicrohttpd keeps the head */
	size_t end_nuls;   /* NULs that libmicrohttpd puts there in place of other bytes */
	const char *host;  /* values are borrowed from libmicrohttpd */
	const char *length_text;
	const char *encoding;
	const char *authorization;
	const char *request_id;
	const char *origin;
	const char *forwarded; /* the last one */
	uint64_t length;       /* declared bytes of body */
	bool has_body;         /* declared, or chunked */
};

struct http_exchange {
	struct http_server *server;
	struct MHD_Connection *mhd;
	struct connection *connection;
	uint64_t begun_us;          /* monotonic: the request line was there */
	struct http_exchange *next; /* in the queue of the workers or in the list of the done */
	enum exchange_stage stage;
	const struct http_route *route;
	struct http_head head;
	struct http_request req;
	struct http_response res;
	struct buf body;
	size_t body_taken;      /* of the server's budget, ... */
	struct uuid body_party; /* ... for whom */
	const char *cors;       /* the origin that may read the answer, as it was listed; or NULL */
	bool refused;           /* res holds an answer from before the handler */
	bool stream_out;        /* the stream thread owns res.stream now */
	bool stream_slot;
	int stream_fd; /* its duplicate of the socket; -1 = none */
	struct target_query query;
	size_t target_len;
	char *split; /* target_len + 1 bytes behind target: path parameters are cut here */
	char target[];
};

/* -- request.c ------------------------------------------------------------------- */
/*
 * Check everything that could make two readers of one head disagree, and decode
 * the target in place.  False with the answer in ex->res.  The request id is set
 * either way.
 */
bool request_check(struct http_exchange *ex, const char *method, const char *url,
                   const char *version);

/* Give the request an id unless it has one. */
void request_name(struct http_exchange *ex);

/* The bearer token of the request; false when there is none. */
bool request_token(const struct http_exchange *ex, const char **ret, size_t *ret_len);

/* True unless a body came that is not declared as application/json. */
bool request_media_type_ok(const struct http_exchange *ex);

/* -- gate.c ---------------------------------------------------------------------- */
/* Find the listed origin of a request whose headers are read; sets ex->cors. */
void gate_origin(struct http_exchange *ex);

/* May a page of that origin, and under that Host, ask at all?  False with the answer in ex->res. */
bool gate_check(struct http_exchange *ex);

/* The question before the request: answered in ex->res, without a token. */
bool gate_preflight(struct http_exchange *ex);

/* Answer a request whose token is nobody's, or that has none; counts those that had one. */
void gate_refuse(struct http_exchange *ex, bool tried);

/* Calls fn for the headers that every answer has; false as soon as fn says so. */
bool gate_headers(const struct http_exchange *ex,
                  bool (*fn)(void *ctx, const char *name, const char *value), void *ctx);

/* -- router.c -------------------------------------------------------------------- */
struct router_match {
	const struct http_route *route; /* NULL when no route has path and method */
	bool path_known;
	bool open; /* path and method, or the path with any method, need no token */
	char allow[128];
};

/* Find the route of ex->req and cut its path parameters. */
void router_find(const struct http_route *routes, struct http_exchange *ex,
                 struct router_match *ret);

/* -- pages.c --------------------------------------------------------------------- */
/* Our answers go to libmicrohttpd through here; what it calls itself is something else. */
enum MHD_Result queue_response(struct MHD_Connection *mhd, unsigned int status,
                               struct MHD_Response *r);

/* -- response.c ------------------------------------------------------------------ */
/* The answer as libmicrohttpd takes it; NULL without memory.  Empties ex->res.body. */
struct MHD_Response *response_build(struct http_exchange *ex);

/* Put the headers of an event stream on r. */
bool response_stream_headers(const struct http_exchange *ex, struct MHD_Response *r);

/* Send the answer past libmicrohttpd, on a connection that is closed right after. */
void response_send_raw(struct http_exchange *ex, int fd);

/* -- exchange.c ------------------------------------------------------------------ */
struct http_exchange *exchange_new(struct http_server *s, struct MHD_Connection *mhd,
                                   const char *target);
void exchange_free(struct http_exchange *ex);

/* One call of libmicrohttpd's access handler. */
enum MHD_Result exchange_step(struct http_exchange *ex, const char *method, const char *url,
                              const char *version, const char *data, size_t *len);

/* Run the route's handler.  On a worker, or in the loop thread. */
void exchange_run(struct http_exchange *ex);

/* The same for a list of at most HTTP_BATCH_MAX, which have one route and one party. */
void exchange_run_all(struct http_exchange *first);

/* Count it: its answer is there. */
void exchange_count(const struct http_exchange *ex);

/* Answer instead of the handler, because the server stops.  Any thread that owns ex. */
void exchange_refuse_stopping(struct http_exchange *ex);

/* Descriptors or memory are short: 503, come later. */
void exchange_refuse_short(struct http_exchange *ex);

#endif
