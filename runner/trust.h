/*
 * trust.h - programs and files that only root can have put where they are.
 */
#ifndef RUNNER_TRUST_H
#define RUNNER_TRUST_H

#include "common/err.h"

#include <stdbool.h>
#include <sys/stat.h>

/*
 * Fails unless path (absolute, canonical, no symbolic link on the way) and every
 * directory above it belong to root and nobody else may write them.  A directory in
 * which only owners may rename (sticky) is good enough above something of root's.
 * EPERM names the first that is not as it should be.
 */
int trust_check(const char *path, struct err *e) must_check;

/* As trust_check() for the program of this process. */
int trust_check_self(struct err *e) must_check;

/* One step: st is what path names; last: nothing below it is asked for. */
int trust_check_one(const char *path, const struct stat *st, bool last, struct err *e) must_check;

#endif
