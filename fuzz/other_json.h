/*
 * other_json.h - another library's opinion of a JSON text (Jansson, without duplicate keys).
 */
#ifndef FUZZ_OTHER_JSON_H
#define FUZZ_OTHER_JSON_H

#include <stdbool.h>
#include <stddef.h>

bool other_json_reads(const char *text, size_t len);

/* Both can be read, and are the same value. */
bool other_json_same(const char *a, size_t a_len, const char *b, size_t b_len);

#endif
