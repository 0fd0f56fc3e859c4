#include "runner/nft_expr.h"

#include <arpa/inet.h>
#include <libnftnl/expr.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_tables.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <stddef.h>
#include <string.h>

#define REG  NFT_REG_1    /* conditions load what they compare into it */
#define NEXT NFT_REG32_01 /* the second four bytes of the same */

/* A fresh expression at the end of r; NULL when there is no memory. */
static struct nftnl_expr *append(struct nftnl_rule *r, const char *kind)
{
	struct nftnl_expr *x = r ? nftnl_expr_alloc(kind) : NULL;

	if (x)
		nftnl_rule_add_expr(r, x);
	return x;
}

static struct nftnl_rule *lost(struct nftnl_rule *r)
{
	if (r)
		nftnl_rule_free(r);
	return NULL;
}

static struct nftnl_rule *compare(struct nftnl_rule *r, uint32_t op, const void *data, uint32_t len)
{
	struct nftnl_expr *x = append(r, "cmp");

	if (!x)
		return lost(r);
	nftnl_expr_set_u32(x, NFTNL_EXPR_CMP_SREG, REG);
	nftnl_expr_set_u32(x, NFTNL_EXPR_CMP_OP, op);
	if (nftnl_expr_set(x, NFTNL_EXPR_CMP_DATA, data, len) < 0)
		return lost(r);
	return r;
}

static struct nftnl_rule *load_meta(struct nftnl_rule *r, uint32_t key)
{
	struct nftnl_expr *x = append(r, "meta");

	if (!x)
		return lost(r);
	nftnl_expr_set_u32(x, NFTNL_EXPR_META_KEY, key);
	nftnl_expr_set_u32(x, NFTNL_EXPR_META_DREG, REG);
	return r;
}

static struct nftnl_rule *load_into(struct nftnl_rule *r, uint32_t reg, uint32_t base,
                                    uint32_t offset, uint32_t len)
{
	struct nftnl_expr *x = append(r, "payload");

	if (!x)
		return lost(r);
	nftnl_expr_set_u32(x, NFTNL_EXPR_PAYLOAD_BASE, base);
	nftnl_expr_set_u32(x, NFTNL_EXPR_PAYLOAD_OFFSET, offset);
	nftnl_expr_set_u32(x, NFTNL_EXPR_PAYLOAD_LEN, len);
	nftnl_expr_set_u32(x, NFTNL_EXPR_PAYLOAD_DREG, reg);
	return r;
}

static struct nftnl_rule *load_payload(struct nftnl_rule *r, uint32_t base, uint32_t offset,
                                       uint32_t len)
{
	return load_into(r, REG, base, offset, len);
}

static struct nftnl_rule *interface_is(struct nftnl_rule *r, uint32_t key, const char *interface)
{
	char name[IFNAMSIZ] = { 0 };

	memcpy(name, interface, strnlen(interface, sizeof(name) - 1));
	return compare(load_meta(r, key), NFT_CMP_EQ, name, sizeof(name));
}

struct nftnl_rule *nft_from(struct nftnl_rule *r, const char *interface)
{
	return interface_is(r, NFT_META_IIFNAME, interface);
}

struct nftnl_rule *nft_to(struct nftnl_rule *r, const char *interface)
{
	return interface_is(r, NFT_META_OIFNAME, interface);
}

static struct nftnl_rule *family(struct nftnl_rule *r, uint32_t op)
{
	uint8_t ipv4 = NFPROTO_IPV4;

	return compare(load_meta(r, NFT_META_NFPROTO), op, &ipv4, sizeof(ipv4));
}

struct nftnl_rule *nft_ipv4(struct nftnl_rule *r)
{
	return family(r, NFT_CMP_EQ);
}

struct nftnl_rule *nft_not_ipv4(struct nftnl_rule *r)
{
	return family(r, NFT_CMP_NEQ);
}

struct nftnl_rule *nft_protocol(struct nftnl_rule *r, uint8_t protocol)
{
	return compare(load_meta(r, NFT_META_L4PROTO), NFT_CMP_EQ, &protocol, sizeof(protocol));
}

