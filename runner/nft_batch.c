#include "runner/nft_batch.h"

#include "common/fd.h"
#include "runner/nft.h"

#include <arpa/inet.h>
#include <errno.h>
#include <libnftnl/chain.h>
#include <libnftnl/common.h>
#include <libnftnl/object.h>
#include <libnftnl/set.h>
#include <libnftnl/table.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <string.h>

#define BATCH_MAX       ((size_t)256 * 1024)
#define SPANS_A_MESSAGE 256
#define TYPE_IPV4       7 /* what nft(8) calls ipv4_addr; the kernel only keeps it */

int nft_batch_begin(struct nl *nl, struct nft_batch *ret, struct err *e)
{
	/* The library wants room for one more message than the size it is told. */
	void *memory = malloc(2 * BATCH_MAX);
	struct mnl_nlmsg_batch *messages = memory ? mnl_nlmsg_batch_start(memory, BATCH_MAX) : NULL;

	if (!messages) {
		free(memory);
		return err_set(e, ENOMEM, "no memory for the packet rules");
	}
	*ret = (struct nft_batch){ .nl = nl, .messages = messages, .memory = memory };
	nftnl_batch_begin(mnl_nlmsg_batch_current(messages), ++nl->seq);
	(void)mnl_nlmsg_batch_next(messages);
	return 0;
}

void nft_batch_release(struct nft_batch *b)
{
	if (b->messages)
		mnl_nlmsg_batch_stop(b->messages);
	free(b->memory);
	b->messages = NULL;
	b->memory = NULL;
}

int nft_batch_commit(struct nft_batch *b, struct err *e)
{
	nftnl_batch_end(mnl_nlmsg_batch_current(b->messages), ++b->nl->seq);
	if (!mnl_nlmsg_batch_next(b->messages) || b->failed)
		return err_set(e, ENOMEM, "the packet rules do not fit into memory");
	return nl_batch(b->nl, mnl_nlmsg_batch_head(b->messages), mnl_nlmsg_batch_size(b->messages),
	                b->acks, e);
}

static struct nlmsghdr *open_message(struct nft_batch *b, uint16_t type, uint16_t flags)
{
	return nftnl_nlmsg_build_hdr(mnl_nlmsg_batch_current(b->messages), type, NFPROTO_INET,
	                             (uint16_t)(flags | NLM_F_ACK), ++b->nl->seq);
}

static void close_message(struct nft_batch *b)
{
	b->acks++;
	if (!mnl_nlmsg_batch_next(b->messages))
		b->failed = true;
}

void nft_batch_table(struct nft_batch *b)
{
	struct nftnl_table *t = nftnl_table_alloc();

	if (!t) {
		b->failed = true;
		return;
	}
	nftnl_table_set_u32(t, NFTNL_TABLE_FAMILY, NFPROTO_INET);
	b->failed |= nftnl_table_set_str(t, NFTNL_TABLE_NAME, NFT_TABLE) < 0;
	nftnl_table_nlmsg_build_payload(
		open_message(b, NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_EXCL), t);
	close_message(b);
	nftnl_table_free(t);
}

void nft_batch_chain(struct nft_batch *b, const char *name, const char *type, uint32_t hook,
                     int32_t priority, uint32_t policy)
{
	struct nftnl_chain *c = nftnl_chain_alloc();

	if (!c) {
		b->failed = true;
		return;
	}
	b->failed |= nftnl_chain_set_str(c, NFTNL_CHAIN_TABLE, NFT_TABLE) < 0 ||
	             nftnl_chain_set_str(c, NFTNL_CHAIN_NAME, name) < 0;
	if (type) {
		b->failed |= nftnl_chain_set_str(c, NFTNL_CHAIN_TYPE, type) < 0;
		nftnl_chain_set_u32(c, NFTNL_CHAIN_HOOKNUM, hook);
		nftnl_chain_set_s32(c, NFTNL_CHAIN_PRIO, priority);
		nftnl_chain_set_u32(c, NFTNL_CHAIN_POLICY, policy);
	}
	nftnl_chain_nlmsg_build_payload(
		open_message(b, NFT_MSG_NEWCHAIN, NLM_F_CREATE | NLM_F_EXCL), c);
	close_message(b);
	nftnl_chain_free(c);
}

void nft_batch_counter(struct nft_batch *b, const char *name)
{
	struct nftnl_obj *o = nftnl_obj_alloc();

	if (!o) {
		b->failed = true;
		return;
	}
	nftnl_obj_set_str(o, NFTNL_OBJ_TABLE, NFT_TABLE);
	nftnl_obj_set_str(o, NFTNL_OBJ_NAME, name);
	nftnl_obj_set_u32(o, NFTNL_OBJ_TYPE, NFT_OBJECT_COUNTER);
	nftnl_obj_set_u64(o, NFTNL_OBJ_CTR_PKTS, 0);
	nftnl_obj_set_u64(o, NFTNL_OBJ_CTR_BYTES, 0);
	nftnl_obj_nlmsg_build_payload(open_message(b, NFT_MSG_NEWOBJ, NLM_F_CREATE | NLM_F_EXCL),
	                              o);
	close_message(b);
	nftnl_obj_free(o);
}

