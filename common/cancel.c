#include "common/cancel.h"

#include "common/fd.h"

#include <poll.h>
#include <sys/eventfd.h>

int cancel_init(struct cancel *c, struct err *e)
{
	c->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return c->fd < 0 ? err_errno(e, "eventfd") : 0;
}

void cancel_release(struct cancel *c)
{
	fd_close(&c->fd);
}

void cancel_fire(struct cancel *c)
{
	/* Fails only when the counter is full, and then it is readable already. */
	(void)eventfd_write(c->fd, 1);
}

bool cancel_fired(const struct cancel *c)
{
	struct pollfd p = { .fd = c->fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}
