#include "runner/link.h"

#include "common/fd.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/ip.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <string.h>
#include <unistd.h>

#define SOURCES "/proc/sys/net/ipv4/conf/all/rp_filter"

static struct nlmsghdr *new_link_message(char *buf, uint16_t type, uint16_t flags, const char *name)
{
	struct nlmsghdr *m = mnl_nlmsg_put_header(buf);
	struct ifinfomsg *info;

	m->nlmsg_type = type;
	m->nlmsg_flags = flags;
	info = mnl_nlmsg_put_extra_header(m, sizeof(*info));
	info->ifi_family = AF_UNSPEC;
	mnl_attr_put_strz(m, IFLA_IFNAME, name);
	return m;
}

int link_add_pair(struct nl *nl, const char *name, const char *peer, pid_t peer_pid, struct err *e)
{
	char buf[NL_MSG_MAX];
	struct nlmsghdr *m = new_link_message(buf, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, name);
	struct nlattr *info = mnl_attr_nest_start(m, IFLA_LINKINFO);
	struct nlattr *data;
	struct nlattr *other;

	mnl_attr_put_strz(m, IFLA_INFO_KIND, "veth");
	data = mnl_attr_nest_start(m, IFLA_INFO_DATA);
	other = mnl_attr_nest_start(m, VETH_INFO_PEER);
	(void)mnl_nlmsg_put_extra_header(m, sizeof(struct ifinfomsg));
	mnl_attr_put_strz(m, IFLA_IFNAME, peer);
	mnl_attr_put_u32(m, IFLA_NET_NS_PID, (uint32_t)peer_pid);
	mnl_attr_nest_end(m, other);
	mnl_attr_nest_end(m, data);
	mnl_attr_nest_end(m, info);
	if (nl_request(nl, m, e) < 0)
		return err_wrap(e, "create the interface pair (is the veth module loaded?)");
	return 0;
}

int link_up(struct nl *nl, const char *name, struct err *e)
{
	char buf[NL_MSG_MAX];
	struct nlmsghdr *m = new_link_message(buf, RTM_NEWLINK, 0, name);
	struct ifinfomsg *info = mnl_nlmsg_get_payload(m);

	info->ifi_flags = IFF_UP;
	info->ifi_change = IFF_UP;
	if (nl_request(nl, m, e) < 0)
		return err_wrap(e, "bring up interface %s", name);
	return 0;
}

int link_forward(struct nl *nl, const char *name, struct err *e)
{
	char buf[NL_MSG_MAX];
	struct nlmsghdr *m = new_link_message(buf, RTM_NEWLINK, 0, name);
	struct nlattr *spec = mnl_attr_nest_start(m, IFLA_AF_SPEC);
	struct nlattr *inet = mnl_attr_nest_start(m, AF_INET);
	struct nlattr *conf = mnl_attr_nest_start(m, IFLA_INET_CONF);

	mnl_attr_put_u32(m, IPV4_DEVCONF_FORWARDING, 1);
	/*
	 * What claims to come from elsewhere is not even looked at.  Asked by ARP, the
	 * kernel would keep every address that asks, in a table that all namespaces share.
	 */
	mnl_attr_put_u32(m, IPV4_DEVCONF_RP_FILTER, 1);
	mnl_attr_nest_end(m, conf);
	mnl_attr_nest_end(m, inet);
	mnl_attr_nest_end(m, spec);
	if (nl_request(nl, m, e) < 0)
		return err_wrap(e, "let interface %s forward", name);
	return 0;
}

int link_judge_sources(struct err *e)
{
	auto_close int out = open(SOURCES, O_WRONLY | O_CLOEXEC);
	auto_close int in = open(SOURCES, O_RDONLY | O_CLOEXEC);
	char value[4] = { 0 };

	/* What counts is what it says afterwards. */
	if (out >= 0)
		(void)!write(out, "0\n", 2);
	if (in < 0 || read(in, value, sizeof(value) - 1) <= 0)
		return err_errno(e, "read " SOURCES);
	value[strcspn(value, "\n")] = 0;
	if (strcmp(value, "0") == 0 || strcmp(value, "1") == 0)
		return 0;
	return err_set(e, EPERM,
	               SOURCES " is %s and cannot be changed for a sandbox; set "
	                       "net.ipv4.conf.all.rp_filter to 0 or 1 on this machine",
	               value);
}

