/*
 * A key that is sent in clear text belongs to whoever is on the way, so http is only for
 * this machine, or without a key.
 */
#include "daemon/model/endpoint.h"

#include "common/fd.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <strings.h>

#define KEY_FILE_MAX 4096 /* bytes, white space around the key included */

bool endpoint_printable(const char *text, char first)
{
	for (; *text; text++)
		if (*text < first || *text >= 0x7f)
			return false;
	return true;
}

bool endpoint_header_valid(const char *name)
{
	return *name && strlen(name) <= ENDPOINT_HEADER_MAX &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") ==
	               strlen(name);
}

bool endpoint_header_reserved(const char *name)
{
	static const char *const names[] = {
		"accept",
		"connection",
		"content-encoding",
		"content-length",
		"content-type",
		"expect",
		"host",
		"mcp-protocol-version",
		"mcp-session-id",
		"te",
		"trailer",
		"transfer-encoding",
		"upgrade",
	};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (strcasecmp(names[i], name) == 0)
			return true;
	return false;
}

static bool is_local(const char *host, size_t len)
{
	static const char *const names[] = { "127.0.0.1", "localhost", "[::1]" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (strlen(names[i]) == len && strncasecmp(names[i], host, len) == 0)
			return true;
	return false;
}

/* ":8080" or "". */
static bool read_port(const char *text, size_t len, bool secure, uint16_t *ret)
{
	unsigned int port = 0;

	if (!len) {
		*ret = secure ? 443 : 80;
		return true;
	}
	if (*text != ':' || len < 2 || len > 6 || strspn(text + 1, "0123456789") < len - 1)
		return false;
	for (size_t i = 1; i < len; i++)
		port = port * 10 + (unsigned int)(text[i] - '0');
	*ret = (uint16_t)port;
	return port >= 1 && port <= 65535;
}

int endpoint_url(struct endpoint *ep, const char *url, const char *key_field, struct err *e)
{
	bool secure = strncmp(url, "https://", 8) == 0, clear = strncmp(url, "http://", 7) == 0;
	const char *host = url + (secure ? 8 : 7);
	size_t authority, name;

	if (!secure && !clear)
		return err_set(e, EINVAL, "must begin with https:// or http://");
	authority = strcspn(host, "/");
	name = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":/");
	if (strlen(url) > ENDPOINT_URL_MAX || !endpoint_printable(url, 0x21) ||
	    strpbrk(url, "@?#\\") || name > authority || !name)
		return err_set(e, EINVAL,
		               "must be a URL of at most %d bytes without user, query and fragment",
		               ENDPOINT_URL_MAX);
	if (!read_port(host + name, authority - name, secure, &ep->port))
		return err_set(e, EINVAL, "its port must be 1 to 65535");
	ep->local = is_local(host, name);
	if (clear && key_field && !ep->local)
		return err_set(e, EINVAL,
		               "http would show the key to everybody on the way; only to "
		               "127.0.0.1, localhost and [::1], or without %s",
		               key_field);
	ep->secure = secure;
	(void)snprintf(ep->url, sizeof(ep->url), "%s", url);
	return 0;
}

/* -- keys ---------------------------------------------------------------------------------- */

static const char *take_key(char *data, size_t len, char ret[ENDPOINT_KEY_MAX + 1])
{
	char *end = data + len;

	/* Not a NUL, which strchr(3) would find as well. */
	while (end > data && end[-1] && strchr(" \t\r\n", end[-1]))
		*--end = '\0';
	data += strspn(data, " \t\r\n");
	if (data >= end)
		return "the key is empty";
	len = (size_t)(end - data);
	if (strlen(data) != len || !endpoint_printable(data, 0x21) || strpbrk(data, "\"\\"))
		return "the key must be printable ASCII without spaces, quotes and backslashes";
	if (len < ENDPOINT_KEY_MIN || len > ENDPOINT_KEY_MAX)
		return "the key must have 8 to 1,024 bytes";
	memcpy(ret, data, len + 1);
	return NULL;
}

int endpoint_key(const struct endpoint *ep, char ret[ENDPOINT_KEY_MAX + 1], struct err *e)
{
	auto_free char *data = NULL;
	const char *wrong;
	size_t len;

	ret[0] = '\0';
	if (!ep->key_file[0])
		return 0;
	if (trusted_read(ep->key_file, TRUSTED_SECRET, KEY_FILE_MAX, &data, &len, e) < 0)
		return -1;
	wrong = take_key(data, len, ret);
	sodium_memzero(data, len);
	return wrong ? err_set(e, EINVAL, "%.200s: %s", ep->key_file, wrong) : 0;
}

int endpoint_key_file(struct endpoint *ep, const char *file, const struct registry *registry,
                      struct err *e)
{
	char key[ENDPOINT_KEY_MAX + 1];
	const struct tenant *t;
	const char *dir;
	int rc;

	if (trusted_path_check(file, e) < 0)
		return -1;
	(void)snprintf(ep->key_file, sizeof(ep->key_file), "%s", file);
	rc = endpoint_key(ep, key, e);
	sodium_memzero(key, sizeof(key));
	t = registry_shows(registry, file, &dir);
	if (rc < 0 || !t)
		return rc;
	if (dir == t->workspace)
		return err_set(e, EINVAL,
		               "lies in the workspace of %s, where the tenant can read it",
		               t->name);
	return err_set(e, EINVAL, "lies in --workspace-root %.200s, where the agent can read it",
	               dir);
}
