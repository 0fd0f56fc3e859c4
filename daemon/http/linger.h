/*
 * linger.h - sockets that were answered before their request was read to its end.
 *
 * Closing such a socket makes the kernel send a reset, which can destroy the answer
 * before the client reads it.  So our side is shut, and what still comes is read and
 * dropped until the client closes too, for a short while.
 */
#ifndef DAEMON_HTTP_LINGER_H
#define DAEMON_HTTP_LINGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINGER_MAX 64 /* sockets at once; more are closed without waiting */
#define LINGER_MS  2000

struct lingerer;

struct linger_list {
	int epoll_fd; /* where the sockets are watched; data.ptr is the struct lingerer */
	struct lingerer *first, **last;
	size_t count;
};

void linger_init(struct linger_list *l, int epoll_fd);

/* Keep a duplicate of fd; does nothing when that is not possible. */
void linger_add(struct linger_list *l, int fd, uint64_t now_ms);

/* An epoll event came for this entry. */
void linger_event(struct lingerer *entry);

/* Close what has waited long enough.  Returns the next deadline, or 0. */
uint64_t linger_expire(struct linger_list *l, uint64_t now_ms);

void linger_release(struct linger_list *l);

#endif
