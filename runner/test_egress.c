#include "common/test.h"

#include "runner/egress.h"
#include "runner/policy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct egress egress;
static struct policy policy;

#define IP(a, b, c, d) ((uint32_t)(a) << 24 | (uint32_t)(b) << 16 | (uint32_t)(c) << 8 | (d))

static int start(void **state)
{
	(void)state;
	egress = (struct egress){ .mode = EGRESS_ALLOW };
	return 0;
}

static void allow(const char *text)
{
	struct err e = ERR_INIT;

	if (egress_allow(&egress, text, &e) < 0)
		fail_msg("%s", e.text);
}

static void work_out(void)
{
	struct err e = ERR_INIT;

	if (egress_settle(&egress, &e) < 0 || policy_init(&policy, &egress, &e) < 0)
		fail_msg("%s", e.text);
}

/* Whether the endpoints let it through; each may lie in one cell at most. */
static bool has_cell(uint32_t addr, uint16_t number)
{
	int found = 0;

	for (size_t i = 0; i < policy.n_cells; i++) {
		const struct policy_cell *c = &policy.cells[i];

		found += c->addrs.first <= addr && addr <= c->addrs.last &&
		         c->ports.first <= number && number <= c->ports.last;
	}
	assert_in_range(found, 0, 1);
	return found == 1;
}

static void test_good_entries(void **state)
{
	(void)state;
	allow("0.0.0.0/0");
	allow("255.255.255.255/32");
	allow("198.51.100.0/24:443");
	allow("198.51.100.0/24:1-65535,80");
	assert_int_equal(egress.n_allow, 4);
	assert_int_equal(egress.allow[0].to.addr, 0);
	assert_int_equal(egress.allow[0].to.len, 0);
	assert_int_equal(egress.allow[1].to.addr, UINT32_MAX);
	assert_int_equal(egress.allow[1].n_ports, 0);
	assert_int_equal(egress.allow[2].ports[0].first, 443);
	assert_int_equal(egress.allow[2].ports[0].last, 443);
	assert_int_equal(egress.allow[3].n_ports, 2);
	assert_int_equal(egress.allow[3].ports[0].last, 65535);
	assert_int_equal(egress.allow[3].ports[1].first, 80);
}

static void test_bad_entries(void **state)
{
	static const char *const bad[] = {
		"",
		"1.2.3.4",
		"1.2.3.4/",
		"1.2.3.4/33",
		"1.2.3.4/032",
		"1.2.3.4/+8",
		"1.2.3.4/24", /* bits beyond the length */
		"128.0.0.0/0",
		"1.2.3/24",
		"01.2.3.4/32",
		"1.2.3.4.5/32",
		"::1/128",
		"::ffff:1.2.3.4/32",
		"host/32",
		" 1.2.3.4/32",
		"1.2.3.4/32 ",
		"1.2.3.4/32:",
		"1.2.3.4/32:0",
		"1.2.3.4/32:65536",
		"1.2.3.4/32:080",
		"1.2.3.4/32:80-",
		"1.2.3.4/32:80-79",
		"1.2.3.4/32:80,",
		"1.2.3.4/32:,80",
		"1.2.3.4/32:80-90-100",
		"1.2.3.4/32:80:90",
		"1.2.3.4/32:http",
		"1.2.3.4/32:99999999999999999999",
		"1.2.3.4/32:1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct err e = ERR_INIT;

		if (egress_allow(&egress, bad[i], &e) != -1)
			fail_msg("'%s' was taken", bad[i]);
		assert_int_equal(e.code, EINVAL);
	}
	assert_int_equal(egress.n_allow, 0);
}

static void test_bounds(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	for (int i = 0; i < EGRESS_ALLOW_MAX; i++)
		allow("1.2.3.4/32");
	assert_int_equal(egress_allow(&egress, "1.2.3.4/32", &e), -1);
	for (int i = 0; i < EGRESS_HOSTS_MAX; i++)
		assert_int_equal(egress_host(&egress, "1.2.3.4/32", &e), 0);
	assert_int_equal(egress_host(&egress, "1.2.3.4/32", &e), -1);
	assert_int_equal(egress.n_hosts, EGRESS_HOSTS_MAX);
}

