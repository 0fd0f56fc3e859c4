#include "daemon/store/login.h"

#include <string.h>

#define BEFORE "failed: " /* libpq's own words */
#define BEHIND ":  "      /* the severity, in the server's language */

/* In [at, end), behind what. */
static const char *behind(const char *at, const char *end, const char *what)
{
	const char *found = memmem(at, (size_t)(end - at), what, strlen(what));

	return found ? found + strlen(what) : end;
}

bool login_sqlstate(const char *text, char ret_state[SQLSTATE_SIZE])
{
	const char *end = text + strcspn(text, "\n");
	const char *at = behind(behind(text, end, BEFORE), end, BEHIND);
	const size_t len = SQLSTATE_SIZE - 1;

	ret_state[0] = '\0';
	if ((size_t)(end - at) <= len || at[len] != ':' ||
	    strspn(at, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") != len)
		return false;
	memcpy(ret_state, at, len);
	ret_state[len] = '\0';
	return true;
}

/* libpq's words, of 15 (the signature) and of 16 and later (require_auth). */
static bool libpq_refuses(const char *text)
{
	static const char *const words[] = { "server signature",
		                             "authentication method requirement" };
	size_t len = strcspn(text, "\n");

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (memmem(text, len, words[i], strlen(words[i])))
			return true;
	return false;
}

bool login_is_refused(const char *text)
{
	char state[SQLSTATE_SIZE];

	if (!login_sqlstate(text, state))
		return libpq_refuses(text);
	return strncmp(state, "28", 2) == 0 || strcmp(state, "3D000") == 0 ||
	       strcmp(state, "42501") == 0;
}

const char *login_remedy(const char *state)
{
	if (strcmp(state, "57P03") == 0)
		return "wait until it has started, or see its log for why it has not";
	if (strcmp(state, "53300") == 0)
		return "let it have more connections (max_connections, CONNECTION LIMIT), or "
		       "Cloister fewer (--max-db-connections)";
	return NULL;
}
