/*
 * Connections: what libmicrohttpd reports about them, and the deadlines it lacks.
 *
 * Its own timeout is an idle timer that any byte restarts, so a head or body that
 * drips in would hold a connection for ever.  Here every connection has one deadline,
 * and the sweep shuts down the socket of those that are past it.
 *
 * Whoever connects needs no token for it.  So before the last places are taken, the oldest
 * connections go on which nobody known has asked anything, and there is room for new ones as
 * fast as they come.  Those whose last request had a right token are kept, up to a share of each
 * tenant and one of all, so that no tenant alone takes every place.
 */
#include "daemon/http/server.h"

#include "common/clock.h"
#include "common/log.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

#define LOOK_MS 20 /* a request behind an answer is mostly there by then */
#define SPARE   32 /* one of so many places is left to those who come next */

void connection_set_deadline(struct connection *c, uint64_t deadline_ms)
{
	struct http_server *s = c->server;

	c->deadline_ms = deadline_ms;
	if (deadline_ms && (!s->sweep_ms || deadline_ms < s->sweep_ms))
		s->sweep_ms = deadline_ms;
}

/* libmicrohttpd misses an end that came together with the request. */
static bool at_end(int fd)
{
	char c;

	return recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* Did something arrive that did not become a request, from somebody who still listens? */
static bool unheard(const struct connection *c)
{
	struct tcp_info info = { 0 };
	socklen_t len = sizeof(info);

	if (c->asked || getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
		return false;
	return info.tcpi_bytes_received > 0 && !at_end(c->fd);
}

/* A request that did not arrive in time is told so; whoever sent nothing is not. */
static void cut(struct connection *c, unsigned int status)
{
	const struct http_exchange *ex = c->exchange;

	c->deadline_ms = 0;
	if (ex ? ex->stage == STAGE_HEAD || ex->stage == STAGE_BODY : unheard(c))
		page_send(c, status);
	(void)shutdown(c->fd, SHUT_RDWR);
}

/*
 * Whoever asks no more is looked at a while after the answer, and not right then: requests
 * may have been pipelined before the client's end, and one that asks on costs nothing.
 */
static void past_deadline(struct connection *c, uint64_t now_ms)
{
	const struct http_conf *conf = &c->server->conf;

	if (c->look && !at_end(c->fd)) {
		c->look = false;
		c->deadline_ms = now_ms + conf->idle_ms + conf->request_ms;
		return;
	}
	cut(c, MHD_HTTP_REQUEST_TIMEOUT);
}

/* -- room for others ------------------------------------------------------------------- */
void connection_keep(struct connection *c, const struct uuid *party)
{
	if (!budget_take(&c->server->kept, party, 1))
		return;
	c->kept = true;
	c->party = *party;
}

void connection_keep_no_more(struct connection *c)
{
	if (c->kept)
		budget_give(&c->server->kept, &c->party, 1);
	c->kept = false;
}

/*
 * Also while an answer that needs no token is sent, or whoever asked for it could hold the place
 * by not reading it.
 */
static bool may_go(const struct connection *c)
{
	const struct http_exchange *ex = c->exchange;

	if (c->kept || c->going)
		return false;
	return !ex ||
	       (ex->stage != STAGE_RUNNING && ex->stage != STAGE_READY && !ex->res.stream.next);
}

static unsigned int places(const struct http_conf *conf)
{
	return conf->max_connections - conf->max_connections / SPARE;
}

/* Libmicrohttpd closes it when it runs next. */
static void let_go(struct connection *c)
{
	c->going = true;
	c->server->going++;
	cut(c, MHD_HTTP_SERVICE_UNAVAILABLE);
}

void connection_make_room(struct http_server *s)
{
	unsigned int stay = s->open - s->going, went = 0, left_out;

	for (struct connection *c = s->oldest; c && stay > places(&s->conf); c = c->prev) {
		if (!may_go(c))
			continue;
		let_go(c);
		stay--;
		went++;
	}
	if (went && log_paced(&s->crowd, &left_out))
		log_warn("http: %u connections were open: the oldest on which nobody known has "
		         "asked are closed, %u now (%u times more since the last line)",
		         stay + went, went, left_out);
}

/* -- deadlines ------------------------------------------------------------------------- */
void connection_sweep(struct http_server *s, uint64_t now_ms)
{
	uint64_t next = 0;

	if (!s->sweep_ms || s->sweep_ms > now_ms)
		return;
	for (struct connection *c = s->connections; c; c = c->next) {
		if (c->deadline_ms && c->deadline_ms <= now_ms)
			past_deadline(c, now_ms);
		if (c->deadline_ms && (!next || c->deadline_ms < next))
			next = c->deadline_ms;
	}
	s->sweep_ms = next;
}

struct connection *connection_of(struct MHD_Connection *mhd)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return info ? info->socket_context : NULL;
}

static void opened(struct http_server *s, struct MHD_Connection *mhd, void **context)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct connection *c = calloc(1, sizeof(*c));

	*context = c;
	if (!c || !info) {
		log_error("http: no memory for a connection");
		return;
	}
	c->server = s;
	c->fd = info->connect_fd;
	c->next = s->connections;
	if (c->next)
		c->next->prev = c;
	else
		s->oldest = c;
	s->connections = c;
	s->open++;
	connection_set_deadline(c, clock_mono_ms() + s->conf.request_ms);
}

