#include "daemon/http/linger.h"

#include "common/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define LINGER_BYTES 67108864 /* read and dropped at most, for one socket */

struct lingerer {
	struct lingerer *next;
	int fd; /* -1 once closed; the entry itself goes with its deadline */
	uint64_t deadline_ms;
	size_t left;
};

void linger_init(struct linger_list *l, int epoll_fd)
{
	l->epoll_fd = epoll_fd;
	l->first = NULL;
	l->last = &l->first;
	l->count = 0;
}

void linger_add(struct linger_list *l, int fd, uint64_t now_ms)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP };
	auto_close int own = -1;
	auto_free struct lingerer *entry = NULL;

	if (l->count >= LINGER_MAX)
		return;
	own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	entry = calloc(1, sizeof(*entry));
	if (own < 0 || !entry)
		return;
	ev.data.ptr = entry;
	if (shutdown(own, SHUT_WR) < 0 || epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, own, &ev) < 0)
		return;
	entry->fd = fd_take(&own);
	entry->deadline_ms = now_ms + LINGER_MS;
	entry->left = LINGER_BYTES;
	l->count++;
	*l->last = entry;
	l->last = &entry->next;
	(void)mem_take(&entry);
}

void linger_event(struct lingerer *entry)
{
	char waste[16384];
	ssize_t n;

	if (entry->fd < 0)
		return;
	n = recv(entry->fd, waste, sizeof(waste), MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0 || (size_t)n >= entry->left)
		fd_close(&entry->fd);
	else
		entry->left -= (size_t)n;
}

static void drop_first(struct linger_list *l)
{
	struct lingerer *entry = l->first;

	l->first = entry->next;
	if (!l->first)
		l->last = &l->first;
	l->count--;
	fd_close(&entry->fd);
	free(entry);
}

uint64_t linger_expire(struct linger_list *l, uint64_t now_ms)
{
	while (l->first && (l->first->fd < 0 || l->first->deadline_ms <= now_ms))
		drop_first(l);
	return l->first ? l->first->deadline_ms : 0;
}

void linger_release(struct linger_list *l)
{
	while (l->first)
		drop_first(l);
}
