/*
 * Reading the policy back: what the kernel holds counts, not what was sent.  The
 * rules are written down once more, without being sent, and compared word by word.
 */
#include "runner/nft.h"

#include "common/fd.h"
#include "runner/nft_batch.h"
#include "runner/nft_rules.h"

#include <arpa/inet.h>
#include <errno.h>
#include <libnftnl/chain.h>
#include <libnftnl/common.h>
#include <libnftnl/object.h>
#include <libnftnl/rule.h>
#include <libnftnl/set.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter_ipv4.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct chain {
	const char *name;
	bool base; /* packets come to it from a hook, with these: */
	uint32_t hook;
	int32_t priority;
	uint32_t policy;
};

static const struct chain chains[] = {
	{ "input", true, NF_INET_LOCAL_IN, NF_IP_PRI_FILTER, NF_DROP },
	{ "forward", true, NF_INET_FORWARD, NF_IP_PRI_FILTER, NF_DROP },
	{ "nat", true, NF_INET_POST_ROUTING, NF_IP_PRI_NAT_SRC, NF_ACCEPT },
	{ "permit", false, 0, 0, 0 },
	{ "refuse", false, 0, 0, 0 },
};

struct found {
	const struct nft_batch *wanted;
	bool chains[ARRAY_LEN(chains)];
	bool rules[NFT_RULES_MAX];
	bool surplus; /* something that should not be there, or not like this */
};

static struct nlmsghdr *new_query(struct nl *nl, char *buf, uint16_t type, uint16_t flags)
{
	return nftnl_nlmsg_build_hdr(buf, type, NFPROTO_INET, flags, nl->seq + 1);
}

/* What was asked for: libnftnl looks at the attributes alone. */
static bool tells_of(const struct nlmsghdr *m, int type)
{
	return m->nlmsg_type == (NFNL_SUBSYS_NFTABLES << 8 | type);
}

static bool same_chain(const struct nftnl_chain *c, const struct chain *wanted)
{
	if (!wanted->base)
		return !nftnl_chain_is_set(c, NFTNL_CHAIN_HOOKNUM);
	return nftnl_chain_is_set(c, NFTNL_CHAIN_HOOKNUM) &&
	       nftnl_chain_is_set(c, NFTNL_CHAIN_PRIO) &&
	       nftnl_chain_is_set(c, NFTNL_CHAIN_POLICY) &&
	       nftnl_chain_get_u32(c, NFTNL_CHAIN_HOOKNUM) == wanted->hook &&
	       nftnl_chain_get_s32(c, NFTNL_CHAIN_PRIO) == wanted->priority &&
	       nftnl_chain_get_u32(c, NFTNL_CHAIN_POLICY) == wanted->policy;
}

static void note_chain(struct found *f, const struct nftnl_chain *c)
{
	const char *name = nftnl_chain_get_str(c, NFTNL_CHAIN_NAME);
	size_t i = 0;

	while (name && i < ARRAY_LEN(chains) && strcmp(chains[i].name, name) != 0)
		i++;
	if (!name || i == ARRAY_LEN(chains) || f->chains[i] || !same_chain(c, &chains[i]))
		f->surplus = true;
	else
		f->chains[i] = true;
}

static int take_chain(const struct nlmsghdr *m, void *ctx)
{
	struct nftnl_chain *c = nftnl_chain_alloc();
	bool whole = c && tells_of(m, NFT_MSG_NEWCHAIN) && nftnl_chain_nlmsg_parse(m, c) == 0;

	if (whole)
		note_chain(ctx, c);
	if (c)
		nftnl_chain_free(c);
	errno = EPROTO;
	return whole ? MNL_CB_OK : MNL_CB_ERROR;
}

/* Rules come chain by chain in their order, so each must be the next one of its chain. */
static void note_rule(struct found *f, struct nftnl_rule *r)
{
	const char *chain = nftnl_rule_get_str(r, NFTNL_RULE_CHAIN);
	char text[NFT_TEXT_SIZE];
	size_t i = 0;

	while (chain && i < f->wanted->n_rules &&
	       (f->rules[i] || strcmp(f->wanted->rules[i].chain, chain) != 0))
		i++;
	if (!chain || i == f->wanted->n_rules || !nft_rule_text(r, text) ||
	    strcmp(text, f->wanted->rules[i].text) != 0)
		f->surplus = true;
	else
		f->rules[i] = true;
}

