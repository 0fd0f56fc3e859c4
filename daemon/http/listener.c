/*
 * The listening socket.  It is ours and not libmicrohttpd's, which knows two ways when there
 * is no descriptor for a connection: to ask for it again and again without a pause, or to
 * take none before one of its own has ended.  Here a descriptor that is held for that is given
 * up for a moment, and the client hears that it has to come later.
 */
#include "daemon/http/server.h"

#include "common/clock.h"
#include "common/fd.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define BACKLOG  4096
#define AT_ONCE  64  /* connections, until those that are there get their turn */
#define PAUSE_MS 100 /* when even the reserve is gone */

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static int parse_address(const struct http_conf *c, union address *ret, socklen_t *ret_len,
                         struct err *e)
{
	*ret = (union address){ 0 };
	if (inet_pton(AF_INET, c->host, &ret->v4.sin_addr) == 1) {
		ret->v4.sin_family = AF_INET;
		ret->v4.sin_port = htons(c->port);
		*ret_len = sizeof(ret->v4);
		return 0;
	}
	if (inet_pton(AF_INET6, c->host, &ret->v6.sin6_addr) == 1) {
		ret->v6.sin6_family = AF_INET6;
		ret->v6.sin6_port = htons(c->port);
		*ret_len = sizeof(ret->v6);
		return 0;
	}
	return err_set(e, EINVAL, "listen on %s: not an IPv4 or IPv6 address", c->host);
}

int listener_open(struct http_server *s, struct err *e)
{
	union address at = { 0 };
	socklen_t len = 0;
	int on = 1;

	if (parse_address(&s->conf, &at, &len, e) < 0)
		return -1;
	s->listen_fd = socket(at.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (s->listen_fd < 0 ||
	    setsockopt(s->listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
	    bind(s->listen_fd, &at.any, len) < 0 || listen(s->listen_fd, BACKLOG) < 0 ||
	    getsockname(s->listen_fd, &at.any, &len) < 0)
		return err_errno(e, "listen on %s port %u (--port chooses another)", s->conf.host,
		                 s->conf.port);
	s->port = ntohs(at.any.sa_family == AF_INET ? at.v4.sin_port : at.v6.sin6_port);
	return 0;
}

void listener_close(struct http_server *s)
{
	fd_close(&s->listen_fd);
	fd_close(&s->reserve_fd);
	s->listen_ms = 0;
}

static void listener_watch(struct http_server *s, bool on)
{
	struct epoll_event ev = { .events = on ? EPOLLIN : 0, .data.ptr = &s->listen_fd };

	if (s->listen_fd >= 0)
		(void)epoll_ctl(s->epoll_fd, EPOLL_CTL_MOD, s->listen_fd, &ev);
}

/* Whatever descriptor: it stands for the place of another one. */
static void hold_reserve(struct http_server *s)
{
	if (s->reserve_fd < 0)
		s->reserve_fd = fcntl(s->event_fd, F_DUPFD_CLOEXEC, 0);
}

int listener_start(struct http_server *s, struct err *e)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = &s->listen_fd };

	hold_reserve(s);
	if (s->reserve_fd < 0 || epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, s->listen_fd, &ev) < 0)
		return err_errno(e, "http: watch the listening socket");
	return 0;
}

/* True when a client was told; else there is none, or nothing can be done but to wait. */
static bool send_away(struct http_server *s)
{
	bool waits;
	int fd;

	fd_close(&s->reserve_fd);
	fd = accept4(s->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	waits = fd < 0 && err_is_shortage(errno);
	if (fd >= 0)
		page_send_away(s, fd);
	fd_close(&fd);
	hold_reserve(s);
	if (waits || s->reserve_fd < 0) {
		listener_watch(s, false);
		s->listen_ms = clock_mono_ms() + PAUSE_MS;
		return false;
	}
	return true;
}

static bool take_one(struct http_server *s)
{
	union address from = { 0 };
	socklen_t len = sizeof(from);
	int fd;

	if (s->open >= s->conf.max_connections) {
		listener_watch(s, false);
		s->full = true;
		return false;
	}
	fd = accept4(s->listen_fd, &from.any, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd < 0)
		return err_is_shortage(errno) && send_away(s);
	/* When it fails, it has closed the descriptor. */
	(void)MHD_add_connection(s->mhd, fd, &from.any, len);
	return true;
}

/* libmicrohttpd 1.0 counts some of them as open only when it runs again. */
void listener_take(struct http_server *s)
{
	unsigned int room = s->conf.max_connections - s->open;

	for (unsigned int i = 0; i < AT_ONCE && take_one(s) && i + 1 < room; i++)
		;
}

void listener_room(struct http_server *s)
{
	if (s->full)
		listener_watch(s, true);
	s->full = false;
}

void listener_retry(struct http_server *s, uint64_t now_ms)
{
	if (!s->listen_ms || now_ms < s->listen_ms)
		return;
	s->listen_ms = 0;
	hold_reserve(s);
	listener_watch(s, true);
}
