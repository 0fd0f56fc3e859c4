#include "runner/nft_batch.h"

#include "common/fd.h"
#include "runner/nft.h"

#include <errno.h>
#include <libnftnl/chain.h>
#include <libnftnl/common.h>
#include <libnftnl/expr.h>
#include <libnftnl/object.h>
#include <libnftnl/table.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <stdio.h>
#include <string.h>

#define BATCH_MAX ((size_t)256 * 1024)

int nft_batch_begin(struct nl *nl, struct nft_batch *ret, struct err *e)
{
	/* The library wants room for one more message than the size it is told. */
	void *memory = malloc(2 * BATCH_MAX);
	struct mnl_nlmsg_batch *messages = memory ? mnl_nlmsg_batch_start(memory, BATCH_MAX) : NULL;
	struct nft_written *rules = calloc(NFT_RULES_MAX, sizeof(*rules));

	if (!messages || !rules) {
		if (messages)
			mnl_nlmsg_batch_stop(messages);
		free(rules);
		free(memory);
		return err_set(e, ENOMEM, "no memory for the packet rules");
	}
	*ret = (struct nft_batch){
		.nl = nl, .messages = messages, .memory = memory, .rules = rules
	};
	nftnl_batch_begin(mnl_nlmsg_batch_current(messages), ++nl->seq);
	(void)mnl_nlmsg_batch_next(messages);
	return 0;
}

void nft_batch_release(struct nft_batch *b)
{
	if (b->messages)
		mnl_nlmsg_batch_stop(b->messages);
	free(b->memory);
	free(b->rules);
	b->rules = NULL;
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

struct nlmsghdr *nft_batch_open(struct nft_batch *b, uint16_t type, uint16_t flags)
{
	return nftnl_nlmsg_build_hdr(mnl_nlmsg_batch_current(b->messages), type, NFPROTO_INET,
	                             (uint16_t)(flags | NLM_F_ACK), ++b->nl->seq);
}

void nft_batch_close(struct nft_batch *b)
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
		nft_batch_open(b, NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_EXCL), t);
	nft_batch_close(b);
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
		nft_batch_open(b, NFT_MSG_NEWCHAIN, NLM_F_CREATE | NLM_F_EXCL), c);
	nft_batch_close(b);
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
	nftnl_obj_nlmsg_build_payload(nft_batch_open(b, NFT_MSG_NEWOBJ, NLM_F_CREATE | NLM_F_EXCL),
	                              o);
	nft_batch_close(b);
	nftnl_obj_free(o);
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

struct writer {
	char *text;
	size_t used;
};

static int write_expr(struct nftnl_expr *x, void *ctx)
{
	struct writer *w = ctx;
	size_t room = NFT_TEXT_SIZE - w->used;
	int n = nftnl_expr_snprintf(w->text + w->used, room, x, NFTNL_OUTPUT_DEFAULT, 0);

	if (n < 0 || (size_t)n + 1 >= room)
		return -1;
	w->used += (size_t)n;
	w->text[w->used++] = ';';
	w->text[w->used] = '\0';
	return 0;
}

bool nft_rule_text(struct nftnl_rule *r, char ret_text[NFT_TEXT_SIZE])
{
	struct writer w = { .text = ret_text };

	ret_text[0] = '\0';
	return nftnl_expr_foreach(r, write_expr, &w) >= 0;
}

static bool keep_text(struct nft_batch *b, struct nftnl_rule *r)
{
	struct nft_written *w = &b->rules[b->n_rules];

	if (b->n_rules == NFT_RULES_MAX || !nft_rule_text(r, w->text))
		return false;
	(void)snprintf(w->chain, sizeof(w->chain), "%s", nftnl_rule_get_str(r, NFTNL_RULE_CHAIN));
	b->n_rules++;
	return true;
}

void nft_batch_rule(struct nft_batch *b, struct nftnl_rule *r)
{
	if (!r || !keep_text(b, r)) {
		if (r)
			nftnl_rule_free(r);
		b->failed = true;
		return;
	}
	nftnl_rule_nlmsg_build_payload(
		nft_batch_open(b, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND), r);
	nft_batch_close(b);
	nftnl_rule_free(r);
}