static void test_resolvers(void **state)
{
	static const char *const bad[] = { "",
		                           "on",
		                           "off,host",
		                           "1.1.1.1,",
		                           ",1.1.1.1",
		                           "1.1.1.1,1.1.1.1,1.1.1.1,1.1.1.1",
		                           "127.0.0.53",
		                           "0.0.0.0",
		                           "224.0.0.251",
		                           "255.255.255.255",
		                           "::1",
		                           "1.1.1.1/32",
		                           "1.1.1.1:53",
		                           "1.1.1.1 " };
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (egress_dns(&egress, bad[i], &e) != -1)
			fail_msg("'%s' was taken", bad[i]);
	assert_int_equal(egress.dns, DNS_OFF);
	assert_int_equal(egress_dns(&egress, "9.9.9.9,10.0.0.53,169.254.169.253", &e), 0);
	assert_int_equal(egress.dns, DNS_LISTED);
	assert_int_equal(egress.n_resolvers, 3);
	assert_int_equal(egress.resolvers[2], IP(169, 254, 169, 253));
	assert_int_equal(egress_dns(&egress, "host", &e), 0);
	assert_int_equal(egress.dns, DNS_HOST);
	assert_int_equal(egress_dns(&egress, "off", &e), 0);
	assert_int_equal(egress.dns, DNS_OFF);
}

static void test_what_goes_together(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(egress_settle(&egress, &e), 0);
	assert_int_equal(egress.dns, DNS_OFF);
	egress = (struct egress){ .mode = EGRESS_PUBLIC };
	assert_int_equal(egress_settle(&egress, &e), 0);
	assert_int_equal(egress.dns, DNS_OFF);
	egress = (struct egress){ .mode = EGRESS_PUBLIC, .dns = DNS_HOST };
	assert_int_equal(egress_settle(&egress, &e), 0);
	assert_int_equal(egress.dns, DNS_HOST);
	egress = (struct egress){ .mode = EGRESS_NONE };
	assert_int_equal(egress_settle(&egress, &e), 0);
	assert_int_equal(egress.dns, DNS_OFF);
	egress = (struct egress){ .mode = EGRESS_NONE, .dns = DNS_HOST };
	assert_int_equal(egress_settle(&egress, &e), -1);
	egress = (struct egress){ .mode = EGRESS_PUBLIC };
	allow("1.2.3.4/32");
	assert_int_equal(egress_settle(&egress, &e), -1);
	assert_int_equal(egress_mode(&egress, "Public", &e), -1);
	assert_int_equal(egress_mode(&egress, "", &e), -1);
}

static void test_modes(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(egress_host(&egress, "203.0.113.8/29", &e), 0);
	allow("0.0.0.0/0");
	work_out();
	assert_int_equal(policy.allowed.n, 1);
	/* Whatever is listed, these stay out. */
	assert_true(deny_has(&policy.local, IP(127, 0, 0, 1)));
	assert_true(deny_has(&policy.local, IP(0, 0, 0, 0)));
	assert_true(deny_has(&policy.local, IP(10, 0, 2, 2)));
	assert_true(deny_has(&policy.local, IP(192, 0, 2, 0)));
	assert_true(deny_has(&policy.local, IP(192, 0, 2, 1)));
	assert_true(deny_has(&policy.local, IP(224, 0, 0, 1)));
	assert_true(deny_has(&policy.local, IP(255, 255, 255, 255)));
	assert_true(deny_has(&policy.local, IP(203, 0, 113, 8)));
	assert_true(deny_has(&policy.local, IP(203, 0, 113, 15)));
	assert_true(deny_has(&policy.denied, IP(169, 254, 169, 254)));
	/* And these may be listed. */
	assert_false(deny_has(&policy.local, IP(203, 0, 113, 16)));
	assert_false(deny_has(&policy.local, IP(10, 0, 3, 0)));
	assert_false(deny_has(&policy.local, IP(192, 0, 2, 2)));
	assert_false(deny_has(&policy.denied, IP(10, 0, 0, 1)));
	egress = (struct egress){ .mode = EGRESS_PUBLIC };
	work_out();
	assert_int_equal(policy.allowed.n + policy.n_cells, 0);
	assert_true(deny_has(&policy.denied, IP(10, 0, 0, 1)));
	assert_true(deny_has(&policy.denied, IP(169, 254, 169, 254)));
}

static void test_a_resolver_of_the_host(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(egress_dns(&egress, "9.9.9.9,10.1.2.3", &e), 0);
	work_out();
	assert_int_equal(policy_check(&policy, &e), 0);
	assert_int_equal(deny_add(&policy.local, IP(10, 1, 2, 3), IP(10, 1, 2, 3), &e), 1);
	assert_int_equal(policy_check(&policy, &e), -1);
	assert_non_null(strstr(e.text, "10.1.2.3 is an address of this host"));
}

