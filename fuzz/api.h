/*
 * api.h - the target "api" in its parts: the server that has read a head and looks at the answer
 * (api.c), what everything that is handed to the store and the turns must be (api_checks.c), and
 * what stands in for them (api_sessions.c, api_turns.c, api_events.c).
 */
#ifndef FUZZ_API_H
#define FUZZ_API_H

#include "common/err.h"
#include "common/id.h"
#include "daemon/http/target.h"
#include "daemon/store/session.h"
#include "daemon/store/setup.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The second byte: a number of what the store says, and these. */
enum {
	HAS_MODELS = 8, /* the registry lists the caller's models, and the built-in is none */
	IS_ASKED = 16,  /* the operator wants a person to be asked */
	HAS_HARNESS = 32,
	IS_OVER = 64, /* the turn that is asked for */
};

extern struct given {
	struct target_query query;
	const char *last_event;
	uint8_t choice;
	unsigned int calls; /* of what stands in for the store */
	bool keyed;
	unsigned char digest[32];
} given;

/* A subscription to events that is open. */
extern unsigned int subscribed;

/* Of all that the store has. */
extern const struct uuid row_id;

/* What the second byte has the store say; -1 with e, or 0. */
int store_says(struct err *e);

/* -- what is handed on ------------------------------------------------------------------------ */

void check_id(const struct uuid *id);
void check_text(const char *text, size_t max); /* which may be NULL */

/* A place below /workspace, by its letters alone. */
void check_cwd(const char *cwd);

/* As the query has it. */
void check_limit(size_t limit);

/* The cursor that a page gives for that row is the one that came. */
void check_after(uint64_t ms, const struct uuid *id);

/* Sent twice, a request is known again. */
void check_key(const struct client_request *key);
void check_harness(const char *text);
void check_repository(const struct setup *s);

#endif
