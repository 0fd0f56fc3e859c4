/*
 * outcome.h - what a run of a harness came to, folded from its lines.
 */
#ifndef DAEMON_HARNESS_OUTCOME_H
#define DAEMON_HARNESS_OUTCOME_H

#include "common/buf.h"
#include "common/json.h"

#include <stdbool.h>
#include <stdint.h>

#define OUTCOME_CODE_MAX   32   /* bytes */
#define OUTCOME_TEXT_MAX   1000 /* bytes of one error; what is longer is cut */
#define OUTCOME_ERRORS_MAX 4096 /* bytes of all errors' texts; later ones are counted only */

/* A session counts those of all its turns: a harness that lies must not make it overflow. */
#define OUTCOME_TOKENS_MAX INT64_C(1000000000000)

struct outcome_usage {
	uint64_t input, output; /* tokens */
};

struct outcome {
	struct buf errors;               /* their texts, a line each, no two alike */
	size_t count;                    /* of errors, also of those without a text */
	char code[OUTCOME_CODE_MAX + 1]; /* of the first that says one but "unknown"; "" = none */
	bool cancelled;                  /* the harness says so */
};

#define auto_outcome __attribute__((cleanup(outcome_release)))

void outcome_init(struct outcome *o);
void outcome_release(struct outcome *o);

/* An error as the protocol has it: a text, or {"code","message"}. */
void outcome_add(struct outcome *o, const struct json *error);

/* Of a "result" line: its errors, and whether it was cancelled. */
void outcome_take(struct outcome *o, const struct json *result);

/* "input" and "output" of usage, at most OUTCOME_TOKENS_MAX; what is no number of tokens is 0. */
struct outcome_usage outcome_usage(const struct json *usage);

#endif
