/*
 * trusted.h - opening what the operator named, without being led elsewhere.
 *
 * Paths are walked one component at a time from a descriptor to the next; a
 * symbolic link anywhere ends the walk.  What is judged (type, owner, mode) is
 * the descriptor that is then used.  "The service" is the effective user.
 */
#ifndef DAEMON_TENANT_TRUSTED_H
#define DAEMON_TENANT_TRUSTED_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#define TRUSTED_PATH_MAX 4096 /* bytes */

/*
 * Absolute, at most TRUSTED_PATH_MAX bytes, below "/", no empty, "." or ".."
 * component, no slash at the end, no control character.
 */
int trusted_path_check(const char *path, struct err *e) must_check;

/* True when path is dir or lies below it; both canonical. */
bool trusted_path_inside(const char *path, const char *dir);

/*
 * A directory whose ancestors nobody but root and the service can change: each is
 * owned by one of them and not writable for others, except a sticky one of root's
 * (such as /tmp) when the entry below it is root's or the service's.
 */
int trusted_directory(const char *path, struct stat *ret, struct err *e) must_check;

/*
 * A program or a directory of them that root installed: it and every ancestor belong to
 * root and nobody else can write to them (sticky ancestors as above).  The service user
 * itself could not replace it.
 */
int trusted_installed(const char *path, struct err *e) must_check;

enum trusted_kind {
	TRUSTED_SECRET, /* mode 0600 or stricter; root's or the service's */
	TRUSTED_CONFIG, /* the same, or root's and writable for root alone */
};

/*
 * Read a regular file of at most max bytes; path may be relative.  ret_data is
 * NUL-terminated and owned by the caller.  Errors begin with the path.
 */
int trusted_read(const char *path, enum trusted_kind kind, size_t max, char **ret_data,
                 size_t *ret_len, struct err *e) must_check;

/*
 * The same for TRUSTED_CONFIG, but a wrong owner or mode is no end: *ret_fault says what is
 * wrong (code 0: nothing), so that whoever repairs the file learns of all faults at once.
 */
int trusted_read_anyway(const char *path, size_t max, char **ret_data, size_t *ret_len,
                        struct err *ret_fault, struct err *e) must_check;

/* The canonical path of what exists of path, with the rest appended; owned by the caller. */
int trusted_canonical(const char *path, char **ret_path, struct err *e) must_check;

#endif
