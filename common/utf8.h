/*
 * utf8.h - make bytes from a process fit for JSON and for the database.
 */
#ifndef COMMON_UTF8_H
#define COMMON_UTF8_H

#include "common/buf.h"

#include <stdbool.h>
#include <stddef.h>

/* True when data is well-formed UTF-8 (no surrogates, no overlong forms) without U+0000. */
bool utf8_valid(const char *data, size_t len);

/* Length of the well-formed character (not U+0000) that data begins with; 0 when there is none. */
size_t utf8_char(const char *data, size_t len);

/*
 * Append data to out with every maximal ill-formed part, and every NUL, replaced
 * by U+FFFD (the practice of Unicode chapter 3).  True when anything was replaced.
 */
bool utf8_repair(const char *data, size_t len, struct buf *out);

/*
 * Length of the longest prefix of data that does not end inside a character; at
 * most 3 less than len.  For cutting a stream into pieces that are repaired singly.
 */
size_t utf8_whole(const char *data, size_t len);

#endif
