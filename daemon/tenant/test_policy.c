#include "common/test.h"

#include "common/buf.h"
#include "common/fd.h"
#include "common/json.h"
#include "daemon/tenant/policy.h"

#include <string.h>

/* A value of "egress" or "limits" and its faults, each on a line; "": it is accepted. */
struct row {
	const char *value, *faults;
};

static const struct row egress_rows[] = {
	{ "{\"mode\":\"public\"}", "" },
	{ "{\"mode\":\"none\"}", "" },
	{ "{\"mode\":\"allow\",\"allow\":[]}", "" },
	{ "[]", "egress: expected an object, found an array\n" },
	{ "{}", "egress.mode: required field is missing\n" },
	{ "{\"mode\":\"Public\"}", "egress.mode: must be \"public\", \"none\" or \"allow\"\n" },
	{ "{\"mode\":1}", "egress.mode: expected a string, found an integer\n" },
	{ "{\"mode\":\"public\",\"deny\":[]}", "egress.deny: unknown field\n" },
	{ "{\"mode\":\"allow\"}", "egress.allow: required with mode \"allow\"\n" },
	{ "{\"mode\":\"public\",\"allow\":[]}", "egress.allow: only with mode \"allow\"\n" },
	{ "{\"mode\":\"none\",\"allow\":[]}", "egress.allow: only with mode \"allow\"\n" },
	{ "{\"mode\":\"allow\",\"allow\":[\"198.51.100.0/24\"]}",
	  "egress.allow[0]: expected an object, found a string\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"ports\":[1]}]}",
	  "egress.allow[0].cidr: required field is missing\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"0.0.0.0/0\"},{\"cidr\":\"255.255.255.255/32\"}]}",
	  "" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"\"}]}",
	  "egress.allow[0].cidr: must be an IPv4 network such as 198.51.100.0/24\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"198.51.100.0\"}]}",
	  "egress.allow[0].cidr: must be an IPv4 network such as 198.51.100.0/24\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"198.51.100.0/\"}]}",
	  "egress.allow[0].cidr: must be an IPv4 network such as 198.51.100.0/24\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"198.51.100.0/33\"}]}",
	  "egress.allow[0].cidr: must be an IPv4 network such as 198.51.100.0/24\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"198.51.100.0/024\"}]}",
	  "egress.allow[0].cidr: must be an IPv4 network such as 198.51.100.0/24\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"198.51.100.0/ 4\"}]}",
	  "egress.allow[0].cidr: must be an IPv4 network such as 198.51.100.0/24\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"198.51.100.0/24 \"}]}",
	  "egress.allow[0].cidr: must be an IPv4 network such as 198.51.100.0/24\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"198.051.100.0/24\"}]}",
	  "egress.allow[0].cidr: must be an IPv4 network such as 198.51.100.0/24\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"198.51.100/24\"}]}",
	  "egress.allow[0].cidr: must be an IPv4 network such as 198.51.100.0/24\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"::/0\"}]}",
	  "egress.allow[0].cidr: must be an IPv4 network such as 198.51.100.0/24\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"0.0.0.0/-0\"}]}",
	  "egress.allow[0].cidr: must be an IPv4 network such as 198.51.100.0/24\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"0.0.0.0/00\"}]}",
	  "egress.allow[0].cidr: must be an IPv4 network such as 198.51.100.0/24\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"256.0.0.0/8\"}]}",
	  "egress.allow[0].cidr: must be an IPv4 network such as 198.51.100.0/24\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"198.51.100.9/24\"}]}",
	  "egress.allow[0].cidr: has bits below its prefix; the network is 198.51.100.0/24\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"0.0.0.1/0\"}]}",
	  "egress.allow[0].cidr: has bits below its prefix; the network is 0.0.0.0/0\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"1.2.3.4/32\",\"ports\":[1,0]}]}",
	  "egress.allow[0].ports[1]: must be a port from 1 to 65535, or a range such as \"8000-8100\"\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"1.2.3.4/32\",\"ports\":[1,65536]}]}",
	  "egress.allow[0].ports[1]: must be a port from 1 to 65535, or a range such as \"8000-8100\"\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"1.2.3.4/32\",\"ports\":[1,-1]}]}",
	  "egress.allow[0].ports[1]: must be a port from 1 to 65535, or a range such as \"8000-8100\"\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"1.2.3.4/32\",\"ports\":[1,1.5]}]}",
	  "egress.allow[0].ports[1]: must be a port from 1 to 65535, or a range such as \"8000-8100\"\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"1.2.3.4/32\",\"ports\":[1,\"443\"]}]}",
	  "egress.allow[0].ports[1]: must be a port from 1 to 65535, or a range such as \"8000-8100\"\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"1.2.3.4/32\",\"ports\":[1,\"0-1\"]}]}",
	  "egress.allow[0].ports[1]: must be a port from 1 to 65535, or a range such as \"8000-8100\"\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"1.2.3.4/32\",\"ports\":[1,\"1-65536\"]}]}",
	  "egress.allow[0].ports[1]: must be a port from 1 to 65535, or a range such as \"8000-8100\"\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"1.2.3.4/32\",\"ports\":[1,\"1-\"]}]}",
	  "egress.allow[0].ports[1]: must be a port from 1 to 65535, or a range such as \"8000-8100\"\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"1.2.3.4/32\",\"ports\":[1,\"-1\"]}]}",
	  "egress.allow[0].ports[1]: must be a port from 1 to 65535, or a range such as \"8000-8100\"\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"1.2.3.4/32\",\"ports\":[1,\"1-2-3\"]}]}",
	  "egress.allow[0].ports[1]: must be a port from 1 to 65535, or a range such as \"8000-8100\"\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"1.2.3.4/32\",\"ports\":[1,\"01-2\"]}]}",
	  "egress.allow[0].ports[1]: must be a port from 1 to 65535, or a range such as \"8000-8100\"\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"1.2.3.4/32\",\"ports\":[1,\" 1-2\"]}]}",
	  "egress.allow[0].ports[1]: must be a port from 1 to 65535, or a range such as \"8000-8100\"\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"1.2.3.4/32\",\"ports\":[1,null]}]}",
	  "egress.allow[0].ports[1]: must be a port from 1 to 65535, or a range such as \"8000-8100\"\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"1.2.3.4/32\",\"ports\":[1,\"1-99999999999999999999\"]}]}",
	  "egress.allow[0].ports[1]: must be a port from 1 to 65535, or a range such as \"8000-8100\"\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"1.2.3.4/32\",\"ports\":[\"9-8\"]}]}",
	  "egress.allow[0].ports[0]: the range ends before it begins\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"1.2.3.4/32\",\"ports\":[]}]}",
	  "egress.allow[0].ports: 0 entries, must be 1 to 16\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"1.2.3.4/32\",\"ports\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}]}",
	  "" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"1.2.3.4/32\",\"ports\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}]}",
	  "egress.allow[0].ports: 17 entries, must be 1 to 16\n" },
	{ "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"1.2.3.4/32\",\"port\":[1]},{\"cidr\":\"x\"}]}",
	  "egress.allow[0].port: unknown field\n"
	  "egress.allow[1].cidr: must be an IPv4 network such as 198.51.100.0/24\n" },
	{ "{\"mode\":\"public\",\"dns\":\"off\"}", "" },
	{ "{\"mode\":\"none\",\"dns\":\"off\"}", "" },
	{ "{\"mode\":\"allow\",\"allow\":[],\"dns\":\"host\"}", "" },
	{ "{\"mode\":\"none\",\"dns\":\"host\"}",
	  "egress.dns: must be \"off\" with mode \"none\"\n" },
	{ "{\"mode\":\"none\",\"dns\":[\"9.9.9.9\"]}",
	  "egress.dns: must be \"off\" with mode \"none\"\n" },
	{ "{\"mode\":\"public\",\"dns\":\"on\"}",
	  "egress.dns: must be \"off\", \"host\" or a list of addresses\n" },
	{ "{\"mode\":\"public\",\"dns\":1}",
	  "egress.dns: must be \"off\", \"host\" or a list of addresses\n" },
	{ "{\"mode\":\"public\",\"dns\":{}}",
	  "egress.dns: must be \"off\", \"host\" or a list of addresses\n" },
	{ "{\"mode\":\"public\",\"dns\":[]}", "egress.dns: 0 entries, must be 1 to 3\n" },
	{ "{\"mode\":\"public\",\"dns\":[\"9.9.9.1\",\"9.9.9.2\",\"9.9.9.3\"]}", "" },
	{ "{\"mode\":\"public\",\"dns\":[\"9.9.9.1\",\"9.9.9.2\",\"9.9.9.3\",\"9.9.9.4\"]}",
	  "egress.dns: 4 entries, must be 1 to 3\n" },
	{ "{\"mode\":\"public\",\"dns\":[\"9.9.9\"]}", "egress.dns[0]: must be an IPv4 address\n" },
	{ "{\"mode\":\"public\",\"dns\":[\"9.9.9.09\"]}",
	  "egress.dns[0]: must be an IPv4 address\n" },
	{ "{\"mode\":\"public\",\"dns\":[\"::1\"]}", "egress.dns[0]: must be an IPv4 address\n" },
	{ "{\"mode\":\"public\",\"dns\":[9]}", "egress.dns[0]: must be an IPv4 address\n" },
	{ "{\"mode\":\"public\",\"dns\":[\"example.org\"]}",
	  "egress.dns[0]: must be an IPv4 address\n" },
	{ "{\"mode\":\"public\",\"dns\":[\"0.0.0.0\"]}",
	  "egress.dns[0]: no resolver can have this address\n" },
	{ "{\"mode\":\"public\",\"dns\":[\"127.0.0.1\"]}",
	  "egress.dns[0]: no resolver can have this address\n" },
	{ "{\"mode\":\"public\",\"dns\":[\"224.0.0.1\"]}",
	  "egress.dns[0]: no resolver can have this address\n" },
	{ "{\"mode\":\"public\",\"dns\":[\"255.255.255.255\"]}",
	  "egress.dns[0]: no resolver can have this address\n" },
	{ "{\"mode\":\"public\",\"dns\":[\"9.9.9.9\",\"9.9.9.9\"]}",
	  "egress.dns[1]: stands twice\n" },
};

