/* Files of models in a directory of the test's own; "@" stands for it. */
#include "common/test.h"

#include "common/buf.h"
#include "common/fd.h"
#include "daemon/model/declared.h"
#include "daemon/model/models.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define KEY "sk-0123456789/abcdef+="

static char world[64];

static void expand(struct buf *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '@')
			buf_adds(out, world);
		else
			buf_addc(out, *text);
	}
}

static void put(const char *name, mode_t mode, const char *text)
{
	auto_buf struct buf path = BUF_INIT(256), content = BUF_INIT((size_t)2 << 20);
	struct err e = ERR_INIT;
	auto_close int fd = -1;

	buf_addf(&path, "%s/%s", world, name);
	expand(&content, text);
	(void)unlink(path.data);
	fd = open(path.data, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, content.data ? content.data : "", content.len, &e), 0);
	assert_int_equal(fchmod(fd, mode), 0);
}

static const char *const files[] = { "models.json", "key",   "open", "short",
	                             "spaced",      "empty", "bytes" };

static int begin_world(void **state)
{
	(void)state;
	(void)snprintf(world, sizeof(world), "/tmp/models-XXXXXX");
	if (!mkdtemp(world))
		return -1;
	put("key", 0600, "\n " KEY "\r\n");
	put("open", 0644, KEY);
	put("short", 0600, "1234567");
	put("spaced", 0600, "sk-0123 456789");
	put("empty", 0600, " \n");
	return 0;
}

static int end_world(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		char path[128];

		(void)snprintf(path, sizeof(path), "%s/%s", world, files[i]);
		(void)unlink(path);
	}
	return rmdir(world);
}

static void gather(void *ctx, const char *line)
{
	buf_adds(ctx, line);
	buf_addc(ctx, '\n');
}

static struct models *load(const char *text, const char *faults)
{
	auto_buf struct buf want = BUF_INIT(1 << 16), got = BUF_INIT(1 << 16);
	struct models *m = NULL;
	struct err e = ERR_INIT;
	char path[128];

	put("models.json", 0600, text);
	(void)snprintf(path, sizeof(path), "%s/models.json", world);
	expand(&want, faults);
	buf_adds(&want, "");
	buf_adds(&got, "");
	assert_int_equal(models_load(path, NULL, &m, gather, &got, &e), *faults ? -1 : 0);
	assert_string_equal(got.data, want.data);
	assert_null(strstr(got.data, KEY));
	return m;
}

#define HEAD "{\"version\":1,\"models\":[{\"id\":\"a\",\"label\":\"A\",\"api\":\"messages\","
#define REST "\"model\":\"m\",\"contextWindow\":1000,\"maxOutputTokens\":100"
#define URL  "\"baseUrl\":\"https://api.example/v1\","

static void a_whole_model(void **state)
{
	struct models *m = load(
		HEAD URL REST
		",\"apiKeyFile\":\"@/key\",\"prices\":{\"input\":3,\"output\":15.5},"
		"\"headers\":{\"X-A\":\"b c\"},\"idleSeconds\":7,\"images\":true,"
		"\"reasoning\":{\"efforts\":[\"low\",\"max\"],\"summaries\":true}},{\"id\":\"b/c:1\","
		"\"label\":\"B\",\"api\":\"responses\",\"baseUrl\":"
		"\"http://[::1]:8080/x\"," REST "}]}",
		"");
	const struct declared_model *a = models_find(m, "a"), *b = models_find(m, "b/c:1");
	char key[ENDPOINT_KEY_MAX + 1];
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(m->n, 2);
	assert_null(models_find(m, "c"));
	assert_int_equal(a->dialect, DIALECT_MESSAGES);
	assert_true(a->at.secure && a->at.port == 443);
	assert_int_equal(a->idle_ms, 7000);
	assert_true(a->input_price == 3 && a->output_price == 15.5 && a->cached_price == -1);
	assert_true(a->images && !b->images);
	assert_true(a->reasoning.on && a->reasoning.summaries && !a->reasoning.budget);
	assert_int_equal(a->reasoning.efforts, 1U << EFFORT_LOW | 1U << EFFORT_MAX);
	assert_true(!b->reasoning.on && !b->reasoning.efforts);
	assert_string_equal(a->headers[0].name, "X-A");
	assert_string_equal(a->headers[0].value, "b c");
	assert_int_equal(endpoint_key(&a->at, key, &e), 0);
	assert_string_equal(key, KEY);
	assert_true(!b->at.secure && b->at.port == 8080 && b->idle_ms == 300000);
	assert_int_equal(endpoint_key(&b->at, key, &e), 0);
	assert_string_equal(key, "");
	models_free(&m);
}

