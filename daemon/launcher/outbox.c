#include "daemon/launcher/outbox.h"

#include "common/fd.h"

#include <errno.h>
#include <string.h>

struct outbox_item {
	struct outbox_item *next;
	struct launcher_message message;
	int fds[2];
	bool with_fds;
};

void outbox_init(struct outbox *o, size_t limit)
{
	memset(o, 0, sizeof(*o));
	o->limit = limit;
}

static void drop_first(struct outbox *o)
{
	struct outbox_item *item = o->first;

	o->first = item->next;
	if (!o->first)
		o->last = NULL;
	o->count--;
	fd_close(&item->fds[0]);
	fd_close(&item->fds[1]);
	free(item);
}

void outbox_release(struct outbox *o)
{
	while (o->first)
		drop_first(o);
}

int outbox_put(struct outbox *o, const struct launcher_message *m, int fds[2], struct err *e)
{
	auto_close int first = fds ? fd_take(&fds[0]) : -1;
	auto_close int second = fds ? fd_take(&fds[1]) : -1;
	struct outbox_item *item;

	if (o->count >= o->limit)
		return err_set(e, ENOBUFS, "the server left %zu messages unread", o->count);
	item = calloc(1, sizeof(*item));
	if (!item)
		return err_set(e, ENOMEM, "no memory for a message");
	item->message = *m;
	item->with_fds = fds != NULL;
	item->fds[0] = fd_take(&first);
	item->fds[1] = fd_take(&second);
	if (o->last)
		o->last->next = item;
	else
		o->first = item;
	o->last = item;
	o->count++;
	return 0;
}

int outbox_flush(struct outbox *o, int sock, struct err *e)
{
	while (o->first) {
		struct outbox_item *item = o->first;

		if (launcher_send(sock, &item->message, item->with_fds ? item->fds : NULL, e) < 0)
			return e->code == EAGAIN ? 0 : -1;
		drop_first(o);
	}
	return 0;
}
