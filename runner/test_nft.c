/* Against the kernel, in a network namespace of this test's own. */
#include "common/test.h"

#include "runner/deny.h"
#include "runner/link.h"
#include "runner/local.h"
#include "runner/nft.h"
#include "runner/nft_batch.h"
#include "runner/nft_expr.h"

#include <dlfcn.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct egress egress = { .dns = DNS_HOST };
static struct policy policy;

/* The policy loaded into a fresh namespace; the socket in *state. */
static int load(void **state)
{
	static struct nl nl;
	struct err e = ERR_INIT;
	int fd = -1;

	if (unshare(CLONE_NEWNET) < 0) {
		perror("unshare");
		return -1;
	}
	if (policy_init(&policy, &egress, &e) < 0) {
		print_error("%s\n", e.text);
		return -1;
	}
	nl = (struct nl)NL_INIT;
	*state = &nl;
	if (nl_open_fd(NETLINK_NETFILTER, &fd, &e) == 0 && nl_adopt(fd, &nl, &e) == 0 &&
	    nft_load(&nl, &policy, &e) == 0)
		return 0;
	print_error("%s\n", e.text);
	return -1;
}

static int release(void **state)
{
	nl_close(*state);
	return 0;
}

static void test_loaded_policy_verifies(void **state)
{
	struct nft_counters c = { 9, 9 };
	struct err e = ERR_INIT;

	assert_int_equal(nft_verify(*state, &policy, &e), 0);
	assert_int_equal(nft_read_counters(*state, &c, &e), 0);
	assert_int_equal(c.accepted, 0);
	assert_int_equal(c.refused, 0);
	/* A policy is there already: a second one is not laid over it. */
	assert_int_equal(nft_load(*state, &policy, &e), -1);
	assert_int_equal(nft_verify(*state, &policy, &e), 0);
}

static void test_other_addresses_do_not_verify(void **state)
{
	static const struct deny_span spans[] = { { 0x08080808, 0x08080808 }, { 0, UINT32_MAX } };
	struct err e = ERR_INIT;

	for (size_t i = 0; i < ARRAY_LEN(spans); i++) {
		static struct policy other;

		other = policy;
		assert_int_equal(deny_add(&other.local, spans[i].first, spans[i].last, &e), 1);
		assert_int_equal(nft_verify(*state, &other, &e), -1);
		assert_non_null(strstr(e.text, "set local"));
		assert_int_equal(nft_refuse_local(*state, &other, &e), 0);
		assert_int_equal(nft_verify(*state, &other, &e), 0);
		assert_int_equal(nft_verify(*state, &policy, &e), -1);
		assert_int_equal(nft_refuse_local(*state, &policy, &e), 0);
		assert_int_equal(nft_verify(*state, &policy, &e), 0);
	}
}

static void test_largest_set(void **state)
{
	struct err e = ERR_INIT;
	static struct policy many;

	many = policy;
	many.local.n = 0;
	for (uint32_t i = 0; i < DENY_MAX; i++)
		assert_int_equal(deny_add(&many.local, UINT32_MAX - 2 * i, UINT32_MAX - 2 * i, &e),
		                 1);
	assert_int_equal(many.local.n, DENY_MAX);
	assert_int_equal(nft_refuse_local(*state, &many, &e), 0);
	assert_int_equal(nft_verify(*state, &many, &e), 0);
	many.local.n = 0;
	assert_int_equal(nft_refuse_local(*state, &many, &e), 0);
	assert_int_equal(nft_verify(*state, &many, &e), 0);
}

static void allow(const char *text)
{
	struct err e = ERR_INIT;

	if (egress_allow(&egress, text, &e) < 0)
		fail_msg("%s", e.text);
}

/* The most that an operator may list: 1,000 entries, each with 16 ports. */
static int load_largest(void **state)
{
	char text[128];

	egress = (struct egress){ .mode = EGRESS_ALLOW, .dns = DNS_OFF };
	for (unsigned int i = 0; i < EGRESS_ALLOW_MAX; i++) {
		(void)snprintf(text, sizeof(text),
		               "8.%u.%u.0/24:1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31", i / 250,
		               i % 250);
		allow(text);
	}
	return load(state);
}

static int load_listed(void **state)
{
	egress = (struct egress){ .mode = EGRESS_ALLOW,
		                  .dns = DNS_LISTED,
		                  .resolvers = { 0x09090909 },
		                  .n_resolvers = 1 };
	allow("0.0.0.0/0");
	allow("255.255.255.255/32");
	allow("255.255.255.255/32:65535");
	allow("0.0.0.0/0:1-65535");
	allow("10.0.0.0/8:443");
	allow("10.1.0.0/16:80-90,443");
	return load(state);
}

