#include "common/test.h"

#include "common/buf.h"
#include "common/fd.h"
#include "daemon/tenant/registry.h"
#include "daemon/tenant/trusted.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/*
 * A world is a fresh directory with a registry of two tenants that has no fault.
 * In texts '@' stands for that directory, "$3" for the UUID that ends in 3 and "~"
 * for a name of 64 characters.
 */
#define GOOD                                                               \
	"{\"version\":1,\"tenants\":["                                     \
	"{\"id\":\"$1\",\"name\":\"acme\",\"workspaceRoot\":\"@/ws/a\","   \
	"\"credentials\":[{\"id\":\"$2\",\"tokenFile\":\"@/tokens/a\"}]}," \
	"{\"id\":\"$3\",\"name\":\"globex\",\"workspaceRoot\":\"@/ws/b\"," \
	"\"credentials\":[{\"id\":\"$4\",\"tokenFile\":\"@/tokens/b\"}]}]}"

#define TOKEN_A "token-a-0123456789abcdef01234567" /* 32 bytes, the shortest */
#define TOKEN_B "token-b-0123456789abcdef0123456789"
#define NAME_64 "n23456789-123456789-123456789-123456789-123456789-123456789-1234"

static char world[64];

static char *in_world(const char *name)
{
	static char paths[4][8192];
	static unsigned int next;
	char *path = paths[next++ % 4];

	(void)snprintf(path, sizeof(paths[0]), "%s/%s", world, name);
	return path;
}

static void expand(struct buf *out, const char *text)
{
	buf_adds(out, "");
	for (; *text; text++) {
		if (*text == '@')
			buf_adds(out, world);
		else if (*text == '~')
			buf_adds(out, NAME_64);
		else if (*text == '$')
			buf_addf(out, "00000000-0000-7000-8000-00000000000%c", *++text);
		else
			buf_addc(out, *text);
	}
}

static void put_bytes(const char *name, mode_t mode, const char *data, size_t len)
{
	auto_close int fd = open(in_world(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	struct err e = ERR_INIT;

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, data, len, &e), 0);
	assert_int_equal(fchmod(fd, mode), 0);
}

static void put(const char *name, mode_t mode, const char *text)
{
	auto_buf struct buf b = BUF_INIT(REGISTRY_MAX_BYTES);

	expand(&b, text);
	put_bytes(name, mode, b.data, b.len);
}

static void make_dir(const char *name)
{
	assert_int_equal(mkdir(in_world(name), 0700), 0);
}

static int begin_world(void **state)
{
	(void)state;
	(void)umask(022);
	(void)snprintf(world, sizeof(world), "/tmp/registry-XXXXXX");
	if (!mkdtemp(world))
		return -1;
	make_dir("ws");
	make_dir("ws/a");
	make_dir("ws/b");
	make_dir("tokens");
	make_dir("state");
	put("tokens/a", 0600, TOKEN_A);
	put("tokens/b", 0400, "\r\n\t " TOKEN_B " \n");
	put("tenants.json", 0600, GOOD);
	return 0;
}

/* By descriptors, because paths below the world may be longer than PATH_MAX. */
static int empty_dir(int fd)
{
	auto_dir DIR *dir = fdopendir(fd);
	const struct dirent *entry;
	int failed = !dir;

	while (dir && (entry = readdir(dir))) {
		const char *name = entry->d_name;

		if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
		    unlinkat(dirfd(dir), name, 0) == 0)
			continue;
		failed |= empty_dir(openat(dirfd(dir), name, O_DIRECTORY | O_CLOEXEC));
		failed |= unlinkat(dirfd(dir), name, AT_REMOVEDIR);
	}
	return failed;
}

static int end_world(void **state)
{
	(void)state;
	return empty_dir(open(world, O_DIRECTORY | O_CLOEXEC)) | rmdir(world);
}

static void gather(void *ctx, const char *line)
{
	buf_adds(ctx, line);
	buf_addc(ctx, '\n');
}

