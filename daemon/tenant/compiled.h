/*
 * compiled.h - what the server needs of a registry, as bytes that cross to its process.
 *
 * Ids, names, digests of tokens and ids of models; no path, no policy.  The launcher, which may
 * read files, compiles; the server, which may not, takes.  Both were forked from one program, so
 * numbers are in the order of the machine.
 */
#ifndef DAEMON_TENANT_COMPILED_H
#define DAEMON_TENANT_COMPILED_H

#include "daemon/tenant/registry.h"

/* A sealed memory file, at its beginning; the caller's.  -1 with e on failure. */
int registry_compile(const struct registry *r, struct err *e) must_check;

/*
 * A registry without paths and policy, from fd, which stays the caller's.  Everything is
 * copied first and then checked again: sizes, counts, ids, names, and that no id and no
 * token stands there twice.
 */
int registry_take(int fd, struct registry **ret, struct err *e) must_check;

#endif
