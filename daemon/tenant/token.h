/*
 * token.h - bearer tokens: what may be one, its hash, a new one.
 *
 * A token is known by its SHA-256 alone.  A slow hash would protect nothing, because a
 * token is drawn and not thought up, and could be used to load the machine; so what looks
 * thought up is refused where the operator declares it.
 */
#ifndef DAEMON_TENANT_TOKEN_H
#define DAEMON_TENANT_TOKEN_H

#include "common/attr.h"
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>

#define TOKEN_MIN       32   /* bytes */
#define TOKEN_DIGEST    32   /* bytes of SHA-256 */
#define TOKEN_HASH_LEN  64   /* its hex digits */
#define TOKEN_FILE_MAX  4096 /* bytes, white space around the token included */
#define TOKEN_HASH_MARK "sha256:"

/*
 * What is in a token file, white space around it cut off: a token, or TOKEN_HASH_MARK and
 * the hash of one.  What is short, or looks like a placeholder, is refused by name.
 */
int token_read(const char *data, size_t len, unsigned char ret[TOKEN_DIGEST], struct err *e)
	must_check;

/* The same from a file, which the service or root owns and nobody else reads (trusted.h). */
int token_read_file(const char *path, unsigned char ret[TOKEN_DIGEST], struct err *e) must_check;

/* The hash of a token: 64 hex digits in lower case. */
int token_read_hash(const char *text, unsigned char ret[TOKEN_DIGEST], struct err *e) must_check;

/* The digest of what a client sent; false when that cannot be a token. */
bool token_digest(const char *token, size_t len, unsigned char ret[TOKEN_DIGEST]);

struct token_text {
	char token[64]; /* of 256 random bits */
	char hash[TOKEN_HASH_LEN + 1];
};

void token_draw(struct token_text *ret);

#endif
