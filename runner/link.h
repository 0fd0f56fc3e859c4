/*
 * link.h - interfaces, addresses and routes of the network namespace that a
 * NETLINK_ROUTE socket was opened in.  Addresses are in host byte order.
 */
#ifndef RUNNER_LINK_H
#define RUNNER_LINK_H

#include "common/err.h"
#include "runner/nl.h"

#include <stdint.h>
#include <sys/types.h>

/* A pair of interfaces: name here, peer in the network namespace of process peer_pid. */
int link_add_pair(struct nl *nl, const char *name, const char *peer, pid_t peer_pid, struct err *e)
	must_check;

int link_up(struct nl *nl, const char *name, struct err *e) must_check;

/*
 * Let the interface forward IPv4 packets that come in through it, from addresses that are
 * reached through it.  It needs no /proc/sys.
 */
int link_forward(struct nl *nl, const char *name, struct err *e) must_check;

/*
 * Have link_forward() hold in this process's network namespace: of its own value and that of
 * all interfaces, with which the host's is inherited, the kernel takes the larger one.  -1 when
 * that is a laxer one and cannot be changed.
 */
int link_judge_sources(struct err *e) must_check;

/* Keep the interface from giving itself an IPv6 address.  Before link_up(). */
int link_no_ipv6(struct nl *nl, const char *name, struct err *e) must_check;

int link_add_address(struct nl *nl, const char *name, uint32_t addr, unsigned int prefix,
                     struct err *e) must_check;

/* Route all that can be another machine's address: not multicast, broadcast and reserved ones. */
int link_add_unicast_routes(struct nl *nl, uint32_t gateway, struct err *e) must_check;

#endif
