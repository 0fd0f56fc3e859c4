/*
 * guarded.h - what no workspace may hold, because a sandbox can read and change its workspace:
 * the programs that run outside of sandboxes, keys and tokens, the operator's files.
 *
 * The list is made once, at the start; every registry that is to come in force is held
 * against it.
 */
#ifndef DAEMON_TENANT_GUARDED_H
#define DAEMON_TENANT_GUARDED_H

#include "common/attr.h"
#include "common/err.h"
#include "daemon/tenant/registry.h"
#include "daemon/tenant/token.h"

#include <stdbool.h>
#include <stddef.h>

struct guarded_place {
	char *path;
	char *what; /* "the runner (--runner)" */
	bool whole; /* a directory that no workspace may lie in either */
};

struct guarded_secret {
	unsigned char digest[TOKEN_DIGEST];
	char *what;
};

struct guarded {
	struct guarded_place *places;
	size_t place_count;
	struct guarded_secret *secrets;
	size_t secret_count;
};

#define auto_guarded __attribute__((cleanup(guarded_release)))

/*
 * Guard a path: what it leads to now, and every link on the way there, which would lead
 * elsewhere when it is changed.  NULL is none.
 */
void guarded_file(struct guarded *g, const char *path, const char *what, ...) printf_like(3, 4);

/* The same for a directory that no workspace may lie in. */
void guarded_tree(struct guarded *g, const char *path, const char *what, ...) printf_like(3, 4);

/* The digest of a secret that must be no tenant's token. */
void guarded_secret(struct guarded *g, const unsigned char digest[TOKEN_DIGEST], const char *what,
                    ...) printf_like(3, 4);

void guarded_release(struct guarded *g);

/*
 * Hold a registry against the list.  Calls fault for every clash, as registry_load() does, and
 * e says how many there were; of local mode, which has no file, e has the first one.
 */
int guarded_check(const struct guarded *g, const struct registry *r,
                  void (*fault)(void *ctx, const char *line), void *ctx, struct err *e) must_check;

#endif
