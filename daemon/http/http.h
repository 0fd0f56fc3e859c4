/*
 * http.h - the HTTP server: what a handler sees.
 *
 * libmicrohttpd stays behind this folder.  The server refuses what invites
 * request smuggling before anything else looks at a request, decodes the path
 * once, authenticates, finds the route and then runs the handler: in the loop
 * thread when the route says so and it never blocks, else on a bounded pool of
 * workers, where a handler may block.
 */
#ifndef DAEMON_HTTP_HTTP_H
#define DAEMON_HTTP_HTTP_H

#include "common/buf.h"
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_exchange;
struct stream;

#define HTTP_PARAMS_MAX     4   /* {placeholders} in one pattern */
#define HTTP_REQUEST_ID_MAX 128 /* bytes of X-Request-ID that is echoed: [A-Za-z0-9._-]{1,128} */
#define HTTP_PATH_MAX       2048

struct http_request {
	const char *method; /* exactly as sent; compared exactly */
	const char *path;   /* decoded once; canonical: no empty, "." or ".." segments */
	const char *params[HTTP_PARAMS_MAX]; /* what stood at {..} in the pattern, in order */
	const char *body;                    /* NUL-terminated; never NULL */
	size_t body_len;
	char request_id[HTTP_REQUEST_ID_MAX + 1];
	const void *principal;       /* what the authenticator returned; NULL on open routes */
	struct http_exchange *inner; /* for http_query() and http_header() */
};

/* Value of a query parameter, decoded, or NULL.  Borrowed until the handler returns. */
const char *http_query(const struct http_request *r, const char *name);

/* Calls fn for each query parameter, so that unknown ones can be refused. */
void http_each_query(const struct http_request *r,
                     void (*fn)(void *ctx, const char *name, const char *value), void *ctx);

/* Value of a request header (case-insensitive), or NULL. */
const char *http_header(const struct http_request *r, const char *name);

/*
 * Where the bytes of an event stream come from.  The stream thread calls next()
 * when the subscriber was woken (stream_wake) or has taken everything so far.
 */
struct stream_source {
	/*
	 * The next bytes to send: 1 with *ret_data borrowed until the next call of
	 * next() or close(); 0 when there is nothing now; -1 when the stream is over.
	 */
	int (*next)(void *ctx, const char **ret_data, size_t *ret_len);
	/*
	 * The client is gone or the server stops; called exactly once, also when the
	 * stream never came to be.  A stream_wake() must have returned before close()
	 * returns, and none may follow: take the lock under which the source wakes.
	 */
	void (*close)(void *ctx);
	/* Told once, before the first next(): the handle for stream_wake(). */
	void (*attached)(void *ctx, struct stream *stream);
	void *ctx;
};

/* Ask the stream thread to call next().  Any thread; cheap; never blocks. */
void stream_wake(struct stream *stream);

struct http_response {
	int status;               /* 200 unless set */
	const char *content_type; /* "application/json" unless set; static */
	struct buf body;
	struct {
		const char *name; /* static */
		char value[256];
	} headers[4];
	size_t header_count;
	struct stream_source
		stream; /* used when stream.next is set: status 200, text/event-stream */
};

void http_set_header(struct http_response *res, const char *static_name, const char *fmt, ...)
	printf_like(3, 4);

/* The error envelope: {"error":{"code","message","requestId"}}. */
void http_error(const struct http_request *req, struct http_response *res, int status,
                const char *code, const char *fmt, ...) printf_like(5, 6);

enum http_route_flag {
	HTTP_OPEN = 1,    /* no token needed */
	HTTP_INLINE = 2,  /* never blocks: answered by the loop thread */
	HTTP_DRAINS = 4,  /* refused with 503 server_stopping and Retry-After while draining */
	HTTP_URGENT = 16, /* has threads of its own, so that handlers that block do not delay it */
	HTTP_OPERATOR =
		32,      /* for who has the operator's token; without one there is no such route */
	HTTP_STREAM = 8, /* answers with a stream; HEAD is refused.  Needed to set res->stream */
};