static const struct row limits_rows[] = {
	{ "{}", "" },
	{ "[]", "limits: expected an object, found an array\n" },
	{ "{\"cpu\":1}", "limits.cpu: unknown field\n" },
	{ "{\"cpus\":0.1}", "" },
	{ "{\"cpus\":64}", "" },
	{ "{\"cpus\":64.0}", "" },
	{ "{\"cpus\":0.29}", "" },
	{ "{\"cpus\":1.15}", "" },
	{ "{\"cpus\":2}", "" },
	{ "{\"cpus\":0.09}", "limits.cpus: must be a number from 0.1 to 64 in hundredths\n" },
	{ "{\"cpus\":0}", "limits.cpus: must be a number from 0.1 to 64 in hundredths\n" },
	{ "{\"cpus\":-1}", "limits.cpus: must be a number from 0.1 to 64 in hundredths\n" },
	{ "{\"cpus\":64.01}", "limits.cpus: must be a number from 0.1 to 64 in hundredths\n" },
	{ "{\"cpus\":65}", "limits.cpus: must be a number from 0.1 to 64 in hundredths\n" },
	{ "{\"cpus\":0.105}", "limits.cpus: must be a number from 0.1 to 64 in hundredths\n" },
	{ "{\"cpus\":1e300}", "limits.cpus: must be a number from 0.1 to 64 in hundredths\n" },
	{ "{\"cpus\":1e-300}", "limits.cpus: must be a number from 0.1 to 64 in hundredths\n" },
	{ "{\"cpus\":\"2\"}", "limits.cpus: must be a number from 0.1 to 64 in hundredths\n" },
	{ "{\"cpus\":[]}", "limits.cpus: must be a number from 0.1 to 64 in hundredths\n" },
	{ "{\"cpus\":true}", "limits.cpus: must be a number from 0.1 to 64 in hundredths\n" },
	{ "{\"cpus\":1000000000}", "limits.cpus: must be a number from 0.1 to 64 in hundredths\n" },
	{ "{\"memoryMiB\":256}", "" },
	{ "{\"memoryMiB\":1048576}", "" },
	{ "{\"memoryMiB\":255}", "limits.memoryMiB: must be 256 to 1048576\n" },
	{ "{\"memoryMiB\":1048577}", "limits.memoryMiB: must be 256 to 1048576\n" },
	{ "{\"memoryMiB\":-1}", "limits.memoryMiB: must be 256 to 1048576\n" },
	{ "{\"memoryMiB\":9007199254740991}", "limits.memoryMiB: must be 256 to 1048576\n" },
	{ "{\"memoryMiB\":512.5}", "limits.memoryMiB: expected an integer, found a number\n" },
	{ "{\"processes\":16}", "" },
	{ "{\"processes\":32768}", "" },
	{ "{\"processes\":15}", "limits.processes: must be 16 to 32768\n" },
	{ "{\"processes\":32769}", "limits.processes: must be 16 to 32768\n" },
	{ "{\"cpus\":0,\"memoryMiB\":0,\"processes\":0}",
	  "limits.cpus: must be a number from 0.1 to 64 in hundredths\n"
	  "limits.memoryMiB: must be 256 to 1048576\n"
	  "limits.processes: must be 16 to 32768\n" },
};

