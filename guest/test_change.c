#include "common/test.h"

#include "guest/test_root.h"

#include <sched.h>
#include <sys/mount.h>

#define WORD(g, files, content, word) expect_change(g, files, content, word, __LINE__)

/* "%" in files stands for the directory of the test. */
static uint64_t start_change(struct guest *g, const char *files)
{
	auto_buf struct buf b = BUF_INIT(200000);

	buf_adds(&b, "{\"op\":\"change\",\"files\":[");
	for (; *files; files++) {
		if (*files == '%')
			buf_adds(&b, root);
		else
			buf_addc(&b, *files);
	}
	buf_adds(&b, "]}");
	assert_false(buf_failed(&b));
	return guest_start(g, b.data);
}

static void change(struct guest *g, const char *files, const char *content, struct result *r)
{
	uint64_t call = start_change(g, files);

	for (size_t len = strlen(content), n; len; len -= n, content += n) {
		n = len < FRAME_DATA_MAX ? len : FRAME_DATA_MAX;
		guest_send(g, FRAME_INPUT, call, content, n);
	}
	guest_send(g, FRAME_END, call, "", 0);
	guest_finish(g, call, r);
}

static void expect_change(struct guest *g, const char *files, const char *content, const char *word,
                          int line)
{
	struct result r;

	change(g, files, content, &r);
	if (strcmp(result_word(&r), word) != 0)
		print_error("line %d: %s\n", line, result_word(&r));
	assert_string_equal(result_word(&r), word);
	result_release(&r);
}

static void version_of(struct guest *g, const char *name, char ret[200])
{
	auto_buf struct buf b = BUF_INIT(20000);
	struct result r;

	buf_addf(&b, "{\"op\":\"read\",\"path\":\"%s/%s\"}", root, name);
	guest_call(g, b.data, &r);
	(void)snprintf(ret, 200, "%s", json_str(json_get(r.exit, "version")));
	result_release(&r);
}

