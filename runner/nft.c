#include "runner/nft.h"

#include "runner/nft_batch.h"
#include "runner/nft_rules.h"

#define CELLS_A_BATCH ((size_t)2048)

static int load_rules(struct nl *nl, const struct policy *p, struct err *e)
{
	auto_batch struct nft_batch b = { .nl = NULL };

	if (nft_batch_begin(nl, &b, e) < 0)
		return -1;
	nft_rules_add(&b, p);
	return nft_batch_commit(&b, e);
}

static int load_cells(struct nl *nl, const struct policy_cell *cells, size_t n, struct err *e)
{
	auto_batch struct nft_batch b = { .nl = NULL };

	if (nft_batch_begin(nl, &b, e) < 0)
		return -1;
	nft_batch_endpoints_fill(&b, NFT_SET_ENDPOINTS, cells, n);
	return nft_batch_commit(&b, e);
}

int nft_load(struct nl *nl, const struct policy *p, struct err *e)
{
	int got = load_rules(nl, p, e);

	for (size_t i = 0; got == 0 && i < p->n_cells; i += CELLS_A_BATCH) {
		size_t left = p->n_cells - i;

		got = load_cells(nl, &p->cells[i], left < CELLS_A_BATCH ? left : CELLS_A_BATCH, e);
	}
	if (got < 0)
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
