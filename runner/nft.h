/*
 * nft.h - the egress policy of one sandbox, in the router's network namespace.
 */
#ifndef RUNNER_NFT_H
#define RUNNER_NFT_H

#include "common/err.h"
#include "runner/nl.h"
#include "runner/policy.h"

#include <stdint.h>

#define NFT_TABLE            "cloister"
#define NFT_SET_LOCAL        "local"
#define NFT_SET_DENIED       "denied"
#define NFT_SET_ALLOWED      "allowed"
#define NFT_SET_ENDPOINTS    "endpoints"
#define NFT_COUNTER_ACCEPTED "accepted"
#define NFT_COUNTER_REFUSED  "refused"

struct nft_counters {
	uint64_t accepted; /* packets of new connections that were let out */
	uint64_t refused;  /* packets answered with a refusal */
};

/*
 * Load the policy in one transaction, and then what it lists of ports, which may be
 * too much for one: until that is there, less is allowed, never more.  nl is a
 * NETLINK_NETFILTER socket of the router.
 */
int nft_load(struct nl *nl, const struct policy *p, struct err *e) must_check;

/* Read chains, rules and sets back, and compare them with what nft_load() was to load. */
int nft_verify(struct nl *nl, const struct policy *p, struct err *e) must_check;

/* Put p->local in place of what was, in one transaction.  Open connections feel it too. */
int nft_refuse_local(struct nl *nl, const struct policy *p, struct err *e) must_check;

int nft_read_counters(struct nl *nl, struct nft_counters *ret, struct err *e) must_check;

#endif
