/*
 * The policy sits on the forward hook of a namespace of its own, which every
 * packet of the sandbox must cross, whatever made it.  The sandbox's user
 * namespace is a child of the one that owns this table, so that not even root of
 * the sandbox's namespace may change it.
 *
 * Only what is listed passes, and what is refused is answered at once, because a
 * program that waits for a time-out learns nothing and costs a minute.  In order:
 *
 *   1  other protocols than IPv4, and other sources than the sandbox's own address
 *   2  the host's resolver at slirp4netns, when chosen
 *   3  what is local to the host: refused, whatever is listed
 *   4  the listed resolvers, and only at the port of DNS; that port nowhere else,
 *      because a name server is a way out for anything
 *   5  what is denied: private and special ranges in the mode `public`, those of
 *      clouds' metadata in `allow`
 *   6  in `public` all that is left; in `allow` what is listed; in both only so many
 *      connections at once, and so many new ones in a second
 *
 * Steps 2 to 5 are asked in both directions and before connection tracking is, so
 * that an address which becomes the host's is cut off at its next packet.
 */
#include "runner/nft_rules.h"

#include "runner/cell.h"
#include "runner/nft.h"
#include "runner/nft_expr.h"

#include <linux/netfilter.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter_ipv4.h>
#include <stdbool.h>

#define LOCAL     NFT_SET_LOCAL
#define DENIED    NFT_SET_DENIED
#define ALLOWED   NFT_SET_ALLOWED
#define ENDPOINTS NFT_SET_ENDPOINTS
#define ACCEPTED  NFT_COUNTER_ACCEPTED
#define REFUSED   NFT_COUNTER_REFUSED
#define DNS_PORT  53

#define STATE_NEW   NF_CT_STATE_BIT(IP_CT_NEW)
#define STATE_KNOWN (NF_CT_STATE_BIT(IP_CT_ESTABLISHED) | NF_CT_STATE_BIT(IP_CT_RELATED))

/* Those that have ports. */
static const uint8_t protocols[] = { IPPROTO_UDP, IPPROTO_TCP };

static struct nftnl_rule *coming(struct nft_batch *b)
{
	return nft_from(nft_rule_new(b, "forward"), CELL_TAP);
}

static struct nftnl_rule *going(struct nft_batch *b)
{
	return nft_from(nft_rule_new(b, "forward"), CELL_ROUTER);
}

static void add_answers_of(struct nft_batch *b, uint32_t resolver)
{
	for (size_t i = 0; i < ARRAY_LEN(protocols); i++) {
		struct nftnl_rule *r = nft_source_is(coming(b), resolver);

		r = nft_source_port(nft_protocol(r, protocols[i]), DNS_PORT);
		nft_batch_rule(b, nft_accept(nft_state(r, STATE_KNOWN)));
	}
}

static void add_questions_to(struct nft_batch *b, uint32_t resolver)
{
	for (size_t i = 0; i < ARRAY_LEN(protocols); i++) {
		struct nftnl_rule *r = nft_destination_is(going(b), resolver);

		r = nft_destination_port(nft_protocol(r, protocols[i]), DNS_PORT);
		nft_batch_rule(b, nft_goto(r, "permit"));
	}
}

static void add_no_other_questions(struct nft_batch *b)
{
	for (size_t i = 0; i < ARRAY_LEN(protocols); i++) {
		struct nftnl_rule *r = nft_protocol(going(b), protocols[i]);

		nft_batch_rule(b, nft_goto(nft_destination_port(r, DNS_PORT), "refuse"));
	}
}

static void add_coming(struct nft_batch *b, const struct policy *p)
{
	if (p->dns == DNS_HOST)
		add_answers_of(b, CELL_DNS_ADDR);
	/* What still talks to the sandbox is told that nobody listens any more. */
	nft_batch_rule(b, nft_reject_reset(nft_source_in(coming(b), LOCAL)));
	nft_batch_rule(b, nft_drop(nft_source_in(coming(b), LOCAL)));
	for (size_t i = 0; i < p->n_resolvers; i++)
		add_answers_of(b, p->resolvers[i]);
	if (p->mode == EGRESS_PUBLIC)
		nft_batch_rule(b, nft_drop(nft_source_in(coming(b), DENIED)));
	nft_batch_rule(b, nft_accept(nft_state(coming(b), STATE_KNOWN)));
}