static int release_all(void **state)
{
	egress = (struct egress){ .dns = DNS_HOST };
	return release(state);
}

static void test_lists_verify(void **state)
{
	static struct policy other;
	struct err e = ERR_INIT;

	assert_int_equal(nft_verify(*state, &policy, &e), 0);
	other = policy;
	other.cells[other.n_cells - 1].ports.last--;
	assert_int_equal(nft_verify(*state, &other, &e), -1);
	assert_non_null(strstr(e.text, "set endpoints"));
	other = policy;
	other.n_cells--;
	assert_int_equal(nft_verify(*state, &other, &e), -1);
	other = policy;
	other.dns = DNS_HOST;
	assert_int_equal(nft_verify(*state, &other, &e), -1);
	assert_non_null(strstr(e.text, "chains and rules"));
	other = policy;
	assert_int_not_equal(deny_add(&other.denied, 0x08080808, 0x08080808, &e), -1);
	assert_int_equal(nft_verify(*state, &other, &e), -1);
	assert_non_null(strstr(e.text, "set denied"));
}

static void test_other_mode_does_not_verify(void **state)
{
	static struct policy other;
	struct err e = ERR_INIT;

	other = policy;
	other.mode = EGRESS_ALLOW;
	assert_int_equal(nft_verify(*state, &other, &e), -1);
	other = policy;
	other.dns = DNS_OFF;
	assert_int_equal(nft_verify(*state, &other, &e), -1);
	other.dns = DNS_LISTED;
	other.n_resolvers = 1;
	assert_int_equal(nft_verify(*state, &other, &e), -1);
	assert_int_equal(nft_verify(*state, &policy, &e), 0);
}

static void test_extra_rule_does_not_verify(void **state)
{
	auto_batch struct nft_batch b = { .nl = NULL };
	struct err e = ERR_INIT;

	assert_int_equal(nft_batch_begin(*state, &b, &e), 0);
	nft_batch_rule(&b, nft_accept(nft_rule_new(&b, "forward")));
	assert_int_equal(nft_batch_commit(&b, &e), 0);
	assert_int_equal(nft_verify(*state, &policy, &e), -1);
	assert_non_null(strstr(e.text, "chains and rules"));
}

static void test_extra_chain_does_not_verify(void **state)
{
	auto_batch struct nft_batch b = { .nl = NULL };
	struct err e = ERR_INIT;

	assert_int_equal(nft_batch_begin(*state, &b, &e), 0);
	nft_batch_chain(&b, "hole", NULL, 0, 0, 0);
	assert_int_equal(nft_batch_commit(&b, &e), 0);
	assert_int_equal(nft_verify(*state, &policy, &e), -1);
}

/* What no kernel does: every message of a kind lacks an attribute, or is one of another kind. */
static struct spoilt {
	int message;           /* 0 = nothing is spoilt */
	uint16_t attribute[5]; /* from the outermost; 0 ends them */
	enum {
		ANOTHERS,
		SHORTER,
		OTHER_KIND,
		NOTHING,
		TWICE
	} becomes;
	int kind; /* of OTHER_KIND */
} spoilt;

#define KIND(message) ((uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | (message)))

static void spoil_attribute(struct nlattr *a, const char *end, const uint16_t *path)
{
	for (; mnl_attr_ok(a, (int)(end - (char *)a)); a = mnl_attr_next(a)) {
		if (mnl_attr_get_type(a) != path[0])
			continue;
		if (path[1])
			spoil_attribute(mnl_attr_get_payload(a), (char *)a + a->nla_len, path + 1);
		else if (spoilt.becomes == SHORTER)
			a->nla_len--;
		else
			a->nla_type = 0x3fff; /* nobody's */
	}
}

static void spoil(struct nlmsghdr *m)
{
	if (m->nlmsg_type != KIND(spoilt.message))
		return;
	if (spoilt.becomes == OTHER_KIND)
		m->nlmsg_type = KIND(spoilt.kind);
	if (spoilt.becomes == NOTHING)
		m->nlmsg_type = NLMSG_NOOP;
	if (spoilt.attribute[0])
		spoil_attribute(mnl_nlmsg_get_payload_offset(m, sizeof(struct nfgenmsg)),
		                mnl_nlmsg_get_payload_tail(m), spoilt.attribute);
}