/* Load; every line of faults, and nothing else, must be reported. */
static void load(const char *faults, struct registry **ret)
{
	auto_buf struct buf want = BUF_INIT(1 << 16), got = BUF_INIT(1 << 20);
	struct err e = ERR_INIT;
	int r;

	expand(&want, faults);
	buf_adds(&got, "");
	r = registry_load(in_world("tenants.json"), in_world("state"), ret, gather, &got, &e);
	assert_string_equal(got.data, want.data);
	assert_int_equal(r, *faults ? -1 : 0);
	assert_int_equal(e.code, *faults ? EINVAL : 0);
}

static void expect(const char *faults)
{
	struct registry *r = NULL;

	load(faults, &r);
	assert_int_equal(r != NULL, !*faults);
	registry_free(&r);
	assert_null(r);
}

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

/* -- token files ------------------------------------------------------------------------- */

#define TOKEN_FAULT "tenants[0].credentials[0].tokenFile: @/tokens/a: "

static void expect_token(const char *data, size_t len, const char *faults)
{
	put_bytes("tokens/a", 0600, data, len);
	expect(faults);
}

static void test_token_content(void **state)
{
	char big[TOKEN_FILE_MAX + 1];

	(void)state;
	expect_token("", 0, TOKEN_FAULT "the token is empty\n");
	expect_token(" \r\n\t", 4, TOKEN_FAULT "the token is empty\n");
	expect_token(TOKEN_A, 31, TOKEN_FAULT "the token is shorter than 32 bytes\n");
	expect_token(TOKEN_A, 32, "");
	expect_token("token a-0123456789abcdef01234567x", 33,
	             TOKEN_FAULT "the token must be printable ASCII without spaces\n");
	expect_token("token\0a-0123456789abcdef01234567x", 33,
	             TOKEN_FAULT "the token must be printable ASCII without spaces\n");
	expect_token("token\x7f"
	             "a-0123456789abcdef01234567x",
	             33, TOKEN_FAULT "the token must be printable ASCII without spaces\n");
	expect_token("token\xc3\xa9-0123456789abcdef01234567x", 33,
	             TOKEN_FAULT "the token must be printable ASCII without spaces\n");
	expect_token("!~en-a-0123456789abcdef01234567xx", 33, "");
	for (size_t i = 0; i < sizeof(big); i++)
		big[i] = (char)('!' + (i * i + i / 93) % 93);
	expect_token(big, TOKEN_FILE_MAX, "");
	expect_token(big, TOKEN_FILE_MAX + 1, TOKEN_FAULT "larger than 4096 bytes\n");
	/* The same token under other white space is the same. */
	expect_token(TOKEN_B "\n\n", strlen(TOKEN_B) + 2,
	             "tenants[1].credentials[0].tokenFile: the same token as "
	             "tenants[0].credentials[0].tokenFile\n");
}

