/* Files and directories that the registry names: whose they are, and where they lie. */
#include "daemon/tenant/test_world.h"

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

/* -- paths -------------------------------------------------------------------------------- */

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

int main(void)
{
	const struct CMUnitTest tests[] = {
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
		in_a_world(test_path_length),
		in_a_world(test_installed),
		in_a_world(test_installed_by_root_alone),
		cmocka_unit_test(test_inside),
	};

	return RUN_TESTS(tests);
}
