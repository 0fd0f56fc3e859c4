#include "guest/loop.h"

#include "common/fd.h"
#include "guest/fault.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

static int loop_fd = -1;
static struct epoll_event batch[64];
static int batch_len;

void loop_open(void)
{
	loop_fd = epoll_create1(EPOLL_CLOEXEC);
	if (loop_fd < 0)
		fault_die(GUEST_EXIT_START, "epoll_create1: %s", strerror(errno));
}

void loop_close(void)
{
	fd_close(&loop_fd);
}

void loop_wait(int timeout_ms)
{
	int n = epoll_wait(loop_fd, batch, ARRAY_LEN(batch), timeout_ms);

	if (n < 0 && errno != EINTR)
		fault_die(GUEST_EXIT_START, "epoll_wait: %s", strerror(errno));
	batch_len = n;
	for (int i = 0; i < batch_len; i++) {
		struct source *s = batch[i].data.ptr;

		if (s)
			s->ready(s, batch[i].events);
	}
	batch_len = 0;
}

void source_init(struct source *s, int fd, void (*ready)(struct source *s, uint32_t events))
{
	s->fd = fd;
	s->watched = 0;
	s->ready = ready;
}

void source_watch(struct source *s, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = s };
	int op = EPOLL_CTL_MOD;

	if (s->fd < 0 || s->watched == events)
		return;
	if (!s->watched)
		op = EPOLL_CTL_ADD;
	else if (!events)
		op = EPOLL_CTL_DEL;
	if (epoll_ctl(loop_fd, op, s->fd, &ev) < 0)
		fault_die(GUEST_EXIT_START, "epoll_ctl: %s", strerror(errno));
	s->watched = events;
	for (int i = 0; !events && i < batch_len; i++)
		if (batch[i].data.ptr == s)
			batch[i].data.ptr = NULL;
}

int source_take(struct source *s)
{
	source_watch(s, 0);
	return fd_take(&s->fd);
}

void source_close(struct source *s)
{
	source_watch(s, 0);
	fd_close(&s->fd);
}
