/*
 * public.h - the public form of a turn's items: bounded, and without what is encrypted.
 *
 * What a reader gets of one turn has at most PUBLIC_TURN_CHARS characters of text and
 * PUBLIC_TURN_NODES JSON values, and each text at most PUBLIC_CHARS.  Whatever is left
 * out is marked.
 */
#ifndef DAEMON_API_PUBLIC_H
#define DAEMON_API_PUBLIC_H

#include "common/json.h"
#include "daemon/store/turn.h"

#define PUBLIC_CHARS      16383
#define PUBLIC_TURN_CHARS 65536
#define PUBLIC_TURN_NODES 2048

/* What is left for the rest of a turn. */
struct public_budget {
	size_t chars;
	size_t nodes;
	bool exceeded; /* something was cut or left out */
};

#define PUBLIC_BUDGET                                                   \
	(struct public_budget)                                          \
	{                                                               \
		.chars = PUBLIC_TURN_CHARS, .nodes = PUBLIC_TURN_NODES, \
	}

/* The item, or NULL when nothing of it fits any more. */
struct json *public_item(const struct item *item, struct public_budget *budget);

/* As public_item(): that a model reasoned there, without a word of it. */
struct json *public_reasoning(const struct item *item, struct public_budget *budget);

/* The arguments of a call, or the text of another item: max_chars at most and an ellipsis. */
void public_put_arguments(struct json *o, const char *key, const struct item *call,
                          size_t max_chars);

/* "attachments": what came with the turn, but for its bytes. */
void public_put_attachments(struct json *o, const struct turn *t);

/* "usage": what the turn used so far. */
void public_put_usage(struct json *o, const struct turn *t);

/* What a tool call came to; NULL when that is not known.  Owned by the caller. */
struct json *public_details(const struct item *result);

/* The same, or null. */
void public_put_details(struct json *o, const char *key, const struct item *result);

#endif
