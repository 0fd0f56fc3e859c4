#include "daemon/turn/transcript.h"

#include <stdlib.h>
#include <string.h>

void transcript_forget(struct transcript *t)
{
	item_list_release(&t->list);
	*t = (struct transcript){ .known = false };
}

int transcript_read(struct transcript *t, struct store *s, const struct uuid *tenant,
                    const struct uuid *turn, struct err *e)
{
	if (t->known)
		return 0;
	transcript_forget(t);
	if (turn_items(s, tenant, turn, &t->list, e))
		return -1;
	t->room = t->list.count;
	for (size_t i = 1; i < t->list.count; i++)
		t->bytes += t->list.items[i].body_len + t->list.items[i].opaque_len;
	t->known = true;
	return 0;
}

static bool make_room(struct transcript *t, size_t n)
{
	size_t room = t->list.count + n;
	struct item *items;

	if (room <= t->room)
		return true;
	room += room / 2;
	items = realloc(t->list.items, room * sizeof(*items));
	if (!items)
		return false;
	t->list.items = items;
	t->room = room;
	return true;
}

void transcript_add(struct transcript *t, struct item *items, size_t n)
{
	if (!t->known || items->seq != t->list.count || !make_room(t, n)) {
		transcript_forget(t);
		return;
	}
	memcpy(t->list.items + t->list.count, items, n * sizeof(*items));
	t->list.count += n;
	for (size_t i = 0; i < n; i++) {
		t->bytes += items[i].body_len + items[i].opaque_len;
		items[i].body = items[i].details = items[i].opaque = NULL;
	}
}

void transcript_mark(struct transcript *t, uint32_t seq, enum call_state state)
{
	if (t->known && seq < t->list.count)
		t->list.items[seq].call_state = state;
}
