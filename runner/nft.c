#include "runner/nft.h"

#include "runner/nft_batch.h"
#include "runner/nft_rules.h"

int nft_load(struct nl *nl, const struct policy *p, struct err *e)
{
	auto_batch struct nft_batch b = { .nl = NULL };

	if (nft_batch_begin(nl, &b, e) < 0)
		return -1;
	nft_rules_add(&b, p);
	if (nft_batch_commit(&b, e) < 0)
		return err_wrap(e, "load the packet rules (is the nf_tables module loaded?)");
	return 0;
}

int nft_refuse_local(struct nl *nl, const struct policy *p, struct err *e)
{
	auto_batch struct nft_batch b = { .nl = NULL };

	if (nft_batch_begin(nl, &b, e) < 0)
		return -1;
	nft_batch_set_flush(&b, NFT_SET_LOCAL);
	nft_batch_set_fill(&b, NFT_SET_LOCAL, &p->local);
	if (nft_batch_commit(&b, e) < 0)
		return err_wrap(e, "replace the addresses of the host");
	return 0;
}
