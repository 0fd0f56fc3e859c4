/*
 * Judging tokens that an operator declares.
 *
 * Nothing here can tell how a token was made, only that it was not drawn: the rules are
 * such that of 10^8 tokens as "cloisterd token new" or "openssl rand -hex 32" draw them none
 * is refused, and that what stands in examples and in haste is.
 */
#include "daemon/tenant/token.h"

#include "common/fd.h"
#include "common/id.h"
#include "daemon/tenant/trusted.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define PREFIX       "cloister_"
#define FEWEST_KINDS 8 /* different characters */

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* -- what looks like a placeholder ------------------------------------------------------- */

static const char *const placeholders[] = {
	"changeme",     "change-me",    "change_me",    "changethis",  "change-this",
	"change_this",  "replaceme",    "replace-me",   "replace_me",  "replacethis",
	"replace-this", "replace_this", "placeholder",  "password",    "passw0rd",
	"example",      "your-token",   "your_token",   "yourtoken",   "my-token",
	"my_token",     "my-secret",    "my_secret",    "mysecret",    "secret-token",
	"secret_token", "secrettoken",  "insecure",     "dummy-token", "dummy_token",
	"test-token",   "test_token",   "testtoken",    "qwertyuiop",  "swordfish",
	"supersecret",  "super-secret", "super_secret",
};

static const char *find_word(const char *token, size_t len)
{
	for (size_t i = 0; i < ARRAY_LEN(placeholders); i++) {
		size_t n = strlen(placeholders[i]);

		for (size_t at = 0; at + n <= len; at++)
			if (strncasecmp(token + at, placeholders[i], n) == 0)
				return placeholders[i];
	}
	return NULL;
}

static size_t kinds(const char *token, size_t len)
{
	bool seen[256] = { false };
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		n += !seen[(unsigned char)token[i]];
		seen[(unsigned char)token[i]] = true;
	}
	return n;
}

/* Its length when the whole is one piece over and over, at least twice; else 0. */
static size_t repeated_piece(const char *token, size_t len)
{
	for (size_t n = 1; n <= len / 2; n++)
		if (memcmp(token, token + n, len - n) == 0)
			return n;
	return 0;
}

/* Most characters are the one before, plus one or minus one. */
static bool counts(const char *token, size_t len)
{
	size_t up = 0, down = 0;

	for (size_t i = 1; i < len; i++) {
		up += token[i] == token[i - 1] + 1;
		down += token[i] == token[i - 1] - 1;
	}
	return 4 * up > 3 * len || 4 * down > 3 * len;
}

static int check_drawn(const char *token, size_t len, struct err *e)
{
	const char *word = find_word(token, len);
	size_t n = kinds(token, len), piece = repeated_piece(token, len);

	if (word)
		return err_set(e, EINVAL, "the token looks like a placeholder: it has \"%s\" in it",
		               word);
	if (n == 1)
		return err_set(e, EINVAL,
		               "the token looks like a placeholder: it is one character, repeated");
	if (piece)
		return err_set(e, EINVAL,
		               "the token looks like a placeholder: it repeats its first %zu "
		               "characters",
		               piece);
	if (n < FEWEST_KINDS)
		return err_set(e, EINVAL,
		               "the token looks like a placeholder: it has only %zu different "
		               "characters",
		               n);
	if (counts(token, len))
		return err_set(
			e, EINVAL,
			"the token looks like a placeholder: its characters count up or down");
	return 0;
}

static int check_token(const char *token, size_t len, struct err *e)
{
	if (!len)
		return err_set(e, EINVAL, "the token is empty");
	if (len < TOKEN_MIN)
		return err_set(e, EINVAL, "the token is shorter than %d bytes", TOKEN_MIN);
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)token[i] <= 0x20 || (unsigned char)token[i] >= 0x7f)
			return err_set(e, EINVAL,
			               "the token must be printable ASCII without spaces");
	return check_drawn(token, len, e);
}

/* -- hashes ------------------------------------------------------------------------------ */