static int take_rule(const struct nlmsghdr *m, void *ctx)
{
	struct nftnl_rule *r = nftnl_rule_alloc();
	bool whole = r && tells_of(m, NFT_MSG_NEWRULE) && nftnl_rule_nlmsg_parse(m, r) == 0;

	if (whole)
		note_rule(ctx, r);
	if (r)
		nftnl_rule_free(r);
	errno = EPROTO;
	return whole ? MNL_CB_OK : MNL_CB_ERROR;
}

static int verify_rules(struct nl *nl, const struct policy *p, struct err *e)
{
	_Alignas(struct nlmsghdr) char buf[NL_MSG_MAX];
	auto_batch struct nft_batch wanted = { .nl = NULL };
	struct found f = { .wanted = &wanted };

	if (nft_batch_begin(nl, &wanted, e) < 0)
		return -1;
	nft_rules_add(&wanted, p);
	if (wanted.failed)
		return err_set(e, ENOMEM, "no memory for the packet rules");
	if (nl_query(nl, new_query(nl, buf, NFT_MSG_GETCHAIN, NLM_F_DUMP), take_chain, &f, e) < 0 ||
	    nl_query(nl, new_query(nl, buf, NFT_MSG_GETRULE, NLM_F_DUMP), take_rule, &f, e) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(chains); i++)
		if (!f.chains[i] || f.surplus)
			return err_set(e, EPROTO, "the chains and rules are not as loaded");
	for (size_t i = 0; i < wanted.n_rules; i++)
		if (!f.rules[i])
			return err_set(e, EPROTO, "a rule of chain %s is missing",
			               wanted.rules[i].chain);
	return 0;
}

/*
 * What a set holds, as numbers that sort: an end of a span is its address times two,
 * plus one for the end; a key of an endpoint is its address and port.
 */
struct content {
	uint64_t at[2 * POLICY_CELLS_MAX + 2];
	size_t n;
	bool malformed;
	bool endpoints;
};

static void add_number(struct content *c, uint64_t number)
{
	if (c->n < ARRAY_LEN(c->at))
		c->at[c->n++] = number;
	else
		c->malformed = true;
}

static void add_edge(struct content *c, struct nftnl_set_elem *x)
{
	uint32_t len = 0;
	uint32_t flags = 0;
	const uint32_t *key = nftnl_set_elem_get(x, NFTNL_SET_ELEM_KEY, &len);

	if (nftnl_set_elem_is_set(x, NFTNL_SET_ELEM_FLAGS))
		flags = nftnl_set_elem_get_u32(x, NFTNL_SET_ELEM_FLAGS);
	if (!key || len != sizeof(*key))
		c->malformed = true;
	else
		add_number(c,
		           (uint64_t)ntohl(*key) * 2 + ((flags & NFT_SET_ELEM_INTERVAL_END) != 0));
}

static void add_endpoint(struct content *c, struct nftnl_set_elem *x, uint16_t attribute)
{
	uint32_t len = 0;
	const void *key = nftnl_set_elem_get(x, attribute, &len);
	struct nft_endpoint end;

	if (!key || len != sizeof(end)) {
		c->malformed = true;
		return;
	}
	memcpy(&end, key, sizeof(end));
	c->malformed |= end.zero != 0;
	add_number(c, (uint64_t)ntohl(end.addr) << 16 | ntohs(end.port));
}

static void add_elements(struct content *c, const struct nftnl_set *s)
{
	struct nftnl_set_elems_iter *iter = nftnl_set_elems_iter_create(s);
	struct nftnl_set_elem *x;

	if (!iter) {
		c->malformed = true;
		return;
	}
	while ((x = nftnl_set_elems_iter_next(iter))) {
		if (c->endpoints) {
			add_endpoint(c, x, NFTNL_SET_ELEM_KEY);
			add_endpoint(c, x, NFTNL_SET_ELEM_KEY_END);
		} else {
			add_edge(c, x);
		}
	}
	nftnl_set_elems_iter_destroy(iter);
}