static void test_token_modes(void **state)
{
	static const struct {
		mode_t mode;
		const char *faults;
	} modes[] = {
		{ 0600, "" },
		{ 0400, "" },
		{ 0644, TOKEN_FAULT "mode 0644, group or others can read it\n" },
		{ 0640, TOKEN_FAULT "mode 0640, group or others can read it\n" },
		{ 0604, TOKEN_FAULT "mode 0604, group or others can read it\n" },
		{ 0620, TOKEN_FAULT "mode 0620, group or others can write it\n" },
		{ 0666, TOKEN_FAULT "mode 0666, group or others can read and write it\n" },
		{ 0601, TOKEN_FAULT "mode 0601, nothing beyond 0600 is allowed\n" },
		{ 0700, TOKEN_FAULT "mode 0700, nothing beyond 0600 is allowed\n" },
		{ 04600, TOKEN_FAULT "mode 4600, nothing beyond 0600 is allowed\n" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
		assert_int_equal(chmod(in_world("tokens/a"), modes[i].mode), 0);
		expect(modes[i].faults);
	}
}

static void test_token_links(void **state)
{
	(void)state;
	assert_int_equal(rename(in_world("tokens/a"), in_world("tokens/real")), 0);
	assert_int_equal(symlink("real", in_world("tokens/a")), 0);
	expect(TOKEN_FAULT "is a symbolic link\n");
	assert_int_equal(unlink(in_world("tokens/a")), 0);
	assert_int_equal(symlink("nowhere", in_world("tokens/a")), 0);
	expect(TOKEN_FAULT "is a symbolic link\n");
	/* A link further up counts as much. */
	assert_int_equal(rename(in_world("tokens"), in_world("real")), 0);
	assert_int_equal(symlink("real", in_world("tokens")), 0);
	expect("tenants[0].credentials[0].tokenFile: @/tokens: is a symbolic link\n"
	       "tenants[1].credentials[0].tokenFile: @/tokens: is a symbolic link\n");
}

static void test_token_fifo_does_not_block(void **state)
{
	(void)state;
	assert_int_equal(unlink(in_world("tokens/a")), 0);
	assert_int_equal(mkfifo(in_world("tokens/a"), 0600), 0);
	expect(TOKEN_FAULT "is not a regular file\n");
}

static void test_token_in_state(void **state)
{
	(void)state;
	put("state/a", 0600, TOKEN_A);
	put("tenants.json", 0600,
	    "{\"version\":1,\"tenants\":[{\"id\":\"$1\",\"name\":\"a\",\"workspaceRoot\":\"@/ws/a\","
	    "\"credentials\":[{\"id\":\"$2\",\"tokenFile\":\"@/state/a\"}]}]}");
	expect("tenants[0].credentials[0].tokenFile: lies inside the state directory\n");
}

/* -- workspaces -------------------------------------------------------------------------- */

#define WORKSPACE_FAULT "tenants[0].workspaceRoot: "

static void test_workspace_links(void **state)
{
	(void)state;
	assert_int_equal(rename(in_world("ws/a"), in_world("ws/real")), 0);
	assert_int_equal(symlink("real", in_world("ws/a")), 0);
	expect(WORKSPACE_FAULT "@/ws/a: is a symbolic link\n");
	assert_int_equal(unlink(in_world("ws/a")), 0);
	assert_int_equal(rename(in_world("ws/real"), in_world("ws/a")), 0);
	assert_int_equal(rename(in_world("ws"), in_world("real")), 0);
	assert_int_equal(symlink("real", in_world("ws")), 0);
	expect(WORKSPACE_FAULT "@/ws: is a symbolic link\n"
	                       "tenants[1].workspaceRoot: @/ws: is a symbolic link\n");
}

static void test_ancestors(void **state)
{
	static const mode_t bad[] = { 0720, 0702, 0777 };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		char faults[400];

		assert_int_equal(chmod(in_world("ws"), bad[i]), 0);
		(void)snprintf(faults, sizeof(faults),
		               "tenants[0].workspaceRoot: @/ws: mode %04o, group or others can "
		               "replace what is in it\n"
		               "tenants[1].workspaceRoot: @/ws: mode %04o, group or others can "
		               "replace what is in it\n",
		               bad[i], bad[i]);
		expect(faults);
	}
	assert_int_equal(chmod(in_world("ws"), 0755), 0);
	/* The workspace itself is the tenant's affair. */
	assert_int_equal(chmod(in_world("ws/a"), 0777), 0);
	expect("");
}

static void test_sticky_ancestors(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip();
	assert_int_equal(chmod(in_world("ws"), 01777), 0);
	expect("");
	assert_int_equal(chown(in_world("ws/a"), 1234, 1234), 0);
	expect(WORKSPACE_FAULT "@/ws: sticky, and the entry below belongs to uid 1234, who can "
	                       "replace it\n");
	/* Sticky protects nothing from its owner. */
	assert_int_equal(chown(in_world("ws/a"), 0, 0), 0);
	assert_int_equal(chown(in_world("ws"), 1234, 1234), 0);
	assert_int_equal(chmod(in_world("ws"), 01777), 0);
	expect("tenants[0].workspaceRoot: @/ws: owned by uid 1234, must be root's\n"
	       "tenants[1].workspaceRoot: @/ws: owned by uid 1234, must be root's\n");
	assert_int_equal(chown(in_world("ws"), 0, 0), 0);
	assert_int_equal(chmod(in_world("ws"), 0755), 0);
	/* Below a directory that is ours alone, any owner will do. */
	assert_int_equal(chown(in_world("ws/a"), 1234, 1234), 0);
	expect("");
}