static void gather(void *ctx, const char *path, const char *text)
{
	buf_addf(ctx, "%s: %s\n", path, text);
}

static struct json *parse(const char *text)
{
	struct json *v = NULL;
	struct err e = ERR_INIT;

	if (json_parse(text, strlen(text), &v, &e) < 0)
		fail_msg("%s: %s", text, e.text);
	return v;
}

static void read_egress(const char *text, struct egress *ret, struct buf *faults)
{
	struct json_faults f = { .report = gather, .ctx = faults };
	auto_json struct json *v = text ? parse(text) : NULL;

	buf_adds(faults, "");
	egress_read(v, "egress", &f, ret);
}

static void read_limits(const char *text, struct limits *ret, struct buf *faults)
{
	struct json_faults f = { .report = gather, .ctx = faults };
	auto_json struct json *v = text ? parse(text) : NULL;

	buf_adds(faults, "");
	limits_read(v, "limits", &f, ret);
}

static void test_egress_faults(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(egress_rows); i++) {
		auto_buf struct buf faults = BUF_INIT(1 << 16);
		struct egress egress;

		read_egress(egress_rows[i].value, &egress, &faults);
		if (strcmp(faults.data, egress_rows[i].faults) != 0)
			fail_msg("%s: \"%s\"", egress_rows[i].value, faults.data);
		egress_release(&egress);
	}
}

