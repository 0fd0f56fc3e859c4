/*
 * id.h - UUIDs: canonical lower-case text, and version 7 for new objects.
 */
#ifndef COMMON_ID_H
#define COMMON_ID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UUID_TEXT_LEN 36

/* Text form, NUL-terminated; the form in which ids travel through the program. */
struct uuid {
	char text[UUID_TEXT_LEN + 1];
};

/*
 * A fresh UUIDv7 (RFC 9562): time to a quarter of a microsecond, then random bits; grows within
 * one process, and tells nothing about how many others were made.
 */
struct uuid uuid_new(void);

#define UUID_RANDOM 16 /* bytes */

/* The same from random bytes that are used for nothing else. */
struct uuid uuid_from(const unsigned char random[UUID_RANDOM]);

/* True when text (len bytes) is a canonical UUID: lower-case hex, dashes in place. */
bool uuid_valid(const char *text, size_t len);

/* Copies text when it is canonical; false otherwise, *ret untouched. */
bool uuid_parse(const char *text, struct uuid *ret);

/* The 32 hex digits without dashes, NUL-terminated. */
void uuid_hex(const struct uuid *id, char ret_hex[33]);

bool uuid_equal(const struct uuid *a, const struct uuid *b);

/* For hash tables whose keys the operator chose (not an attacker): spreads well, keeps no secret.
 */
uint32_t uuid_hash(const struct uuid *id);

/* Random bytes from the kernel; ends the program when it has none. */
void random_bytes(void *data, size_t len);

#endif
