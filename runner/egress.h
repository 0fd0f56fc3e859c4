/*
 * egress.h - what a tenant may reach, as the operator wrote it down.  Addresses are
 * IPv4, in host byte order.
 */
#ifndef RUNNER_EGRESS_H
#define RUNNER_EGRESS_H

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

#define EGRESS_ALLOW_MAX 1000
#define EGRESS_PORTS_MAX 16 /* ranges of one entry */
#define EGRESS_HOSTS_MAX 256
#define EGRESS_DNS_MAX   3

enum egress_mode {
	EGRESS_PUBLIC, /* all but what is private, special or the host's */
	EGRESS_NONE,   /* no network at all */
	EGRESS_ALLOW,  /* what is listed, but nothing of the host's */
};

enum dns_mode {
	DNS_OFF,    /* unless something else is chosen */
	DNS_HOST,   /* the resolver of the host, through slirp4netns */
	DNS_LISTED, /* the resolvers named */
};

struct prefix {
	uint32_t addr; /* no bit set beyond len */
	unsigned int len;
};

struct port_span {
	uint16_t first;
	uint16_t last;
};

struct egress_row {
	struct prefix to;
	struct port_span ports[EGRESS_PORTS_MAX];
	size_t n_ports; /* 0: every port and protocol */
};

struct egress {
	enum egress_mode mode;
	enum dns_mode dns;
	uint32_t resolvers[EGRESS_DNS_MAX];
	size_t n_resolvers;
	struct egress_row allow[EGRESS_ALLOW_MAX];
	size_t n_allow;
	struct prefix hosts[EGRESS_HOSTS_MAX]; /* the operator's words on what is the host's */
	size_t n_hosts;
};

/* "public", "none" or "allow".  This and the next three fail with EINVAL and change nothing then.
 */
int egress_mode(struct egress *g, const char *text, struct err *e) must_check;

/* Add "ADDR/LEN" or "ADDR/LEN:PORT[-PORT][,PORT[-PORT]...]". */
int egress_allow(struct egress *g, const char *text, struct err *e) must_check;

/* "off", "host" or "ADDR[,ADDR...]". */
int egress_dns(struct egress *g, const char *text, struct err *e) must_check;

/* Add "ADDR/LEN". */
int egress_host(struct egress *g, const char *text, struct err *e) must_check;

/* After the last: fill in defaults and refuse what contradicts itself. */
int egress_settle(struct egress *g, struct err *e) must_check;

#endif
