#include "common/test.h"

#include "daemon/tool/test_tool.h"

#include "daemon/tool/content.h"

/* -- edit_file ------------------------------------------------------------------------------ */

#define EDIT(path, old, new) \
	"{\"path\":\"" path "\",\"oldText\":\"" old "\",\"newText\":\"" new "\"}"
#define EDIT_ALL(path, old, new)                    \
	"{\"path\":\"" path "\",\"oldText\":\"" old \
	"\",\"newText\":\"" new "\",\"replaceAll\":true}"

static void a_text_is_replaced(void **state)
{
	struct stat st;

	(void)state;
	put("f", "one\ntwo\nthree\n");
	assert_int_equal(chmod("f", 0750), 0);
	BEGINS("edit_file", EDIT("f", "two\\n", "2\\n2\\n"), "replaced 1 place in /tmp/tool-");
	has("the first at line 2");
	expect_text("f", "one\n2\n2\nthree\n");
	assert_int_equal(stat("f", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0750);
	BEGINS("edit_file", EDIT("f", "2\\n", ""), "error: ambiguous: ");
	has("is in it 2 times");
	BEGINS("edit_file", EDIT_ALL("f", "2\\n", ""), "replaced 2 places");
	expect_text("f", "one\nthree\n");
	BEGINS("edit_file", EDIT("f", "two", "2"), "error: no_match: ");
	BEGINS("edit_file", EDIT("f", "one\\nthree\\n", ""), "replaced 1 place");
	expect_text("f", "");
	BEGINS("edit_file", EDIT("f", "x", "y"), "error: no_match: ");
	put("f", "aaa");
	BEGINS("edit_file", EDIT_ALL("f", "aa", "b"), "replaced 1 place");
	expect_text("f", "ba");
	assert_int_equal(count_entries("."), 1);
}

static void what_cannot_be_edited(void **state)
{
	(void)state;
	assert_int_equal(mkdir("d", 0700), 0);
	assert_int_equal(mkfifo("fifo", 0600), 0);
	assert_int_equal(symlink("gone", "dangling"), 0);
	BEGINS("edit_file", EDIT("gone", "a", "b"), "error: not_found: ");
	BEGINS("edit_file", EDIT("dangling", "a", "b"), "error: not_found: ");
	BEGINS("edit_file", EDIT("d", "a", "b"), "error: not_a_file: ");
	BEGINS("edit_file", EDIT("fifo", "a", "b"), "error: not_a_file: ");
	BEGINS("edit_file", EDIT("f", "", "b"), "error: invalid_arguments: oldText: ");
	BEGINS("edit_file", EDIT("f", "a", "a"), "error: invalid_arguments: newText: ");
	BEGINS("edit_file", "{\"path\":\"f\",\"oldText\":\"a\"}",
	       "error: invalid_arguments: newText: ");
	BEGINS("edit_file",
	       "{\"path\":\"f\",\"oldText\":\"a\",\"oldText\":\"b\",\"newText\":\"c\"}",
	       "error: invalid_arguments: line 1");
	has("duplicate key \"oldText\"");
	BEGINS("edit_file", "{\"path\":7,\"oldText\":\"a\",\"newText\":\"c\"}",
	       "error: invalid_arguments: path: ");
	BEGINS("edit_file", "{\"path\":\"f\",\"oldText\":\"a\",\"newText\":\"c\",\"x\":1}",
	       "error: invalid_arguments: x: ");
}

static void bytes_that_are_no_text(void **state)
{
	static const char before[] = "\xff\0two\xfe", after[] = "\xff\0"
								"2\xfe";
	char have[16];
	auto_close int fd = -1;

	(void)state;
	put_bytes("f", before, sizeof(before) - 1);
	assert_int_equal(symlink("f", "link"), 0);
	BEGINS("edit_file", EDIT("link", "two", "2"), "replaced 1 place");
	fd = open("f", O_RDONLY | O_CLOEXEC);
	assert_int_equal(read(fd, have, sizeof(have)), sizeof(after) - 1);
	assert_memory_equal(have, after, sizeof(after) - 1);
	assert_int_equal(readlink("link", have, sizeof(have)), 1);
}

static void a_file_at_the_bound(void **state)
{
	(void)state;
	put("f", "first\n");
	assert_int_equal(truncate("f", (off_t)CONTENT_FILE_MAX), 0);
	BEGINS("edit_file", EDIT("f", "first", "1st"), "replaced 1 place");
	assert_int_equal(truncate("f", (off_t)CONTENT_FILE_MAX + 1), 0);
	BEGINS("edit_file", EDIT("f", "1st", "first"), "error: too_large: ");
}

/* -- apply_patch ---------------------------------------------------------------------------- */

#define PATCH(body) "{\"patch\":\"*** Begin Patch\\n" body "*** End Patch\\n\"}"

static void a_patch_to_many_files(void **state)
{
	struct stat st;

	(void)state;
	put("old", "a\nb\n");
	put("gone", "x");
	put("moved", "m\n");
	put("both", "1\n2\n");
	assert_int_equal(chmod("moved", 0755), 0);
	BEGINS("apply_patch",
	       PATCH("*** Add File: d/e/new\\n+n\\n*** Delete File: gone\\n"
	             "*** Update File: old\\n-a\\n+A\\n"
	             "*** Update File: moved\\n*** Move to: d/moved\\n"
	             "*** Update File: both\\n*** Move to: d/both\\n-2\\n+two\\n"),
	       "A /tmp/tool-");
	has("\nD /tmp/tool-");
	has("/both -> /tmp/tool-");
	expect_text("old", "A\nb\n");
	expect_text("d/e/new", "n\n");
	expect_text("d/moved", "m\n");
	expect_text("d/both", "1\ntwo\n");
	assert_int_equal(stat("d/moved", &st), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
	assert_int_equal(count_entries("."), 2);
	assert_int_equal(count_entries("d"), 3);
	assert_int_equal(json_int(json_get(last.details, "files")), 5);
}

/* A fault in the last file leaves the first ones alone. */
static void all_or_nothing(void **state)
{
#define FIRST "*** Add File: d/new\\n+n\\n*** Update File: f\\n-a\\n+A\\n"
	(void)state;
	put("f", "a\n");
	put("g", "g\n");
	assert_int_equal(mkdir("dir", 0700), 0);
	BEGINS("apply_patch", PATCH(FIRST "*** Update File: g\\n-x\\n"), "error: no_match: /tmp/");
	has("the hunk of line 8: what it replaces is not there");
	BEGINS("apply_patch", PATCH(FIRST "*** Update File: h\\n-x\\n"), "error: not_found: ");
	BEGINS("apply_patch", PATCH(FIRST "*** Delete File: h\\n"), "error: not_found: ");
	BEGINS("apply_patch", PATCH(FIRST "*** Delete File: dir\\n"), "error: not_a_file: ");
	BEGINS("apply_patch", PATCH(FIRST "*** Add File: g\\n+x\\n"), "error: exists: ");
	BEGINS("apply_patch", PATCH(FIRST "*** Update File: g\\n*** Move to: f\\n"),
	       "error: invalid: ");
	BEGINS("apply_patch", PATCH(FIRST "*** Update File: f\\n-a\\n+B\\n"), "error: invalid: ");
	has("is the same file as");
	BEGINS("apply_patch", PATCH(FIRST "nonsense\\n"), "error: invalid_patch: line 7: ");
	BEGINS("apply_patch", "{\"patch\":7}", "error: invalid_arguments: patch: ");
	expect_text("f", "a\n");
	expect_text("g", "g\n");
	assert_int_equal(count_entries("."), 3);
}

/* -- all ------------------------------------------------------------------------------------ */

static void a_cancel_changes_nothing(void **state)
{
	struct cancel cancel;
	struct err e = ERR_INIT;

	(void)state;
	put("f", "a\n");
	BEGINS("list_files", "{}", "{"); /* it has started */
	assert_int_equal(cancel_init(&cancel, &e), 0);
	cancel_fire(&cancel);
	cancel_by = &cancel;
	assert_int_equal(use_tool("edit_file", EDIT("f", "a", "b"), &e), -1);
	assert_int_equal(e.code, SANDBOX_CANCELLED);
	assert_int_equal(use_tool("apply_patch", PATCH("*** Delete File: f\\n"), &e), -1);
	assert_int_equal(e.code, SANDBOX_CANCELLED);
	cancel_by = NULL;
	cancel_release(&cancel);
	expect_text("f", "a\n");
	assert_int_equal(count_entries("."), 1);
}

/* Each edit finds what it read, or says that it did not: none is lost. */
static void *edit_often(void *arg)
{
	const struct uuid id = tenant(0);
	const struct tool_context c = { .sandboxes = boxes, .tenant = &id, .cwd = root };
	struct item call = { .kind = ITEM_TOOL_CALL, .tool = "edit_file" };
	char arguments[] = EDIT("f", "end", "x\\nend");
	int *done = arg;

	call.body = arguments;
	call.body_len = strlen(call.body);
	for (int i = 0; i < 20; i++) {
		struct tool_outcome outcome;
		struct err e = ERR_INIT;

		if (tool_run(&c, &call, &outcome, &e))
			return NULL;
		*done += strncmp(outcome.result.body, "replaced 1", 10) == 0;
		tool_outcome_release(&outcome);
	}
	return done;
}

static void edits_at_once(void **state)
{
	pthread_t threads[4];
	int done[4] = { 0 }, sum = 0;
	struct stat st;
	void *ok;

	(void)state;
	put("f", "end");
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, edit_often, &done[i]), 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(threads[i], &ok), 0);
		assert_non_null(ok);
		sum += done[i];
	}
	assert_true(sum > 0);
	assert_int_equal(stat("f", &st), 0);
	assert_int_equal(st.st_size, 3 + 2 * sum);
	assert_int_equal(count_entries("."), 1);
}

#define IN_ROOT(test) cmocka_unit_test_setup_teardown(test, enter, leave)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_ROOT(a_text_is_replaced),       IN_ROOT(what_cannot_be_edited),
		IN_ROOT(bytes_that_are_no_text),   IN_ROOT(a_file_at_the_bound),
		IN_ROOT(a_patch_to_many_files),    IN_ROOT(all_or_nothing),
		IN_ROOT(a_cancel_changes_nothing), IN_ROOT(edits_at_once),
	};

	return RUN_TESTS(tests);
}