static void all_at_once(void **state)
{
	char files[1000], a[200], old[200];
	struct result r;
	struct stat st;
	struct guest g;

	(void)state;
	put("a", "old a");
	put("old", "gone soon");
	assert_int_equal(chmod("a", 0751), 0);
	assert_int_equal(chmod("old", 0600), 0);
	guest_begin(&g);
	version_of(&g, "a", a);
	version_of(&g, "old", old);
	(void)snprintf(files, sizeof(files),
	               "{\"path\":\"%%/a\",\"bytes\":5,\"expect\":\"%s\"},"
	               "{\"path\":\"%%/old\",\"remove\":true,\"expect\":\"%s\"},"
	               "{\"path\":\"%%/empty\",\"bytes\":0,\"expect\":\"absent\"},"
	               "{\"path\":\"%%/d/e/new\",\"bytes\":3,\"expect\":\"absent\","
	               "\"like\":\"%%/old\"}",
	               a, old);
	change(&g, files, "new axyz", &r);
	assert_int_equal(result_int(&r, "files"), 4);
	assert_int_equal(result_int(&r, "bytes"), 8);
	result_release(&r);
	expect_text("a", "new a");
	expect_text("d/e/new", "xyz");
	expect_text("empty", "");
	assert_int_equal(stat("a", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0751);
	assert_int_equal(st.st_nlink, 1);
	assert_int_equal(stat("d/e/new", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(stat("empty", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0644);
	assert_int_equal(access("old", F_OK), -1);
	assert_int_equal(count_entries("."), 3);
	assert_int_equal(count_entries("d/e"), 1);
	guest_end(&g);
}

/* Whatever is wrong with the last file, the first ones are as before, and nothing is left. */
static void nothing_at_all(void **state)
{
	static const struct {
		const char *last, *word;
	} cases[] = {
		{ "{\"path\":\"%/b\",\"bytes\":1,\"expect\":\"absent\"}", "exists" },
		{ "{\"path\":\"%/dangling\",\"bytes\":1,\"expect\":\"absent\"}", "exists" },
		{ "{\"path\":\"%/gone\",\"bytes\":1,\"expect\":\"1-2-3\"}", "not_found" },
		{ "{\"path\":\"%/gone\",\"remove\":true}", "not_found" },
		{ "{\"path\":\"%/none/gone\",\"remove\":true}", "not_found" },
		{ "{\"path\":\"%/b\",\"bytes\":1,\"expect\":\"1-2-3\"}", "changed" },
		{ "{\"path\":\"%/b\",\"remove\":true,\"expect\":\"1-2-3\"}", "changed" },
		{ "{\"path\":\"%/dir\",\"bytes\":1}", "not_a_file" },
		{ "{\"path\":\"%/dir\",\"remove\":true}", "not_a_file" },
		{ "{\"path\":\"%/fifo\",\"bytes\":1}", "not_a_file" },
		{ "{\"path\":\"%/fifo\",\"remove\":true}", "not_a_file" },
		{ "{\"path\":\"%/b/c\",\"bytes\":1}", "not_a_directory" },
		{ "{\"path\":\"%/dir/\",\"bytes\":1}", "not_a_file" },
		{ "{\"path\":\"%/loop/x\",\"bytes\":1}", "invalid" },
		{ "{\"path\":\"%/dir/../a\",\"bytes\":1}", "invalid" },
		{ "{\"path\":\"%/link/x\",\"bytes\":1},{\"path\":\"%/dir/x\",\"bytes\":0}",
		  "invalid" },
		{ "{\"path\":\"b\",\"bytes\":1}", "invalid" },
		{ "{\"path\":\"%/c\"}", "invalid" },
		{ "{\"path\":\"%/b\",\"bytes\":1,\"remove\":true}", "invalid" },
		{ "{\"path\":\"%/c\",\"bytes\":-1}", "invalid" },
		{ "{\"path\":\"%/c\",\"bytes\":1,\"expect\":\"\"}", "invalid" },
		{ "{\"path\":\"%/c\",\"bytes\":0}", "invalid" }, /* content is left over */
		{ "{\"path\":\"%/c\",\"bytes\":2}", "invalid" }, /* content is missing */
		{ "{\"path\":\"%/c\",\"bytes\":1,\"mode\":1}", "invalid" },
		{ "7", "invalid" },
	};
	char files[1000];
	struct guest g;

	(void)state;
	put("a", "old a");
	put("b", "old b");
	assert_int_equal(mkfifo("fifo", 0600), 0);
	assert_int_equal(mkdir("dir", 0700), 0);
	assert_int_equal(symlink("loop", "loop"), 0);
	assert_int_equal(symlink("dir", "link"), 0);
	assert_int_equal(symlink("nowhere", "dangling"), 0);
	guest_begin(&g);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		(void)snprintf(
			files, sizeof(files),
			"{\"path\":\"%%/a\",\"bytes\":5},{\"path\":\"%%/d/e/f\",\"bytes\":3},%s",
			cases[i].last);
		expect_change(&g, files, strstr(cases[i].last, "remove") ? "new axyz" : "new axyz1",
		              cases[i].word, (int)i);
		expect_text("a", "old a");
		expect_text("b", "old b");
		assert_int_equal(count_entries("."), 7);
		assert_int_equal(count_entries("dir"), 0);
	}
	guest_end(&g);
}

static void files_have_a_bound(void **state)
{
	auto_buf struct buf files = BUF_INIT(100000);
	struct guest g;

	(void)state;
	guest_begin(&g);
	WORD(&g, "", "", "invalid");
	for (int i = 0; i < 101; i++) {
		buf_addf(&files, "%s{\"path\":\"%%/%d\",\"bytes\":0}", i ? "," : "", i);
		if (i == 99)
			WORD(&g, files.data, "", "");
	}
	WORD(&g, files.data, "", "invalid");
	assert_int_equal(count_entries("."), 100);
	guest_end(&g);
}

/* Read through a link, it is changed behind the link. */
static void links(void **state)
{
	char files[500], version[200];
	struct guest g;
	struct stat st;

	(void)state;
	put("file", "old");
	assert_int_equal(symlink("file", "link"), 0);
	guest_begin(&g);
	version_of(&g, "link", version);
	(void)snprintf(files, sizeof(files),
	               "{\"path\":\"%%/link\",\"bytes\":3,\"expect\":\"%s\"},"
	               "{\"path\":\"%%/file\",\"bytes\":0}",
	               version);
	WORD(&g, files, "new", "invalid"); /* twice the same */
	expect_text("file", "old");
	*strrchr(files, ',') = '\0';
	*strrchr(files, ',') = '\0';
	WORD(&g, files, "new", "");
	expect_text("file", "new");
	assert_int_equal(lstat("link", &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	WORD(&g, files, "own", "changed");
	WORD(&g, "{\"path\":\"%/link\",\"bytes\":3}", "own", "");
	expect_text("link", "own");
	expect_text("file", "new");
	WORD(&g, "{\"path\":\"%/link\",\"remove\":true}", "", "");
	expect_text("file", "new");
	assert_int_equal(count_entries("."), 1);
	guest_end(&g);
}

/* What another process did to the file since is not written over. */
static void changed_meanwhile(void **state)
{
	char files[500], version[200];
	uint64_t call;
	struct result r;
	struct guest g;

	(void)state;
	put("file", "old");
	guest_begin(&g);
	version_of(&g, "file", version);
	(void)snprintf(files, sizeof(files), "{\"path\":\"%%/file\",\"bytes\":3,\"expect\":\"%s\"}",
	               version);
	call = start_change(&g, files);
	guest_send(&g, FRAME_INPUT, call, "new", 3);
	expect_word(&g, "{\"op\":\"list\",\"path\":\"/\",\"limit\":1}", ""); /* it was taken */
	put("file", "other");
	guest_send(&g, FRAME_END, call, "", 0);
	guest_finish(&g, call, &r);
	assert_string_equal(result_word(&r), "changed");
	result_release(&r);
	expect_text("file", "other");
	assert_int_equal(count_entries("."), 1);
	guest_end(&g);
}

static void without_an_end(void **state)
{
	struct result r;
	struct guest g;
	uint64_t call;

	(void)state;
	put("file", "old");
	guest_begin(&g);
	call = start_change(&g,
	                    "{\"path\":\"%/file\",\"bytes\":3},{\"path\":\"%/d/x\",\"bytes\":1}");
	guest_send(&g, FRAME_INPUT, call, "newx", 4);
	guest_send(&g, FRAME_CANCEL, call, "", 0);
	guest_finish(&g, call, &r);
	assert_string_equal(result_word(&r), "cancelled");
	result_release(&r);
	assert_int_equal(count_entries("."), 1);
	(void)start_change(&g, "{\"path\":\"%/file\",\"bytes\":3}");
	guest_end(&g);
	expect_text("file", "old");
	assert_int_equal(count_entries("."), 1);
}

/* Full after some of the content, or when the second names are made. */
static void without_space(void **state)
{
	static char content[200001];
	const char *const options[] = { "size=128k", "nr_inodes=7" };
	const char *const files[] = {
		"{\"path\":\"%/a\",\"bytes\":5},{\"path\":\"%/d/b\",\"bytes\":199995}",
		"{\"path\":\"%/a\",\"bytes\":5},{\"path\":\"%/b\",\"bytes\":5},"
		"{\"path\":\"%/c\",\"bytes\":199990}",
	};
	struct guest g;

	(void)state;
	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		skip();
	memset(content, 'x', sizeof(content) - 1);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(mount("none", root, "tmpfs", 0, options[i]), 0);
		assert_int_equal(chdir(root), 0);
		put("a", "old a");
		put("b", "old b");
		guest_begin(&g);
		WORD(&g, files[i], content, "no_space");
		expect_text("a", "old a");
		expect_text("b", "old b");
		assert_int_equal(count_entries("."), 2);
		assert_int_equal(chdir("/"), 0);
		guest_end(&g);
		assert_int_equal(umount(root), 0);
	}
	assert_int_equal(chdir(root), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_ROOT(all_at_once),   IN_ROOT(nothing_at_all),    IN_ROOT(files_have_a_bound),
		IN_ROOT(links),         IN_ROOT(changed_meanwhile), IN_ROOT(without_an_end),
		IN_ROOT(without_space),
	};

	return RUN_TESTS(tests);
}
