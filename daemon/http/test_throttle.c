/* Who an attempt is counted for, how many there may be, and that one address is no other's. */
#include "common/test.h"

#include "common/attr.h"
#include "daemon/http/throttle.h"

#include <arpa/inet.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#define LIMIT 60
#define START 1000000 /* ms */

static struct throttle t;

static void begin(unsigned int limit, const char *const *proxies, size_t n)
{
	struct err e = ERR_INIT;

	assert_int_equal(throttle_open(&t, limit, proxies, n, &e), 0);
}

static int end(void **state)
{
	(void)state;
	throttle_close(&t);
	return 0;
}

static struct in6_addr at(const char *text)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6 };

	if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
		return throttle_client(&t, (const struct sockaddr *)&v4, NULL);
	assert_int_equal(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
	return throttle_client(&t, (const struct sockaddr *)&v6, NULL);
}

static unsigned int one(const char *who, uint64_t now_ms)
{
	struct in6_addr address = at(who);

	return throttle_count(&t, &address, now_ms);
}

/* -- counting ---------------------------------------------------------------------------- */

static void a_bound_and_one_more(void **state)
{
	(void)state;
	begin(LIMIT, NULL, 0);
	for (int i = 0; i < LIMIT; i++)
		assert_int_equal(one("192.0.2.1", START), 0);
	assert_int_equal(one("192.0.2.1", START), 1);
	assert_int_equal(one("192.0.2.1", START + 999), 1);
	assert_int_equal(one("192.0.2.1", START + 1000), 0);
	assert_int_equal(one("192.0.2.1", START + 1000), 1);
	/* A minute later all is forgotten. */
	for (int i = 0; i < LIMIT; i++)
		assert_int_equal(one("192.0.2.1", START + 61000), 0);
	assert_int_equal(one("192.0.2.1", START + 61000), 1);
}