/* Of a file with these bytes. */
static int read_key(const char *bytes, size_t len, char ret[ENDPOINT_KEY_MAX + 1])
{
	struct endpoint at = { "" };
	struct err e = ERR_INIT;
	auto_close int fd = -1;

	(void)snprintf(at.key_file, sizeof(at.key_file), "%s/bytes", world);
	fd = open(at.key_file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, bytes, len, &e), 0);
	return endpoint_key(&at, ret, &e);
}

static void a_key_has_no_nul(void **state)
{
	static const char key[] = KEY;
	char got[ENDPOINT_KEY_MAX + 1];

	(void)state;
	assert_int_equal(read_key(key, sizeof(key) - 1, got), 0);
	assert_string_equal(got, KEY);
	assert_int_equal(read_key(key, sizeof(key), got), -1);
	assert_int_equal(read_key("\0" KEY, sizeof(key), got), -1);
	assert_int_equal(read_key("sk-0123\000456789", 14, got), -1);
	assert_string_equal(got, "");
}

/* In local mode there may be several directories that the agent sees. */
static void no_key_lies_where_an_agent_sees_it(void **state)
{
	static const char *const dirs[] = { "one", "two", "beside" };
	char roots[2][128], path[128];
	char *const at[] = { roots[0], roots[1] };
	struct registry *r = NULL;
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", world, dirs[i]);
		assert_int_equal(mkdir(path, 0700), 0);
		if (i < ARRAY_LEN(roots))
			memcpy(roots[i], path, sizeof(path));
	}
	assert_int_equal(registry_local(at, 2, "/nowhere", NULL, &r, &e), 0);
	for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
		struct endpoint ep = { "" };

		(void)snprintf(path, sizeof(path), "%s/key", dirs[i]);
		put(path, 0600, KEY);
		(void)snprintf(path, sizeof(path), "%s/%s/key", world, dirs[i]);
		assert_int_equal(endpoint_key_file(&ep, path, r, &e), i < 2 ? -1 : 0);
		assert_int_equal(unlink(path), 0);
		*strrchr(path, '/') = '\0';
		assert_int_equal(rmdir(path), 0);
	}
	assert_non_null(strstr(e.text, "two, where the agent can read it"));
	registry_free(&r);
}

