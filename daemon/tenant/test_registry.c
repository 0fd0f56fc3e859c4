/* What the registry says: its text, who is found in it, how much it may hold. */
#include "daemon/tenant/test_world.h"

/* -- what a good one gives ------------------------------------------------------------- */

static void test_good(void **state)
{
	struct registry *r = NULL;
	const struct tenant *a, *b;
	struct uuid id;
	struct stat st;

	(void)state;
	load("", &r);
	assert_int_equal(registry_count(r), 2);
	a = registry_at(r, 0);
	b = registry_at(r, 1);
	assert_null(registry_at(r, 2));
	assert_string_equal(a->name, "acme");
	assert_string_equal(a->workspace, in_world("ws/a"));
	assert_string_equal(a->id.text, "00000000-0000-7000-8000-000000000001");
	assert_int_equal(a->credential_count, 1);
	assert_int_equal(b->index, 1);
	assert_int_equal(stat(a->workspace, &st), 0);
	assert_true(a->place.device == st.st_dev && a->place.inode == st.st_ino);
	id = b->id;
	assert_ptr_equal(registry_find(r, &id), b);
	id.text[UUID_TEXT_LEN - 1] = '9';
	assert_null(registry_find(r, &id));
	registry_free(&r);
}

static void test_authenticate(void **state)
{
	static const char *const wrong[] = {
		"",
		"x",
		"token-a-0123456789abcdef0123456",
		"token-a-0123456789abcdef01234568",
		"uoken-a-0123456789abcdef01234567",
		TOKEN_A " ",
		" " TOKEN_B,
		TOKEN_A TOKEN_A,
	};
	struct registry *r = NULL;
	const char *credential = "untouched";
	char embedded[] = TOKEN_A "\0";

	(void)state;
	load("", &r);
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		assert_null(registry_authenticate(r, wrong[i], strlen(wrong[i]), &credential));
	assert_null(registry_authenticate(r, embedded, sizeof(TOKEN_A), &credential));
	assert_string_equal(credential, "untouched");
	assert_ptr_equal(registry_authenticate(r, TOKEN_A, strlen(TOKEN_A), &credential),
	                 registry_at(r, 0));
	assert_string_equal(credential, "00000000-0000-7000-8000-000000000002");
	/* White space around the token in its file is no part of it. */
	assert_ptr_equal(registry_authenticate(r, TOKEN_B, strlen(TOKEN_B), &credential),
	                 registry_at(r, 1));
	assert_string_equal(credential, "00000000-0000-7000-8000-000000000004");
	assert_ptr_equal(registry_authenticate(r, TOKEN_B, strlen(TOKEN_B), NULL),
	                 registry_at(r, 1));
	registry_free(&r);
}

/* -- faults of the text: one change to the good one each --------------------------------- */

