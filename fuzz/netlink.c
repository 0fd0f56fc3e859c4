/*
 * What the kernel says over netlink.  Announcements of routes, one after the other: what is
 * local to the host is exactly what a second reader finds in them.  And the same bytes as
 * answers, a datagram for each message or with several: to a question, to a request and to a
 * batch, of which none passes for done when the kernel said no.
 */
#include "fuzz/fuzz.h"

#include "common/attr.h"
#include "runner/local.h"
#include "runner/nl.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/rtnetlink.h>
#include <stdbool.h>

#define MESSAGES_MAX 256

/* -- a second reader: routes ------------------------------------------------------------------ */

struct span {
	uint32_t first, last;
};

struct route {
	const uint8_t *at;
	size_t len;
	uint32_t addr, table;
};

static void read_attributes(struct route *r)
{
	while (r->len >= sizeof(struct rtattr)) {
		struct rtattr a;
		uint32_t value;
		size_t step;

		memcpy(&a, r->at, sizeof(a));
		if (a.rta_len < sizeof(a) || a.rta_len > r->len)
			return;
		if (a.rta_len >= sizeof(a) + sizeof(value)) {
			memcpy(&value, r->at + sizeof(a), sizeof(value));
			if ((a.rta_type & NLA_TYPE_MASK) == RTA_DST)
				r->addr = ntohl(value);
			if ((a.rta_type & NLA_TYPE_MASK) == RTA_TABLE)
				r->table = value;
		}
		step = RTA_ALIGN(a.rta_len);
		if (step > r->len)
			return;
		r->at += step;
		r->len -= step;
	}
}

/* What the message makes local: 1, 0 for nothing, -1 when it is none. */
static int read_route(const uint8_t *at, size_t len, struct span *ret)
{
	struct route r = { at + sizeof(struct nlmsghdr) + sizeof(struct rtmsg), 0, 0, 0 };
	struct nlmsghdr head;
	struct rtmsg route;
	uint32_t host;

	memcpy(&head, at, sizeof(head));
	if (head.nlmsg_type != RTM_NEWROUTE)
		return 0;
	if (len < sizeof(head) + sizeof(route))
		return -1;
	memcpy(&route, at + sizeof(head), sizeof(route));
	if (route.rtm_family != AF_INET)
		return 0;
	if (route.rtm_dst_len > 32)
		return -1;
	r.len = NLMSG_ALIGN(len) - sizeof(head) - sizeof(route);
	r.table = route.rtm_table;
	read_attributes(&r);
	if (r.table != RT_TABLE_LOCAL && route.rtm_type != RTN_LOCAL &&
	    route.rtm_type != RTN_BROADCAST && route.rtm_type != RTN_ANYCAST)
		return 0;
	host = route.rtm_dst_len ? ((UINT64_C(1) << (32 - route.rtm_dst_len)) - 1) & UINT32_MAX
	                         : UINT32_MAX;
	*ret = (struct span){ r.addr & ~host, r.addr | host };
	return 1;
}

static void demand_sorted(const struct deny *d)
{
	demand(d->n <= DENY_MAX);
	for (size_t i = 0; i < d->n; i++) {
		demand(d->spans[i].first <= d->spans[i].last);
		demand(i == 0 || (uint64_t)d->spans[i - 1].last + 1 < d->spans[i].first);
	}
}

/* How far the spans reach without a gap from where one begins. */
static uint64_t reach(const struct span *spans, size_t n, uint64_t from)
{
	uint64_t end = from;
	bool more = true;

	while (more) {
		more = false;
		for (size_t i = 0; i < n; i++)
			if (spans[i].first <= end && spans[i].last >= end) {
				end = (uint64_t)spans[i].last + 1;
				more = true;
			}
	}
	return end;
}

static void demand_same(const struct deny *d, const struct span *spans, size_t n)
{
	demand_sorted(d);
	for (size_t i = 0; i < n; i++) {
		size_t k = 0;

		while (k < d->n && d->spans[k].last < spans[i].first)
			k++;
		demand(k < d->n && d->spans[k].first <= spans[i].first &&
		       d->spans[k].last >= spans[i].last);
	}
	for (size_t i = 0; i < d->n; i++)
		demand(reach(spans, n, d->spans[i].first) == (uint64_t)d->spans[i].last + 1);
}

/* -- messages --------------------------------------------------------------------------------- */

static struct {
	const uint8_t *at;
	size_t left;
} input;

/*
 * The next message, as long as it says or else all that is left, and padded as the kernel does
 * it; for free(), NULL without one.
 */
static struct nlmsghdr *next_message(size_t *ret_len)
{
	struct nlmsghdr head, *copy;

	if (input.left < sizeof(head))
		return NULL;
	memcpy(&head, input.at, sizeof(head));
	if (head.nlmsg_len < sizeof(head) || head.nlmsg_len > input.left)
		head.nlmsg_len = (uint32_t)input.left;
	copy = (struct nlmsghdr *)room_for(NLMSG_ALIGN(head.nlmsg_len));
	memset(copy, 0, NLMSG_ALIGN(head.nlmsg_len));
	memcpy(copy, input.at, head.nlmsg_len);
	*ret_len = copy->nlmsg_len = head.nlmsg_len;
	input.at += head.nlmsg_len;
	input.left -= head.nlmsg_len;
	return copy;
}

