/*
 * nft_expr.h - the words that a rule is written in.  Each appends to a rule and
 * returns it; NULL in (no memory) is NULL out.  A rule ends early when a
 * condition does not hold.
 */
#ifndef RUNNER_NFT_EXPR_H
#define RUNNER_NFT_EXPR_H

#include <libnftnl/rule.h>
#include <stdint.h>

/* -- conditions -- */
struct nftnl_rule *nft_from(struct nftnl_rule *r, const char *interface);
struct nftnl_rule *nft_to(struct nftnl_rule *r, const char *interface);
struct nftnl_rule *nft_ipv4(struct nftnl_rule *r);
struct nftnl_rule *nft_not_ipv4(struct nftnl_rule *r);
struct nftnl_rule *nft_protocol(struct nftnl_rule *r, uint8_t protocol);
/* addr in host byte order */
struct nftnl_rule *nft_source_is(struct nftnl_rule *r, uint32_t addr);
struct nftnl_rule *nft_source_is_not(struct nftnl_rule *r, uint32_t addr);
struct nftnl_rule *nft_destination_is(struct nftnl_rule *r, uint32_t addr);
struct nftnl_rule *nft_source_in(struct nftnl_rule *r, const char *set);
struct nftnl_rule *nft_destination_in(struct nftnl_rule *r, const char *set);
struct nftnl_rule *nft_source_port(struct nftnl_rule *r, uint16_t number);
struct nftnl_rule *nft_destination_port(struct nftnl_rule *r, uint16_t number);
/* The destination's address and port, in a set of endpoints; for protocols that have ports. */
struct nftnl_rule *nft_endpoint_in(struct nftnl_rule *r, const char *set);
/* states: NF_CT_STATE bits, any of which will do */
struct nftnl_rule *nft_state(struct nftnl_rule *r, uint32_t states);
/* Holds while more than limit connections that passed this rule are tracked. */
struct nftnl_rule *nft_connections_over(struct nftnl_rule *r, uint32_t limit);
/* Holds for packets that come faster than that, once a burst of so many has passed. */
struct nftnl_rule *nft_faster_than(struct nftnl_rule *r, uint64_t a_second, uint32_t burst);

/* -- effects -- */
struct nftnl_rule *nft_count(struct nftnl_rule *r, const char *counter);
struct nftnl_rule *nft_masquerade(struct nftnl_rule *r);
struct nftnl_rule *nft_reject_reset(struct nftnl_rule *r); /* TCP only */
struct nftnl_rule *nft_reject_port(struct nftnl_rule *r);
struct nftnl_rule *nft_reject_prohibited(struct nftnl_rule *r);
struct nftnl_rule *nft_accept(struct nftnl_rule *r);
struct nftnl_rule *nft_drop(struct nftnl_rule *r);
struct nftnl_rule *nft_goto(struct nftnl_rule *r, const char *chain);

#endif