static void test_overlaps(void **state)
{
	(void)state;
	allow("0.0.0.0/0:443");
	allow("10.0.0.0/8:80-89");
	allow("10.0.0.0/8:85-90,443,91");
	allow("10.1.2.3/32:1-65535");
	allow("255.255.255.255/32:22");
	work_out();
	assert_true(has_cell(0, 443));
	assert_false(has_cell(0, 80));
	assert_true(has_cell(UINT32_MAX, 443));
	assert_true(has_cell(UINT32_MAX, 22));
	assert_false(has_cell(UINT32_MAX - 1, 22));
	assert_true(has_cell(IP(10, 0, 0, 0), 80));
	assert_true(has_cell(IP(10, 255, 255, 255), 91));
	assert_false(has_cell(IP(10, 255, 255, 255), 92));
	assert_false(has_cell(IP(11, 0, 0, 0), 80));
	assert_true(has_cell(IP(10, 1, 2, 3), 1));
	assert_true(has_cell(IP(10, 1, 2, 3), 65535));
	assert_false(has_cell(IP(10, 1, 2, 2), 1));
	assert_false(has_cell(IP(10, 1, 2, 4), 1));
	/* Before 10/8, its two parts around one address and that, after it, and the last address.
	 */
	assert_int_equal(policy.n_cells, 1 + 2 + 1 + 2 + 1 + 2);
}

static void test_largest(void **state)
{
	char text[128];

	(void)state;
	for (unsigned int i = 0; i < EGRESS_ALLOW_MAX; i++) {
		(void)snprintf(text, sizeof(text),
		               "8.%u.%u.0/24:1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31", i / 250,
		               i % 250);
		allow(text);
	}
	work_out();
	assert_int_equal(policy.n_cells, EGRESS_ALLOW_MAX * EGRESS_PORTS_MAX);
	assert_true(has_cell(IP(8, 3, 249, 255), 31));
	assert_false(has_cell(IP(8, 3, 250, 0), 31));
	assert_false(has_cell(IP(8, 3, 249, 255), 30));
}

/*
 * A network within which 910 others repeat its port beside 16 of their own, each with a gap behind
 * it: 18 cells for each, and then those of another network.
 */
static void test_most_cells(void **state)
{
	struct err e = ERR_INIT;
	char text[128];

	(void)state;
	allow("8.0.0.0/8:101");
	for (unsigned int i = 0; i < 910; i++) {
		(void)snprintf(text, sizeof(text),
		               "8.%u.%u.0/24:1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31", i / 100,
		               i % 100 * 2);
		allow(text);
	}
	allow("9.0.0.0/8:1,3,5,7");
	work_out();
	assert_int_equal(policy.n_cells, POLICY_CELLS_MAX);
	assert_true(has_cell(IP(8, 9, 18, 0), 101) && has_cell(IP(8, 9, 19, 0), 101));
	assert_true(has_cell(IP(9, 0, 0, 0), 7));
	allow("10.0.0.0/32:1");
	assert_int_equal(policy_init(&policy, &egress, &e), -1);
	assert_int_equal(e.code, EINVAL);
	assert_non_null(strstr(e.text, "more than 16384 pairs"));
}

/* Against the entries themselves, asked one by one. */
static void test_random(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	srandom(9);
	for (int round = 0; round < 40; round++) {
		egress = (struct egress){ .mode = EGRESS_ALLOW };
		for (int k = 0; k < 24; k++) {
			struct egress_row *row = &egress.allow[egress.n_allow++];

			row->to.len = 24 + (unsigned int)random() % 9;
			row->to.addr = (IP(10, 0, 0, 0) + (uint32_t)random() % 256) &
			               ~(uint32_t)((UINT64_C(1) << (32 - row->to.len)) - 1);
			row->n_ports = 1 + (size_t)random() % 3;
			for (size_t i = 0; i < row->n_ports; i++) {
				row->ports[i].first = (uint16_t)(1 + random() % 60);
				row->ports[i].last = (uint16_t)(row->ports[i].first + random() % 9);
			}
		}
		assert_int_equal(policy_init(&policy, &egress, &e), 0);
		for (int k = 0; k < 2000; k++) {
			uint32_t addr = IP(10, 0, 0, 0) + (uint32_t)random() % 256;
			uint16_t number = (uint16_t)(random() % 72);
			bool listed = false;

			for (size_t i = 0; i < egress.n_allow; i++) {
				const struct egress_row *row = &egress.allow[i];
				uint64_t size = UINT64_C(1) << (32 - row->to.len);

				for (size_t p = 0; p < row->n_ports; p++)
					listed |= addr >= row->to.addr &&
					          addr < row->to.addr + size &&
					          number >= row->ports[p].first &&
					          number <= row->ports[p].last;
			}
			assert_int_equal(has_cell(addr, number), listed);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_good_entries, start),
		cmocka_unit_test_setup(test_bad_entries, start),
		cmocka_unit_test_setup(test_bounds, start),
		cmocka_unit_test_setup(test_resolvers, start),
		cmocka_unit_test_setup(test_what_goes_together, start),
		cmocka_unit_test_setup(test_modes, start),
		cmocka_unit_test_setup(test_a_resolver_of_the_host, start),
		cmocka_unit_test_setup(test_overlaps, start),
		cmocka_unit_test_setup(test_largest, start),
		cmocka_unit_test_setup(test_most_cells, start),
		cmocka_unit_test_setup(test_random, start),
	};

	return RUN_TESTS(tests);
}
