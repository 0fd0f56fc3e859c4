/* What no workspace may hold. */
#include "daemon/tenant/test_world.h"

#include "daemon/tenant/guarded.h"

#include <limits.h>
#include <unistd.h>

#define IN_A                                                                        \
	"lies inside it, where acme can read and change it; move it out of there, " \
	"or choose another workspace\n"

static void expect_of(const struct guarded *g, const char *faults)
{
	auto_buf struct buf want = BUF_INIT(1 << 16), got = BUF_INIT(1 << 16);
	struct registry *r = NULL;
	struct err e = ERR_INIT;
	int rc;

	load("", &r);
	expand(&want, faults);
	buf_adds(&got, "");
	rc = guarded_check(g, r, gather, &got, &e);
	assert_string_equal(got.data, want.data);
	assert_int_equal(rc, *faults ? -1 : 0);
	assert_int_equal(e.code, *faults ? EINVAL : 0);
	registry_free(&r);
}

static void expect_place(const char *path, const char *faults)
{
	auto_guarded struct guarded g = { .place_count = 0 };

	guarded_file(&g, path, "the key of %s", "one");
	expect_of(&g, faults);
}

static void test_files(void **state)
{
	(void)state;
	expect_place(NULL, "");
	expect_place("/usr/bin/env", "");
	expect_place(in_world("tokens/a"), "");
	expect_place(in_world("ws"), ""); /* a directory above: /usr/bin may have one below it */
	expect_place(in_world("ws/ab"), "");
	expect_place(in_world("ws/a.key"), "");
	expect_place(in_world("ws/a"), "tenants[0].workspaceRoot: the key of one, @/ws/a, " IN_A);
	expect_place(in_world("ws/a/deep/missing"),
	             "tenants[0].workspaceRoot: the key of one, @/ws/a/deep/missing, " IN_A);
	expect_place(in_world("ws/b/../a/x"),
	             "tenants[0].workspaceRoot: the key of one, @/ws/a/x, " IN_A);
	/* Out of it again, through nothing that it holds. */
	expect_place(in_world("ws/a/../../tokens/a"), "");
}

static void test_links(void **state)
{
	(void)state;
	put("ws/a/key", 0600, "x");
	put("key", 0600, "x");
	assert_int_equal(symlink(in_world("ws/a/key"), in_world("into")), 0);
	assert_int_equal(symlink("../../key", in_world("ws/a/out")), 0);
	assert_int_equal(symlink("ws/a/out", in_world("through")), 0);
	assert_int_equal(symlink("ws/a", in_world("dir")), 0);
	assert_int_equal(symlink("round", in_world("round")), 0);
	assert_int_equal(symlink("tokens", in_world("t")), 0);
	expect_place(in_world("into"),
	             "tenants[0].workspaceRoot: the key of one, @/ws/a/key, " IN_A);
	expect_place(in_world("dir/key"),
	             "tenants[0].workspaceRoot: the key of one, @/ws/a/key, " IN_A);
	/* What it leads to is outside, but the tenant could have it lead elsewhere. */
	expect_place(in_world("ws/a/out"),
	             "tenants[0].workspaceRoot: the key of one, @/ws/a/out, " IN_A);
	expect_place(in_world("dir/out"),
	             "tenants[0].workspaceRoot: the key of one, @/ws/a/out, " IN_A);
	expect_place(in_world("through"),
	             "tenants[0].workspaceRoot: the key of one, @/ws/a/out, " IN_A);
	assert_int_equal(chdir(in_world("ws/a")), 0);
	expect_place("out", "tenants[0].workspaceRoot: the key of one, @/ws/a/out, " IN_A);
	assert_int_equal(chdir("/"), 0);
	expect_place(in_world("t/a"), "");
	expect_place(in_world("round"), "");
	expect_place(in_world("round/x"), "");
}

static void expect_tree(const char *path, const char *faults)
{
	auto_guarded struct guarded g = { .place_count = 0 };

	guarded_tree(&g, path, "the root filesystem");
	expect_of(&g, faults);
}

static void test_trees(void **state)
{
	(void)state;
	expect_tree(NULL, "");
	expect_tree(in_world("tokens"), "");
	expect_tree(in_world("w"), "");
	expect_tree(in_world("ws/a/root"),
	            "tenants[0].workspaceRoot: the root filesystem, @/ws/a/root, " IN_A);
	expect_tree(in_world("ws/a"),
	            "tenants[0].workspaceRoot: the root filesystem, @/ws/a, " IN_A);
	expect_tree(in_world("ws"),
	            "tenants[0].workspaceRoot: lies inside the root filesystem, @/ws, which every "
	            "sandbox sees; choose another\n"
	            "tenants[1].workspaceRoot: lies inside the root filesystem, @/ws, which every "
	            "sandbox sees; choose another\n");
}

static void test_secrets(void **state)
{
	auto_guarded struct guarded g = { .place_count = 0 };
	unsigned char digest[TOKEN_DIGEST];

	(void)state;
	assert_true(token_digest(TOKEN_A "x", strlen(TOKEN_A) + 1, digest));
	guarded_secret(&g, digest, "another one");
	expect_of(&g, "");
	assert_true(token_digest(TOKEN_B, strlen(TOKEN_B), digest));
	guarded_secret(&g, digest, "the key of %s", "one");
	expect_of(&g, "tenants[1].credentials[0].tokenFile: the same as the key of one; draw "
	              "another for globex\n");
}

static void expect_local(const struct guarded *g, char *const *roots, size_t n, const char *want)
{
	auto_buf struct buf text = BUF_INIT(1 << 12);
	struct registry *r = NULL;
	struct err e = ERR_INIT;

	if (registry_local(roots, n, in_world("state"), NULL, &r, &e) < 0)
		fail_msg("%s", e.text);
	expand(&text, want);
	assert_int_equal(guarded_check(g, r, NULL, NULL, &e), *want ? -1 : 0);
	assert_string_equal(e.text, text.data);
	registry_free(&r);
}

static void test_local_mode(void **state)
{
	auto_guarded struct guarded g = { .place_count = 0 };
	char a[128], b[128];
	char *const roots[] = { a, b };

	(void)state;
	(void)snprintf(a, sizeof(a), "%s", in_world("ws/a"));
	(void)snprintf(b, sizeof(b), "%s", in_world("ws/b"));
	guarded_file(&g, in_world("ws/b/build/runner"), "the runner");
	expect_local(&g, roots, 1, "");
	expect_local(&g, roots, 2,
	             "--workspace-root @/ws/b: the runner, @/ws/b/build/runner, lies inside it, "
	             "where the agent can read and change it; move it out of there, or choose "
	             "another workspace");
	expect_local(&g, roots + 1, 1,
	             "--workspace-root @/ws/b: the runner, @/ws/b/build/runner, lies inside it, "
	             "where the agent can read and change it; move it out of there, or choose "
	             "another workspace");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		in_a_world(test_files),   in_a_world(test_links),      in_a_world(test_trees),
		in_a_world(test_secrets), in_a_world(test_local_mode),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