static struct nftnl_rule *load_address(struct nftnl_rule *r, size_t offset)
{
	return load_payload(nft_ipv4(r), NFT_PAYLOAD_NETWORK_HEADER, (uint32_t)offset,
	                    sizeof(uint32_t));
}

static struct nftnl_rule *address(struct nftnl_rule *r, size_t offset, uint32_t op, uint32_t addr)
{
	uint32_t wire = htonl(addr);

	return compare(load_address(r, offset), op, &wire, sizeof(wire));
}

struct nftnl_rule *nft_source_is(struct nftnl_rule *r, uint32_t addr)
{
	return address(r, offsetof(struct iphdr, saddr), NFT_CMP_EQ, addr);
}

struct nftnl_rule *nft_source_is_not(struct nftnl_rule *r, uint32_t addr)
{
	return address(r, offsetof(struct iphdr, saddr), NFT_CMP_NEQ, addr);
}

struct nftnl_rule *nft_destination_is(struct nftnl_rule *r, uint32_t addr)
{
	return address(r, offsetof(struct iphdr, daddr), NFT_CMP_EQ, addr);
}

static struct nftnl_rule *in_set(struct nftnl_rule *r, const char *set)
{
	struct nftnl_expr *x = append(r, "lookup");

	if (!x)
		return lost(r);
	nftnl_expr_set_u32(x, NFTNL_EXPR_LOOKUP_SREG, REG);
	nftnl_expr_set_u32(x, NFTNL_EXPR_LOOKUP_FLAGS, 0); /* a rule that is read back has them */
	if (nftnl_expr_set_str(x, NFTNL_EXPR_LOOKUP_SET, set) < 0)
		return lost(r);
	return r;
}

struct nftnl_rule *nft_source_in(struct nftnl_rule *r, const char *set)
{
	return in_set(load_address(r, offsetof(struct iphdr, saddr)), set);
}

struct nftnl_rule *nft_destination_in(struct nftnl_rule *r, const char *set)
{
	return in_set(load_address(r, offsetof(struct iphdr, daddr)), set);
}

static struct nftnl_rule *port(struct nftnl_rule *r, uint32_t offset, uint16_t number)
{
	uint16_t wire = htons(number);

	r = load_payload(r, NFT_PAYLOAD_TRANSPORT_HEADER, offset, sizeof(wire));
	return compare(r, NFT_CMP_EQ, &wire, sizeof(wire));
}

/* TCP and UDP agree on where the ports are. */
struct nftnl_rule *nft_source_port(struct nftnl_rule *r, uint16_t number)
{
	return port(r, 0, number);
}

struct nftnl_rule *nft_destination_port(struct nftnl_rule *r, uint16_t number)
{
	return port(r, sizeof(uint16_t), number);
}

struct nftnl_rule *nft_endpoint_in(struct nftnl_rule *r, const char *set)
{
	r = load_address(r, offsetof(struct iphdr, daddr));
	r = load_into(r, NEXT, NFT_PAYLOAD_TRANSPORT_HEADER, sizeof(uint16_t), sizeof(uint16_t));
	return in_set(r, set);
}

struct nftnl_rule *nft_state(struct nftnl_rule *r, uint32_t states)
{
	uint32_t zero = 0;
	struct nftnl_expr *ct = append(r, "ct");
	struct nftnl_expr *mask = ct ? append(r, "bitwise") : NULL;

	if (!mask)
		return lost(r);
	nftnl_expr_set_u32(ct, NFTNL_EXPR_CT_KEY, NFT_CT_STATE);
	nftnl_expr_set_u32(ct, NFTNL_EXPR_CT_DREG, REG);
	nftnl_expr_set_u32(mask, NFTNL_EXPR_BITWISE_SREG, REG);
	nftnl_expr_set_u32(mask, NFTNL_EXPR_BITWISE_DREG, REG);
	nftnl_expr_set_u32(mask, NFTNL_EXPR_BITWISE_LEN, sizeof(states));
	if (nftnl_expr_set(mask, NFTNL_EXPR_BITWISE_MASK, &states, sizeof(states)) < 0 ||
	    nftnl_expr_set(mask, NFTNL_EXPR_BITWISE_XOR, &zero, sizeof(zero)) < 0)
		return lost(r);
	return compare(r, NFT_CMP_NEQ, &zero, sizeof(zero));
}