/* A set by name, or NULL with the batch marked as failed. */
static struct nftnl_set *new_set(struct nft_batch *b, const char *name)
{
	struct nftnl_set *s = nftnl_set_alloc();

	if (s && nftnl_set_set_str(s, NFTNL_SET_TABLE, NFT_TABLE) == 0 &&
	    nftnl_set_set_str(s, NFTNL_SET_NAME, name) == 0)
		return s;
	if (s)
		nftnl_set_free(s);
	b->failed = true;
	return NULL;
}

void nft_batch_set(struct nft_batch *b, const char *name)
{
	struct nftnl_set *s = new_set(b, name);

	if (!s)
		return;
	nftnl_set_set_u32(s, NFTNL_SET_FAMILY, NFPROTO_INET);
	nftnl_set_set_u32(s, NFTNL_SET_FLAGS, NFT_SET_INTERVAL);
	nftnl_set_set_u32(s, NFTNL_SET_KEY_TYPE, TYPE_IPV4);
	nftnl_set_set_u32(s, NFTNL_SET_KEY_LEN, sizeof(uint32_t));
	nftnl_set_set_u32(s, NFTNL_SET_ID, 1);
	nftnl_set_nlmsg_build_payload(open_message(b, NFT_MSG_NEWSET, NLM_F_CREATE | NLM_F_EXCL),
	                              s);
	close_message(b);
	nftnl_set_free(s);
}

void nft_batch_set_flush(struct nft_batch *b, const char *name)
{
	struct nftnl_set *s = new_set(b, name);

	if (!s)
		return;
	nftnl_set_elems_nlmsg_build_payload(open_message(b, NFT_MSG_DELSETELEM, 0), s);
	close_message(b);
	nftnl_set_free(s);
}

static bool add_element(struct nftnl_set *s, uint32_t key, uint32_t flags)
{
	uint32_t wire = htonl(key);
	struct nftnl_set_elem *x = nftnl_set_elem_alloc();

	if (!x)
		return false;
	if (nftnl_set_elem_set(x, NFTNL_SET_ELEM_KEY, &wire, sizeof(wire)) < 0) {
		nftnl_set_elem_free(x);
		return false;
	}
	if (flags)
		nftnl_set_elem_set_u32(x, NFTNL_SET_ELEM_FLAGS, flags);
	nftnl_set_elem_add(s, x);
	return true;
}

static void fill_part(struct nft_batch *b, const char *name, const struct deny_span *spans,
                      size_t n)
{
	struct nftnl_set *s = new_set(b, name);

	if (!s)
		return;
	for (size_t i = 0; i < n; i++) {
		/* The end of a span is the address after it; the last address has none. */
		if (!add_element(s, spans[i].first, 0) ||
		    (spans[i].last != UINT32_MAX &&
		     !add_element(s, spans[i].last + 1, NFT_SET_ELEM_INTERVAL_END)))
			b->failed = true;
	}
	nftnl_set_elems_nlmsg_build_payload(
		open_message(b, NFT_MSG_NEWSETELEM, NLM_F_CREATE | NLM_F_EXCL), s);
	close_message(b);
	nftnl_set_free(s);
}

void nft_batch_set_fill(struct nft_batch *b, const char *name, const struct deny *d)
{
	for (size_t i = 0; i < d->n; i += SPANS_A_MESSAGE) {
		size_t left = d->n - i;

		fill_part(b, name, &d->spans[i], left < SPANS_A_MESSAGE ? left : SPANS_A_MESSAGE);
	}
}

struct nftnl_rule *nft_rule_new(struct nft_batch *b, const char *chain)
{
	struct nftnl_rule *r = nftnl_rule_alloc();

	if (r && nftnl_rule_set_str(r, NFTNL_RULE_TABLE, NFT_TABLE) == 0 &&
	    nftnl_rule_set_str(r, NFTNL_RULE_CHAIN, chain) == 0)
		return r;
	if (r)
		nftnl_rule_free(r);
	b->failed = true;
	return NULL;
}

void nft_batch_rule(struct nft_batch *b, struct nftnl_rule *r)
{
	if (!r) {
		b->failed = true;
		return;
	}
	nftnl_rule_nlmsg_build_payload(
		open_message(b, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND), r);
	close_message(b);
	nftnl_rule_free(r);
}
