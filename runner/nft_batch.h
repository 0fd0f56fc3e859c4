/*
 * nft_batch.h - one nftables transaction, built in words of the rules it holds.
 *
 * A failure while building is kept and reported by nft_batch_commit(), so that
 * the rules can be written down one after the other.
 */
#ifndef RUNNER_NFT_BATCH_H
#define RUNNER_NFT_BATCH_H

#include "common/err.h"
#include "runner/deny.h"
#include "runner/nl.h"
#include "runner/policy.h"

#include <libnftnl/rule.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NFT_RULES_MAX 48
#define NFT_NAME_SIZE 16
#define NFT_TEXT_SIZE 1024

/* A key of a set of endpoints, in network byte order.  Each field fills four bytes. */
struct nft_endpoint {
	uint32_t addr;
	uint16_t port;
	uint16_t zero;
};

/* A rule as it was put into a batch: for comparing with what the kernel holds. */
struct nft_written {
	char chain[NFT_NAME_SIZE];
	char text[NFT_TEXT_SIZE];
};

struct nft_batch {
	struct nl *nl;
	struct mnl_nlmsg_batch *messages;
	void *memory;
	struct nft_written *rules; /* NFT_RULES_MAX of them */
	size_t n_rules;
	uint32_t n_sets;
	size_t acks;
	bool failed;
};

#define auto_batch __attribute__((cleanup(nft_batch_release)))

int nft_batch_begin(struct nl *nl, struct nft_batch *ret, struct err *e) must_check;
void nft_batch_release(struct nft_batch *b);

/* Send all, and wait until the kernel has taken or refused it as a whole. */
int nft_batch_commit(struct nft_batch *b, struct err *e) must_check;

/* One message of the batch: open, fill, close. */
struct nlmsghdr *nft_batch_open(struct nft_batch *b, uint16_t type, uint16_t flags);
void nft_batch_close(struct nft_batch *b);

void nft_batch_table(struct nft_batch *b);
/* type NULL: a chain that rules jump to.  hook and priority as in linux/netfilter.h. */
void nft_batch_chain(struct nft_batch *b, const char *name, const char *type, uint32_t hook,
                     int32_t priority, uint32_t policy);
void nft_batch_counter(struct nft_batch *b, const char *name);
/* A set of IPv4 spans that rules look addresses up in. */
void nft_batch_set(struct nft_batch *b, const char *name);
void nft_batch_set_flush(struct nft_batch *b, const char *name);
void nft_batch_set_fill(struct nft_batch *b, const char *name, const struct deny *d);
/* A set of spans of IPv4 addresses, each with a span of ports; no two overlap. */
void nft_batch_endpoints(struct nft_batch *b, const char *name);
void nft_batch_endpoints_fill(struct nft_batch *b, const char *name,
                              const struct policy_cell *cells, size_t n);

/* A rule is opened, given its conditions and its verdict in order, and added. */
struct nftnl_rule *nft_rule_new(struct nft_batch *b, const char *chain);
void nft_batch_rule(struct nft_batch *b, struct nftnl_rule *r);

/* What a rule does, in the library's words; false when that does not fit. */
bool nft_rule_text(struct nftnl_rule *r, char ret_text[NFT_TEXT_SIZE]);

#endif
