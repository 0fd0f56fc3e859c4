#include "common/test.h"

#include "common/attr.h"
#include "common/json.h"
#include "runner/bundle.h"

#include <stdlib.h>
#include <string.h>

static struct json *parse_bundle_of(uint64_t memory, uint32_t processes)
{
	const struct limits limits = { .memory = memory, .processes = processes };
	auto_buf struct buf text = BUF_INIT(BUNDLE_MAX);
	struct err e = ERR_INIT;
	struct json *spec = NULL;

	bundle_write(&limits, &text);
	assert_false(buf_failed(&text));
	assert_int_equal(json_parse(text.data, text.len, &spec, &e), 0);
	return spec;
}

static struct json *parse_bundle(void)
{
	return parse_bundle_of(UINT64_C(2) << 30, 512);
}

static const struct json *find(const struct json *array, const char *key, const char *value)
{
	for (size_t i = 0; i < json_len(array); i++)
		if (strcmp(json_str(json_get(json_at(array, i), key)), value) == 0)
			return json_at(array, i);
	return NULL;
}

static bool has(const struct json *strings, const char *value)
{
	for (size_t i = 0; i < json_len(strings); i++)
		if (strcmp(json_str(json_at(strings, i)), value) == 0)
			return true;
	return false;
}

static void test_process(void **state)
{
	static const char *const sets[] = { "bounding", "effective", "inheritable", "permitted",
		                            "ambient" };
	auto_json struct json *spec = parse_bundle();
	const struct json *process = json_get(spec, "process");
	const struct json *caps = json_get(process, "capabilities");
	const struct json *limits = json_get(process, "rlimits");

	(void)state;
	assert_int_equal(json_len(json_get(process, "args")), 1);
	assert_string_equal(json_str(json_at(json_get(process, "args"), 0)), "/cloister/guest");
	assert_string_equal(json_str(json_get(process, "cwd")), "/workspace");
	assert_true(json_bool(json_get(process, "noNewPrivileges")));
	assert_int_equal(json_type(json_get(process, "terminal")), JSON_BOOL);
	assert_false(json_bool(json_get(process, "terminal")));
	for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
		assert_int_equal(json_type(json_get(caps, sets[i])), JSON_ARRAY);
		assert_int_equal(json_len(json_get(caps, sets[i])), 0);
	}
	assert_int_equal(json_int(json_get(find(limits, "type", "RLIMIT_CORE"), "hard")), 0);
	assert_int_equal(json_int(json_get(find(limits, "type", "RLIMIT_NOFILE"), "hard")), 8192);
	assert_int_equal(json_int(json_get(find(limits, "type", "RLIMIT_NPROC"), "hard")), 512);
	assert_int_equal(json_int(json_get(find(limits, "type", "RLIMIT_NPROC"), "soft")), 512);
}

/* Nothing of the host comes in but the two directories. */
static void test_mounts(void **state)
{
	auto_json struct json *spec = parse_bundle();
	const struct json *mounts = json_get(spec, "mounts");
	size_t binds = 0;

	(void)state;
	for (size_t i = 0; i < json_len(mounts); i++) {
		const struct json *mount = json_at(mounts, i);
		const struct json *options = json_get(mount, "options");
		bool bind = strcmp(json_str(json_get(mount, "type")), "bind") == 0;

		assert_true(has(options, "nosuid"));
		assert_int_equal(bind, has(options, "bind") || has(options, "rbind"));
		if (!bind)
			continue;
		binds++;
		assert_true(has(options, "nodev"));
		assert_true(has(options, "rw"));
		assert_string_equal(json_str(json_get(mount, "source")),
		                    json_str(json_get(mount, "destination")));
	}
	assert_int_equal(binds, 2);
	assert_non_null(find(mounts, "destination", "/workspace"));
	assert_non_null(find(mounts, "destination", "/state"));
	assert_true(has(json_get(find(mounts, "destination", "/sys"), "options"), "ro"));
}

/* Whatever lives in memory has a size. */
static void test_memory_is_bounded(void **state)
{
	auto_json struct json *spec = parse_bundle();
	const struct json *mounts = json_get(spec, "mounts");

	(void)state;
	for (size_t i = 0; i < json_len(mounts); i++) {
		const struct json *options = json_get(json_at(mounts, i), "options");
		bool sized = false;

		if (strcmp(json_str(json_get(json_at(mounts, i), "type")), "tmpfs") != 0)
			continue;
		/* Not one in truth; it takes no size, and is bounded by what root.c covers. */
		if (strcmp(json_str(json_get(json_at(mounts, i), "destination")), "/dev") == 0)
			continue;
		for (size_t k = 0; k < json_len(options); k++)
			sized |= strncmp(json_str(json_at(options, k)), "size=", 5) == 0;
		assert_true(sized);
	}
	assert_true(json_bool(json_get(json_get(spec, "root"), "readonly")));
	assert_true(has(json_get(find(mounts, "destination", "/tmp"), "options"), "size=256m"));
	assert_true(has(json_get(find(mounts, "destination", "/tmp"), "options"), "mode=1777"));
	assert_true(has(json_get(find(mounts, "destination", "/run"), "options"), "size=16m"));
}

static uint64_t megabytes_in_memory(const struct json *mounts)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < json_len(mounts); i++) {
		const struct json *options = json_get(json_at(mounts, i), "options");

		for (size_t k = 0; k < json_len(options); k++)
			if (strncmp(json_str(json_at(options, k)), "size=", 5) == 0)
				sum += strtoull(json_str(json_at(options, k)) + 5, NULL, 10);
	}
	return sum;
}

/* At the smallest and the largest memory: something, and well below it. */
static void test_limits(void **state)
{
	static const uint64_t sizes[] = { 256, 257, 2048, 1048576 };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		auto_json struct json *spec = parse_bundle_of(sizes[i] << 20, 16);
		const struct json *limits = json_get(json_get(spec, "process"), "rlimits");
		uint64_t sum = megabytes_in_memory(json_get(spec, "mounts"));

		assert_true(sum > sizes[i] / 10 && sum <= sizes[i] / 5 + 1);
		assert_false(has(
			json_get(find(json_get(spec, "mounts"), "destination", "/run"), "options"),
			"size=0m"));
		assert_int_equal(json_int(json_get(find(limits, "type", "RLIMIT_NPROC"), "hard")),
		                 16);
	}
}

static void test_namespaces(void **state)
{
	auto_json struct json *spec = parse_bundle();
	const struct json *linux_part = json_get(spec, "linux");
	const struct json *spaces = json_get(linux_part, "namespaces");

	(void)state;
	assert_int_equal(json_len(spaces), 5);
	assert_string_equal(json_str(json_get(find(spaces, "type", "network"), "path")),
	                    "/proc/self/ns/net");
	assert_null(find(spaces, "type", "user"));
	assert_null(json_get(find(spaces, "type", "pid"), "path"));
	assert_true(has(json_get(linux_part, "maskedPaths"), "/proc/kcore"));
	assert_true(has(json_get(linux_part, "readonlyPaths"), "/proc/sys"));
	assert_string_equal(json_str(json_get(spec, "hostname")), "cloister");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_process),           cmocka_unit_test(test_mounts),
		cmocka_unit_test(test_memory_is_bounded), cmocka_unit_test(test_limits),
		cmocka_unit_test(test_namespaces),
	};

	return RUN_TESTS(tests);
}