static void add_listed(struct nft_batch *b)
{
	nft_batch_rule(b, nft_goto(nft_destination_in(going(b), ALLOWED), "permit"));
	for (size_t i = 0; i < ARRAY_LEN(protocols); i++) {
		struct nftnl_rule *r = nft_protocol(going(b), protocols[i]);

		nft_batch_rule(b, nft_goto(nft_endpoint_in(r, ENDPOINTS), "permit"));
	}
	nft_batch_rule(b, nft_goto(going(b), "refuse"));
}

static void add_going(struct nft_batch *b, const struct policy *p)
{
	nft_batch_rule(b, nft_goto(nft_not_ipv4(going(b)), "refuse"));
	nft_batch_rule(b, nft_drop(nft_source_is_not(going(b), CELL_INSIDE_ADDR)));
	if (p->dns == DNS_HOST)
		add_questions_to(b, CELL_DNS_ADDR);
	nft_batch_rule(b, nft_goto(nft_destination_in(going(b), LOCAL), "refuse"));
	for (size_t i = 0; i < p->n_resolvers; i++)
		add_questions_to(b, p->resolvers[i]);
	add_no_other_questions(b);
	nft_batch_rule(b, nft_goto(nft_destination_in(going(b), DENIED), "refuse"));
	if (p->mode == EGRESS_PUBLIC)
		nft_batch_rule(b, nft_goto(going(b), "permit"));
	else
		add_listed(b);
}

static void add_permit(struct nft_batch *b)
{
	struct nftnl_rule *r;

	r = nft_state(nft_to(nft_rule_new(b, "permit"), CELL_TAP), STATE_KNOWN);
	nft_batch_rule(b, nft_accept(r));
	r = nft_state(nft_rule_new(b, "permit"), STATE_NEW);
	r = nft_connections_over(r, CELL_CONNECTIONS);
	nft_batch_rule(b, nft_goto(r, "refuse"));
	/* One that was closed is not counted any more, but is tracked for two minutes more. */
	r = nft_state(nft_rule_new(b, "permit"), STATE_NEW);
	r = nft_faster_than(r, CELL_NEW_A_SECOND, CELL_NEW_BURST);
	nft_batch_rule(b, nft_goto(r, "refuse"));
	r = nft_state(nft_to(nft_rule_new(b, "permit"), CELL_TAP), STATE_NEW);
	nft_batch_rule(b, nft_accept(nft_count(r, ACCEPTED)));
}

static void add_refuse(struct nft_batch *b)
{
	nft_batch_rule(b, nft_reject_reset(nft_count(nft_rule_new(b, "refuse"), REFUSED)));
	/* gVisor passes on to a UDP socket that a port is closed, but not that it is forbidden. */
	nft_batch_rule(b, nft_reject_port(nft_protocol(nft_rule_new(b, "refuse"), IPPROTO_UDP)));
	nft_batch_rule(b, nft_reject_prohibited(nft_rule_new(b, "refuse")));
}

static void add_sets(struct nft_batch *b, const struct policy *p)
{
	nft_batch_set(b, LOCAL);
	nft_batch_set(b, DENIED);
	nft_batch_set(b, ALLOWED);
	nft_batch_endpoints(b, ENDPOINTS);
	nft_batch_set_fill(b, LOCAL, &p->local);
	nft_batch_set_fill(b, DENIED, &p->denied);
	nft_batch_set_fill(b, ALLOWED, &p->allowed);
}

void nft_rules_add(struct nft_batch *b, const struct policy *p)
{
	nft_batch_table(b);
	nft_batch_counter(b, ACCEPTED);
	nft_batch_counter(b, REFUSED);
	add_sets(b, p);
	nft_batch_chain(b, "input", "filter", NF_INET_LOCAL_IN, NF_IP_PRI_FILTER, NF_DROP);
	nft_batch_chain(b, "forward", "filter", NF_INET_FORWARD, NF_IP_PRI_FILTER, NF_DROP);
	nft_batch_chain(b, "nat", "nat", NF_INET_POST_ROUTING, NF_IP_PRI_NAT_SRC, NF_ACCEPT);
	nft_batch_chain(b, "permit", NULL, 0, 0, 0);
	nft_batch_chain(b, "refuse", NULL, 0, 0, 0);
	add_refuse(b);
	add_permit(b);
	add_coming(b, p);
	add_going(b, p);
	/* The router itself offers nothing, on any of its addresses. */
	nft_batch_rule(b, nft_goto(nft_from(nft_rule_new(b, "input"), CELL_ROUTER), "refuse"));
	nft_batch_rule(b, nft_masquerade(nft_to(nft_rule_new(b, "nat"), CELL_TAP)));
}
