/*
 * place.h - open what the operator named, and nothing that somebody put in its way.
 */
#ifndef RUNNER_PLACE_H
#define RUNNER_PLACE_H

#include "common/err.h"
#include "runner/args.h"

#include <stdbool.h>
#include <stddef.h>

/*
 * Open path with O_PATH (and the flags given, such as O_DIRECTORY) without
 * following a symbolic link in any component.  path must be absolute and
 * canonical: no "//", "." or "..".  The caller owns *ret_fd.  ELOOP names the link.
 */
int place_open(const char *path, int flags, int *ret_fd, struct err *e) must_check;

/* The way for kernels and filters without openat2(2); place_open() uses it by itself. */
int place_open_walk(const char *path, int flags, int *ret_fd, struct err *e) must_check;

/* Fails with ESTALE when fd is not the object that id names. */
int place_check_id(int fd, const char *path, const struct place_id *id, struct err *e) must_check;

/* Open a directory as place_open() does, compare it with id, and demand that we may write in it. */
int place_open_dir(const char *path, const struct place_id *id, int *ret_fd, struct err *e)
	must_check;

/* True when inner is outer or below it; both canonical. */
bool place_within(const char *inner, const char *outer);

/* Fails with EBUSY when mountinfo (the text of that procfs file) has a mount below path. */
int place_check_mounts(const char *mountinfo, const char *path, struct err *e) must_check;

/* As place_check_mounts(), with the mounts of this process. */
int place_check_own_mounts(const char *path, struct err *e) must_check;

#endif