int link_no_ipv6(struct nl *nl, const char *name, struct err *e)
{
	char buf[NL_MSG_MAX];
	struct nlmsghdr *m = new_link_message(buf, RTM_NEWLINK, 0, name);
	struct nlattr *spec = mnl_attr_nest_start(m, IFLA_AF_SPEC);
	struct nlattr *inet6 = mnl_attr_nest_start(m, AF_INET6);

	mnl_attr_put_u8(m, IFLA_INET6_ADDR_GEN_MODE, IN6_ADDR_GEN_MODE_NONE);
	mnl_attr_nest_end(m, inet6);
	mnl_attr_nest_end(m, spec);
	if (nl_request(nl, m, e) < 0 && e->code != EAFNOSUPPORT)
		return err_wrap(e, "keep IPv6 off interface %s", name);
	return 0;
}

static int take_index(const struct nlmsghdr *m, void *ctx)
{
	const struct ifinfomsg *info = mnl_nlmsg_get_payload(m);
	unsigned int *index = ctx;

	if (m->nlmsg_type == RTM_NEWLINK && mnl_nlmsg_get_payload_len(m) >= sizeof(*info))
		*index = (unsigned int)info->ifi_index;
	return MNL_CB_OK;
}

/* if_nametoindex(3) would look into this process's own namespace. */
static int find_index(struct nl *nl, const char *name, unsigned int *ret, struct err *e)
{
	char buf[NL_MSG_MAX];
	struct nlmsghdr *m = new_link_message(buf, RTM_GETLINK, NLM_F_ACK, name);
	unsigned int index = 0;

	if (nl_query(nl, m, take_index, &index, e) < 0)
		return -1;
	if (index == 0)
		return err_set(e, ENODEV, "the kernel did not number it");
	*ret = index;
	return 0;
}

int link_add_address(struct nl *nl, const char *name, uint32_t addr, unsigned int prefix,
                     struct err *e)
{
	char buf[NL_MSG_MAX];
	struct nlmsghdr *m = mnl_nlmsg_put_header(buf);
	struct ifaddrmsg *info;
	unsigned int index = 0;

	if (find_index(nl, name, &index, e) < 0)
		return err_wrap(e, "find interface %s", name);
	m->nlmsg_type = RTM_NEWADDR;
	m->nlmsg_flags = NLM_F_CREATE | NLM_F_EXCL;
	info = mnl_nlmsg_put_extra_header(m, sizeof(*info));
	info->ifa_family = AF_INET;
	info->ifa_prefixlen = (uint8_t)prefix;
	info->ifa_scope = RT_SCOPE_UNIVERSE;
	info->ifa_index = index;
	mnl_attr_put_u32(m, IFA_LOCAL, htonl(addr));
	mnl_attr_put_u32(m, IFA_ADDRESS, htonl(addr));
	if (nl_request(nl, m, e) < 0)
		return err_wrap(e, "give interface %s its address", name);
	return 0;
}

static int add_route(struct nl *nl, uint32_t addr, unsigned int prefix, uint32_t gateway,
                     struct err *e)
{
	char buf[NL_MSG_MAX];
	struct nlmsghdr *m = mnl_nlmsg_put_header(buf);
	struct rtmsg *route;

	m->nlmsg_type = RTM_NEWROUTE;
	m->nlmsg_flags = NLM_F_CREATE | NLM_F_EXCL;
	route = mnl_nlmsg_put_extra_header(m, sizeof(*route));
	route->rtm_family = AF_INET;
	route->rtm_dst_len = (uint8_t)prefix;
	route->rtm_table = RT_TABLE_MAIN;
	route->rtm_protocol = RTPROT_STATIC;
	route->rtm_scope = RT_SCOPE_UNIVERSE;
	route->rtm_type = RTN_UNICAST;
	mnl_attr_put_u32(m, RTA_DST, htonl(addr));
	mnl_attr_put_u32(m, RTA_GATEWAY, htonl(gateway));
	return nl_request(nl, m, e);
}

/* 0.0.0.0 to 223.255.255.255.  What has no route fails in the sandbox itself, and at once. */
int link_add_unicast_routes(struct nl *nl, uint32_t gateway, struct err *e)
{
	if (add_route(nl, 0x00000000, 1, gateway, e) < 0 ||
	    add_route(nl, 0x80000000, 2, gateway, e) < 0 ||
	    add_route(nl, 0xc0000000, 3, gateway, e) < 0)
		return err_wrap(e, "add the routes");
	return 0;
}
