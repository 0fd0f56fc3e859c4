/*
 * Pages that libmicrohttpd would make by itself.
 *
 * What it cannot parse it refuses without asking us, with a page of its own that has
 * neither our envelope nor our headers.  It queues that page by its public function, and
 * calls that as any program would, so that a function of that name in this program comes
 * first: the one below.  Our own answers go past it, by queue_response().
 *
 * The page is not replaced but sent, and the connection ended: 0.9.75 sends some of its
 * pages twice, and a head that was not understood says nothing about where the next begins.
 */
#include "daemon/http/server.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/log.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define ROUNDS 4 /* newer ones take a connection in one and read it in the next */

typedef enum MHD_Result queue_fn(struct MHD_Connection *, unsigned int, struct MHD_Response *);

static _Thread_local bool noticed; /* a page of a connection that is not of our server */

enum MHD_Result queue_response(struct MHD_Connection *mhd, unsigned int status,
                               struct MHD_Response *r)
{
	static _Atomic(queue_fn *) known;
	queue_fn *real = atomic_load(&known);

	if (!real) {
		real = (queue_fn *)dlsym(RTLD_NEXT, "MHD_queue_response");
		atomic_store(&known, real);
	}
	return real ? real(mhd, status, r) : MHD_NO;
}

static void fill_page(struct http_exchange *ex, unsigned int status)
{
	static const struct {
		unsigned int status;
		const char *code, *text;
	} pages[] = {
		{ MHD_HTTP_REQUEST_TIMEOUT, "request_timeout",
		  "the request took too long to arrive" },
		{ MHD_HTTP_CONTENT_TOO_LARGE, "request_too_large",
		  "the length of the body is too large a number" },
		{ MHD_HTTP_URI_TOO_LONG, "uri_too_long", "the request line is too long" },
		{ MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE, "header_too_large",
		  "the head of the request is too large" },
		{ MHD_HTTP_INTERNAL_SERVER_ERROR, "internal_error", "internal error" },
		{ MHD_HTTP_SERVICE_UNAVAILABLE, "busy",
		  "too many connections are open, and this one had no whole request" },
		{ MHD_HTTP_HTTP_VERSION_NOT_SUPPORTED, "http_version_not_supported",
		  "the version must be HTTP/1.1 or HTTP/1.0" },
	};

	ex->res.header_count = 0;
	if (status == MHD_HTTP_SERVICE_UNAVAILABLE)
		http_set_header(&ex->res, "Retry-After", "1");
	for (size_t i = 0; i < ARRAY_LEN(pages); i++) {
		if (pages[i].status == status) {
			http_error(&ex->req, &ex->res, (int)status, pages[i].code, "%s",
			           pages[i].text);
			return;
		}
	}
	http_error(&ex->req, &ex->res, MHD_HTTP_BAD_REQUEST, "bad_request", "%s",
	           ex->stage == STAGE_HEAD ? "the head of the request is malformed"
	                                   : "the body of the request is malformed");
}

/* A request whose first line was not understood has no exchange yet. */
void page_send(struct connection *c, unsigned int status)
{
	struct http_exchange *own = c->exchange ? NULL : exchange_new(c->server, NULL, "");
	struct http_exchange *ex = own ? own : c->exchange;

	if (!ex)
		return;
	request_name(ex);
	fill_page(ex, status);
	response_send_raw(ex, c->fd);
	exchange_count(ex);
	c->asked = true;
	/* libmicrohttpd 1.0.1 may close it only when something happens on it: see to that. */
	linger_add(&c->server->linger, c->fd, clock_mono_ms());
	connection_set_deadline(c, clock_mono_ms() + LINGER_MS);
	if (own)
		exchange_free(own);
}

/* What has come is read, or the end of the connection would take the answer away with it. */
void page_send_away(struct http_server *s, int fd)
{
	struct http_exchange *ex = exchange_new(s, NULL, "");
	char waste[16384];

	if (!ex)
		return;
	request_name(ex);
	exchange_refuse_short(ex);
	(void)!recv(fd, waste, sizeof(waste), MSG_DONTWAIT);
	response_send_raw(ex, fd);
	(void)shutdown(fd, SHUT_WR);
	exchange_count(ex);
	exchange_free(ex);
}

/* Called by libmicrohttpd only. MHD_NO makes it close the connection. */
enum MHD_Result MHD_queue_response(struct MHD_Connection *mhd, unsigned int status,
                                   struct MHD_Response *r)
{
	struct connection *c = connection_of(mhd);

	(void)r;
	if (c)
		page_send(c, status);
	else
		noticed = true;
	return MHD_NO;
}

/* -- the check at start --------------------------------------------------------------- */
/* NOLINTBEGIN(readability-function-size,readability-non-const-parameter): it is libmicrohttpd's */
static enum MHD_Result never_called(void *cls, struct MHD_Connection *mhd, const char *url,
                                    const char *method, const char *version, const char *data,
                                    size_t *len, void **context)
{
	(void)cls;
	(void)mhd;
	(void)url;
	(void)method;
	(void)version;
	(void)data;
	(void)len;
	(void)context;
	return MHD_NO;
}
/* NOLINTEND(readability-function-size,readability-non-const-parameter) */

/* Gives one request to a server that nobody can reach.  True when it was run. */
static bool try_request(const char *request)
{
	const struct sockaddr_un nobody = { .sun_family = AF_UNIX };
	struct MHD_Daemon *d;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0)
		return false;
	auto_close int ours = pair[0];
	auto_close int theirs = pair[1];

	if (send(ours, request, strlen(request), MSG_NOSIGNAL) != (ssize_t)strlen(request))
		return false;
	d = MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET, 0, NULL, NULL, never_called,
	                     NULL, MHD_OPTION_END);
	if (!d)
		return false;
	/* Closed by libmicrohttpd, whatever comes of it. */
	bool run = MHD_add_connection(d, fd_take(&theirs), (const struct sockaddr *)&nobody,
	                              sizeof(nobody)) == MHD_YES;

	for (int i = 0; run && !noticed && i < ROUNDS; i++)
		run = MHD_run(d) == MHD_YES;
	MHD_stop_daemon(d);
	return run;
}

/*
 * A library that was linked so that it calls its own functions directly keeps its own pages.
 * That is no reason not to start: they are fixed texts on connections that are closed, which
 * tell nobody anything; only programs that expect the envelope everywhere are surprised.
 */
bool http_check_pages(void)
{
	noticed = false;
	if (try_request("GET / HTTP/9.9\r\n\r\n") && noticed)
		return true;
	log_warn("http: this libmicrohttpd (%s) keeps the pages that it makes by itself: requests "
	         "that it cannot parse are refused without error envelope and X-Request-ID",
	         MHD_get_version());
	return false;
}
