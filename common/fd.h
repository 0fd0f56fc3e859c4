/*
 * fd.h - scope-bound ownership of descriptors and memory, and whole reads and writes.
 *
 * A local declared auto_close or auto_free is released when its scope ends.
 * Ownership leaves the scope only through fd_take() or mem_take().
 */
#ifndef COMMON_FD_H
#define COMMON_FD_H

#include "common/attr.h"
#include "common/err.h"

#include <dirent.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#define auto_close __attribute__((cleanup(fd_close_at)))
#define auto_free  __attribute__((cleanup(mem_free_at)))
#define auto_file  __attribute__((cleanup(file_close_at)))
#define auto_dir   __attribute__((cleanup(dir_close_at)))

/* Close *fd when it is open (>= 0) and set it to -1.  errno is kept. */
void fd_close(int *fd);

/* Give up ownership: returns *fd and leaves -1 behind. */
static inline int fd_take(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}

/* Give up ownership of a heap pointer: evaluates to it and leaves NULL behind. */
#define mem_take(pp)                                  \
	__extension__({                               \
		__typeof__(pp) take_at = pp;          \
		__typeof__(*take_at) took = *take_at; \
		*take_at = NULL;                      \
		took;                                 \
	})

/* Write all of data, restarting after signals.  For blocking descriptors. */
int fd_write_all(int fd, const void *data, size_t len, struct err *e) must_check;

/*
 * Read until end of file or max bytes into a fresh NUL-terminated buffer owned
 * by the caller.  A file with more than max bytes fails with EFBIG.
 */
int fd_read_all(int fd, size_t max, char **ret_data, size_t *ret_len, struct err *e) must_check;

int fd_set_nonblocking(int fd, struct err *e) must_check;

/* Close every descriptor from first on, except keep[0..n).  Keep must be sorted. */
void fd_close_from(int first, const int *keep, size_t n);

/* For the attributes only. */
static inline void fd_close_at(int *fd)
{
	fd_close(fd);
}

static inline void mem_free_at(void *pp)
{
	free(*(void **)pp);
}

static inline void file_close_at(FILE **f)
{
	if (*f)
		(void)fclose(*f);
}

static inline void dir_close_at(DIR **d)
{
	if (*d)
		(void)closedir(*d);
}

#endif
