/*
 * The packet rules as the kernel tells of them.  It is asked once, in a network namespace of
 * the target's own; then its answers are told again with some bytes changed.  Whatever is still
 * taken for the policy must be it for a second reader, too.
 *
 * A change is four bytes: which answer, two of where in it, and the byte to put there; with the
 * highest bit of the first one set, the answer ends there.  Where the head of an attribute is,
 * the attribute becomes nobody's instead: libnftnl ends the program (exit(3)) when one has
 * another length than it knows.  Those of an expression stay: without one that it counts on,
 * libnftnl reads from where nothing is, and the kernel leaves none out.
 */
#include "fuzz/fuzz.h"

#include "common/buf.h"
#include "runner/nft.h"

#include <dlfcn.h>
#include <endian.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#define ANSWERS_MAX 64
#define LINES_MAX   512
#define LINE_SIZE   160

struct answer {
	char *data;
	size_t len;
};

static struct answer answers[ANSWERS_MAX], changed[ANSWERS_MAX];
static size_t n_answers, next_answer;
static bool replays;
static struct policy policy;
static struct nl netlink = NL_INIT;
static uint32_t first_seq;

/* -- between the runner and its socket -------------------------------------------------------- */

ssize_t mnl_socket_sendto(const struct mnl_socket *nl, const void *req, size_t siz)
{
	static ssize_t (*real)(const struct mnl_socket *nl, const void *req, size_t siz);

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "mnl_socket_sendto");
	return replays ? (ssize_t)siz : real(nl, req, siz);
}

static ssize_t replay(void *buf, size_t size)
{
	struct answer *a = &changed[next_answer];

	if (next_answer == n_answers)
		return -1;
	demand(a->len <= size);
	memcpy(buf, a->data, a->len);
	next_answer++;
	return (ssize_t)a->len;
}

ssize_t mnl_socket_recvfrom(const struct mnl_socket *nl, void *buf, size_t siz)
{
	static ssize_t (*real)(const struct mnl_socket *nl, void *buf, size_t siz);
	ssize_t n;

	if (replays)
		return replay(buf, siz);
	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "mnl_socket_recvfrom");
	n = real(nl, buf, siz);
	demand(n >= 0 && n_answers < ANSWERS_MAX);
	answers[n_answers++] = (struct answer){ text_of(buf, (size_t)n), (size_t)n };
	return n;
}

static int ask(struct nft_counters *c, struct err *e)
{
	netlink.seq = first_seq;
	next_answer = 0;
	*c = (struct nft_counters){ 0 };
	return nft_verify(&netlink, &policy, e) < 0 ? -1 : nft_read_counters(&netlink, c, e);
}

static void allow(struct egress *g, const char *text)
{
	struct err e = ERR_INIT;

	demand(egress_allow(g, text, &e) == 0);
}

static void record(void)
{
	static struct egress egress = { .mode = EGRESS_ALLOW,
		                        .dns = DNS_LISTED,
		                        .resolvers = { 0x09090909 },
		                        .n_resolvers = 1 };
	struct nft_counters c;
	struct err e = ERR_INIT;
	int fd = -1;

	allow(&egress, "8.8.0.0/16");
	allow(&egress, "10.0.0.0/8:443");
	allow(&egress, "10.1.0.0/16:80-90,443");
	demand(unshare(CLONE_NEWNET) == 0 && policy_init(&policy, &egress, &e) == 0);
	demand(nl_open_fd(NETLINK_NETFILTER, &fd, &e) == 0 && nl_adopt(fd, &netlink, &e) == 0);
	demand(nft_load(&netlink, &policy, &e) == 0);
	for (; n_answers; n_answers--)
		free(answers[n_answers - 1].data);
	first_seq = netlink.seq;
	demand(ask(&c, &e) == 0);
	replays = true;
}

/* -- a second reader -------------------------------------------------------------------------- */

struct lines {
	char v[LINES_MAX][LINE_SIZE];
	size_t n;
	size_t rules;
};

struct bytes {
	const char *at;
	size_t len;
};