static void test_neighbours_are_not_nested(void **state)
{
	(void)state;
	make_dir("ws/a-b");
	make_dir("ws/a!");
	make_dir("ws/ab");
	make_dir("ws/a/sub");
	make_dir("state-of-affairs");
	put("tokens/c", 0600, TOKEN_A "c");
	put("tokens/d", 0600, TOKEN_A "d");
	put("tenants.json", 0600,
	    "{\"version\":1,\"tenants\":["
	    "{\"id\":\"$1\",\"name\":\"a\",\"workspaceRoot\":\"@/ws/ab\","
	    "\"credentials\":[{\"id\":\"$1\",\"tokenFile\":\"@/tokens/a\"}]},"
	    "{\"id\":\"$2\",\"name\":\"b\",\"workspaceRoot\":\"@/ws/a-b\","
	    "\"credentials\":[{\"id\":\"$2\",\"tokenFile\":\"@/tokens/b\"}]},"
	    "{\"id\":\"$3\",\"name\":\"c\",\"workspaceRoot\":\"@/ws/a!\","
	    "\"credentials\":[{\"id\":\"$3\",\"tokenFile\":\"@/tokens/c\"}]},"
	    "{\"id\":\"$4\",\"name\":\"d\",\"workspaceRoot\":\"@/state-of-affairs\","
	    "\"credentials\":[{\"id\":\"$4\",\"tokenFile\":\"@/tokens/d\"}]}]}");
	expect("");
}

/* Between an outer workspace and the one inside it, names may sort: both are found. */
static void test_nested_among_neighbours(void **state)
{
	(void)state;
	make_dir("ws/a-b");
	make_dir("ws/a/sub");
	put("tokens/c", 0600, TOKEN_A "c");
	put("tenants.json", 0600,
	    "{\"version\":1,\"tenants\":["
	    "{\"id\":\"$1\",\"name\":\"a\",\"workspaceRoot\":\"@/ws/a/sub\","
	    "\"credentials\":[{\"id\":\"$1\",\"tokenFile\":\"@/tokens/a\"}]},"
	    "{\"id\":\"$2\",\"name\":\"b\",\"workspaceRoot\":\"@/ws/a-b\","
	    "\"credentials\":[{\"id\":\"$2\",\"tokenFile\":\"@/tokens/b\"}]},"
	    "{\"id\":\"$3\",\"name\":\"c\",\"workspaceRoot\":\"@/ws/a\","
	    "\"credentials\":[{\"id\":\"$3\",\"tokenFile\":\"@/tokens/c\"}]}]}");
	expect("tenants[0].workspaceRoot: lies inside tenants[2].workspaceRoot\n");
}

/* -- the registry file and the state directory -------------------------------------------- */

static void test_registry_file(void **state)
{
	(void)state;
	assert_int_equal(unlink(in_world("tenants.json")), 0);
	expect("@/tenants.json: No such file or directory\n");
	put("real.json", 0600, GOOD);
	assert_int_equal(symlink("real.json", in_world("tenants.json")), 0);
	expect("@/tenants.json: is a symbolic link\n");
	assert_int_equal(unlink(in_world("tenants.json")), 0);
	assert_int_equal(mkfifo(in_world("tenants.json"), 0600), 0);
	expect("@/tenants.json: is not a regular file\n");
	assert_int_equal(unlink(in_world("tenants.json")), 0);
	make_dir("tenants.json");
	expect("@/tenants.json: is not a regular file\n");
}

#define OWN_REMEDY "; let root own it with mode 0644 at most, or the service user with 0600\n"

