/*
 * nft.h - the egress policy of one sandbox, in the router's network namespace.
 */
#ifndef RUNNER_NFT_H
#define RUNNER_NFT_H

#include "common/err.h"
#include "runner/deny.h"
#include "runner/nl.h"

#include <stdint.h>

#define NFT_TABLE            "cloister"
#define NFT_SET_DENIED       "denied"
#define NFT_COUNTER_ACCEPTED "accepted"
#define NFT_COUNTER_REFUSED  "refused"

struct nft_counters {
	uint64_t accepted; /* packets of new connections that were let out */
	uint64_t refused;  /* packets answered with a refusal */
};

/* Load the whole policy in one transaction.  nl is a NETLINK_NETFILTER socket of the router. */
int nft_load(struct nl *nl, const struct deny *d, struct err *e) must_check;

/* Read the policy back and compare it with what nft_load() was to load. */
int nft_verify(struct nl *nl, const struct deny *d, struct err *e) must_check;

/* Put d in place of the denied addresses, in one transaction.  Open connections feel it too. */
int nft_deny(struct nl *nl, const struct deny *d, struct err *e) must_check;

int nft_read_counters(struct nl *nl, struct nft_counters *ret, struct err *e) must_check;

#endif