static const struct {
	const char *from, *to;
	const char *faults;
} edits[] = {
	{ "\"version\":1", "\"version\":2", "version: must be 1\n" },
	{ "\"version\":1", "\"version\":1.0", "version: expected an integer, found a number\n" },
	{ "\"version\":1,", "", "version: required field is missing\n" },
	{ "\"version\":1", "\"version\":1,\"comment\":\"\"", "comment: unknown field\n" },
	{ GOOD, "{\"version\":1}", "tenants: required field is missing\n" },
	{ GOOD, "{\"version\":1,\"tenants\":{}}", "tenants: expected an array, found an object\n" },
	{ GOOD, "{\"version\":1,\"tenants\":[]}", "tenants: 0 entries, must be 1 to 4096\n" },
	{ GOOD, "{\"version\":1,\"tenants\":[1]}",
	  "tenants[0]: expected an object, found an integer\n" },
	{ GOOD, "[]", "expected an object, found an array\n" },
	{ GOOD, "", "@/tenants.json: line 1, column 1: the text ends too early\n" },
	{ "\"id\":\"$1\",", "", "tenants[0].id: required field is missing\n" },
	{ "\"name\":\"globex\",", "", "tenants[1].name: required field is missing\n" },
	{ "\"workspaceRoot\":\"@/ws/a\",", "",
	  "tenants[0].workspaceRoot: required field is missing\n" },
	{ ",\"credentials\":[{\"id\":\"$4\",\"tokenFile\":\"@/tokens/b\"}]", "",
	  "tenants[1].credentials: required field is missing\n" },
	{ "\"name\":\"globex\"", "\"name\":\"globex\",\"Name\":\"\"",
	  "tenants[1].Name: unknown field\n" },
	{ "\"name\":\"acme\"", "\"name\":\"acme\",\"name\":\"acme\"",
	  "@/tenants.json: line 1, column 84: duplicate key \"name\"\n" },
	{ "{\"id\":\"$4\"", "{\"id\":\"$4\",\"token\":\"x\"",
	  "tenants[1].credentials[0].token: unknown field\n" },
	{ ",\"tokenFile\":\"@/tokens/b\"", "",
	  "tenants[1].credentials[0]: tokenFile or tokenHash is missing\n" },
	{ "\"id\":\"$2\",", "", "tenants[0].credentials[0].id: required field is missing\n" },
	{ "[{\"id\":\"$4\",\"tokenFile\":\"@/tokens/b\"}]", "[]",
	  "tenants[1].credentials: 0 entries, must be 1 to 16\n" },
	{ "\"id\":\"$1\"", "\"id\":\"00000000-0000-7000-8000-00000000000A\"",
	  "tenants[0].id: must be a UUID in canonical form, lower case\n" },
	{ "\"id\":\"$1\"", "\"id\":\" $1\"",
	  "tenants[0].id: must be a UUID in canonical form, lower case\n" },
	{ "\"id\":\"$1\"", "\"id\":\"00000000000070008000000000000001\"",
	  "tenants[0].id: must be a UUID in canonical form, lower case\n" },
	{ "\"id\":\"$1\"", "\"id\":\"00000000-0000-0000-0000-000000000000\"",
	  "tenants[0].id: the nil UUID is nobody's\n" },
	{ "\"id\":\"$1\"", "\"id\":1", "tenants[0].id: expected a string, found an integer\n" },
	{ "\"id\":\"$3\"", "\"id\":\"$1\"", "tenants[1].id: the same id as tenants[0].id\n" },
	{ "\"id\":\"$4\"", "\"id\":\"$2\"",
	  "tenants[1].credentials[0].id: the same id as tenants[0].credentials[0].id\n" },
	{ "\"id\":\"$4\"", "\"id\":\"first\"",
	  "tenants[1].credentials[0].id: must be a UUID in canonical form, lower case\n" },
	{ "\"id\":\"$4\"", "\"id\":\"$1\"", "" }, /* a tenant and a credential may share one */
	{ "\"globex\"", "\"acme\"", "tenants[1].name: the same name as tenants[0].name\n" },
	{ "\"globex\"", "\"\"",
	  "tenants[1].name: must be 1 to 64 of a-z, 0-9 and \"-\", and start with a letter\n" },
	{ "\"globex\"", "\"g\"", "" },
	{ "\"globex\"", "\"~\"", "" },
	{ "\"globex\"", "\"~0\"",
	  "tenants[1].name: must be 1 to 64 of a-z, 0-9 and \"-\", and start with a letter\n" },
	{ "\"globex\"", "\"1st\"",
	  "tenants[1].name: must be 1 to 64 of a-z, 0-9 and \"-\", and start with a letter\n" },
	{ "\"globex\"", "\"Globex\"",
	  "tenants[1].name: must be 1 to 64 of a-z, 0-9 and \"-\", and start with a letter\n" },
	{ "@/ws/b", "ws/b", "tenants[1].workspaceRoot: must be an absolute path\n" },
	{ "@/ws/b", "", "tenants[1].workspaceRoot: must be an absolute path\n" },
	{ "@/ws/b", "/", "tenants[1].workspaceRoot: must name something below /\n" },
	{ "@/ws/b", "@/ws/b/", "tenants[1].workspaceRoot: path ends with a slash\n" },
	{ "@/ws/b", "@//ws/b", "tenants[1].workspaceRoot: double slash in the path\n" },
	{ "@/ws/b", "/@/ws/b", "tenants[1].workspaceRoot: double slash in the path\n" },
	{ "@/ws/b", "@/./ws/b", "tenants[1].workspaceRoot: \".\" in the path\n" },
	{ "@/ws/b", "@/ws/a/../b", "tenants[1].workspaceRoot: \"..\" in the path\n" },
	{ "@/ws/b", "@/ws/b/.", "tenants[1].workspaceRoot: \".\" in the path\n" },
	{ "@/ws/b", "@/ws/b\\n", "tenants[1].workspaceRoot: control character in the path\n" },
	{ "@/ws/b", "@/ws/\\u0085b", "tenants[1].workspaceRoot: control character in the path\n" },
	{ "@/ws/b", "@/ws/none",
	  "tenants[1].workspaceRoot: @/ws/none: No such file or directory\n" },
	{ "@/ws/b", "@/tokens/a",
	  "tenants[1].workspaceRoot: @/tokens/a: is not a directory\n"
	  "tenants[0].credentials[0].tokenFile: lies inside "
	  "tenants[1].workspaceRoot, where the tenant can read it\n" },
	{ "@/ws/b", "@/tokens/a/x", "tenants[1].workspaceRoot: @/tokens/a: is not a directory\n" },
	{ "@/ws/b", "@/ws/a",
	  "tenants[1].workspaceRoot: the same directory as tenants[0].workspaceRoot\n" },
	{ "@/ws/b", "@/ws", "tenants[0].workspaceRoot: lies inside tenants[1].workspaceRoot\n" },
	{ "@/ws/b", "@/state", "tenants[1].workspaceRoot: lies inside the state directory\n" },
	{ "@/ws/b", "@/state/none",
	  "tenants[1].workspaceRoot: @/state/none: No such file or directory\n"
	  "tenants[1].workspaceRoot: lies inside the state directory\n" },
	{ "@/ws/b", "@/tokens",
	  "tenants[0].credentials[0].tokenFile: lies inside tenants[1].workspaceRoot, where the "
	  "tenant can read it\n"
	  "tenants[1].credentials[0].tokenFile: lies inside tenants[1].workspaceRoot, where the "
	  "tenant can read it\n" },
	{ "@/tokens/b", "tokens/b",
	  "tenants[1].credentials[0].tokenFile: must be an absolute path\n" },
	{ "@/tokens/b", "@/tokens/../tokens/b",
	  "tenants[1].credentials[0].tokenFile: \"..\" in the path\n" },
	{ "@/tokens/b", "@/tokens/none",
	  "tenants[1].credentials[0].tokenFile: @/tokens/none: No such file or directory\n" },
	{ "@/tokens/b", "@/tokens",
	  "tenants[1].credentials[0].tokenFile: @/tokens: is not a regular file\n" },
	{ "@/tokens/b", "@/tokens/a",
	  "tenants[1].credentials[0].tokenFile: the same token as "
	  "tenants[0].credentials[0].tokenFile\n" },
	{ "\"name\":\"globex\"",
	  "\"name\":\"globex\",\"egress\":{\"mode\":\"none\"},\"limits\":{\"cpus\":0.5}", "" },
	{ "\"name\":\"globex\"", "\"name\":\"globex\",\"egress\":null",
	  "tenants[1].egress: expected an object, found null\n" },
	{ "\"name\":\"globex\"",
	  "\"name\":\"globex\",\"egress\":{\"mode\":\"allow\",\"allow\":[{\"cidr\":\"1.2.3.4/32\"},"
	  "{\"cidr\":\"1.2.3.4\"}]},\"limits\":{\"processes\":15}",
	  "tenants[1].egress.allow[1].cidr: must be an IPv4 network such as 198.51.100.0/24\n"
	  "tenants[1].limits.processes: must be 16 to 32768\n" },
	{ "\"name\":\"globex\"", "\"name\":\"globex\",\"models\":[\"a/b:c-1.2_X\",\"demo\"]", "" },
	{ "\"name\":\"globex\"", "\"name\":\"globex\",\"models\":[\"a\",\"\",\"a b\",7,\"a\"]",
	  "tenants[1].models[1]: must be the id of a model\n"
	  "tenants[1].models[2]: must be the id of a model\n"
	  "tenants[1].models[3]: must be the id of a model\n"
	  "tenants[1].models[4]: stands there twice\n" },
	{ "\"name\":\"globex\"", "\"name\":\"globex\",\"mcp\":[\"a-1\",\"A\"]",
	  "tenants[1].mcp[1]: must be the id of an MCP server\n" },
	{ "@/tokens/b", "/dev/zero",
	  "tenants[1].credentials[0].tokenFile: /dev/zero: is not a regular file\n" },
};