/* Between the runner and its library. */
ssize_t mnl_socket_recvfrom(const struct mnl_socket *nl, void *buf, size_t siz)
{
	ssize_t (*real)(const struct mnl_socket *s, void *b, size_t n);
	struct nlmsghdr *m = buf;
	int left;
	ssize_t n;

	*(void **)&real = dlsym(RTLD_NEXT, "mnl_socket_recvfrom");
	n = real(nl, buf, siz);
	left = (int)n;
	if (n > 0 && spoilt.becomes == TWICE && m->nlmsg_type == KIND(spoilt.message)) {
		assert_true((size_t)n * 2 <= siz);
		memcpy((char *)buf + n, buf, (size_t)n);
		return n * 2;
	}
	for (; spoilt.message && mnl_nlmsg_ok(m, left); m = mnl_nlmsg_next(m, &left))
		spoil(m);
	return n;
}

/* The rest of an answer that was refused in the middle. */
static void forget_rest(const struct nl *nl)
{
	char scrap[64];

	while (recv(mnl_socket_get_fd(nl->sock), scrap, sizeof(scrap), MSG_DONTWAIT) >= 0)
		continue;
}

static void test_what_is_spoilt_does_not_verify(void **state)
{
	static const struct spoilt cases[] = {
		{ NFT_MSG_NEWCHAIN, { NFTA_CHAIN_NAME } },
		{ NFT_MSG_NEWCHAIN, { NFTA_CHAIN_HOOK } },
		{ NFT_MSG_NEWCHAIN, { NFTA_CHAIN_POLICY } },
		{ NFT_MSG_NEWCHAIN, { 0 }, OTHER_KIND, NFT_MSG_DELCHAIN },
		{ NFT_MSG_NEWCHAIN, { 0 }, NOTHING },
		{ NFT_MSG_NEWRULE, { NFTA_RULE_CHAIN } },
		{ NFT_MSG_NEWRULE, { NFTA_RULE_EXPRESSIONS } },
		{ NFT_MSG_NEWRULE, { 0 }, OTHER_KIND, NFT_MSG_DELRULE },
		{ NFT_MSG_NEWSETELEM, { NFTA_SET_ELEM_LIST_ELEMENTS } },
		{ NFT_MSG_NEWSETELEM, { 0 }, OTHER_KIND, NFT_MSG_DELSETELEM },
		{ NFT_MSG_NEWSETELEM, { 0 }, NOTHING },
	};
	struct err e = ERR_INIT;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		spoilt = cases[i];
		if (nft_verify(*state, &policy, &e) == 0)
			fail_msg("case %zu", i);
		forget_rest(*state);
	}
	spoilt = (struct spoilt){ 0 };
	assert_int_equal(nft_verify(*state, &policy, &e), 0);
}

static void expect_refused(struct nl *nl, struct spoilt how, const char *why)
{
	struct err e = ERR_INIT;

	spoilt = how;
	assert_int_equal(nft_verify(nl, &policy, &e), -1);
	spoilt = (struct spoilt){ 0 };
	if (!strstr(e.text, why))
		fail_msg("%s", e.text);
	assert_int_equal(nft_verify(nl, &policy, &e), 0);
}

static void test_missing_rules_do_not_verify(void **state)
{
	expect_refused(*state, (struct spoilt){ NFT_MSG_NEWRULE, { 0 }, NOTHING },
	               "a rule of chain refuse is missing");
}

#define ELEMENT NFTA_SET_ELEM_LIST_ELEMENTS, NFTA_LIST_ELEM

/* Keys of no length, of another one, and more of them than any policy has. */
static void test_malformed_elements_do_not_verify(void **state)
{
	expect_refused(*state,
	               (struct spoilt){ NFT_MSG_NEWSETELEM, { ELEMENT, NFTA_SET_ELEM_KEY } },
	               "the set ");
	expect_refused(*state,
	               (struct spoilt){ NFT_MSG_NEWSETELEM,
	                                { ELEMENT, NFTA_SET_ELEM_KEY, NFTA_DATA_VALUE },
	                                SHORTER },
	               "the set ");
	expect_refused(*state, (struct spoilt){ NFT_MSG_NEWSETELEM, { 0 }, TWICE }, "the set ");
}

static void test_malformed_endpoints_do_not_verify(void **state)
{
	expect_refused(*state,
	               (struct spoilt){ NFT_MSG_NEWSETELEM, { ELEMENT, NFTA_SET_ELEM_KEY_END } },
	               "the set endpoints");
	expect_refused(*state,
	               (struct spoilt){ NFT_MSG_NEWSETELEM,
	                                { ELEMENT, NFTA_SET_ELEM_KEY_END, NFTA_DATA_VALUE },
	                                SHORTER },
	               "the set endpoints");
}

