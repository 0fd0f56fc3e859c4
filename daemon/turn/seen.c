#include "daemon/turn/seen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t bytes_of(const struct seen *s)
{
	size_t n = 0;

	for (size_t i = 0; i < s->count; i++)
		n += s->at[i].image.len;
	return n;
}

static void drop_oldest(struct seen *s)
{
	free(s->at[0].image.data);
	s->count--;
	memmove(&s->at[0], &s->at[1], s->count * sizeof(s->at[0]));
}

void seen_take(struct seen *s, const char *call_id, struct model_image *image)
{
	struct seen_image *new;

	if (!image->data)
		return;
	while (s->count && (s->count == SEEN_MAX || bytes_of(s) + image->len > SEEN_BYTES))
		drop_oldest(s);
	new = &s->at[s->count++];
	(void)snprintf(new->call_id, sizeof(new->call_id), "%s", call_id);
	new->image = *image;
	image->data = NULL;
}

size_t seen_in(const struct seen *s, const struct item_list *list, struct model_image *ret)
{
	size_t n = 0;

	for (size_t i = 0; i < list->count && n < s->count; i++) {
		const struct item *item = &list->items[i];

		for (size_t k = 0; item->kind == ITEM_TOOL_RESULT && k < s->count; k++) {
			if (strcmp(item->call_id, s->at[k].call_id) != 0)
				continue;
			ret[n] = s->at[k].image;
			ret[n++].item = i;
			break;
		}
	}
	return n;
}

void seen_release(struct seen *s)
{
	while (s->count)
		drop_oldest(s);
}