static void test_each_fault_of_the_text(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(edits); i++) {
		auto_buf struct buf b = BUF_INIT(1 << 16);
		const char *at = strstr(GOOD, edits[i].from);

		assert_non_null(at);
		buf_add(&b, GOOD, (size_t)(at - GOOD));
		buf_adds(&b, edits[i].to);
		buf_adds(&b, at + strlen(edits[i].from));
		put("tenants.json", 0600, b.data);
		expect(edits[i].faults);
	}
}

static void test_all_in_one_file(void **state)
{
	(void)state;
	put("tokens/open", 0644, TOKEN_A "x");
	put("tokens/short", 0600, "short");
	put("tenants.json", 0600,
	    "{\"version\":2,\"comment\":1,\"tenants\":["
	    "{\"id\":\"$1\",\"name\":\"acme\",\"workspaceRoot\":\"@/ws/a\",\"credentials\":["
	    "{\"id\":\"$2\",\"tokenFile\":\"@/tokens/open\"},"
	    "{\"id\":\"$2\",\"tokenFile\":\"@/tokens/short\"},"
	    "{\"id\":\"$5\",\"tokenFile\":\"@/tokens/a\",\"x\":1},"
	    "{\"id\":\"$6\",\"tokenFile\":\"@/tokens/a\"}]},"
	    "{\"id\":\"$1\",\"name\":\"acme\",\"workspaceRoot\":\"@/ws/a/sub\",\"credentials\":[]},"
	    "{\"id\":\"X\",\"name\":\"-\",\"workspaceRoot\":\"@/state\",\"credentials\":["
	    "{\"id\":\"$7\",\"tokenFile\":\"@/ws/a/token\"}]},"
	    "null,"
	    "{\"name\":3,\"credentials\":[{}]}]}");
	expect("comment: unknown field\n"
	       "version: must be 1\n"
	       "tenants[0].credentials[0].tokenFile: @/tokens/open: mode 0644, group or others can "
	       "read it\n"
	       "tenants[0].credentials[1].tokenFile: @/tokens/short: the token is shorter than 32 "
	       "bytes\n"
	       "tenants[0].credentials[2].x: unknown field\n"
	       "tenants[1].workspaceRoot: @/ws/a/sub: No such file or directory\n"
	       "tenants[1].credentials: 0 entries, must be 1 to 16\n"
	       "tenants[2].id: must be a UUID in canonical form, lower case\n"
	       "tenants[2].name: must be 1 to 64 of a-z, 0-9 and \"-\", and start with a letter\n"
	       "tenants[2].credentials[0].tokenFile: @/ws/a/token: No such file or directory\n"
	       "tenants[3]: expected an object, found null\n"
	       "tenants[4].id: required field is missing\n"
	       "tenants[4].name: expected a string, found an integer\n"
	       "tenants[4].workspaceRoot: required field is missing\n"
	       "tenants[4].credentials[0].id: required field is missing\n"
	       "tenants[4].credentials[0]: tokenFile or tokenHash is missing\n"
	       "tenants[1].id: the same id as tenants[0].id\n"
	       "tenants[1].name: the same name as tenants[0].name\n"
	       "tenants[0].credentials[1].id: the same id as tenants[0].credentials[0].id\n"
	       "tenants[0].credentials[3].tokenFile: the same token as "
	       "tenants[0].credentials[2].tokenFile\n"
	       "tenants[2].workspaceRoot: lies inside the state directory\n"
	       "tenants[1].workspaceRoot: lies inside tenants[0].workspaceRoot\n"
	       "tenants[2].credentials[0].tokenFile: lies inside tenants[0].workspaceRoot, where "
	       "the tenant can read it\n");
}

