/* Reading the policy back: what the kernel holds counts, not what was sent. */
#include "runner/nft.h"

#include "common/fd.h"

#include <arpa/inet.h>
#include <errno.h>
#include <libnftnl/chain.h>
#include <libnftnl/common.h>
#include <libnftnl/object.h>
#include <libnftnl/rule.h>
#include <libnftnl/set.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <stdbool.h>
#include <string.h>

static const struct {
	const char *name;
	unsigned int rules;
	bool drops; /* a base chain that drops what no rule decides */
} expected[] = {
	{ "input", 1, true },   { "forward", 9, true }, { "permit", 3, false },
	{ "refuse", 3, false }, { "nat", 1, false },
};

struct found {
	unsigned int rules[ARRAY_LEN(expected)];
	bool drops[ARRAY_LEN(expected)];
	unsigned int chains;
	bool surplus; /* something that is not in the table of expectations */
};

static struct nlmsghdr *new_query(struct nl *nl, char *buf, uint16_t type, uint16_t flags)
{
	return nftnl_nlmsg_build_hdr(buf, type, NFPROTO_INET, flags, nl->seq + 1);
}

static size_t find_chain(const char *name)
{
	size_t i = 0;

	while (i < ARRAY_LEN(expected) && strcmp(expected[i].name, name) != 0)
		i++;
	return i;
}

static int take_chain(const struct nlmsghdr *m, void *ctx)
{
	struct nftnl_chain *c = nftnl_chain_alloc();
	struct found *f = ctx;
	size_t i;

	if (!c || nftnl_chain_nlmsg_parse(m, c) < 0) {
		if (c)
			nftnl_chain_free(c);
		errno = EPROTO;
		return MNL_CB_ERROR;
	}
	i = find_chain(nftnl_chain_get_str(c, NFTNL_CHAIN_NAME));
	f->chains++;
	if (i == ARRAY_LEN(expected))
		f->surplus = true;
	else
		f->drops[i] = nftnl_chain_is_set(c, NFTNL_CHAIN_POLICY) &&
		              nftnl_chain_get_u32(c, NFTNL_CHAIN_POLICY) == NF_DROP;
	nftnl_chain_free(c);
	return MNL_CB_OK;
}

static int take_rule(const struct nlmsghdr *m, void *ctx)
{
	struct nftnl_rule *r = nftnl_rule_alloc();
	struct found *f = ctx;
	size_t i;

	if (!r || nftnl_rule_nlmsg_parse(m, r) < 0) {
		if (r)
			nftnl_rule_free(r);
		errno = EPROTO;
		return MNL_CB_ERROR;
	}
	i = find_chain(nftnl_rule_get_str(r, NFTNL_RULE_CHAIN));
	if (i == ARRAY_LEN(expected))
		f->surplus = true;
	else
		f->rules[i]++;
	nftnl_rule_free(r);
	return MNL_CB_OK;
}

static int verify_rules(struct nl *nl, struct err *e)
{
	_Alignas(struct nlmsghdr) char buf[NL_MSG_MAX];
	struct found f = { .chains = 0 };

	if (nl_query(nl, new_query(nl, buf, NFT_MSG_GETCHAIN, NLM_F_DUMP), take_chain, &f, e) < 0 ||
	    nl_query(nl, new_query(nl, buf, NFT_MSG_GETRULE, NLM_F_DUMP), take_rule, &f, e) < 0)
		return -1;
	if (f.chains != ARRAY_LEN(expected) || f.surplus)
		return err_set(e, EPROTO, "%u chains are loaded, not %zu", f.chains,
		               ARRAY_LEN(expected));
	for (size_t i = 0; i < ARRAY_LEN(expected); i++)
		if (f.rules[i] != expected[i].rules || f.drops[i] != expected[i].drops)
			return err_set(e, EPROTO, "chain %s is not as loaded", expected[i].name);
	return 0;
}

/* One end of a span: an address times two, plus one for the end of a span. */
struct edges {
	uint64_t at[2 * DENY_MAX];
	size_t n;
};

static uint64_t edge_of(struct nftnl_set_elem *x)
{
	uint32_t len = 0;
	uint32_t flags = 0;
	const uint32_t *key = nftnl_set_elem_get(x, NFTNL_SET_ELEM_KEY, &len);

	if (nftnl_set_elem_is_set(x, NFTNL_SET_ELEM_FLAGS))
		flags = nftnl_set_elem_get_u32(x, NFTNL_SET_ELEM_FLAGS);
	if (!key || len != sizeof(*key))
		return UINT64_MAX; /* equals no expected edge */
	return (uint64_t)ntohl(*key) * 2 + ((flags & NFT_SET_ELEM_INTERVAL_END) != 0);
}