/* One bad word, and nothing of the transaction is there. */
static void test_transaction_is_whole(void **state)
{
	auto_batch struct nft_batch b = { .nl = NULL };
	struct err e = ERR_INIT;

	assert_int_equal(nft_batch_begin(*state, &b, &e), 0);
	nft_batch_rule(&b, nft_accept(nft_rule_new(&b, "forward")));
	nft_batch_rule(&b, nft_goto(nft_rule_new(&b, "forward"), "nowhere"));
	assert_int_equal(nft_batch_commit(&b, &e), -1);
}

static void test_new_local_address_is_seen(void **state)
{
	auto_nl struct nl links = NL_INIT;
	struct deny d = { .n = 0 };
	struct err e = ERR_INIT;
	int watch = -1;
	int fd = -1;

	(void)state;
	assert_int_equal(nl_open_fd(NETLINK_ROUTE, &fd, &e), 0);
	assert_int_equal(nl_adopt(fd, &links, &e), 0);
	assert_int_equal(local_watch(&watch, &e), 0);
	assert_int_equal(link_up(&links, "lo", &e), 0);
	assert_int_equal(local_update(watch, &d, &e), 1);
	assert_true(deny_has(&d, 0x7f000001));
	assert_false(deny_has(&d, 0x08080404));
	assert_int_equal(link_add_address(&links, "lo", 0x08080404, 32, &e), 0);
	assert_int_equal(local_update(watch, &d, &e), 1);
	assert_true(deny_has(&d, 0x08080404));
	assert_int_equal(local_update(watch, &d, &e), 0);
	assert_int_equal(link_up(&links, "none0", &e), -1);
	assert_int_equal(link_add_address(&links, "none0", 1, 32, &e), -1);
	(void)close(watch);
}

/* More changes than the socket holds: the snapshot that follows has them all. */
static void test_overflow_of_the_watch(void **state)
{
	auto_nl struct nl links = NL_INIT;
	struct deny d = { .n = 0 };
	struct err e = ERR_INIT;
	int watch = -1;
	int fd = -1;
	int small = 1;

	(void)state;
	assert_int_equal(nl_open_fd(NETLINK_ROUTE, &fd, &e), 0);
	assert_int_equal(nl_adopt(fd, &links, &e), 0);
	assert_int_equal(link_up(&links, "lo", &e), 0);
	assert_int_equal(local_watch(&watch, &e), 0);
	assert_int_equal(setsockopt(watch, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
	for (uint32_t i = 0; i < 50; i++)
		assert_int_equal(link_add_address(&links, "lo", 0x08080000 + 2 * i, 32, &e), 0);
	assert_int_equal(local_update(watch, &d, &e), 1);
	for (uint32_t i = 0; i < 50; i++)
		assert_true(deny_has(&d, 0x08080000 + 2 * i));
	(void)close(watch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_loaded_policy_verifies, load, release),
		cmocka_unit_test_setup_teardown(test_other_addresses_do_not_verify, load, release),
		cmocka_unit_test_setup_teardown(test_largest_set, load, release),
		cmocka_unit_test_setup_teardown(test_lists_verify, load_listed, release_all),
		cmocka_unit_test_setup_teardown(test_lists_verify, load_largest, release_all),
		cmocka_unit_test_setup_teardown(test_other_mode_does_not_verify, load, release),
		cmocka_unit_test_setup_teardown(test_extra_rule_does_not_verify, load, release),
		cmocka_unit_test_setup_teardown(test_extra_chain_does_not_verify, load, release),
		cmocka_unit_test_setup_teardown(test_what_is_spoilt_does_not_verify, load, release),
		cmocka_unit_test_setup_teardown(test_missing_rules_do_not_verify, load, release),
		cmocka_unit_test_setup_teardown(test_malformed_elements_do_not_verify, load,
		                                release),
		cmocka_unit_test_setup_teardown(test_malformed_elements_do_not_verify, load_largest,
		                                release_all),
		cmocka_unit_test_setup_teardown(test_malformed_endpoints_do_not_verify, load_listed,
		                                release_all),
		cmocka_unit_test_setup_teardown(test_transaction_is_whole, load, release),
		cmocka_unit_test_setup_teardown(test_new_local_address_is_seen, load, release),
		cmocka_unit_test_setup_teardown(test_overflow_of_the_watch, load, release),
	};

	/* Root of a user namespace may make network namespaces, whoever made it. */
	if (unshare(CLONE_NEWUSER) < 0) {
		perror("unshare");
		return 1;
	}
	return RUN_TESTS(tests);
}
