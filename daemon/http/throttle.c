#include "daemon/http/throttle.h"

#include "common/id.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_US   60000000ULL
#define ADDRESS_MAX 46 /* characters, the end included */
#define HOPS_MAX    16 /* proxies behind one another */

/* -- addresses --------------------------------------------------------------------------- */

static struct in6_addr mapped(const struct in_addr *v4)
{
	struct in6_addr ret = { .s6_addr = { [10] = 0xff, [11] = 0xff } };

	memcpy(&ret.s6_addr[12], v4, 4);
	return ret;
}

static bool parse(const char *text, size_t len, struct in6_addr *ret)
{
	char copy[ADDRESS_MAX];
	struct in_addr v4;

	if (len >= sizeof(copy))
		return false;
	memcpy(copy, text, len);
	copy[len] = '\0';
	if (inet_pton(AF_INET, copy, &v4) == 1)
		*ret = mapped(&v4);
	else if (inet_pton(AF_INET6, copy, ret) != 1)
		return false;
	return true;
}

static struct in6_addr address_of(const struct sockaddr *peer)
{
	struct sockaddr_in6 v6 = { 0 };
	struct sockaddr_in v4;

	if (peer->sa_family == AF_INET6) {
		memcpy(&v6, peer, sizeof(v6));
		return v6.sin6_addr;
	}
	memcpy(&v4, peer, sizeof(v4));
	return mapped(&v4.sin_addr);
}

static bool is_proxy(const struct throttle *t, const struct in6_addr *at)
{
	for (size_t i = 0; i < t->proxy_count; i++)
		if (memcmp(&t->proxies[i], at, sizeof(*at)) == 0)
			return true;
	return false;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* Cut the last element off text[0..*len); false when it is no address. */
static bool last_address(const char *text, size_t *len, struct in6_addr *ret)
{
	size_t end = *len, begin = end;

	while (begin && text[begin - 1] != ',')
		begin--;
	*len = begin ? begin - 1 : 0;
	while (begin < end && is_blank(text[begin]))
		begin++;
	while (end > begin && is_blank(text[end - 1]))
		end--;
	return parse(text + begin, end - begin, ret);
}

struct in6_addr throttle_client(const struct throttle *t, const struct sockaddr *peer,
                                const char *forwarded)
{
	struct in6_addr at = address_of(peer);
	size_t len = forwarded ? strlen(forwarded) : 0;

	/* Each proxy vouches for the one before it, and for nobody before that. */
	for (size_t i = 0; len && i < HOPS_MAX && is_proxy(t, &at); i++)
		if (!last_address(forwarded, &len, &at))
			break;
	return at;
}

/* A customer's: the address, or the first half of it.  No client's of IPv6 begins with ff. */
static uint64_t party_of(const struct in6_addr *at)
{
	unsigned char half[8] = { 0xff, 0xff, 0xff, 0xff };
	uint64_t party;

	if (IN6_IS_ADDR_V4MAPPED(at))
		memcpy(half + 4, &at->s6_addr[12], 4);
	else
		memcpy(half, at->s6_addr, sizeof(half));
	memcpy(&party, half, sizeof(party));
	return party;
}

/* -- the table --------------------------------------------------------------------------- */

int throttle_open(struct throttle *t, unsigned int limit, const char *const *proxies, size_t n,
                  struct err *e)
{
	*t = (struct throttle){ .limit = limit };
	random_bytes(t->key, sizeof(t->key));
	t->proxies = calloc(n + 1, sizeof(*t->proxies));
	if (!t->proxies)
		return err_set(e, ENOMEM, "no memory for the addresses of proxies");
	for (; t->proxy_count < n; t->proxy_count++)
		if (!parse(proxies[t->proxy_count], strlen(proxies[t->proxy_count]),
		           &t->proxies[t->proxy_count]))
			return err_set(e, EINVAL, "%.64s is not the address of a proxy",
			               proxies[t->proxy_count]);
	return 0;
}

void throttle_close(struct throttle *t)
{
	free(t->proxies);
	t->proxies = NULL;
	t->proxy_count = 0;
}

/* Its entry, or the one to be made its own. */
static struct throttle_entry *entry_of(struct throttle *t, uint64_t party)
{
	struct throttle_entry *set, *oldest;
	unsigned char hash[crypto_shorthash_BYTES];
	uint64_t place;

	crypto_shorthash(hash, (const unsigned char *)&party, sizeof(party), t->key);
	memcpy(&place, hash, sizeof(place));
	set = oldest = t->table[place % THROTTLE_SETS];
	for (size_t i = 0; i < THROTTLE_WAYS; i++) {
		if (set[i].until_us && set[i].party == party)
			return &set[i];
		if (set[i].until_us < oldest->until_us)
			oldest = &set[i];
	}
	*oldest = (struct throttle_entry){ .party = party };
	return oldest;
}

unsigned int throttle_count(struct throttle *t, const struct in6_addr *client, uint64_t now_ms)
{
	uint64_t now = now_ms * 1000, cost, debt;
	struct throttle_entry *entry;

	if (!t->limit)
		return 0;
	cost = WINDOW_US / t->limit;
	entry = entry_of(t, party_of(client));
	if (entry->until_us < now)
		entry->until_us = now;
	debt = entry->until_us + cost - now;
	if (debt <= WINDOW_US) {
		entry->until_us += cost;
		return 0;
	}
	return (unsigned int)((debt - WINDOW_US + 999999) / 1000000);
}