/* -- bounds ------------------------------------------------------------------------------ */

static void test_size(void **state)
{
	auto_free char *text = malloc(REGISTRY_MAX_BYTES + 1);
	auto_buf struct buf good = BUF_INIT(10000);

	(void)state;
	assert_non_null(text);
	expand(&good, GOOD);
	memset(text, ' ', REGISTRY_MAX_BYTES + 1);
	memcpy(text, good.data, good.len);
	put_bytes("tenants.json", 0600, text, REGISTRY_MAX_BYTES);
	expect("");
	put_bytes("tenants.json", 0600, text, REGISTRY_MAX_BYTES + 1);
	expect("@/tenants.json: larger than 16777216 bytes\n");
}

static void write_credentials(size_t n)
{
	auto_buf struct buf b = BUF_INIT(100000);

	buf_adds(&b, "{\"version\":1,\"tenants\":[{\"id\":\"$1\",\"name\":\"a\","
	             "\"workspaceRoot\":\"@/ws/a\",\"credentials\":[");
	for (size_t i = 0; i < n; i++) {
		char name[64], token[64];

		(void)snprintf(name, sizeof(name), "tokens/many-%zu", i);
		(void)snprintf(token, sizeof(token), TOKEN_A "-%zu", i);
		put(name, 0600, token);
		buf_addf(&b, "%s{\"id\":\"00000000-0000-7000-8000-%012zx\",\"tokenFile\":\"@/%s\"}",
		         i ? "," : "", i + 1, name);
	}
	buf_adds(&b, "]}]}");
	put("tenants.json", 0600, b.data);
}

