/*
 * target.h - the file that a call replaces or removes: an open directory and a name in it.
 */
#ifndef GUEST_TARGET_H
#define GUEST_TARGET_H

#include "common/buf.h"
#include "common/err.h"

#include <limits.h>
#include <sys/stat.h>

#define TARGET_TEMPORARY 64  /* bytes of a temporary name */
#define TARGET_VERSION   128 /* bytes of a version as text */

struct target {
	int dir;                 /* owned; -1 = closed */
	char name[NAME_MAX + 1]; /* in dir */
};

/*
 * Split path into an open directory, made when missing, and the name in it.  made takes the
 * paths of the directories that were made, each with a NUL; NULL = nobody wants to know.
 */
int target_open(struct target *t, const char *path, struct buf *made, struct err *e) must_check;
void target_close(struct target *t);

/* Remove what target_open() made, the last one first; what is not empty by now stays. */
void target_unmake(struct buf *made);

/* An unguessable name in the directory, that ends in suffix. */
void target_temporary(char ret_name[TARGET_TEMPORARY], const char *suffix);

/* Create a file under such a name for writing; the name is empty on failure. */
int target_create(const struct target *t, char ret_name[TARGET_TEMPORARY], struct err *e)
	must_check;

/* What is another one as soon as the file is another one, or was changed. */
void target_version(const struct stat *st, char ret_version[TARGET_VERSION]);

#endif