static void check_announcements(const uint8_t *data, size_t size)
{
	static struct span spans[MESSAGES_MAX];
	struct deny d = { .n = 0 };
	struct nlmsghdr *message;
	size_t n = 0, len;

	input.at = data;
	input.left = size;
	while (n < MESSAGES_MAX && (message = next_message(&len))) {
		int wanted = read_route((const uint8_t *)message, len, &spans[n]), got;
		struct err e = ERR_INIT;
		size_t was = d.n;

		got = local_parse(message, &d, &e);
		demand((got < 0) == (wanted < 0) && (got >= 0 || e.text[0]));
		demand(got > 0 || d.n == was);
		demand(got <= 0 || wanted == 1);
		n += wanted == 1;
		free(message);
	}
	demand_same(&d, spans, n);
}

/* -- answers ---------------------------------------------------------------------------------- */

static struct {
	bool together;     /* all in one datagram */
	unsigned int ends; /* what is done, or acknowledged */
	bool refused;
} heard;

/* As far as one is read: up to its first end. */
static void overhear(const uint8_t *at, size_t left)
{
	struct nlmsghdr head;
	int error;

	while (left >= sizeof(head)) {
		memcpy(&head, at, sizeof(head));
		if (head.nlmsg_len < sizeof(head) || head.nlmsg_len > left)
			return;
		heard.ends += head.nlmsg_type == NLMSG_DONE || head.nlmsg_type == NLMSG_ERROR;
		if (head.nlmsg_type == NLMSG_DONE)
			return;
		if (head.nlmsg_type == NLMSG_ERROR &&
		    head.nlmsg_len >= sizeof(head) + sizeof(error)) {
			memcpy(&error, at + sizeof(head), sizeof(error));
			heard.refused = heard.refused || error;
			return;
		}
		if (NLMSG_ALIGN(head.nlmsg_len) > left)
			return;
		at += NLMSG_ALIGN(head.nlmsg_len);
		left -= NLMSG_ALIGN(head.nlmsg_len);
	}
}

ssize_t mnl_socket_sendto(const struct mnl_socket *nl, const void *req, size_t siz)
{
	(void)nl;
	demand(req && siz >= sizeof(struct nlmsghdr));
	return (ssize_t)siz;
}

/*
 * Lengths are those of next_message() here too: libmnl takes one beyond 2^31 for a negative
 * number that fits, and no datagram of the kernel's is so long.
 */
ssize_t mnl_socket_recvfrom(const struct mnl_socket *nl, void *buf, size_t siz)
{
	struct nlmsghdr *message;
	size_t len, all = 0;

	(void)nl;
	do {
		message = next_message(&len);
		if (!message)
			break;
		demand(all + len <= siz);
		memcpy((char *)buf + all, message, len);
		all += len;
		free(message);
	} while (heard.together && len % NLMSG_ALIGNTO == 0);
	if (!all) {
		errno = EAGAIN;
		return -1;
	}
	overhear(buf, all);
	return (ssize_t)all;
}

static void rewind_to(const uint8_t *data, size_t size)
{
	input.at = data;
	input.left = size;
	heard.together = data[size - 1] & 1;
	heard.ends = 0;
	heard.refused = false;
}

static void open_socket(struct nl *ret)
{
	struct err e = ERR_INIT;
	int fd;

	demand(nl_open_fd(NETLINK_ROUTE, &fd, &e) == 0 && nl_adopt(fd, ret, &e) == 0);
}

static void check_answers(const uint8_t *data, size_t size)
{
	_Alignas(struct nlmsghdr) char request[64] = { 0 };
	struct nlmsghdr *head = mnl_nlmsg_put_header(request);
	struct deny d = { .n = 0 };
	struct err e = ERR_INIT;
	struct nl nl = NL_INIT;
	size_t acks = data[0] % 4U;
	int rc;

	rewind_to(data, size);
	open_socket(&nl);
	rc = nl_batch(&nl, request, sizeof(request), acks, &e);
	demand(rc < 0 ? e.text[0] : !heard.refused && heard.ends >= acks);
	rewind_to(data, size);
	rc = nl_request(&nl, head, &e);
	demand(rc < 0 ? e.text[0] : !heard.refused && heard.ends >= 1);
	demand(head->nlmsg_flags & NLM_F_ACK);
	nl_close(&nl);
	rewind_to(data, size);
	deny_init_special(&d);
	rc = local_snapshot(&d, &e);
	demand(rc < 0 ? e.text[0] : heard.ends >= 1);
	demand_sorted(&d);
	demand(deny_has(&d, 0x0a000001) && deny_has(&d, 0xa9fea9fe));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < sizeof(struct nlmsghdr))
		return 0;
	check_announcements(data, size);
	check_answers(data, size);
	return 0;
}