static int take_elements(const struct nlmsghdr *m, void *ctx)
{
	struct nftnl_set *s = nftnl_set_alloc();
	bool whole = s && tells_of(m, NFT_MSG_NEWSETELEM) && nftnl_set_elems_nlmsg_parse(m, s) == 0;

	if (whole)
		add_elements(ctx, s);
	if (s)
		nftnl_set_free(s);
	errno = EPROTO;
	return whole ? MNL_CB_OK : MNL_CB_ERROR;
}

static int order(const void *a, const void *b)
{
	const uint64_t *x = a;
	const uint64_t *y = b;

	return (*x > *y) - (*x < *y);
}

static void expect_spans(struct content *c, const struct deny *d)
{
	for (size_t i = 0; i < d->n; i++) {
		add_number(c, (uint64_t)d->spans[i].first * 2);
		if (d->spans[i].last != UINT32_MAX)
			add_number(c, ((uint64_t)d->spans[i].last + 1) * 2 + 1);
	}
}

static void expect_endpoints(struct content *c, const struct policy *p)
{
	for (size_t i = 0; i < p->n_cells; i++) {
		const struct policy_cell *cell = &p->cells[i];

		add_number(c, (uint64_t)cell->addrs.first << 16 | cell->ports.first);
		add_number(c, (uint64_t)cell->addrs.last << 16 | cell->ports.last);
	}
}

static int read_set(struct nl *nl, const char *name, struct content *c, struct err *e)
{
	_Alignas(struct nlmsghdr) char buf[NL_MSG_MAX];
	struct nftnl_set *s = nftnl_set_alloc();

	if (!s)
		return err_set(e, ENOMEM, "no memory for a set");
	nftnl_set_set_str(s, NFTNL_SET_TABLE, NFT_TABLE);
	nftnl_set_set_str(s, NFTNL_SET_NAME, name);
	nftnl_set_nlmsg_build_payload(new_query(nl, buf, NFT_MSG_GETSETELEM, NLM_F_DUMP), s);
	nftnl_set_free(s);
	return nl_query(nl, (void *)buf, take_elements, c, e);
}

static int compare(struct nl *nl, const char *name, struct content *wanted, struct err *e)
{
	auto_free struct content *held = calloc(1, sizeof(*held));

	if (!held)
		return err_set(e, ENOMEM, "no memory for a set");
	held->endpoints = wanted->endpoints;
	if (read_set(nl, name, held, e) < 0)
		return -1;
	qsort(held->at, held->n, sizeof(held->at[0]), order);
	qsort(wanted->at, wanted->n, sizeof(wanted->at[0]), order);
	if (held->malformed || wanted->malformed || held->n != wanted->n ||
	    memcmp(held->at, wanted->at, held->n * sizeof(held->at[0])) != 0)
		return err_set(e, EPROTO, "the set %s is not as loaded", name);
	return 0;
}

static int verify_spans(struct nl *nl, const char *name, const struct deny *d, struct err *e)
{
	auto_free struct content *wanted = calloc(1, sizeof(*wanted));

	if (!wanted)
		return err_set(e, ENOMEM, "no memory for a set");
	expect_spans(wanted, d);
	return compare(nl, name, wanted, e);
}

static int verify_endpoints(struct nl *nl, const struct policy *p, struct err *e)
{
	auto_free struct content *wanted = calloc(1, sizeof(*wanted));

	if (!wanted)
		return err_set(e, ENOMEM, "no memory for a set");
	wanted->endpoints = true;
	expect_endpoints(wanted, p);
	return compare(nl, NFT_SET_ENDPOINTS, wanted, e);
}

int nft_verify(struct nl *nl, const struct policy *p, struct err *e)
{
	if (verify_rules(nl, p, e) < 0 || verify_spans(nl, NFT_SET_LOCAL, &p->local, e) < 0 ||
	    verify_spans(nl, NFT_SET_DENIED, &p->denied, e) < 0 ||
	    verify_spans(nl, NFT_SET_ALLOWED, &p->allowed, e) < 0 || verify_endpoints(nl, p, e) < 0)
		return err_wrap(e, "read the packet rules back");
	return 0;
}

static int take_counter(const struct nlmsghdr *m, void *ctx)
{
	struct nftnl_obj *o = nftnl_obj_alloc();
	uint64_t *packets = ctx;
	int got = MNL_CB_ERROR;

	if (o && tells_of(m, NFT_MSG_NEWOBJ) && nftnl_obj_nlmsg_parse(m, o) == 0) {
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
