#include "runner/local.h"

#include "common/fd.h"
#include "runner/nl.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/rtnetlink.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

#define SNAPSHOT_TRIES 10

int local_watch(int *ret_fd, struct err *e)
{
	auto_close int fd = -1;
	int group = RTNLGRP_IPV4_ROUTE;

	if (nl_open_fd(NETLINK_ROUTE, &fd, e) < 0)
		return -1;
	if (setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof(group)) < 0)
		return err_errno(e, "subscribe to the host's routes");
	if (fd_set_nonblocking(fd, e) < 0)
		return -1;
	*ret_fd = fd_take(&fd);
	return 0;
}

struct route {
	uint32_t addr; /* host byte order; 0 when the message names none */
	uint32_t table;
};

static int take_attribute(const struct nlattr *attr, void *ctx)
{
	struct route *r = ctx;

	if (mnl_attr_get_payload_len(attr) < sizeof(uint32_t))
		return MNL_CB_OK;
	if (mnl_attr_get_type(attr) == RTA_DST)
		r->addr = ntohl(mnl_attr_get_u32(attr));
	if (mnl_attr_get_type(attr) == RTA_TABLE)
		r->table = mnl_attr_get_u32(attr);
	return MNL_CB_OK;
}

/* A route of such a kind makes its addresses the host's in whatever table it stands. */
static bool ends_here(unsigned char type)
{
	return type == RTN_LOCAL || type == RTN_BROADCAST || type == RTN_ANYCAST;
}

int local_parse(const struct nlmsghdr *message, struct deny *d, struct err *e)
{
	const struct rtmsg *head = mnl_nlmsg_get_payload(message);
	struct route r = { 0 };

	if (message->nlmsg_type != RTM_NEWROUTE)
		return 0;
	if (mnl_nlmsg_get_payload_len(message) < sizeof(*head))
		return err_set(e, EPROTO, "the kernel sent a short route");
	if (head->rtm_family != AF_INET)
		return 0;
	r.table = head->rtm_table;
	if (head->rtm_dst_len > 32 ||
	    mnl_attr_parse(message, sizeof(*head), take_attribute, &r) < 0)
		return err_set(e, EPROTO, "the kernel sent a malformed route");
	if (r.table != RT_TABLE_LOCAL && !ends_here(head->rtm_type))
		return 0;
	return deny_add_prefix(d, r.addr, head->rtm_dst_len, e);
}

struct snapshot {
	struct deny *deny;
	struct err *err;
};

static int take_route(const struct nlmsghdr *message, void *ctx)
{
	struct snapshot *s = ctx;

	if (local_parse(message, s->deny, s->err) >= 0)
		return MNL_CB_OK;
	errno = s->err->code;
	return MNL_CB_ERROR;
}

static int dump_routes(struct nl *nl, struct deny *d, struct err *e)
{
	char buf[NL_MSG_MAX];
	struct nlmsghdr *request = mnl_nlmsg_put_header(buf);
	struct rtmsg *route;
	struct err why = ERR_INIT;
	struct snapshot s = { d, &why };

	request->nlmsg_type = RTM_GETROUTE;
	request->nlmsg_flags = NLM_F_DUMP;
	route = mnl_nlmsg_put_extra_header(request, sizeof(*route));
	route->rtm_family = AF_INET;
	if (nl_query(nl, request, take_route, &s, e) == 0)
		return 0;
	if (why.code)
		*e = why;
	return -1;
}

int local_snapshot(struct deny *d, struct err *e)
{
	int tries = SNAPSHOT_TRIES;
	int got;

	/* Routes that change while they are read make the kernel say so: then read again. */
	do {
		auto_nl struct nl nl = NL_INIT;
		auto_close int fd = -1;

		if (nl_open_fd(NETLINK_ROUTE, &fd, e) < 0 || nl_adopt(fd_take(&fd), &nl, e) < 0)
			return -1;
		got = dump_routes(&nl, d, e);
	} while (got < 0 && e->code == EINTR && --tries > 0);
	if (got < 0)
		return err_wrap(e, "read the host's local routes");
	return 0;
}

static int parse_all(const char *buf, size_t size, struct deny *d, struct err *e)
{
	const struct nlmsghdr *message = (const void *)buf;
	int left = (int)size;
	int grew = 0;

	for (; mnl_nlmsg_ok(message, left); message = mnl_nlmsg_next(message, &left)) {
		int got = local_parse(message, d, e);

		if (got < 0)
			return -1;
		grew |= got;
	}
	return grew;
}

int local_update(int watch, struct deny *d, struct err *e)
{
	_Alignas(struct nlmsghdr) char buf[16 * 1024];
	int grew = 0;

	for (;;) {
		struct sockaddr_nl from = { 0 };
		socklen_t size = sizeof(from);
		ssize_t n = recvfrom(watch, buf, sizeof(buf), MSG_TRUNC, (struct sockaddr *)&from,
		                     &size);
		int got;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return grew;
		if (n < 0 && errno != ENOBUFS)
			return err_errno(e, "watch the host's routes");
		if (n >= 0 && from.nl_pid != 0)
			continue; /* not from the kernel */
		if (n < 0 || (size_t)n > sizeof(buf)) {
			/* Something was lost; spans of the snapshot may or may not be new. */
			if (local_snapshot(d, e) < 0)
				return -1;
			got = 1;
		} else {
			got = parse_all(buf, (size_t)n, d, e);
		}
		if (got < 0)
			return -1;
		grew |= got;
	}
}