static int take_elements(const struct nlmsghdr *m, void *ctx)
{
	struct nftnl_set *s = nftnl_set_alloc();
	struct nftnl_set_elems_iter *iter = NULL;
	struct nftnl_set_elem *x;
	struct edges *edges = ctx;

	if (s && nftnl_set_elems_nlmsg_parse(m, s) == 0)
		iter = nftnl_set_elems_iter_create(s);
	while (iter && (x = nftnl_set_elems_iter_next(iter)) && edges->n < ARRAY_LEN(edges->at)) {
		edges->at[edges->n++] = edge_of(x);
	}
	if (iter)
		nftnl_set_elems_iter_destroy(iter);
	if (s)
		nftnl_set_free(s);
	errno = EPROTO;
	return iter ? MNL_CB_OK : MNL_CB_ERROR;
}

static int order_edges(const void *a, const void *b)
{
	const uint64_t *x = a;
	const uint64_t *y = b;

	return (*x > *y) - (*x < *y);
}

static bool same_spans(struct edges *edges, const struct deny *d)
{
	size_t at = 0;

	qsort(edges->at, edges->n, sizeof(edges->at[0]), order_edges);
	for (size_t i = 0; i < d->n; i++) {
		if (at >= edges->n || edges->at[at++] != (uint64_t)d->spans[i].first * 2)
			return false;
		if (d->spans[i].last == UINT32_MAX)
			continue;
		if (at >= edges->n || edges->at[at++] != ((uint64_t)d->spans[i].last + 1) * 2 + 1)
			return false;
	}
	return at == edges->n;
}

static int verify_denied(struct nl *nl, const struct deny *d, struct err *e)
{
	_Alignas(struct nlmsghdr) char buf[NL_MSG_MAX];
	auto_free struct edges *edges = calloc(1, sizeof(*edges));
	struct nftnl_set *s = nftnl_set_alloc();
	int got = -1;

	if (edges && s) {
		nftnl_set_set_str(s, NFTNL_SET_TABLE, NFT_TABLE);
		nftnl_set_set_str(s, NFTNL_SET_NAME, NFT_SET_DENIED);
		nftnl_set_nlmsg_build_payload(new_query(nl, buf, NFT_MSG_GETSETELEM, NLM_F_DUMP),
		                              s);
		got = nl_query(nl, (void *)buf, take_elements, edges, e);
	} else {
		err_set(e, ENOMEM, "no memory for the denied addresses");
	}
	if (s)
		nftnl_set_free(s);
	if (got == 0 && !same_spans(edges, d))
		return err_set(e, EPROTO, "the denied addresses are not as loaded");
	return got;
}

int nft_verify(struct nl *nl, const struct deny *d, struct err *e)
{
	if (verify_rules(nl, e) < 0 || verify_denied(nl, d, e) < 0)
		return err_wrap(e, "read the packet rules back");
	return 0;
}

static int take_counter(const struct nlmsghdr *m, void *ctx)
{
	struct nftnl_obj *o = nftnl_obj_alloc();
	uint64_t *packets = ctx;
	int got = MNL_CB_ERROR;

	if (o && nftnl_obj_nlmsg_parse(m, o) == 0) {
		*packets = nftnl_obj_get_u64(o, NFTNL_OBJ_CTR_PKTS);
		got = MNL_CB_OK;
	}
	if (o)
		nftnl_obj_free(o);
	errno = EPROTO;
	return got;
}

static int read_counter(struct nl *nl, const char *name, uint64_t *ret, struct err *e)
{
	_Alignas(struct nlmsghdr) char buf[NL_MSG_MAX];
	struct nlmsghdr *m = new_query(nl, buf, NFT_MSG_GETOBJ, NLM_F_ACK);
	struct nftnl_obj *o = nftnl_obj_alloc();

	if (!o)
		return err_set(e, ENOMEM, "no memory for a counter");
	nftnl_obj_set_str(o, NFTNL_OBJ_TABLE, NFT_TABLE);
	nftnl_obj_set_str(o, NFTNL_OBJ_NAME, name);
	nftnl_obj_set_u32(o, NFTNL_OBJ_TYPE, NFT_OBJECT_COUNTER);
	nftnl_obj_nlmsg_build_payload(m, o);
	nftnl_obj_free(o);
	if (nl_query(nl, m, take_counter, ret, e) < 0)
		return err_wrap(e, "read counter %s", name);
	return 0;
}

int nft_read_counters(struct nl *nl, struct nft_counters *ret, struct err *e)
{
	struct nft_counters c = { 0 };

	if (read_counter(nl, NFT_COUNTER_ACCEPTED, &c.accepted, e) < 0 ||
	    read_counter(nl, NFT_COUNTER_REFUSED, &c.refused, e) < 0)
		return -1;
	*ret = c;
	return 0;
}