/* The next attribute of rest; false when there is none that is whole. */
static bool next_attribute(struct bytes *rest, unsigned int *ret_type, struct bytes *ret)
{
	struct nlattr a;
	size_t whole;

	if (rest->len < sizeof(a))
		return false;
	memcpy(&a, rest->at, sizeof(a));
	if (a.nla_len < sizeof(a) || a.nla_len > rest->len)
		return false;
	*ret_type = a.nla_type & NLA_TYPE_MASK;
	*ret = (struct bytes){ rest->at + sizeof(a), a.nla_len - sizeof(a) };
	whole = NLA_ALIGN((size_t)a.nla_len);
	if (whole > rest->len)
		whole = rest->len;
	rest->at += whole;
	rest->len -= whole;
	return true;
}

/* The last one of that type; without bytes when there is none. */
static struct bytes attribute(struct bytes all, unsigned int wanted)
{
	struct bytes found = { .at = "" }, one;
	unsigned int type;

	while (next_attribute(&all, &type, &one))
		if (type == wanted)
			found = one;
	return found;
}

static unsigned int number(struct bytes b)
{
	uint32_t value = 0;

	if (b.len >= sizeof(value))
		memcpy(&value, b.at, sizeof(value));
	return be32toh(value);
}

static void add_line(struct lines *l, const char *fmt, ...) printf_like(2, 3);

static void add_line(struct lines *l, const char *fmt, ...)
{
	va_list ap;

	demand(l->n < LINES_MAX);
	va_start(ap, fmt);
	(void)vsnprintf(l->v[l->n++], LINE_SIZE, fmt, ap);
	va_end(ap);
}

static void read_chain(struct lines *l, struct bytes m)
{
	struct bytes name = attribute(m, NFTA_CHAIN_NAME), hook = attribute(m, NFTA_CHAIN_HOOK);

	add_line(l, "chain %.*s hook %d %u %u policy %u", (int)strnlen(name.at, name.len), name.at,
	         hook.len > 0, number(attribute(hook, NFTA_HOOK_HOOKNUM)),
	         number(attribute(hook, NFTA_HOOK_PRIORITY)),
	         hook.len ? number(attribute(m, NFTA_CHAIN_POLICY)) : 0);
}

/* Which words it has, and in which order; their meanings are the library's to compare. */
static void read_rule(struct lines *l, struct bytes m)
{
	struct bytes chain = attribute(m, NFTA_RULE_CHAIN), one;
	struct bytes all = attribute(m, NFTA_RULE_EXPRESSIONS);
	unsigned int type;
	size_t words = 0;

	l->rules++;
	while (next_attribute(&all, &type, &one)) {
		struct bytes word = attribute(one, NFTA_EXPR_NAME);

		add_line(l, "rule %.*s %zu %zu %.*s", (int)strnlen(chain.at, chain.len), chain.at,
		         l->rules, words++, (int)strnlen(word.at, word.len), word.at);
	}
}

static void add_key(struct lines *l, const char *kind, struct bytes value, unsigned int flags)
{
	struct bytes key = attribute(value, NFTA_DATA_VALUE);
	char hex[2 * 16 + 1] = "";

	for (size_t i = 0; i < key.len && i < 16; i++)
		(void)snprintf(hex + 2 * i, 3, "%02x", (unsigned char)key.at[i]);
	if (value.len)
		add_line(l, "%s %zu %s %u", kind, key.len, hex, flags);
}

static void read_elements(struct lines *l, struct bytes m)
{
	struct bytes all = attribute(m, NFTA_SET_ELEM_LIST_ELEMENTS), one;
	unsigned int type;

	while (next_attribute(&all, &type, &one)) {
		unsigned int flags = number(attribute(one, NFTA_SET_ELEM_FLAGS));

		add_key(l, "key", attribute(one, NFTA_SET_ELEM_KEY),
		        flags & NFT_SET_ELEM_INTERVAL_END);
		add_key(l, "end", attribute(one, NFTA_SET_ELEM_KEY_END), 0);
	}
}

static void read_message(struct lines *l, unsigned int type, struct bytes m)
{
	if (type == NFT_MSG_NEWCHAIN)
		read_chain(l, m);
	else if (type == NFT_MSG_NEWRULE)
		read_rule(l, m);
	else if (type == NFT_MSG_NEWSETELEM)
		read_elements(l, m);
}