static void the_wait_is_said_in_whole_seconds(void **state)
{
	(void)state;
	begin(4, NULL, 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(one("192.0.2.1", START), 0);
	assert_int_equal(one("192.0.2.1", START), 15);
	assert_int_equal(one("192.0.2.1", START + 1), 15);
	assert_int_equal(one("192.0.2.1", START + 14001), 1);
	assert_int_equal(one("192.0.2.1", START + 15000), 0);
}

static void no_bound(void **state)
{
	(void)state;
	begin(0, NULL, 0);
	for (int i = 0; i < 100000; i++)
		assert_int_equal(one("192.0.2.1", START), 0);
}

static void a_flood_is_nobody_elses(void **state)
{
	(void)state;
	begin(LIMIT, NULL, 0);
	for (int i = 0; i < 100000; i++)
		(void)one("192.0.2.1", START);
	assert_int_not_equal(one("192.0.2.1", START), 0);
	assert_int_equal(one("192.0.2.2", START), 0);
	assert_int_equal(one("2001:db8::1", START), 0);
	assert_int_equal(one("::", START), 0);
}

static void a_customer_of_ipv6_is_one(void **state)
{
	(void)state;
	begin(2, NULL, 0);
	assert_int_equal(one("2001:db8:1:2::1", START), 0);
	assert_int_equal(one("2001:db8:1:2:ffff::9", START), 0);
	assert_int_not_equal(one("2001:db8:1:2:8000::", START), 0);
	assert_int_equal(one("2001:db8:1:3::1", START), 0);
	/* The same address, in either form. */
	assert_int_equal(one("192.0.2.1", START), 0);
	assert_int_equal(one("::ffff:192.0.2.1", START), 0);
	assert_int_not_equal(one("192.0.2.1", START), 0);
	assert_int_equal(one("::ffff:192.0.2.2", START), 0);
}

/* More addresses than there are places: all are answered, and the table stays as it is. */
static void a_crowd_takes_no_more_room(void **state)
{
	(void)state;
	begin(1, NULL, 0);
	for (uint32_t i = 0; i < 16U * THROTTLE_SETS * THROTTLE_WAYS; i++) {
		struct sockaddr_in from = { .sin_family = AF_INET,
			                    .sin_addr = { htonl(0x0a000000 + i) } };
		struct in6_addr client = throttle_client(&t, (const struct sockaddr *)&from, NULL);

		assert_int_equal(throttle_count(&t, &client, START), 0);
		assert_int_not_equal(throttle_count(&t, &client, START), 0);
	}
}

/* -- who it is --------------------------------------------------------------------------- */

static void expect_client(const char *peer, const char *forwarded, const char *wanted)
{
	struct sockaddr_in6 from = { .sin6_family = AF_INET6, .sin6_addr = at(peer) };
	struct in6_addr is = throttle_client(&t, (const struct sockaddr *)&from, forwarded);
	struct in6_addr should = at(wanted);
	char text[INET6_ADDRSTRLEN];

	if (memcmp(&is, &should, sizeof(is)) != 0)
		fail_msg("%s, %s: %s, not %s", peer, forwarded ? forwarded : "-",
		         inet_ntop(AF_INET6, &is, text, sizeof(text)), wanted);
}

static void nobody_vouches_unasked(void **state)
{
	(void)state;
	begin(1, NULL, 0);
	expect_client("127.0.0.1", "192.0.2.7", "127.0.0.1");
	expect_client("::1", "192.0.2.7", "::1");
}

static void a_proxy_vouches_for_the_one_before_it(void **state)
{
	static const char *const proxies[] = { "127.0.0.1", "10.0.0.1", "2001:db8::1" };
	static const struct {
		const char *peer, *forwarded, *client;
	} rows[] = {
		{ "127.0.0.1", "192.0.2.7", "192.0.2.7" },
		{ "127.0.0.1", "2001:db8:9::7", "2001:db8:9::7" },
		{ "127.0.0.1", NULL, "127.0.0.1" },
		{ "127.0.0.1", "", "127.0.0.1" },
		/* what the client wrote itself stands further left */
		{ "127.0.0.1", "198.51.100.1, 192.0.2.7", "192.0.2.7" },
		{ "127.0.0.1", "198.51.100.1 ,\t192.0.2.7 ", "192.0.2.7" },
		{ "127.0.0.1", "127.0.0.1, 192.0.2.7", "192.0.2.7" },
		/* two proxies */
		{ "127.0.0.1", "198.51.100.1, 192.0.2.7, 10.0.0.1", "192.0.2.7" },
		{ "2001:db8::1", "192.0.2.7,10.0.0.1", "192.0.2.7" },
		{ "127.0.0.1", "10.0.0.1", "10.0.0.1" },
		/* what is no address is not believed */
		{ "127.0.0.1", "unknown", "127.0.0.1" },
		{ "127.0.0.1", "192.0.2.7, nonsense", "127.0.0.1" },
		{ "127.0.0.1", "192.0.2.7,", "127.0.0.1" },
		{ "127.0.0.1", ",", "127.0.0.1" },
		{ "127.0.0.1", "192.0.2.7:99", "127.0.0.1" },
		{ "127.0.0.1", "unknown 192.0.2.7", "127.0.0.1" },
		{ "127.0.0.1", "192.0.2.7\t10.0.0.1", "127.0.0.1" },
		{ "127.0.0.1", "192.0.2.7 unknown, 10.0.0.1", "10.0.0.1" },
		{ "127.0.0.1", "11111111111111111111111111111111111111111111111111.1",
		  "127.0.0.1" },
		/* no proxy */
		{ "10.0.0.2", "192.0.2.7", "10.0.0.2" },
	};

	(void)state;
	begin(1, proxies, ARRAY_LEN(proxies));
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		expect_client(rows[i].peer, rows[i].forwarded, rows[i].client);
}

static void add_hop(char *text, size_t size)
{
	size_t len = strlen(text);

	(void)snprintf(text + len, size - len, ",10.0.0.1");
}

static void a_row_of_proxies_has_an_end(void **state)
{
	static const char *const proxies[] = { "10.0.0.1" };
	char text[32 * 10] = "192.0.2.7";

	(void)state;
	begin(1, proxies, 1);
	for (int i = 0; i < 15; i++)
		add_hop(text, sizeof(text));
	expect_client("10.0.0.1", text, "192.0.2.7");
	add_hop(text, sizeof(text));
	expect_client("10.0.0.1", text, "10.0.0.1");
}

static void a_proxy_is_an_address(void **state)
{
	static const char *const proxies[] = { "10.0.0.0/8" };
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(throttle_open(&t, 1, proxies, 1, &e), -1);
	assert_string_equal(e.text, "10.0.0.0/8 is not the address of a proxy");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(a_bound_and_one_more, end),
		cmocka_unit_test_teardown(the_wait_is_said_in_whole_seconds, end),
		cmocka_unit_test_teardown(no_bound, end),
		cmocka_unit_test_teardown(a_flood_is_nobody_elses, end),
		cmocka_unit_test_teardown(a_customer_of_ipv6_is_one, end),
		cmocka_unit_test_teardown(a_crowd_takes_no_more_room, end),
		cmocka_unit_test_teardown(nobody_vouches_unasked, end),
		cmocka_unit_test_teardown(a_proxy_vouches_for_the_one_before_it, end),
		cmocka_unit_test_teardown(a_row_of_proxies_has_an_end, end),
		cmocka_unit_test_teardown(a_proxy_is_an_address, end),
	};

	if (sodium_init() < 0)
		return 1;
	return RUN_TESTS(tests);
}
