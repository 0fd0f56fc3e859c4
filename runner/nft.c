/*
 * The policy sits on the forward hook of a namespace of its own, which every
 * packet of the sandbox must cross, whatever made it.  The sandbox's user
 * namespace is a child of the one that owns this table, so that not even root of
 * the sandbox's namespace may change it.
 *
 * Only what is listed passes.  The egress mode is `public`, the only one there is:
 * every address that is not in the set `denied`, and, by design, the resolver of
 * the host, which slirp4netns offers at one address.  Denied addresses are looked up in both
 * directions and before connection tracking is asked, so that an address which becomes denied is
 * cut off at its next packet.  What is denied is answered at once, because a program that waits for
 * a time-out learns nothing and costs a minute.
 */
#include "runner/nft.h"

#include "runner/cell.h"
#include "runner/nft_batch.h"
#include "runner/nft_expr.h"

#include <libnftnl/rule.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter_ipv4.h>

#define DENIED   NFT_SET_DENIED
#define ACCEPTED NFT_COUNTER_ACCEPTED
#define REFUSED  NFT_COUNTER_REFUSED
#define DNS_PORT 53

#define STATE_NEW   NF_CT_STATE_BIT(IP_CT_NEW)
#define STATE_KNOWN (NF_CT_STATE_BIT(IP_CT_ESTABLISHED) | NF_CT_STATE_BIT(IP_CT_RELATED))

static const uint8_t dns_protocols[] = { IPPROTO_UDP, IPPROTO_TCP };

/* forward, packets that come back */
static void add_inbound(struct nft_batch *b)
{
	struct nftnl_rule *r;

	for (size_t i = 0; i < ARRAY_LEN(dns_protocols); i++) {
		r = nft_from(nft_rule_new(b, "forward"), CELL_TAP);
		r = nft_protocol(nft_source_is(r, CELL_DNS_ADDR), dns_protocols[i]);
		r = nft_state(nft_source_port(r, DNS_PORT), STATE_KNOWN);
		nft_batch_rule(b, nft_accept(r));
	}
	r = nft_source_in(nft_from(nft_rule_new(b, "forward"), CELL_TAP), DENIED);
	nft_batch_rule(b, nft_drop(r));
	r = nft_state(nft_from(nft_rule_new(b, "forward"), CELL_TAP), STATE_KNOWN);
	nft_batch_rule(b, nft_accept(r));
}

/* forward, packets of the sandbox */
static void add_outbound(struct nft_batch *b)
{
	struct nftnl_rule *r;

	r = nft_not_ipv4(nft_from(nft_rule_new(b, "forward"), CELL_ROUTER));
	nft_batch_rule(b, nft_goto(r, "refuse"));
	for (size_t i = 0; i < ARRAY_LEN(dns_protocols); i++) {
		r = nft_from(nft_rule_new(b, "forward"), CELL_ROUTER);
		r = nft_protocol(nft_destination_is(r, CELL_DNS_ADDR), dns_protocols[i]);
		r = nft_destination_port(r, DNS_PORT);
		nft_batch_rule(b, nft_goto(r, "permit"));
	}
	r = nft_destination_in(nft_from(nft_rule_new(b, "forward"), CELL_ROUTER), DENIED);
	nft_batch_rule(b, nft_goto(r, "refuse"));
	r = nft_source_is(nft_from(nft_rule_new(b, "forward"), CELL_ROUTER), CELL_INSIDE_ADDR);
	nft_batch_rule(b, nft_goto(r, "permit"));
}

static void add_permit(struct nft_batch *b)
{
	struct nftnl_rule *r;

	r = nft_state(nft_to(nft_rule_new(b, "permit"), CELL_TAP), STATE_KNOWN);
	nft_batch_rule(b, nft_accept(r));
	r = nft_state(nft_rule_new(b, "permit"), STATE_NEW);
	r = nft_connections_over(r, CELL_CONNECTIONS);
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

static void add_policy(struct nft_batch *b, const struct deny *d)
{
	nft_batch_table(b);
	nft_batch_counter(b, ACCEPTED);
	nft_batch_counter(b, REFUSED);
	nft_batch_set(b, DENIED);
	nft_batch_set_fill(b, DENIED, d);
	nft_batch_chain(b, "input", "filter", NF_INET_LOCAL_IN, NF_IP_PRI_FILTER, NF_DROP);
	nft_batch_chain(b, "forward", "filter", NF_INET_FORWARD, NF_IP_PRI_FILTER, NF_DROP);
	nft_batch_chain(b, "nat", "nat", NF_INET_POST_ROUTING, NF_IP_PRI_NAT_SRC, NF_ACCEPT);
	nft_batch_chain(b, "permit", NULL, 0, 0, 0);
	nft_batch_chain(b, "refuse", NULL, 0, 0, 0);
	add_refuse(b);
	add_permit(b);
	add_inbound(b);
	add_outbound(b);
	/* The router itself offers nothing, on any of its addresses. */
	nft_batch_rule(b, nft_goto(nft_from(nft_rule_new(b, "input"), CELL_ROUTER), "refuse"));
	nft_batch_rule(b, nft_masquerade(nft_to(nft_rule_new(b, "nat"), CELL_TAP)));
}

int nft_load(struct nl *nl, const struct deny *d, struct err *e)
{
	auto_batch struct nft_batch b = { .nl = NULL };

	if (nft_batch_begin(nl, &b, e) < 0)
		return -1;
	add_policy(&b, d);
	if (nft_batch_commit(&b, e) < 0)
		return err_wrap(e, "load the packet rules (is the nf_tables module loaded?)");
	return 0;
}

int nft_deny(struct nl *nl, const struct deny *d, struct err *e)
{
	auto_batch struct nft_batch b = { .nl = NULL };

	if (nft_batch_begin(nl, &b, e) < 0)
		return -1;
	nft_batch_set_flush(&b, DENIED);
	nft_batch_set_fill(&b, DENIED, d);
	if (nft_batch_commit(&b, e) < 0)
		return err_wrap(e, "replace the denied addresses");
	return 0;
}
