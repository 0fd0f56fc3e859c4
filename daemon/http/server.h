/*
 * server.h - the state of the server and of its connections, inside daemon/http.
 *
 * One loop thread runs libmicrohttpd in external mode: an epoll over its descriptor
 * and an eventfd.  Workers put finished exchanges on the list `done` and write the
 * eventfd; only the loop thread touches libmicrohttpd.
 */
#ifndef DAEMON_HTTP_SERVER_H
#define DAEMON_HTTP_SERVER_H

#include "common/log.h"
#include "daemon/http/budget.h"
#include "daemon/http/exchange.h"
#include "daemon/http/linger.h"
#include "daemon/http/stream.h"
#include "daemon/http/throttle.h"
#include "daemon/http/worker.h"

#include <pthread.h>
#include <stdatomic.h>

struct connection {
	struct connection *prev, *next;
	struct http_server *server;
	int fd;                         /* borrowed from libmicrohttpd */
	uint64_t deadline_ms;           /* cut then; 0 = never */
	struct http_exchange *exchange; /* under way, or NULL */
	bool asked;                     /* a request was seen, if only to be refused */
	bool linger;                    /* read on for a while after the last answer */
	bool look;                      /* at the deadline: has the client sent all it will send? */
	bool kept;         /* whoever asked last on it is known: it stays when others go */
	bool going;        /* told to end, so that others have room */
	struct uuid party; /* in whose share it is kept */
};

struct http_server {
	struct http_conf conf;
	int listen_fd;
	int reserve_fd; /* held for a moment in which there is no other */
	int epoll_fd;
	int event_fd;
	uint16_t port;
	struct MHD_Daemon *mhd;
	struct worker_pool *workers;
	struct worker_pool *urgent; /* for routes with HTTP_URGENT */
	struct stream_pool *streams;
	bool thread_runs;
	pthread_t thread;
	atomic_bool draining;
	atomic_bool stopping;     /* accept nothing more, answer 503 */
	atomic_bool workers_gone; /* the loop may end when it has sent everything */

	pthread_mutex_t done_lock;
	struct http_exchange *done, **done_tail;

	/* of the loop thread */
	struct budget bodies;
	struct budget kept; /* connections */
	struct throttle throttle;
	struct linger_list linger;
	struct connection *connections; /* the newest first */
	struct connection *oldest;
	uint64_t sweep_ms;                     /* no deadline is earlier */
	unsigned int running;                  /* suspended exchanges */
	unsigned int sending;                  /* answers not fully sent */
	unsigned int open;                     /* connections */
	unsigned int going;                    /* of these, those that were told to end */
	struct log_pace crowd;                 /* at the rate of whoever connects */
	bool full;                             /* none is taken until one of them ends */
	uint64_t listen_ms;                    /* none is taken until then; 0 = they are */
	unsigned char noise[256][UUID_RANDOM]; /* for ids of requests */
	size_t noise_left;
};

/* The idle timeout in the unit of libmicrohttpd. */
unsigned int server_idle_s(const struct http_conf *c);

/* Hand a list of finished exchanges back to the loop thread.  Any thread. */
void server_done(struct http_server *s, struct http_exchange *first);

/* -- listener.c: the loop thread, once it runs ---------------------------------------- */
int listener_open(struct http_server *s, struct err *e) must_check;

/* Once there are epoll_fd and event_fd; events of listen_fd have its address. */
int listener_start(struct http_server *s, struct err *e) must_check;

/* Refuse new connections. */
void listener_close(struct http_server *s);

/* Take connections that wait; or tell them to come later, while descriptors are short. */
void listener_take(struct http_server *s);

/* A connection has ended. */
void listener_room(struct http_server *s);

/* Take connections again when the pause is over. */
void listener_retry(struct http_server *s, uint64_t now_ms);

/* -- connection.c: the loop thread only ---------------------------------------------- */
/* Cut the connection at that moment; 0 = never. */
void connection_set_deadline(struct connection *c, uint64_t deadline_ms);

/* Loop thread: nothing is read from it until it is resumed. */
void connection_suspend(struct MHD_Connection *mhd, const struct http_conf *conf);

/* Cut what is past its deadline. */
void connection_sweep(struct http_server *s, uint64_t now_ms);

/* A request of this party, whose token is right, is on it.  Not while it is kept already. */
void connection_keep(struct connection *c, const struct uuid *party);

/* For the next request, which may be anybody's. */
void connection_keep_no_more(struct connection *c);

/* Cut the oldest of those that are not kept, as far as more are open than there is room for. */
void connection_make_room(struct http_server *s);

/* NULL for one that is not of our server, and when there was no memory for it. */
struct connection *connection_of(struct MHD_Connection *mhd);

/* Callbacks of libmicrohttpd; cls is the server. */
void connection_notify(void *cls, struct MHD_Connection *mhd, void **context,
                       enum MHD_ConnectionNotificationCode code);
void *connection_request_line(void *cls, const char *target, struct MHD_Connection *mhd);
enum MHD_Result connection_request(void *cls, struct MHD_Connection *mhd, const char *url,
                                   const char *method, const char *version, const char *data,
                                   size_t *len, void **context);
void connection_completed(void *cls, struct MHD_Connection *mhd, void **context,
                          enum MHD_RequestTerminationCode code);

/* -- pages.c: the loop thread only ----------------------------------------------------- */
/* Refuse the request that arrives on c; the connection must be closed next. */
void page_send(struct connection *c, unsigned int status);

/* Answer whatever was or will be asked over fd, which stays the caller's, with "later". */
void page_send_away(struct http_server *s, int fd);

#endif
