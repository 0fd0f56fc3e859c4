/*
 * Values of headers that a client chooses, each beside a second reader.  The first byte
 * chooses: X-Forwarded-For, with the address that it comes from, or Last-Event-ID.
 */
#include "fuzz/fuzz.h"

#include "common/attr.h"
#include "daemon/api/events.h"
#include "daemon/http/throttle.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdbool.h>

#define HOPS 16

static const char *const proxies[] = { "127.0.0.1", "10.0.0.1", "::1", "fd00::1" };

/* -- X-Forwarded-For ------------------------------------------------------------------------- */

/* One that is not well-formed is nobody's, so that it compares with none. */
static bool read_address(const char *text, size_t len, struct in6_addr *ret)
{
	char copy[64] = "::ffff:";
	struct in_addr v4;

	while (len && (*text == ' ' || *text == '\t')) {
		text++;
		len--;
	}
	while (len && (text[len - 1] == ' ' || text[len - 1] == '\t'))
		len--;
	if (len > 45)
		return false;
	memcpy(copy + 7, text, len);
	copy[7 + len] = '\0';
	return inet_pton(AF_INET6, inet_pton(AF_INET, copy + 7, &v4) == 1 ? copy : copy + 7, ret) ==
	       1;
}

static bool is_proxy(const struct in6_addr *at)
{
	for (size_t i = 0; i < ARRAY_LEN(proxies); i++) {
		struct in6_addr proxy;

		demand(read_address(proxies[i], strlen(proxies[i]), &proxy));
		if (memcmp(&proxy, at, sizeof(proxy)) == 0)
			return true;
	}
	return false;
}

/* Element number n, counted from the end, which is 0; false when there are fewer. */
static bool element(const char *text, size_t n, const char **ret, size_t *ret_len)
{
	size_t commas = 0, at = 0;

	for (const char *c = text; *c; c++)
		commas += *c == ',';
	if (n > commas)
		return false;
	for (n = commas - n; n; n--)
		at += strcspn(text + at, ",") + 1;
	*ret = text + at;
	*ret_len = strcspn(text + at, ",");
	return true;
}

static struct in6_addr wanted_client(struct in6_addr at, const char *forwarded)
{
	const char *text;
	size_t len;

	for (size_t i = 0; i < HOPS && is_proxy(&at); i++)
		if (!element(forwarded, i, &text, &len) || !read_address(text, len, &at))
			break;
	return at;
}

static void check_forwarded(const char *peer, const char *forwarded)
{
	static struct throttle t;
	struct sockaddr_in6 from = { .sin6_family = AF_INET6 };
	struct in6_addr client, wanted;
	struct err e = ERR_INIT;

	if (!t.proxies)
		demand(throttle_open(&t, 30, proxies, ARRAY_LEN(proxies), &e) == 0);
	demand(read_address(peer, strlen(peer), &from.sin6_addr));
	client = throttle_client(&t, (const struct sockaddr *)&from, forwarded);
	wanted = wanted_client(from.sin6_addr, forwarded);
	demand(memcmp(&client, &wanted, sizeof(client)) == 0);
	demand(throttle_count(&t, &client, 1) <= 60);
}

/* -- Last-Event-ID ---------------------------------------------------------------------------- */

static void check_last_id(const char *text)
{
	size_t zeros = strspn(text, "0"), len = strlen(text);
	char again[24];
	int64_t id;

	if (!events_last_id(text, &id)) {
		demand(!len || strspn(text, "0123456789") < len || len - zeros >= 19);
		return;
	}
	demand(id >= 0);
	(void)snprintf(again, sizeof(again), "%" PRId64, id);
	demand(strcmp(again, zeros == len ? text + len - 1 : text + zeros) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = text_of(data + !!size, size ? size - 1 : 0);

	demand(sodium_init() >= 0);
	if (size && data[0] % 8 >= ARRAY_LEN(proxies))
		check_last_id(text);
	else if (size)
		check_forwarded(proxies[data[0] % 8], text);
	free(text);
	return 0;
}
