/*
 * stream.h - event streams, after libmicrohttpd has sent their head.
 *
 * One thread owns the sockets, with its own epoll.  A stream has no buffer: bytes
 * that the socket does not take stay where the source keeps them.
 */
#ifndef DAEMON_HTTP_STREAM_H
#define DAEMON_HTTP_STREAM_H

#include "daemon/http/http.h"

struct stream_pool;

int stream_start(const struct http_conf *conf, struct stream_pool **ret, struct err *e) must_check;

/* Take one of max_streams places; false when all are taken. */
bool stream_reserve(struct stream_pool *p);

/* Give back a place that no stream_adopt() used. */
void stream_unreserve(struct stream_pool *p);

/*
 * Serve source on fd, with a reserved place.  Takes fd, the duty to close the source and
 * the principal that it is for; false (nothing taken) without memory.
 */
bool stream_adopt(struct stream_pool *p, int fd, const struct stream_source *source,
                  const void *principal);

/* How many places are taken. */
unsigned int stream_count(const struct stream_pool *p);

/* Close those whose principal is denied now, soon.  Any thread. */
void stream_recheck(struct stream_pool *p);

/* Close every stream and end the thread.  NULL inside is fine. */
void stream_stop(struct stream_pool **p);

#endif