static void test_limits_faults(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(limits_rows); i++) {
		auto_buf struct buf faults = BUF_INIT(1 << 16);
		struct limits limits;

		read_limits(limits_rows[i].value, &limits, &faults);
		if (strcmp(faults.data, limits_rows[i].faults) != 0)
			fail_msg("%s: \"%s\"", limits_rows[i].value, faults.data);
	}
}

static void test_egress_values(void **state)
{
	static const char text[] =
		"{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"198.51.100.0/24\",\"ports\":[443,"
		"\"8000-8100\",\"9-9\"]},{\"cidr\":\"0.0.0.0/0\"}],\"dns\":[\"9.9.9.9\","
		"\"10.0.0.1\",\"223.255.255.255\"]}";
	auto_buf struct buf faults = BUF_INIT(1 << 16);
	struct egress egress;

	(void)state;
	read_egress(text, &egress, &faults);
	assert_string_equal(faults.data, "");
	assert_true(egress.given);
	assert_int_equal(egress.mode, EGRESS_ALLOW);
	assert_int_equal(egress.allow_count, 2);
	assert_string_equal(egress.allow[0], "198.51.100.0/24:443,8000-8100,9");
	assert_string_equal(egress.allow[1], "0.0.0.0/0");
	assert_string_equal(egress.dns, "9.9.9.9,10.0.0.1,223.255.255.255");
	egress_release(&egress);
}

