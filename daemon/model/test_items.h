/*
 * test_items.h - transcripts for the tests of this folder.
 */
#ifndef DAEMON_MODEL_TEST_ITEMS_H
#define DAEMON_MODEL_TEST_ITEMS_H

#include "daemon/store/turn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Append an item; the call "c2" is one of read_file. */
static inline struct item *add(struct item_list *list, enum item_kind kind, const char *body,
                               const char *call)
{
	struct item *items = realloc(list->items, (list->count + 1) * sizeof(*items));

	if (!items)
		abort();
	list->items = items;
	items += list->count++;
	*items = (struct item){ .kind = kind, .body = strdup(body), .body_len = strlen(body) };
	(void)snprintf(items->call_id, sizeof(items->call_id), "%s", call);
	(void)snprintf(items->tool, sizeof(items->tool), "%s",
	               strcmp(call, "c2") == 0 ? "read_file" : "shell");
	return items;
}

#endif
