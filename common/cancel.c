#include "common/cancel.h"

#include "common/fd.h"

#include <sys/eventfd.h>

int cancel_init(struct cancel *c, struct err *e)
{
	*c = (struct cancel)CANCEL_INIT;
	return cancel_open(c, e);
}

int cancel_open(struct cancel *c, struct err *e)
{
	if (c->fd >= 0)
		return 0;
	c->fd = eventfd(cancel_fired(c), EFD_CLOEXEC | EFD_NONBLOCK);
	return c->fd < 0 ? err_shortage(e, "eventfd") : 0;
}

void cancel_release(struct cancel *c)
{
	fd_close(&c->fd);
}

void cancel_fire(struct cancel *c)
{
	atomic_store(&c->fired, true);
	/* Fails only when the counter is full, and then it is readable already. */
	if (c->fd >= 0)
		(void)eventfd_write(c->fd, 1);
}

bool cancel_fired(const struct cancel *c)
{
	return atomic_load(&c->fired);
}