static void test_registry_modes_of_root(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip();
	assert_int_equal(chmod(in_world("tenants.json"), 0644), 0);
	expect("");
	assert_int_equal(chmod(in_world("tenants.json"), 0664), 0);
	expect("@/tenants.json: mode 0664, group or others can write it" OWN_REMEDY);
	assert_int_equal(chmod(in_world("tenants.json"), 0602), 0);
	expect("@/tenants.json: mode 0602, group or others can write it" OWN_REMEDY);
	assert_int_equal(chmod(in_world("tenants.json"), 0600), 0);
	assert_int_equal(chown(in_world("tenants.json"), 1234, 1234), 0);
	expect("@/tenants.json: owned by uid 1234, must be root's" OWN_REMEDY);
}

/* What is wrong with the file itself hides nothing of what is wrong in it. */
static void test_registry_mode_and_content(void **state)
{
	(void)state;
	put("tenants.json", 0666, "{\"version\":2,\"tenants\":[]}");
	expect("@/tenants.json: mode 0666, group or others can write it" OWN_REMEDY
	       "version: must be 1\ntenants: 0 entries, must be 1 to 4096\n");
}

static void give_to(const char *name, uid_t owner)
{
	uid_t service = geteuid();

	assert_int_equal(seteuid(0), 0);
	assert_int_equal(chown(in_world(name), owner, (gid_t)-1), 0);
	assert_int_equal(seteuid(service), 0);
}

/* As a service user: what is its own must be private, what is root's may be readable. */
static void test_owners(void **state)
{
	static const char *const all[] = { "",         "ws",       "ws/a",  "ws/b",        "tokens",
		                           "tokens/a", "tokens/b", "state", "tenants.json" };

	(void)state;
	if (geteuid() != 0)
		skip();
	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		give_to(all[i], 1234);
	assert_int_equal(seteuid(1234), 0);
	expect("");
	assert_int_equal(chmod(in_world("tenants.json"), 0644), 0);
	expect("@/tenants.json: mode 0644, group or others can read it" OWN_REMEDY);
	give_to("tenants.json", 0);
	expect("");
	give_to("ws", 0);
	expect("tenants[0].workspaceRoot: @/ws/a: Permission denied\n"
	       "tenants[1].workspaceRoot: @/ws/b: Permission denied\n");
	give_to("ws", 1234);
	give_to("tokens/a", 4321);
	expect(TOKEN_FAULT "Permission denied\n");
	assert_int_equal(seteuid(0), 0);
	assert_int_equal(chmod(in_world("tokens/a"), 0644), 0);
	assert_int_equal(seteuid(1234), 0);
	expect(TOKEN_FAULT "owned by uid 4321, must be root's or uid 1234's\n");
	assert_int_equal(seteuid(0), 0);
}

static void test_state_directory(void **state)
{
	auto_buf struct buf got = BUF_INIT(10000), want = BUF_INIT(10000);
	struct registry *r = NULL;
	struct err e = ERR_INIT;

	(void)state;
	buf_adds(&got, "");
	assert_int_equal(registry_load(in_world("tenants.json"), NULL, &r, gather, &got, &e), 0);
	registry_free(&r);
	/* One that does not exist yet, below a link: compared by what it will be. */
	assert_int_equal(symlink("ws", in_world("link")), 0);
	assert_int_equal(registry_load(in_world("tenants.json"), in_world("link/a/new/"), &r,
	                               gather, &got, &e),
	                 -1);
	/* The registry and everything else inside the state directory. */
	assert_int_equal(registry_load(in_world("tenants.json"), world, &r, gather, &got, &e), -1);
	assert_non_null(strstr(e.text, ": 5 faults"));
	expand(&want, "tenants[0].workspaceRoot: the state directory lies inside it\n"
	              "tenants[0].workspaceRoot: lies inside the state directory\n"
	              "tenants[1].workspaceRoot: lies inside the state directory\n"
	              "the registry lies inside the state directory\n"
	              "tenants[0].credentials[0].tokenFile: lies inside the state directory\n"
	              "tenants[1].credentials[0].tokenFile: lies inside the state directory\n");
	assert_string_equal(got.data, want.data);
	assert_null(r);
}