struct nftnl_rule *nft_connections_over(struct nftnl_rule *r, uint32_t limit)
{
	struct nftnl_expr *x = append(r, "connlimit");

	if (!x)
		return lost(r);
	nftnl_expr_set_u32(x, NFTNL_EXPR_CONNLIMIT_COUNT, limit);
	nftnl_expr_set_u32(x, NFTNL_EXPR_CONNLIMIT_FLAGS, NFT_CONNLIMIT_F_INV);
	return r;
}

struct nftnl_rule *nft_faster_than(struct nftnl_rule *r, uint64_t a_second, uint32_t burst)
{
	struct nftnl_expr *x = append(r, "limit");

	if (!x)
		return lost(r);
	nftnl_expr_set_u64(x, NFTNL_EXPR_LIMIT_RATE, a_second);
	nftnl_expr_set_u64(x, NFTNL_EXPR_LIMIT_UNIT, 1); /* second */
	nftnl_expr_set_u32(x, NFTNL_EXPR_LIMIT_BURST, burst);
	nftnl_expr_set_u32(x, NFTNL_EXPR_LIMIT_TYPE, NFT_LIMIT_PKTS);
	nftnl_expr_set_u32(x, NFTNL_EXPR_LIMIT_FLAGS, NFT_LIMIT_F_INV);
	return r;
}

struct nftnl_rule *nft_count(struct nftnl_rule *r, const char *counter)
{
	struct nftnl_expr *x = append(r, "objref");

	if (!x)
		return lost(r);
	nftnl_expr_set_u32(x, NFTNL_EXPR_OBJREF_IMM_TYPE, NFT_OBJECT_COUNTER);
	if (nftnl_expr_set_str(x, NFTNL_EXPR_OBJREF_IMM_NAME, counter) < 0)
		return lost(r);
	return r;
}

struct nftnl_rule *nft_masquerade(struct nftnl_rule *r)
{
	return append(r, "masq") ? r : lost(r);
}

static struct nftnl_rule *reject(struct nftnl_rule *r, uint32_t type, uint8_t code)
{
	struct nftnl_expr *x = append(r, "reject");

	if (!x)
		return lost(r);
	nftnl_expr_set_u32(x, NFTNL_EXPR_REJECT_TYPE, type);
	nftnl_expr_set_u8(x, NFTNL_EXPR_REJECT_CODE, code);
	return r;
}

struct nftnl_rule *nft_reject_reset(struct nftnl_rule *r)
{
	return reject(nft_protocol(r, IPPROTO_TCP), NFT_REJECT_TCP_RST, 0);
}

struct nftnl_rule *nft_reject_port(struct nftnl_rule *r)
{
	return reject(r, NFT_REJECT_ICMPX_UNREACH, NFT_REJECT_ICMPX_PORT_UNREACH);
}

struct nftnl_rule *nft_reject_prohibited(struct nftnl_rule *r)
{
	return reject(r, NFT_REJECT_ICMPX_UNREACH, NFT_REJECT_ICMPX_ADMIN_PROHIBITED);
}

static struct nftnl_rule *verdict(struct nftnl_rule *r, uint32_t what, const char *chain)
{
	struct nftnl_expr *x = append(r, "immediate");

	if (!x)
		return lost(r);
	nftnl_expr_set_u32(x, NFTNL_EXPR_IMM_DREG, NFT_REG_VERDICT);
	nftnl_expr_set_u32(x, NFTNL_EXPR_IMM_VERDICT, what);
	if (chain && nftnl_expr_set_str(x, NFTNL_EXPR_IMM_CHAIN, chain) < 0)
		return lost(r);
	return r;
}

struct nftnl_rule *nft_accept(struct nftnl_rule *r)
{
	return verdict(r, NF_ACCEPT, NULL);
}

struct nftnl_rule *nft_drop(struct nftnl_rule *r)
{
	return verdict(r, NF_DROP, NULL);
}

struct nftnl_rule *nft_goto(struct nftnl_rule *r, const char *chain)
{
	return verdict(r, (uint32_t)NFT_GOTO, chain);
}