static void what_an_answer_costs(void **state)
{
	static const struct {
		double input, output, cached;
		struct usage usage;
		int64_t nano;
	} cases[] = {
		{ -1, -1, -1, { .input = 1 }, -1 },
		{ 3, 15, 0.3, { .input = 0 }, 0 },
		{ 3,
		  15,
		  0.3,
		  { .input = 100, .cached = 40, .output = 10, .reasoning = 9 },
		  342000 },
		{ 3, 15, -1, { .input = 100, .cached = 40, .output = 10 }, 450000 },
		{ 3, 0, 0, { .input = 1, .cached = 2 }, 0 },
		{ 0.0005, 0, 0, { .input = 1 }, 1 },
		{ 1000000, 0, 0, { .input = UINT64_MAX }, 9007199254740991 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const struct declared_model m = { .input_price = cases[i].input,
			                          .output_price = cases[i].output,
			                          .cached_price = cases[i].cached };

		assert_int_equal(models_cost(&m, &cases[i].usage), cases[i].nano);
	}
}

struct file {
	const char *text, *faults;
};

static void load_and_free(const struct file *file)
{
	struct models *m = load(file->text, file->faults);

	assert_int_equal(m != NULL, !*file->faults);
	models_free(&m);
}

static void what_is_wrong_about_reasoning(void **state)
{
	static const struct file cases[] = {
		{ HEAD URL REST ",\"reasoning\":{\"efforts\":[\"low\",\"minimal\",1,\"low\"],"
		                "\"budget\":true,\"summaries\":true}}]}",
		  "models[0].reasoning.efforts[1]: must be none, low, medium, high, xhigh or max\n"
		  "models[0].reasoning.efforts[2]: must be none, low, medium, high, xhigh or max\n"
		  "models[0].reasoning.efforts[3]: stands there already\n"
		  "models[0].reasoning.budget: is for messages only, and instead of efforts\n"
		  "models[0].reasoning.summaries: is for responses, and for messages without a "
		  "budget\n" },
		{ HEAD URL REST ",\"reasoning\":{\"budget\":true}}]}", "" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		load_and_free(&cases[i]);
}

static void every_fault_is_told(void **state)
{
	static const struct file cases[] = {
		{ "{", "@/models.json: line 1, column 2: the text ends too early\n" },
		{ "{\"version\":2,\"models\":[]}",
		  "version: must be 1\nmodels: 0 entries, must be 1 to 64\n" },
		{ HEAD URL REST ",\"key\":\"x\"}]}", "models[0].key: unknown field\n" },
		{ "{\"version\":1,\"models\":[{\"id\":\"demo\",\"label\":\"\",\"api\":\"x\"," URL
		  "\"model\":\"m\",\"contextWindow\":10,\"maxOutputTokens\":11}]}",
		  "models[0].id: \"demo\" is the built-in model's\n"
		  "models[0].label: 0 bytes, must be 1 to 256\n"
		  "models[0].api: must be chat-completions, responses or messages\n"
		  "models[0].maxOutputTokens: is more than contextWindow\n" },
		{ HEAD "\"baseUrl\":\"ftp://x\"," REST "}]}",
		  "models[0].baseUrl: must begin with https:// or http://\n" },
		{ HEAD "\"baseUrl\":\"https://x/v1?q\"," REST "}]}",
		  "models[0].baseUrl: must be a URL of at most 1024 bytes without user, query "
		  "and fragment\n" },
		{ HEAD "\"baseUrl\":\"https://x/v1/\"," REST "}]}",
		  "models[0].baseUrl: must not end in a slash: the path of its format is "
		  "appended\n" },
		{ HEAD "\"baseUrl\":\"https://x:70000/v1\"," REST "}]}",
		  "models[0].baseUrl: its port must be 1 to 65535\n" },
		{ HEAD "\"baseUrl\":\"http://x/v1\"," REST "}]}", "" },
		{ HEAD "\"baseUrl\":\"http://127.0.0.1:1/v1\"," REST ",\"apiKeyFile\":\"@/key\"}]}",
		  "" },
		{ HEAD "\"baseUrl\":\"http://127.0.0.1.example/v1\"," REST
		       ",\"apiKeyFile\":\"@/key\"}]}",
		  "models[0].baseUrl: http would show the key to everybody on the way; only to "
		  "127.0.0.1, localhost and [::1], or without apiKeyFile\n" },
		{ HEAD URL REST ",\"apiKeyFile\":\"@/open\"}]}",
		  "models[0].apiKeyFile: @/open: mode 0644, group or others can read it\n" },
		{ HEAD URL REST ",\"apiKeyFile\":\"@/short\"}]}",
		  "models[0].apiKeyFile: @/short: the key must have 8 to 1,024 bytes\n" },
		{ HEAD URL REST ",\"apiKeyFile\":\"@/spaced\"}]}",
		  "models[0].apiKeyFile: @/spaced: the key must be printable ASCII without spaces, "
		  "quotes and backslashes\n" },
		{ HEAD URL REST ",\"apiKeyFile\":\"@/empty\"}]}",
		  "models[0].apiKeyFile: @/empty: the key is empty\n" },
		{ HEAD URL REST ",\"apiKeyFile\":\"key\"}]}",
		  "models[0].apiKeyFile: must be an absolute path\n" },
		{ HEAD URL REST
		  ",\"headers\":{\"Authorization\":\"x\",\"a b\":\"x\",\"c\":\"\\n\"}}]}",
		  "models[0].headers.Authorization: is not the operator's to set\n"
		  "models[0].headers: a name is not 1 to 64 of letters, digits, \"-\" and \"_\"\n"
		  "models[0].headers.c: must be 1 to 256 bytes of printable ASCII\n" },
		{ HEAD URL REST ",\"prices\":{\"input\":-1},\"idleSeconds\":0}]}",
		  "models[0].prices.output: required field is missing\n"
		  "models[0].prices.input: must be 0 to 1000000\n"
		  "models[0].idleSeconds: must be 1 to 3600\n" },
		{ HEAD URL REST "},{\"id\":\"a\",\"label\":\"A\",\"api\":\"messages\"," URL REST
		                "}]}",
		  "models[1].id: the same id as of a model before it\n" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		load_and_free(&cases[i]);
}

/* Whatever case and place the words have. */
static void no_header_carries_a_key(void **state)
{
	static const char *const names[] = {
		"api-key",         "X-Goog-Api-Key", "x-auth-token", "X-Api-Key",
		"apikey",          "Cookie",         "x_access_key", "Proxy-Authorization",
		"X-Amz-Signature", "Client-Secret",  "X-Password",   "Host",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		char text[512], faults[128];
		struct models *m;

		(void)snprintf(text, sizeof(text), HEAD URL REST ",\"headers\":{\"%s\":\"x\"}}]}",
		               names[i]);
		(void)snprintf(faults, sizeof(faults),
		               "models[0].headers.%s: is not the operator's to set\n", names[i]);
		m = load(text, faults);
		assert_null(m);
	}
}

static void expect(const char *text, const char *faults)
{
	load_and_free(&(struct file){ text, faults });
}

/* Each value at its bound, and with one byte more. */
static void values_are_bounded(void **state)
{
	char text[4096], longest[ENDPOINT_URL_MAX + 2];

	(void)state;
	memset(longest, 'a', sizeof(longest));
	for (int more = 0; more < 2; more++) {
		(void)snprintf(text, sizeof(text),
		               "{\"version\":1,\"models\":[{\"id\":\"%.*s\",\"label\":\"A\","
		               "\"api\":\"messages\"," URL REST "}]}",
		               TENANT_MODEL_MAX + more, longest);
		expect(text, more ? "models[0].id: must be 1 to 64 of letters, digits and "
		                    "\"-._:/\"\n"
		                  : "");
		(void)snprintf(text, sizeof(text),
		               "{\"version\":1,\"models\":[{\"id\":\"a\",\"label\":\"%.*s\","
		               "\"api\":\"messages\"," URL REST "}]}",
		               MODEL_TEXT_MAX + more, longest);
		expect(text, more ? "models[0].label: 257 bytes, must be 1 to 256\n" : "");
		(void)snprintf(text, sizeof(text), HEAD "\"baseUrl\":\"https://%.*s\"," REST "}]}",
		               ENDPOINT_URL_MAX - (int)strlen("https://") + more, longest);
		expect(text, more ? "models[0].baseUrl: must be a URL of at most 1024 bytes "
		                    "without user, query and fragment\n"
		                  : "");
		(void)snprintf(text, sizeof(text), "%.*s", ENDPOINT_KEY_MAX + more, longest);
		put("key", 0600, text);
		expect(HEAD URL REST ",\"apiKeyFile\":\"@/key\"}]}",
		       more ? "models[0].apiKeyFile: @/key: the key must have 8 to 1,024 bytes\n"
		            : "");
	}
}

static void headers_are_bounded(void **state)
{
	char name[ENDPOINT_HEADER_MAX + 2], value[MODEL_TEXT_MAX + 2];

	(void)state;
	memset(name, 'n', sizeof(name));
	memset(value, 'v', sizeof(value));
	for (int more = 0; more < 2; more++) {
		auto_buf struct buf text = BUF_INIT(8192);

		buf_addf(&text, HEAD URL REST ",\"headers\":{\"%.*s\":\"x\",\"b\":\"%.*s\"}}]}",
		         ENDPOINT_HEADER_MAX + more, name, MODEL_TEXT_MAX + more, value);
		expect(text.data, more ? "models[0].headers: a name is not 1 to 64 of letters, "
		                         "digits, \"-\" and \"_\"\n"
		                         "models[0].headers.b: must be 1 to 256 bytes of "
		                         "printable ASCII\n"
		                       : "");
		buf_reset(&text);
		buf_adds(&text, HEAD URL REST ",\"headers\":{\"X\":\"x\"");
		for (int i = 1; i < MODEL_HEADERS + more; i++)
			buf_addf(&text, ",\"X-%d\":\"x\"", i);
		buf_adds(&text, "}}]}");
		expect(text.data, more ? "models[0].headers: more than 16 of them\n" : "");
	}
}

static void the_file_is_bounded(void **state)
{
	auto_buf struct buf text = BUF_INIT((size_t)2 << 20);

	(void)state;
	buf_adds(&text, HEAD URL REST "}]}");
	while (text.len < DECLARED_BYTES_MAX)
		buf_addc(&text, '\n');
	expect(text.data, "");
	buf_addc(&text, '\n');
	expect(text.data, "@/models.json: larger than 1048576 bytes\n");
}

#define EXAMPLE_KEYS "/etc/cloister/keys/"

/* With keys that are here. */
static void the_example_is_good(void **state)
{
	auto_close int fd = open("models.example.json", O_RDONLY | O_CLOEXEC);
	auto_buf struct buf here = BUF_INIT(1 << 16);
	auto_free char *text = NULL;
	struct err e = ERR_INIT;
	struct models *m;
	const char *at, *key;
	size_t len;

	(void)state;
	assert_int_equal(fd_read_all(fd, DECLARED_BYTES_MAX, &text, &len, &e), 0);
	for (at = text; (key = strstr(at, EXAMPLE_KEYS)); at = key + strcspn(key, "\"")) {
		buf_add(&here, at, (size_t)(key - at));
		buf_adds(&here, "@/key");
	}
	buf_adds(&here, at);
	m = load(here.data, "");
	assert_int_equal(m->n, 3);
	assert_non_null(models_find(m, "claude"));
	models_free(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_an_answer_costs),
		cmocka_unit_test_setup_teardown(a_whole_model, begin_world, end_world),
		cmocka_unit_test_setup_teardown(a_key_has_no_nul, begin_world, end_world),
		cmocka_unit_test_setup_teardown(no_key_lies_where_an_agent_sees_it, begin_world,
		                                end_world),
		cmocka_unit_test_setup_teardown(the_example_is_good, begin_world, end_world),
		cmocka_unit_test_setup_teardown(no_header_carries_a_key, begin_world, end_world),
		cmocka_unit_test_setup_teardown(what_is_wrong_about_reasoning, begin_world,
		                                end_world),
		cmocka_unit_test_setup_teardown(every_fault_is_told, begin_world, end_world),
		cmocka_unit_test_setup_teardown(values_are_bounded, begin_world, end_world),
		cmocka_unit_test_setup_teardown(headers_are_bounded, begin_world, end_world),
		cmocka_unit_test_setup_teardown(the_file_is_bounded, begin_world, end_world),
	};

	return RUN_TESTS(tests);
}
