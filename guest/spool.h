/*
 * spool.h - output of commands that stays readable until the sandbox ends.
 *
 * Of each output the first and the last bytes are kept, in memory that only the guest has;
 * the sum is bounded, and the oldest outputs of commands that have ended go first.
 */
#ifndef GUEST_SPOOL_H
#define GUEST_SPOOL_H

#include "common/err.h"
#include "common/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPOOL_HEAD    ((uint64_t)2 << 20) /* bytes kept of the beginning */
#define SPOOL_TAIL    ((uint64_t)6 << 20) /* and of the end */
#define SPOOL_SUM     ((uint64_t)64 << 20)
#define SPOOL_OUTPUTS 256
#define SPOOL_ID      32 /* bytes of an id */
#define SPOOL_NAME    256

struct spool {
	char id[SPOOL_ID];
	bool background;
	char name[SPOOL_NAME]; /* of a background command: its line, perhaps cut */
	int fd;                /* -1 = nothing was written, or nothing more can be kept */
	uint64_t total;        /* bytes written */
	uint64_t charged;      /* bytes counted in the sum of all */
	bool torn;           /* keeping failed: only the beginning, as long as charged, is there */
	void *owner;         /* the command while it runs; else it may be dropped */
	struct json *result; /* of a background command that ended; owned */
	struct spool *next;  /* older */
};

/* A new output whose command runs, in the background when it has a name.  NULL without memory. */
struct spool *spool_new(void *owner, const char *name);

void spool_add(struct spool *s, const char *data, size_t len);

/* The command ended.  Takes result, which may be NULL. */
void spool_end(struct spool *s, struct json *result);

/* Forget it; it must not be used afterwards. */
void spool_drop(struct spool **s);

/* NULL when there is none of that id, or none any more. */
struct spool *spool_find(const char *id);

/* Calls fn for each, from the newest on. */
void spool_each(void (*fn)(void *ctx, const struct spool *s), void *ctx);

/* What is not kept: from *ret_from to before *ret_to; both the same when there is no such gap. */
void spool_gap(const struct spool *s, uint64_t *ret_from, uint64_t *ret_to);

/*
 * Read at most len bytes from offset on into data; less at the gap and at the end, where it
 * is 0.  offset is not within the gap.
 */
size_t spool_read(const struct spool *s, uint64_t offset, char *data, size_t len);

void spool_close(void);

#endif
