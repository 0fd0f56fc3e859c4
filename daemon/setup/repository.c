#include "daemon/setup/repository.h"

#include "daemon/store/setup.h"

#include <string.h>

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
#define DIGITS  "0123456789"

/* Past "host[:port]", or NULL when it is none. */
static const char *skip_authority(const char *p)
{
	size_t host, port;

	if (*p == '[') {
		host = strspn(p + 1, DIGITS "ABCDEFabcdef:.");
		if (!host || p[host + 1] != ']')
			return NULL;
		p += host + 2;
	} else {
		host = strspn(p, LETTERS DIGITS "-.");
		if (!host || *p == '-' || *p == '.')
			return NULL;
		p += host;
	}
	if (*p != ':')
		return p;
	port = strspn(++p, DIGITS);
	return port >= 1 && port <= 5 ? p + port : NULL;
}

const char *repository_url_fault(const char *url, bool allow_http)
{
	const char *at = NULL;

	if (strlen(url) > SETUP_URL_MAX)
		return "longer than 2048 bytes";
	if (strncmp(url, "https://", 8) == 0)
		at = url + 8;
	else if (allow_http && strncmp(url, "http://", 7) == 0)
		at = url + 7;
	if (!at)
		return "must begin with https://";
	if (memchr(at, '@', strcspn(at, "/")))
		return "has a user in it; give the credential in its own field";
	at = skip_authority(at);
	if (!at || *at != '/' || !at[1])
		return "must be https://host/path";
	at += strspn(at, LETTERS DIGITS "/-._~!$&'()*+,;=:@%");
	return *at ? "has a character that is not allowed" : NULL;
}

/* What no ref may have anywhere. */
static bool is_forbidden(const char *p)
{
	unsigned char c = (unsigned char)*p;

	return c <= ' ' || c == 0x7f || strchr("~^:?*[\\", c) || strncmp(p, "..", 2) == 0 ||
	       strncmp(p, "@{", 2) == 0 || strncmp(p, "//", 2) == 0;
}

static bool ends_in_lock(const char *part, size_t len)
{
	return len >= 5 && memcmp(part + len - 5, ".lock", 5) == 0;
}

const char *repository_ref_fault(const char *ref)
{
	static const char malformed[] = "not the name of a branch, a tag or a commit";
	size_t len = strlen(ref);

	if (len > SETUP_REF_MAX)
		return "longer than 255 bytes";
	if (!len || *ref == '-' || *ref == '/' || ref[len - 1] == '/' || ref[len - 1] == '.' ||
	    strcmp(ref, "@") == 0)
		return malformed;
	for (const char *p = ref; *p; p++)
		if (is_forbidden(p))
			return malformed;
	for (const char *part = ref; *part;) {
		size_t n = strcspn(part, "/");

		if (*part == '.' || ends_in_lock(part, n))
			return malformed;
		part += n + (part[n] == '/');
	}
	return NULL;
}

const char *repository_secret_fault(const char *text, unsigned int max)
{
	if (!*text)
		return "empty";
	if (strlen(text) > max)
		return "too long";
	for (const unsigned char *p = (const unsigned char *)text; *p; p++)
		if (*p < ' ' || *p == 0x7f)
			return "has a control character";
	return NULL;
}
