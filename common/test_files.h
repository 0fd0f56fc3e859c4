/*
 * test_files.h - files of a unit test.  Include after common/test.h.
 */
#ifndef COMMON_TEST_FILES_H
#define COMMON_TEST_FILES_H

#include "common/test.h"

#include "common/fd.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>

static inline void put_bytes(const char *name, const void *data, size_t len)
{
	auto_close int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	struct err e = ERR_INIT;

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, data, len, &e), 0);
}

static inline void expect_text(const char *name, const char *want)
{
	auto_close int fd = open(name, O_RDONLY | O_CLOEXEC);
	auto_free char *data = NULL;
	struct err e = ERR_INIT;
	size_t len;

	assert_true(fd >= 0);
	assert_int_equal(fd_read_all(fd, 1000, &data, &len, &e), 0);
	assert_string_equal(data, want);
}

/* Without "." and ".."; -2 when there is no such directory. */
static inline int count_entries(const char *path)
{
	auto_dir DIR *d = opendir(path);
	int n = -2;

	while (d && readdir(d))
		n++;
	return n;
}

static inline int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st, (void)type, (void)at;
	return remove(path);
}

/* With all that is in it; no link is followed.  0 or -1. */
static inline int remove_tree_at(const char *path)
{
	return nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

#endif
