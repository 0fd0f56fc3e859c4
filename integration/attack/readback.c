/*
 * Laid over the runner's libnftnl: the kernel seems to hold something else than what was
 * loaded. Which answer is changed, READBACK says.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <libnftnl/chain.h>
#include <libnftnl/rule.h>
#include <libnftnl/set.h>
#include <linux/netfilter.h>
#include <stdlib.h>
#include <string.h>

static int wanted(const char *what)
{
	const char *now = getenv("READBACK");

	return now && !strcmp(now, what);
}

uint32_t nftnl_chain_get_u32(const struct nftnl_chain *c, uint16_t attr)
{
	static uint32_t (*real)(const struct nftnl_chain *, uint16_t);

	if (!real)
		real = (uint32_t(*)(const struct nftnl_chain *, uint16_t))dlsym(
			RTLD_NEXT, "nftnl_chain_get_u32");
	return wanted("policy") && attr == NFTNL_CHAIN_POLICY ? NF_ACCEPT : real(c, attr);
}

int nftnl_rule_nlmsg_parse(const struct nlmsghdr *m, struct nftnl_rule *r)
{
	static int (*real)(const struct nlmsghdr *, struct nftnl_rule *);
	static int n;

	if (!real)
		real = (int (*)(const struct nlmsghdr *, struct nftnl_rule *))dlsym(
			RTLD_NEXT, "nftnl_rule_nlmsg_parse");
	if (wanted("rule") && n++ == 5) {
		nftnl_rule_set_str(r, NFTNL_RULE_CHAIN, "forward");
		return 0;
	}
	return real(m, r);
}

int nftnl_set_elems_nlmsg_parse(const struct nlmsghdr *m, struct nftnl_set *s)
{
	static int (*real)(const struct nlmsghdr *, struct nftnl_set *);

	if (!real)
		real = (int (*)(const struct nlmsghdr *, struct nftnl_set *))dlsym(
			RTLD_NEXT, "nftnl_set_elems_nlmsg_parse");
	return wanted("set") ? 0 : real(m, s);
}
