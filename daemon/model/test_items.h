/*
 * test_items.h - transcripts for the tests of this folder.
 */
#ifndef DAEMON_MODEL_TEST_ITEMS_H
#define DAEMON_MODEL_TEST_ITEMS_H

#include "daemon/store/turn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEST_ITEMS_MAX 32

/* Append an item; the call "c2" is one of read_file. */
static inline void add(struct item_list *list, enum item_kind kind, const char *body,
                       const char *call)
{
	char *copy = strdup(body);
	struct item *items;

	if (!list->items)
		list->items = calloc(TEST_ITEMS_MAX, sizeof(*items));
	if (!list->items || !copy || list->count == TEST_ITEMS_MAX)
		abort();
	items = &list->items[list->count++];
	*items = (struct item){ .kind = kind, .body = copy, .body_len = strlen(body) };
	(void)snprintf(items->call_id, sizeof(items->call_id), "%s", call);
	(void)snprintf(items->tool, sizeof(items->tool), "%s",
	               strcmp(call, "c2") == 0 ? "read_file" : "shell");
}

#endif
