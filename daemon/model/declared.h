/*
 * declared.h - a file of the operator's that lists something: strict JSON of the form
 * {"version": 1, LIST: [...]}, in which every fault is told.
 */
#ifndef DAEMON_MODEL_DECLARED_H
#define DAEMON_MODEL_DECLARED_H

#include "common/err.h"
#include "common/json.h"

#include <stddef.h>

#define DECLARED_BYTES_MAX (1U << 20)

struct declared_file {
	const char *path;
	const char *list; /* the name of the list, of 1 to most entries */
	size_t most;
	/* Called for each in order; at is its path, such as "models[1]". */
	void (*entry)(void *ctx, const struct json *v, const char *at, struct json_faults *faults);
	void *ctx;
	void (*line)(void *ctx, const char *line); /* called once for every fault */
	void *line_ctx;
};

/* -1 when there was any fault. */
int declared_read(const struct declared_file *file, struct err *e) must_check;

#endif
