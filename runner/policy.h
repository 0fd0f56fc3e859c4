/*
 * policy.h - a tenant's egress worked out into what packet rules are made of.
 */
#ifndef RUNNER_POLICY_H
#define RUNNER_POLICY_H

#include "common/err.h"
#include "runner/deny.h"
#include "runner/egress.h"

#include <stddef.h>
#include <stdint.h>

#define POLICY_CELLS_MAX 16384 /* more than EGRESS_ALLOW_MAX entries that lie apart have */

/* Addresses, and the TCP and UDP ports of them that may be reached. */
struct policy_cell {
	struct deny_span addrs;
	struct port_span ports;
};

struct policy {
	enum egress_mode mode;
	enum dns_mode dns;
	uint32_t resolvers[EGRESS_DNS_MAX];
	size_t n_resolvers;
	struct deny local;   /* the host's, and no machine's: refused whatever is listed; grows */
	struct deny denied;  /* refused but for a listed resolver */
	struct deny allowed; /* EGRESS_ALLOW: may be reached on every port */
	struct policy_cell cells[POLICY_CELLS_MAX]; /* ascending, no two overlap */
	size_t n_cells;
};

/*
 * Work out g, which is settled.  EINVAL when its entries come to more than
 * POLICY_CELLS_MAX cells.  What is local to the host now is for the caller to add.
 */
int policy_init(struct policy *p, const struct egress *g, struct err *e) must_check;

/* Once local is complete: refuse a listed resolver that is the host itself. */
int policy_check(const struct policy *p, struct err *e) must_check;

#endif