#define HTTP_BATCH_MAX 16 /* requests that are answered together */

struct http_route {
	const char *method;
	const char *pattern; /* "/v1/turns/{id}/cancel" */
	void (*handle)(const struct http_request *req, struct http_response *res, void *ctx);
	unsigned int flags; /* of enum http_route_flag */
	/*
	 * Short reads: answers several at once, all of one party, where that costs little more
	 * than one of them.  NULL = each by itself.
	 */
	void (*handle_all)(const struct http_request *const *reqs, struct http_response *const *res,
	                   size_t n, void *ctx);
};

struct http_conf {
	const char *host; /* literal address */
	uint16_t port;    /* 0 = any */
	size_t max_body;  /* bytes; counted as they arrive, also when chunked */
	unsigned int workers;
	/*
	 * From 32 on some places are left to those who come next: the oldest connections on which
	 * nobody known has asked end for that.
	 */
	unsigned int max_connections;
	unsigned int max_streams;
	/*
	 * Requests that wait for a worker; 0 = 64 for each worker.  With party() one party has at
	 * most three quarters of these and of the workers.
	 */
	unsigned int max_queued;
	unsigned int request_ms;   /* a whole request must arrive within this; 0 = 30 s */
	unsigned int idle_ms;      /* a connection may be silent this long; 0 = 30 s */
	unsigned int heartbeat_ms; /* a comment after that much silence on a stream; 0 = 15 s */
	unsigned int stall_ms; /* a stream whose client takes nothing is cut after this; 0 = 30 s */
	const struct http_route *routes; /* ended by method NULL; the first that matches wins */
	const char *const *origins;      /* what Origin may be, compared exactly; borrowed */
	size_t origin_count;
	unsigned int max_attempts;  /* wrong tokens of an address in a minute; 0 = no bound */
	const char *const *proxies; /* addresses that say truly whom they ask for; borrowed */
	size_t proxy_count;
	bool local_hosts; /* Host must name this machine's loopback and the port */
	/*
	 * The principal of a bearer token, or NULL.  token is NULL when the request has none.
	 * Called in the loop thread; must not block.
	 */
	const void *(*authenticate)(void *ctx, const char *token, size_t len);
	/* Nobody uses this principal any more; NULL = nothing to do.  Any thread. */
	void (*release)(void *ctx, const void *principal);
	/* Would it be authenticated now?  NULL = always.  In the stream thread; must not block. */
	bool (*still)(void *ctx, const void *principal);
	/* Whose request this is; those without a principal are one party.  NULL = all are one. */
	const struct uuid *(*party)(void *ctx, const void *principal);
	/* Is that the operator's token?  NULL = there is none.  In the loop thread. */
	bool (*is_operator)(void *ctx, const char *token, size_t len);
	void *ctx; /* for handlers and the five above */
};

struct http_server;

/*
 * Does libmicrohttpd let us make the pages with which it refuses what it cannot parse?  When
 * not, the log says so and what follows.  Before confinement: it makes a pair of sockets.
 */
bool http_check_pages(void);

/* Bind, start the threads, accept.  Errors name the address. */
int http_start(const struct http_conf *conf, struct http_server **ret, struct err *e) must_check;

uint16_t http_port(const struct http_server *s);

/* Event streams that are open. */
unsigned int http_streams(const struct http_server *s);

bool http_draining(const struct http_server *s);

/* From now on routes with HTTP_DRAINS answer 503.  Streams and other routes go on. */
void http_drain(struct http_server *s);

/* Close every stream whose principal conf.still() denies, soon.  Any thread. */
void http_recheck(struct http_server *s);

/* Stop accepting, let running handlers finish, close streams, free; *at becomes NULL.  Blocks. */
void http_stop(struct http_server **at);

#endif