static void test_registry_in_a_workspace(void **state)
{
	auto_buf struct buf got = BUF_INIT(10000);
	struct registry *r = NULL;
	struct err e = ERR_INIT;

	(void)state;
	put("ws/b/tenants.json", 0600, GOOD);
	assert_int_equal(registry_load(in_world("ws/b/tenants.json"), NULL, &r, gather, &got, &e),
	                 -1);
	assert_string_equal(got.data, "tenants[1].workspaceRoot: the registry lies inside it\n");
}

static void test_relative_registry_path(void **state)
{
	auto_buf struct buf got = BUF_INIT(10000);
	auto_close int back = open(".", O_PATH | O_CLOEXEC);
	struct registry *r = NULL;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(chdir(in_world("ws/a")), 0);
	put("ws/a/tenants.json", 0600, GOOD);
	buf_adds(&got, "");
	assert_int_equal(registry_load("../../tenants.json", NULL, &r, gather, &got, &e), 0);
	registry_free(&r);
	assert_int_equal(registry_load("./tenants.json", NULL, &r, gather, &got, &e), -1);
	assert_string_equal(got.data, "tenants[0].workspaceRoot: the registry lies inside it\n");
	assert_int_equal(fchdir(back), 0);
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

/* A path of exactly len bytes below the world, made of directories that exist. */
static void make_deep(char *path, size_t len)
{
	size_t at = strlen(world);
	auto_close int fd = open(world, O_PATH | O_CLOEXEC);

	memcpy(path, world, at);
	while (at < len) {
		size_t n = len - at - 1 > 200 ? 100 : len - at - 1;
		int next;

		path[at] = '/';
		memset(path + at + 1, 'd', n);
		path[at + 1 + n] = '\0';
		assert_true(mkdirat(fd, path + at + 1, 0700) == 0 || errno == EEXIST);
		next = openat(fd, path + at + 1, O_PATH | O_CLOEXEC);
		assert_true(next >= 0);
		fd_close(&fd);
		fd = next;
		at += n + 1;
	}
}

static void test_path_length(void **state)
{
	char path[TRUSTED_PATH_MAX + 2];
	struct stat st;
	struct err e = ERR_INIT;

	(void)state;
	make_deep(path, TRUSTED_PATH_MAX);
	assert_int_equal(strlen(path), TRUSTED_PATH_MAX);
	assert_int_equal(trusted_path_check(path, &e), 0);
	assert_int_equal(trusted_directory(path, &st, &e), 0);
	assert_true(S_ISDIR(st.st_mode));
	path[TRUSTED_PATH_MAX] = 'd';
	path[TRUSTED_PATH_MAX + 1] = '\0';
	assert_int_equal(trusted_path_check(path, &e), -1);
	assert_string_equal(e.text, "path of 4097 bytes, at most 4096");
	/* The reason is not pushed out of the message by a long path. */
	path[TRUSTED_PATH_MAX] = '\0';
	path[TRUSTED_PATH_MAX - 1] = 'x';
	assert_int_equal(trusted_directory(path, &st, &e), -1);
	assert_non_null(strstr(e.text, "...: No such file or directory"));
}

/* NULL: good; '@' stands for the world. */
static void expect_installed(const char *name, const char *fault)
{
	auto_buf struct buf want = BUF_INIT(4096);
	struct err e = ERR_INIT;
	int r = trusted_installed(in_world(name), &e);

	expand(&want, fault ? fault : "");
	assert_string_equal(r < 0 ? e.text : "", want.data);
}

static void test_installed(void **state)
{
	(void)state;
	if (geteuid() != 0)
		skip();
	put("ws/a/run", 0755, "x");
	expect_installed("ws/a/run", NULL);
	expect_installed("ws/a", NULL);
	expect_installed("ws/a/none", "@/ws/a/none: No such file or directory");
	assert_int_equal(chmod(in_world("ws/a/run"), 0775), 0);
	expect_installed("ws/a/run", "@/ws/a/run: mode 0775, group or others can write it");
	assert_int_equal(chmod(in_world("ws/a/run"), 0755), 0);
	assert_int_equal(chmod(in_world("ws/a"), 0757), 0);
	expect_installed("ws/a/run",
	                 "@/ws/a: mode 0757, group or others can replace what is in it");
	expect_installed("ws/a", "@/ws/a: mode 0757, group or others can write it");
	assert_int_equal(chmod(in_world("ws/a"), 0755), 0);
	assert_int_equal(symlink("run", in_world("ws/a/link")), 0);
	expect_installed("ws/a/link", "@/ws/a/link: is a symbolic link");
	assert_int_equal(mkfifo(in_world("ws/a/fifo"), 0600), 0);
	expect_installed("ws/a/fifo", "@/ws/a/fifo: is neither a file nor a directory");
}

/* What the service could replace itself is not installed, though it may be trusted with it. */
static void test_installed_by_root_alone(void **state)
{
	struct err e = ERR_INIT;
	struct stat st;

	(void)state;
	if (geteuid() != 0)
		skip();
	put("ws/a/run", 0755, "x");
	assert_int_equal(chmod(world, 0755), 0);
	assert_int_equal(chmod(in_world("ws"), 0755), 0);
	assert_int_equal(chown(in_world("ws/a"), 1234, 1234), 0);
	assert_int_equal(seteuid(1234), 0);
	assert_int_equal(trusted_directory(in_world("ws/a"), &st, &e), 0);
	expect_installed("ws/a", "@/ws/a: owned by uid 1234, must be root's");
	expect_installed("ws/a/run", "@/ws/a: owned by uid 1234, must be root's");
	assert_int_equal(seteuid(0), 0);
	assert_int_equal(chown(in_world("ws/a"), 0, 0), 0);
	assert_int_equal(chmod(in_world("ws/a"), 0755), 0);
	assert_int_equal(chown(in_world("ws/a/run"), 1234, 1234), 0);
	assert_int_equal(seteuid(1234), 0);
	expect_installed("ws/a/run", "@/ws/a/run: owned by uid 1234, must be root's");
	assert_int_equal(seteuid(0), 0);
}

static void test_inside(void **state)
{
	(void)state;
	assert_true(trusted_path_inside("/a", "/a"));
	assert_true(trusted_path_inside("/a/b", "/a"));
	assert_true(trusted_path_inside("/a", "/"));
	assert_false(trusted_path_inside("/ab", "/a"));
	assert_false(trusted_path_inside("/a-b", "/a"));
	assert_false(trusted_path_inside("/a", "/a/b"));
}

#define in_a_world(test) cmocka_unit_test_setup_teardown(test, begin_world, end_world)

int main(void)
{
	const struct CMUnitTest tests[] = {
		in_a_world(test_good),
		in_a_world(test_authenticate),
		in_a_world(test_each_fault_of_the_text),
		in_a_world(test_all_in_one_file),
		in_a_world(test_token_content),
		in_a_world(test_token_modes),
		in_a_world(test_token_links),
		in_a_world(test_token_fifo_does_not_block),
		in_a_world(test_token_in_state),
		in_a_world(test_workspace_links),
		in_a_world(test_ancestors),
		in_a_world(test_sticky_ancestors),
		in_a_world(test_neighbours_are_not_nested),
		in_a_world(test_nested_among_neighbours),
		in_a_world(test_registry_file),
		in_a_world(test_registry_modes_of_root),
		in_a_world(test_registry_mode_and_content),
		in_a_world(test_owners),
		in_a_world(test_state_directory),
		in_a_world(test_registry_in_a_workspace),
		in_a_world(test_relative_registry_path),
		in_a_world(test_size),
		in_a_world(test_number_of_credentials),
		in_a_world(test_number_of_tenants),
		in_a_world(test_path_length),
		in_a_world(test_installed),
		in_a_world(test_installed_by_root_alone),
		cmocka_unit_test(test_inside),
	};

	return RUN_TESTS(tests);
}
