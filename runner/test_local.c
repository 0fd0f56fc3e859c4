#include "common/test.h"

#include "runner/local.h"
#include "runner/nl.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct sample {
	uint16_t type;
	uint8_t family;
	uint8_t table;
	uint8_t bits;
	uint32_t addr;       /* 0: no RTA_DST */
	uint32_t wide_table; /* 0: no RTA_TABLE */
	uint32_t kind;       /* RTN_ */
};

/* A message as the kernel sends it, from an otherwise empty set. */
static int parse(const struct sample *s, struct deny *d, struct err *e)
{
	_Alignas(struct nlmsghdr) char buf[256];
	struct nlmsghdr *m = mnl_nlmsg_put_header(buf);
	struct rtmsg *route = mnl_nlmsg_put_extra_header(m, sizeof(*route));

	m->nlmsg_type = s->type;
	route->rtm_family = s->family;
	route->rtm_table = s->table;
	route->rtm_dst_len = s->bits;
	route->rtm_type = (uint8_t)s->kind;
	if (s->addr)
		mnl_attr_put_u32(m, RTA_DST, htonl(s->addr));
	if (s->wide_table)
		mnl_attr_put_u32(m, RTA_TABLE, s->wide_table);
	d->n = 0;
	return local_parse(m, d, e);
}

static void test_local_routes(void **state)
{
	const struct sample host = { RTM_NEWROUTE, AF_INET, RT_TABLE_LOCAL, 32, 0xc6290002, 0 };
	const struct sample net = { RTM_NEWROUTE, AF_INET,       RT_TABLE_UNSPEC, 8,
		                    0x7f000000,   RT_TABLE_LOCAL };
	const struct sample all = { RTM_NEWROUTE, AF_INET, RT_TABLE_LOCAL, 0, 0, 0 };
	struct err e = ERR_INIT;
	struct deny d;

	(void)state;
	assert_int_equal(parse(&host, &d, &e), 1);
	assert_int_equal(d.n, 1);
	assert_int_equal(d.spans[0].first, 0xc6290002);
	assert_int_equal(d.spans[0].last, 0xc6290002);
	assert_int_equal(parse(&net, &d, &e), 1);
	assert_int_equal(d.spans[0].last, 0x7fffffff);
	assert_int_equal(parse(&all, &d, &e), 1);
	assert_int_equal(d.spans[0].last, UINT32_MAX);
}

/* What ends at the host is the host's, also where policy routing or a VRF keeps it. */
static void test_local_routes_of_other_tables(void **state)
{
	static const uint32_t kinds[] = { RTN_LOCAL, RTN_BROADCAST, RTN_ANYCAST };
	struct sample s = { RTM_NEWROUTE, AF_INET, RT_TABLE_MAIN, 32, 0xc6290002, 0, 0 };
	struct err e = ERR_INIT;
	struct deny d;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		s.kind = kinds[i];
		s.wide_table = 0;
		assert_int_equal(parse(&s, &d, &e), 1);
		assert_true(deny_has(&d, 0xc6290002));
		s.wide_table = 1000;
		assert_int_equal(parse(&s, &d, &e), 1);
	}
}

static void test_what_is_not_local(void **state)
{
	const struct sample others[] = {
		{ RTM_NEWROUTE, AF_INET, RT_TABLE_MAIN, 24, 0xc6290000, 0, RTN_UNICAST },
		{ RTM_NEWROUTE, AF_INET, RT_TABLE_MAIN, 24, 0xc6290000, 0, RTN_BLACKHOLE },
		{ RTM_DELROUTE, AF_INET, RT_TABLE_MAIN, 32, 0xc6290000, 0, RTN_LOCAL },
		{ RTM_DELROUTE, AF_INET, RT_TABLE_LOCAL, 32, 0xc6290002, 0 },
		{ RTM_NEWROUTE, AF_INET6, RT_TABLE_LOCAL, 128, 0, 0 },
		{ RTM_NEWROUTE, AF_INET, RT_TABLE_MAIN, 24, 0xc6290000, 0 },
		/* The attribute overrules the old field. */
		{ RTM_NEWROUTE, AF_INET, RT_TABLE_LOCAL, 24, 0xc6290000, 1000 },
		{ RTM_NEWLINK, AF_INET, RT_TABLE_LOCAL, 32, 0xc6290002, 0 },
	};
	struct err e = ERR_INIT;
	struct deny d;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(others); i++) {
		assert_int_equal(parse(&others[i], &d, &e), 0);
		assert_int_equal(d.n, 0);
	}
}

static void test_malformed(void **state)
{
	const struct sample wide = { RTM_NEWROUTE, AF_INET, RT_TABLE_LOCAL, 33, 0x01020304, 0 };
	_Alignas(struct nlmsghdr) char buf[64];
	struct nlmsghdr *m = mnl_nlmsg_put_header(buf);
	struct err e = ERR_INIT;
	struct deny d = { .n = 0 };

	(void)state;
	assert_int_equal(parse(&wide, &d, &e), -1);
	assert_int_equal(e.code, EPROTO);
	m->nlmsg_type = RTM_NEWROUTE;
	(void)mnl_nlmsg_put_extra_header(m, 4);
	assert_int_equal(local_parse(m, &d, &e), -1);
	assert_int_equal(e.code, EPROTO);
}

static void test_this_host(void **state)
{
	struct err e = ERR_INIT;
	struct deny d = { .n = 0 };
	int watch = -1;

	(void)state;
	assert_int_equal(local_watch(&watch, &e), 0);
	assert_int_equal(local_snapshot(&d, &e), 0);
	assert_true(deny_has(&d, 0x7f000001));
	assert_int_equal(local_update(watch, &d, &e), 0);
	(void)close(watch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_local_routes),
		cmocka_unit_test(test_local_routes_of_other_tables),
		cmocka_unit_test(test_what_is_not_local),
		cmocka_unit_test(test_malformed),
		cmocka_unit_test(test_this_host),
	};

	return RUN_TESTS(tests);
}
