#include "daemon/store/secret.h"

#include "daemon/store/internal.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define PURPOSE "cloister: passwords of tenant roles, 1"

_Static_assert(2 * crypto_auth_hmacsha256_BYTES < SECRET_PASSWORD_SIZE, "in hex digits");

struct secret {
	char owner[SECRET_PASSWORD_SIZE];
	unsigned char key[crypto_auth_hmacsha256_BYTES]; /* of the tenants' */
};

static void hmac(const void *key, size_t key_len, const char *text,
                 unsigned char ret[crypto_auth_hmacsha256_BYTES])
{
	crypto_auth_hmacsha256_state state;

	crypto_auth_hmacsha256_init(&state, key, key_len);
	crypto_auth_hmacsha256_update(&state, (const unsigned char *)text, strlen(text));
	crypto_auth_hmacsha256_final(&state, ret);
	sodium_memzero(&state, sizeof(state));
}

int secret_new(const char *password, struct secret **ret, struct err *e)
{
	struct secret *s = NULL;

	if (strlen(password) >= sizeof(s->owner))
		return err_set(e, STORE_UNFIT, "the password is longer than %zu bytes",
		               sizeof(s->owner) - 1);
	if (sodium_init() < 0)
		return err_set(e, STORE_UNFIT, "libsodium does not start");
	s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(e, STORE_UNAVAILABLE, "no memory for a password");
	memcpy(s->owner, password, strlen(password) + 1);
	hmac(s->owner, strlen(s->owner), PURPOSE, s->key);
	*ret = s;
	return 0;
}

void secret_free(struct secret **s)
{
	if (!*s)
		return;
	sodium_memzero(*s, sizeof(**s));
	free(*s);
	*s = NULL;
}

void secret_password(const struct secret *s, const char *role, char ret[SECRET_PASSWORD_SIZE])
{
	unsigned char code[crypto_auth_hmacsha256_BYTES];

	if (strcmp(role, OWNER_ROLE) == 0) {
		memcpy(ret, s->owner, sizeof(s->owner));
		return;
	}
	hmac(s->key, sizeof(s->key), role, code);
	(void)sodium_bin2hex(ret, SECRET_PASSWORD_SIZE, code, sizeof(code));
	sodium_memzero(code, sizeof(code));
}

void secret_wipe(char *text, size_t size)
{
	sodium_memzero(text, size);
}