static void test_longest_texts(void **state)
{
	auto_buf struct buf text = BUF_INIT(4096), want = BUF_INIT(4096), faults = BUF_INIT(4096);
	struct egress egress;

	(void)state;
	buf_adds(&text,
	         "{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"254.254.254.254/32\",\"ports\":[");
	buf_adds(&want, "254.254.254.254/32");
	for (int i = 0; i < EGRESS_PORTS_MAX; i++) {
		buf_addf(&text, "%s\"65534-65535\"", i ? "," : "");
		buf_addf(&want, "%c65534-65535", i ? ',' : ':');
	}
	buf_adds(&text,
	         "]}],\"dns\":[\"100.100.100.101\",\"100.100.100.102\",\"100.100.100.103\"]}");
	read_egress(text.data, &egress, &faults);
	assert_string_equal(faults.data, "");
	assert_string_equal(egress.allow[0], want.data);
	assert_string_equal(egress.dns, "100.100.100.101,100.100.100.102,100.100.100.103");
	egress_release(&egress);
}

static void count_entries(size_t n, const char *fault)
{
	auto_buf struct buf text = BUF_INIT(1 << 20), faults = BUF_INIT(4096);
	struct egress egress;

	buf_adds(&text, "{\"mode\":\"allow\",\"allow\":[");
	for (size_t i = 0; i < n; i++)
		buf_addf(&text, "%s{\"cidr\":\"10.%zu.%zu.0/24\"}", i ? "," : "", i / 256, i % 256);
	buf_adds(&text, "]}");
	read_egress(text.data, &egress, &faults);
	assert_string_equal(faults.data, fault);
	assert_int_equal(egress.allow_count, *fault ? 0 : n);
	egress_release(&egress);
}

static void test_number_of_entries(void **state)
{
	(void)state;
	count_entries(EGRESS_ALLOW_MAX, "");
	count_entries(EGRESS_ALLOW_MAX + 1, "egress.allow: 1001 entries, at most 1000\n");
}

static void expect_dns(const char *text, enum egress_mode mode, const char *dns)
{
	auto_buf struct buf faults = BUF_INIT(4096);
	struct egress egress;

	read_egress(text, &egress, &faults);
	assert_string_equal(faults.data, "");
	assert_int_equal(egress.mode, mode);
	assert_int_equal(egress.given, text != NULL);
	assert_string_equal(egress.dns, dns);
	egress_release(&egress);
}

static void test_defaults(void **state)
{
	auto_buf struct buf faults = BUF_INIT(4096);
	struct limits limits;

	(void)state;
	expect_dns(NULL, EGRESS_PUBLIC, "off");
	expect_dns("{\"mode\":\"public\"}", EGRESS_PUBLIC, "off");
	expect_dns("{\"mode\":\"public\",\"dns\":\"host\"}", EGRESS_PUBLIC, "host");
	expect_dns("{\"mode\":\"none\"}", EGRESS_NONE, "off");
	expect_dns("{\"mode\":\"allow\",\"allow\":[]}", EGRESS_ALLOW, "off");
	read_limits(NULL, &limits, &faults);
	assert_false(limits.given);
	assert_int_equal(limits.cpus, 200);
	assert_int_equal(limits.memory, 2147483648);
	assert_int_equal(limits.processes, 512);
}

static void test_limits_values(void **state)
{
	auto_buf struct buf faults = BUF_INIT(4096);
	struct limits limits;

	(void)state;
	read_limits("{\"cpus\":0.29,\"memoryMiB\":1048576,\"processes\":16}", &limits, &faults);
	assert_true(limits.given);
	assert_int_equal(limits.cpus, 29);
	assert_int_equal(limits.memory, 1ULL << 40);
	assert_int_equal(limits.processes, 16);
	read_limits("{\"cpus\":64}", &limits, &faults);
	assert_int_equal(limits.cpus, 6400);
	assert_int_equal(limits.memory, 2147483648);
	assert_string_equal(faults.data, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_egress_faults),     cmocka_unit_test(test_limits_faults),
		cmocka_unit_test(test_egress_values),     cmocka_unit_test(test_longest_texts),
		cmocka_unit_test(test_number_of_entries), cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_limits_values),
	};

	return RUN_TESTS(tests);
}