static void read_answer(struct lines *l, const struct answer *a)
{
	size_t skipped = sizeof(struct nlmsghdr) + 4, at = 0;
	struct nlmsghdr h;

	while (a->len - at >= skipped) {
		memcpy(&h, a->data + at, sizeof(h));
		if (h.nlmsg_len < skipped || h.nlmsg_len > a->len - at)
			break;
		if (h.nlmsg_type >> 8 == NFNL_SUBSYS_NFTABLES)
			read_message(
				l, h.nlmsg_type & 0xff,
				(struct bytes){ a->data + at + skipped, h.nlmsg_len - skipped });
		at += NLMSG_ALIGN(h.nlmsg_len);
		if (at > a->len)
			break;
	}
}

static int order(const void *a, const void *b)
{
	return strcmp(a, b);
}

static void read_all(struct lines *l, const struct answer *all)
{
	memset(l, 0, sizeof(*l));
	for (size_t i = 0; i < n_answers; i++)
		read_answer(l, &all[i]);
	qsort(l->v, l->n, LINE_SIZE, order);
}

/* -- an input --------------------------------------------------------------------------------- */

/* Attributes from beginning to end? */
static bool is_nest(struct bytes b)
{
	struct bytes one;
	unsigned int type;

	while (next_attribute(&b, &type, &one))
		continue;
	return !b.len;
}

/*
 * The attribute in whose head at is, and how many are around it; NULL when it is in none, or
 * not among these.
 */
static const char *head_around(struct bytes all, const char *at, unsigned int *ret_around)
{
	struct bytes one;
	unsigned int type;

	*ret_around = 0;
	while (next_attribute(&all, &type, &one)) {
		const char *head = one.at - sizeof(struct nlattr);

		if (at >= head && at < one.at)
			return head;
		if (at < one.at || at >= one.at + one.len)
			continue;
		if (!is_nest(one))
			return NULL;
		all = one;
		++*ret_around;
	}
	return NULL;
}

static bool is_of_expression(const struct nlmsghdr *h, unsigned int around)
{
	return (h->nlmsg_type & 0xff) == NFT_MSG_NEWRULE && around >= 2;
}

static void change_byte(const struct answer *a, size_t at, uint8_t byte)
{
	static const unsigned char nobodys[] = { 0xff, 0x3f };
	const size_t skipped = sizeof(struct nlmsghdr) + 4;
	size_t begin = 0;
	unsigned int around = 0;
	struct nlmsghdr h;
	const char *head;

	for (;; begin += NLMSG_ALIGN(h.nlmsg_len)) {
		memcpy(&h, a->data + begin, sizeof(h));
		if (at < begin + NLMSG_ALIGN(h.nlmsg_len))
			break;
	}
	if (at < begin + sizeof(h.nlmsg_len))
		return;
	head = h.nlmsg_len < skipped ? NULL
	                             : head_around((struct bytes){ a->data + begin + skipped,
	                                                           h.nlmsg_len - skipped },
	                                           a->data + at, &around);
	if (head && is_of_expression(&h, around))
		return;
	if (head)
		memcpy(a->data + (head - a->data) + 2, nobodys, sizeof(nobodys));
	else
		a->data[at] = (char)byte;
}

static void change(const uint8_t *data, size_t size)
{
	for (size_t i = 0; i < n_answers; i++)
		changed[i] =
			(struct answer){ text_of(answers[i].data, answers[i].len), answers[i].len };
	for (; size >= 4 && n_answers > 0; data += 4, size -= 4) {
		struct answer *a = &changed[(data[0] & 0x7f) % n_answers];
		size_t at = (size_t)data[1] << 8 | data[2];

		if (at >= a->len)
			continue;
		if (data[0] & 0x80)
			a->len = at;
		else
			change_byte(a, at, data[3]);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct lines wanted, held;
	struct nft_counters c;
	struct err e = ERR_INIT;

	if (!n_answers) {
		record();
		read_all(&wanted, answers);
		demand(wanted.n > 40);
	}
	change(data, size);
	if (ask(&c, &e) == 0) {
		read_all(&held, changed);
		demand(held.n == wanted.n && memcmp(held.v, wanted.v, sizeof(held.v)) == 0);
	} else {
		demand(e.text[0]);
	}
	for (size_t i = 0; i < n_answers; i++)
		free(changed[i].data);
	return 0;
}
