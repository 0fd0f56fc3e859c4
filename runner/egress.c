#include "runner/egress.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* Canonical decimal of at most max, up to one of the characters in ends.  Returns the rest or NULL.
 */
static const char *parse_number(const char *p, uint32_t max, const char *ends, uint32_t *ret)
{
	uint32_t n = 0;
	size_t digits = strspn(p, "0123456789");

	if (digits == 0 || digits > 5 || (*p == '0' && digits > 1))
		return NULL;
	for (size_t i = 0; i < digits; i++)
		n = n * 10 + (uint32_t)(p[i] - '0');
	if (n > max || !strchr(ends, p[digits]))
		return NULL;
	*ret = n;
	return p + digits;
}

/* An address in dotted form, of len characters. */
static bool parse_address(const char *text, size_t len, uint32_t *ret)
{
	char copy[INET_ADDRSTRLEN] = { 0 };
	struct in_addr addr;

	if (len >= sizeof(copy))
		return false;
	memcpy(copy, text, len);
	if (inet_pton(AF_INET, copy, &addr) != 1)
		return false;
	*ret = ntohl(addr.s_addr);
	return true;
}

static const char *parse_prefix(const char *text, const char *ends, struct prefix *ret)
{
	size_t len = strcspn(text, "/");
	struct prefix x;
	const char *rest;

	if (text[len] != '/' || !parse_address(text, len, &x.addr))
		return NULL;
	rest = parse_number(text + len + 1, 32, ends, &x.len);
	/* A shift by 32 is undefined, so the low bits are counted in 64. */
	if (!rest || (x.addr & ((UINT64_C(1) << (32 - x.len)) - 1)) != 0)
		return NULL;
	*ret = x;
	return rest;
}

static const char *parse_ports(const char *p, struct port_span *ret)
{
	uint32_t first = 0;
	uint32_t last = 0;

	p = parse_number(p, UINT16_MAX, "-,", &first);
	last = first;
	if (p && *p == '-')
		p = parse_number(p + 1, UINT16_MAX, ",", &last);
	if (!p || first == 0 || last < first)
		return NULL;
	ret->first = (uint16_t)first;
	ret->last = (uint16_t)last;
	return p;
}

int egress_mode(struct egress *g, const char *text, struct err *e)
{
	if (strcmp(text, "public") == 0)
		g->mode = EGRESS_PUBLIC;
	else if (strcmp(text, "none") == 0)
		g->mode = EGRESS_NONE;
	else if (strcmp(text, "allow") == 0)
		g->mode = EGRESS_ALLOW;
	else
		return err_set(e, EINVAL, "neither public, none nor allow");
	return 0;
}

int egress_allow(struct egress *g, const char *text, struct err *e)
{
	struct egress_row row = { .n_ports = 0 };
	const char *p = parse_prefix(text, ":", &row.to);

	if (!p)
		return err_set(e, EINVAL,
		               "'%.64s' does not begin with an IPv4 network such as "
		               "198.51.100.0/24, with no bit set beyond its length",
		               text);
	while (*p) {
		if (row.n_ports == EGRESS_PORTS_MAX)
			return err_set(e, EINVAL, "'%.64s' has more than %d ranges of ports", text,
			               EGRESS_PORTS_MAX);
		p = parse_ports(p + 1, &row.ports[row.n_ports++]);
		if (!p)
			return err_set(e, EINVAL,
			               "'%.64s' has something else than PORT or PORT-PORT, from 1 "
			               "to 65535, after the network",
			               text);
	}
	if (g->n_allow == EGRESS_ALLOW_MAX)
		return err_set(e, EINVAL, "more than %d entries", EGRESS_ALLOW_MAX);
	g->allow[g->n_allow++] = row;
	return 0;
}

/* What can be the address of another machine: not this network, loopback, multicast or reserved. */
static bool is_unicast(uint32_t addr)
{
	uint32_t top = addr >> 24;

	return top != 0 && top != 127 && top < 224;
}

static int parse_resolvers(struct egress *g, const char *text, struct err *e)
{
	uint32_t list[EGRESS_DNS_MAX];
	size_t n = 0;

	for (const char *p = text;; p++) {
		size_t len = strcspn(p, ",");

		if (n == EGRESS_DNS_MAX)
			return err_set(e, EINVAL, "more than %d resolvers", EGRESS_DNS_MAX);
		if (!parse_address(p, len, &list[n]) || !is_unicast(list[n]))
			return err_set(e, EINVAL,
			               "'%.64s' is neither off, host nor a list of IPv4 addresses "
			               "of other machines",
			               text);
		n++;
		p += len;
		if (!*p)
			break;
	}
	memcpy(g->resolvers, list, sizeof(list));
	g->n_resolvers = n;
	g->dns = DNS_LISTED;
	return 0;
}

int egress_dns(struct egress *g, const char *text, struct err *e)
{
	if (strcmp(text, "off") == 0)
		g->dns = DNS_OFF;
	else if (strcmp(text, "host") == 0)
		g->dns = DNS_HOST;
	else
		return parse_resolvers(g, text, e);
	return 0;
}

int egress_host(struct egress *g, const char *text, struct err *e)
{
	struct prefix x;

	if (!parse_prefix(text, "", &x))
		return err_set(e, EINVAL,
		               "'%.64s' is not an IPv4 network such as 198.51.100.0/24, with no "
		               "bit set beyond its length",
		               text);
	if (g->n_hosts == EGRESS_HOSTS_MAX)
		return err_set(e, EINVAL, "more than %d entries", EGRESS_HOSTS_MAX);
	g->hosts[g->n_hosts++] = x;
	return 0;
}

int egress_settle(struct egress *g, struct err *e)
{
	if (g->n_allow > 0 && g->mode != EGRESS_ALLOW)
		return err_set(e, EINVAL, "--egress-allow needs --egress allow");
	if (g->mode == EGRESS_NONE && g->dns != DNS_OFF)
		return err_set(e, EINVAL,
		               "--egress none leaves no way to a resolver; use --dns off");
	return 0;
}
