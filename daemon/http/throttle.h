/*
 * throttle.h - how many tokens that are nobody's came from where.
 *
 * An address may send `limit` of them at once, and as many in a minute; what is more is
 * answered with 429 instead of 401.  A token that is right is never kept out: checking one
 * costs less than refusing to, and behind a proxy everybody may have one address.  So this
 * tells a client that has gone astray, and the operator, and costs an honest one nothing;
 * what keeps guessers out is the length of tokens.
 *
 * IPv4 counts by address, IPv6 by /64, which is what one customer has.  The table has a fixed
 * size; where it is full, the address that is nearest to being forgotten is.  For one thread.
 */
#ifndef DAEMON_HTTP_THROTTLE_H
#define DAEMON_HTTP_THROTTLE_H

#include "common/attr.h"
#include "common/err.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define THROTTLE_SETS 512
#define THROTTLE_WAYS 8

struct throttle_entry {
	uint64_t party;
	uint64_t until_us; /* when all that it sent is forgotten; 0 = nobody's entry */
};

struct throttle {
	unsigned int limit; /* in a minute; 0 = no limit */
	unsigned char key[16];
	struct in6_addr *proxies; /* whose word counts on where a request comes from */
	size_t proxy_count;
	struct throttle_entry table[THROTTLE_SETS][THROTTLE_WAYS];
};

/* proxies are IPv4 or IPv6 addresses. */
int throttle_open(struct throttle *t, unsigned int limit, const char *const *proxies, size_t n,
                  struct err *e) must_check;
void throttle_close(struct throttle *t);

/*
 * Who it is: peer, or, where that is a proxy, the last address in forwarded (the value of
 * X-Forwarded-For, or NULL) that is none.  IPv4 as mapped into IPv6.
 */
struct in6_addr throttle_client(const struct throttle *t, const struct sockaddr *peer,
                                const char *forwarded);

/* One more from that address.  0, or in how many seconds the next one would be in time. */
unsigned int throttle_count(struct throttle *t, const struct in6_addr *client, uint64_t now_ms);

#endif