static void closed(struct http_server *s, struct connection *c)
{
	/* A first line without a blank is no reason for a page to libmicrohttpd 0.9.75. */
	if (unheard(c))
		page_send(c, MHD_HTTP_BAD_REQUEST);
	if (c->prev)
		c->prev->next = c->next;
	else
		s->connections = c->next;
	if (c->next)
		c->next->prev = c->prev;
	else
		s->oldest = c->prev;
	connection_keep_no_more(c);
	s->going -= c->going;
	if (c->linger && !atomic_load(&s->stopping))
		linger_add(&s->linger, c->fd, clock_mono_ms());
	s->open--;
	listener_room(s);
	free(c);
}

void connection_notify(void *cls, struct MHD_Connection *mhd, void **context,
                       enum MHD_ConnectionNotificationCode code)
{
	if (code == MHD_CONNECTION_NOTIFY_STARTED)
		opened(cls, mhd, context);
	else if (*context)
		closed(cls, *context);
}

/*
 * A resumed connection is read before its answer is asked for, and one whose client
 * has sent its end would be closed unanswered.  Connections with a timeout of their
 * own are visited before any is read: so this one has a second more than the others,
 * until connection_request() has answered.  libmicrohttpd 1.0.1 takes no timeout of one
 * that is suspended.
 */
void connection_suspend(struct MHD_Connection *mhd, const struct http_conf *conf)
{
	MHD_set_connection_option(mhd, MHD_CONNECTION_OPTION_TIMEOUT, server_idle_s(conf) + 1);
	MHD_suspend_connection(mhd);
}

void *connection_request_line(void *cls, const char *target, struct MHD_Connection *mhd)
{
	struct http_server *s = cls;
	struct connection *c = connection_of(mhd);
	struct http_exchange *ex = c ? exchange_new(s, mhd, target ? target : "") : NULL;
	uint64_t deadline = clock_mono_ms() + s->conf.request_ms;

	if (!ex)
		return NULL;
	ex->connection = c;
	c->exchange = ex;
	c->asked = true;
	if (c->look || deadline < c->deadline_ms)
		connection_set_deadline(c, deadline);
	c->look = false;
	return ex;
}

/* NOLINTNEXTLINE(readability-function-size): the signature is libmicrohttpd's */
enum MHD_Result connection_request(void *cls, struct MHD_Connection *mhd, const char *url,
                                   const char *method, const char *version, const char *data,
                                   size_t *len, void **context)
{
	struct http_server *s = cls;
	struct http_exchange *ex = *context;

	if (ex && ex->stage == STAGE_READY)
		MHD_set_connection_option(mhd, MHD_CONNECTION_OPTION_TIMEOUT,
		                          server_idle_s(&s->conf));
	return ex ? exchange_step(ex, method, url, version, data, len) : MHD_NO;
}

void connection_completed(void *cls, struct MHD_Connection *mhd, void **context,
                          enum MHD_RequestTerminationCode code)
{
	struct http_server *s = cls;
	struct http_exchange *ex = *context;
	struct connection *c;

	(void)mhd;
	*context = NULL;
	if (!ex)
		return;
	c = ex->connection;
	c->exchange = NULL;
	if (ex->stage == STAGE_SENDING)
		s->sending--;
	exchange_free(ex);
	if (code != MHD_REQUEST_TERMINATED_COMPLETED_OK)
		return;
	c->look = true;
	connection_set_deadline(c, clock_mono_ms() + LOOK_MS);
}
