/*
 * nft_rules.h - the policy in words of rules; for loading it and for comparing with it.
 */
#ifndef RUNNER_NFT_RULES_H
#define RUNNER_NFT_RULES_H

#include "runner/nft_batch.h"
#include "runner/policy.h"

/* Append table, counters, sets, chains and rules: all but the elements of the set of endpoints. */
void nft_rules_add(struct nft_batch *b, const struct policy *p);

#endif