/* Whose hash it is, when that can be looked up: of the empty text, or of a placeholder. */
static bool is_known(const unsigned char digest[TOKEN_DIGEST], const char **ret_word)
{
	for (size_t i = 0; i <= ARRAY_LEN(placeholders); i++) {
		const char *word = i ? placeholders[i - 1] : "";
		unsigned char known[TOKEN_DIGEST];
		char line[64];
		int n = snprintf(line, sizeof(line), "%s\n", word); /* as "echo" ends it */

		*ret_word = word;
		for (int len = n - 1; len <= n; len++) {
			crypto_hash_sha256(known, (const unsigned char *)line, (size_t)len);
			if (memcmp(known, digest, sizeof(known)) == 0)
				return true;
		}
	}
	return false;
}

int token_read_hash(const char *text, unsigned char ret[TOKEN_DIGEST], struct err *e)
{
	unsigned char digest[TOKEN_DIGEST];
	const char *word;

	if (strlen(text) != TOKEN_HASH_LEN || strspn(text, "0123456789abcdef") != TOKEN_HASH_LEN)
		return err_set(e, EINVAL,
		               "must be the SHA-256 of a token: %d hex digits in lower case, as "
		               "\"cloisterd token new\" prints them",
		               TOKEN_HASH_LEN);
	if (sodium_hex2bin(digest, sizeof(digest), text, TOKEN_HASH_LEN, NULL, NULL, NULL) < 0)
		return err_set(e, EINVAL, "is no hash");
	if (is_known(digest, &word))
		return err_set(e, EINVAL,
		               *word ? "is the hash of a placeholder, \"%s\""
		                     : "is the hash of nothing%s",
		               word);
	if (kinds(text, TOKEN_HASH_LEN) < FEWEST_KINDS)
		return err_set(e, EINVAL,
		               "is no hash of anything: it has too few different digits");
	memcpy(ret, digest, sizeof(digest));
	return 0;
}

/* -- the two ----------------------------------------------------------------------------- */

static int read_marked(const char *data, size_t len, unsigned char ret[TOKEN_DIGEST], struct err *e)
{
	char text[TOKEN_HASH_LEN + 1] = "";

	if (len == TOKEN_HASH_LEN && !memchr(data, '\0', len))
		memcpy(text, data, len);
	return token_read_hash(text, ret, e) < 0
	               ? err_wrap(e, "what is behind \"" TOKEN_HASH_MARK "\"")
	               : 0;
}

int token_read(const char *data, size_t len, unsigned char ret[TOKEN_DIGEST], struct err *e)
{
	const size_t mark = strlen(TOKEN_HASH_MARK);

	if (sodium_init() < 0)
		return err_set(e, EINVAL, "libsodium does not start");
	while (len && is_space(data[len - 1]))
		len--;
	while (len && is_space(*data)) {
		data++;
		len--;
	}
	if (len >= mark && strncasecmp(data, TOKEN_HASH_MARK, mark) == 0)
		return read_marked(data + mark, len - mark, ret, e);
	if (check_token(data, len, e) < 0)
		return -1;
	crypto_hash_sha256(ret, (const unsigned char *)data, len);
	return 0;
}

int token_read_file(const char *path, unsigned char ret[TOKEN_DIGEST], struct err *e)
{
	auto_free char *data = NULL;
	size_t len;
	int rc;

	if (trusted_read(path, TRUSTED_SECRET, TOKEN_FILE_MAX, &data, &len, e) < 0)
		return -1;
	rc = token_read(data, len, ret, e);
	sodium_memzero(data, len);
	return rc < 0 ? err_wrap(e, "%.200s", path) : 0;
}

bool token_digest(const char *token, size_t len, unsigned char ret[TOKEN_DIGEST])
{
	if (!token || len < TOKEN_MIN || len > TOKEN_FILE_MAX)
		return false;
	crypto_hash_sha256(ret, (const unsigned char *)token, len);
	return true;
}

/* -- a new one --------------------------------------------------------------------------- */

void token_draw(struct token_text *ret)
{
	unsigned char bits[32], digest[TOKEN_DIGEST];
	const size_t prefix = strlen(PREFIX);

	random_bytes(bits, sizeof(bits));
	memcpy(ret->token, PREFIX, prefix);
	sodium_bin2base64(ret->token + prefix, sizeof(ret->token) - prefix, bits, sizeof(bits),
	                  sodium_base64_VARIANT_URLSAFE_NO_PADDING);
	crypto_hash_sha256(digest, (const unsigned char *)ret->token, strlen(ret->token));
	sodium_bin2hex(ret->hash, sizeof(ret->hash), digest, sizeof(digest));
	sodium_memzero(bits, sizeof(bits));
}