static void test_number_of_credentials(void **state)
{
	struct registry *r = NULL;
	const char *id;

	(void)state;
	write_credentials(REGISTRY_MAX_CREDENTIALS);
	load("", &r);
	assert_ptr_equal(registry_authenticate(r, TOKEN_A "-15", strlen(TOKEN_A) + 3, &id),
	                 registry_at(r, 0));
	assert_string_equal(id, "00000000-0000-7000-8000-000000000010");
	registry_free(&r);
	write_credentials(REGISTRY_MAX_CREDENTIALS + 1);
	expect("tenants[0].credentials: 17 entries, must be 1 to 16\n");
}

static void write_tenants(size_t n)
{
	auto_buf struct buf b = BUF_INIT(REGISTRY_MAX_BYTES);

	buf_adds(&b, "{\"version\":1,\"tenants\":[");
	for (size_t i = 0; i < n; i++) {
		char name[64], token[64];

		(void)snprintf(name, sizeof(name), "ws/many-%zu", i);
		if (mkdir(in_world(name), 0700) < 0)
			assert_int_equal(errno, EEXIST);
		(void)snprintf(name, sizeof(name), "tokens/many-%zu", i);
		(void)snprintf(token, sizeof(token), TOKEN_A "-%zu", i);
		put(name, 0600, token);
		buf_addf(&b,
		         "%s{\"id\":\"00000000-0000-7000-8000-%012zx\",\"name\":\"t%zu\","
		         "\"workspaceRoot\":\"@/ws/many-%zu\",\"credentials\":[{\"id\":"
		         "\"00000000-0000-7000-8000-%012zx\",\"tokenFile\":\"@/%s\"}]}",
		         i ? "," : "", i + 1, i, i, i + 1, name);
	}
	buf_adds(&b, "]}");
	put("tenants.json", 0600, b.data);
}

static void test_number_of_tenants(void **state)
{
	struct registry *r = NULL;

	(void)state;
	write_tenants(REGISTRY_MAX_TENANTS);
	load("", &r);
	assert_int_equal(registry_count(r), REGISTRY_MAX_TENANTS);
	for (size_t i = 0; i < REGISTRY_MAX_TENANTS; i++) {
		const struct tenant *t = registry_at(r, i);
		char token[64];
		int len = snprintf(token, sizeof(token), TOKEN_A "-%zu", i);

		assert_ptr_equal(registry_find(r, &t->id), t);
		assert_ptr_equal(registry_authenticate(r, token, (size_t)len, NULL), t);
		token[0] = 'T';
		assert_null(registry_authenticate(r, token, (size_t)len, NULL));
	}
	registry_free(&r);
	write_tenants(REGISTRY_MAX_TENANTS + 1);
	expect("tenants: 4097 entries, must be 1 to 4096\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		in_a_world(test_good),
		in_a_world(test_authenticate),
		in_a_world(test_each_fault_of_the_text),
		in_a_world(test_all_in_one_file),
		in_a_world(test_size),
		in_a_world(test_number_of_credentials),
		in_a_world(test_number_of_tenants),
	};

	return RUN_TESTS(tests);
}
