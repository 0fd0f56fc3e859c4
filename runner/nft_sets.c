/* Sets of a batch. */
#include "runner/nft.h"
#include "runner/nft_batch.h"

#include <arpa/inet.h>
#include <libnftnl/set.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#define SPANS_A_MESSAGE 256

/* What nft(8) calls ipv4_addr and inet_service; the kernel only keeps them. */
#define TYPE_ADDRESS 7
#define TYPE_PORT    13
#define TYPE_BITS    6

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

static void add_set(struct nft_batch *b, struct nftnl_set *s)
{
	nftnl_set_set_u32(s, NFTNL_SET_FAMILY, NFPROTO_INET);
	nftnl_set_set_u32(s, NFTNL_SET_ID, ++b->n_sets);
	nftnl_set_nlmsg_build_payload(nft_batch_open(b, NFT_MSG_NEWSET, NLM_F_CREATE | NLM_F_EXCL),
	                              s);
	nft_batch_close(b);
	nftnl_set_free(s);
}

void nft_batch_set(struct nft_batch *b, const char *name)
{
	struct nftnl_set *s = new_set(b, name);

	if (!s)
		return;
	nftnl_set_set_u32(s, NFTNL_SET_FLAGS, NFT_SET_INTERVAL);
	nftnl_set_set_u32(s, NFTNL_SET_KEY_TYPE, TYPE_ADDRESS);
	nftnl_set_set_u32(s, NFTNL_SET_KEY_LEN, sizeof(uint32_t));
	add_set(b, s);
}

void nft_batch_endpoints(struct nft_batch *b, const char *name)
{
	static const uint8_t fields[] = { sizeof(uint32_t), sizeof(uint16_t) };
	struct nftnl_set *s = new_set(b, name);

	if (!s)
		return;
	nftnl_set_set_u32(s, NFTNL_SET_FLAGS, NFT_SET_INTERVAL | NFT_SET_CONCAT);
	nftnl_set_set_u32(s, NFTNL_SET_KEY_TYPE, TYPE_ADDRESS << TYPE_BITS | TYPE_PORT);
	nftnl_set_set_u32(s, NFTNL_SET_KEY_LEN, sizeof(struct nft_endpoint));
	b->failed |= nftnl_set_set_data(s, NFTNL_SET_DESC_CONCAT, fields, sizeof(fields)) < 0;
	add_set(b, s);
}

void nft_batch_set_flush(struct nft_batch *b, const char *name)
{
	struct nftnl_set *s = new_set(b, name);

	if (!s)
		return;
	nftnl_set_elems_nlmsg_build_payload(nft_batch_open(b, NFT_MSG_DELSETELEM, 0), s);
	nft_batch_close(b);
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

static void fill_spans(struct nft_batch *b, const char *name, const struct deny_span *spans,
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
		nft_batch_open(b, NFT_MSG_NEWSETELEM, NLM_F_CREATE | NLM_F_EXCL), s);
	nft_batch_close(b);
	nftnl_set_free(s);
}

void nft_batch_set_fill(struct nft_batch *b, const char *name, const struct deny *d)
{
	for (size_t i = 0; i < d->n; i += SPANS_A_MESSAGE) {
		size_t left = d->n - i;

		fill_spans(b, name, &d->spans[i], left < SPANS_A_MESSAGE ? left : SPANS_A_MESSAGE);
	}
}

static struct nft_endpoint endpoint(uint32_t addr, uint16_t number)
{
	return (struct nft_endpoint){ .addr = htonl(addr), .port = htons(number) };
}

static bool add_endpoints(struct nftnl_set *s, const struct policy_cell *cell)
{
	struct nft_endpoint first = endpoint(cell->addrs.first, cell->ports.first);
	struct nft_endpoint last = endpoint(cell->addrs.last, cell->ports.last);
	struct nftnl_set_elem *x = nftnl_set_elem_alloc();

	if (!x)
		return false;
	if (nftnl_set_elem_set(x, NFTNL_SET_ELEM_KEY, &first, sizeof(first)) < 0 ||
	    nftnl_set_elem_set(x, NFTNL_SET_ELEM_KEY_END, &last, sizeof(last)) < 0) {
		nftnl_set_elem_free(x);
		return false;
	}
	nftnl_set_elem_add(s, x);
	return true;
}

static void fill_endpoints(struct nft_batch *b, const char *name, const struct policy_cell *cells,
                           size_t n)
{
	struct nftnl_set *s = new_set(b, name);

	if (!s)
		return;
	for (size_t i = 0; i < n; i++)
		if (!add_endpoints(s, &cells[i]))
			b->failed = true;
	nftnl_set_elems_nlmsg_build_payload(
		nft_batch_open(b, NFT_MSG_NEWSETELEM, NLM_F_CREATE | NLM_F_EXCL), s);
	nft_batch_close(b);
	nftnl_set_free(s);
}

void nft_batch_endpoints_fill(struct nft_batch *b, const char *name,
                              const struct policy_cell *cells, size_t n)
{
	for (size_t i = 0; i < n; i += SPANS_A_MESSAGE) {
		size_t left = n - i;

		fill_endpoints(b, name, &cells[i], left < SPANS_A_MESSAGE ? left : SPANS_A_MESSAGE);
	}
}
