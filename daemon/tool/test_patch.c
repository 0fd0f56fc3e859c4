#include "common/test.h"

#include "daemon/tool/patch.h"

#include "common/fd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define P(body)  "*** Begin Patch\n" body "*** End Patch\n"
#define U(hunks) P("*** Update File: f\n" hunks)

static struct err e;

static void expect_fault(const char *text, const char *words)
{
	struct patch p;

	if (patch_parse(text, strlen(text), &p, &e) == 0) {
		print_error("taken: %s\n", text);
		fail();
	}
	if (!strstr(e.text, words))
		print_error("%s\n", e.text);
	assert_non_null(strstr(e.text, words));
}

static void a_patch_is_read(void **state)
{
	static const char text[] = "\n \n" P("*** Add File: a b/c\n+one\n+\n++two\n"
	                                     "*** Add File: empty\n"
	                                     "*** Delete File: -x\n"
	                                     "*** Update File: old\n*** Move to: new\n"
	                                     "*** Update File: f\n-a\n+b\n@@ void f\n@@\n\n c\n-d\n"
	                                     "*** End of File\n") " \n";
	auto_patch struct patch p = { NULL };

	(void)state;
	assert_int_equal(patch_parse(text, sizeof(text) - 1, &p, &e), 0);
	assert_int_equal(p.section_count, 5);
	assert_string_equal(p.sections[0].path, "a b/c");
	assert_int_equal(p.sections[0].count, 3);
	assert_int_equal(p.lines[2].len, 4);
	assert_int_equal(p.sections[1].count, 0);
	assert_int_equal(p.sections[2].kind, PATCH_DELETE);
	assert_string_equal(p.sections[2].path, "-x");
	assert_string_equal(p.sections[3].to, "new");
	assert_int_equal(p.sections[3].count, 0);
	assert_int_equal(p.sections[4].count, 2);
	assert_int_equal(p.sections[4].number, 12);
	assert_int_equal(p.hunks[0].count, 2);
	assert_false(p.hunks[0].at_end);
	assert_int_equal(p.hunks[1].count, 4); /* "@@", an empty line, " c" and "-d" */
	assert_true(p.hunks[1].at_end);
}

static void what_is_no_patch(void **state)
{
	(void)state;
	expect_fault("", "\"*** Begin Patch\" is missing");
	expect_fault("hello", "line 1");
	expect_fault("*** Begin Patch", "line 2: \"*** End Patch\" is missing");
	expect_fault("*** Begin Patch\r\n*** End Patch\n", "is missing");
	expect_fault(P(""), "no file");
	expect_fault(P("hello\n"), "line 2: neither");
	expect_fault(P("\n"), "line 2: neither");
	expect_fault(P("*** Add File: \n+x\n"), "line 2: a path is missing");
	expect_fault(P("*** Add File:x\n"), "line 2: neither");
	expect_fault(P("*** Add File: x\nno plus\n"), "line 3: neither");
	expect_fault(P("*** Delete File: x\n+more\n"), "line 3: neither");
	expect_fault(U(""), "line 3: an update without a hunk");
	expect_fault(U("@@ only\n"), "line 4: the hunk before changes nothing");
	expect_fault(U(" same\n"), "line 4: the hunk before changes nothing");
	expect_fault(U("-a\n*** Move to: g\n"), "line 4: neither");
	expect_fault(U("-a\n@@x\n"), "line 4: neither");
	expect_fault(U("-a\n") "more", "line 5: text after");
}

static void files_of_a_patch_are_bounded(void **state)
{
	auto_buf struct buf many = BUF_INIT(100000);
	auto_patch struct patch p = { NULL };

	(void)state;
	buf_adds(&many, "*** Begin Patch\n");
	for (int i = 0; i < PATCH_SECTIONS_MAX; i++)
		buf_addf(&many, "*** Delete File: %d\n", i);
	buf_adds(&many, "*** End Patch\n");
	assert_int_equal(patch_parse(many.data, many.len, &p, &e), 0);
	assert_int_equal(p.section_count, PATCH_SECTIONS_MAX);
	buf_truncate(&many, many.len - strlen("*** End Patch\n"));
	buf_adds(&many, "*** Delete File: more\n*** End Patch\n");
	expect_fault(many.data, "line 52: more than 50 files");
}

static void bounds_of_a_patch(void **state)
{
	static char text[PATCH_TEXT_MAX + 2];
	static const char head[] = "*** Begin Patch\n*** Add File: f\n+",
			  tail[] = "\n*** End Patch\n";
	auto_patch struct patch p = { NULL };

	(void)state;
	memset(text, 'x', PATCH_TEXT_MAX);
	memcpy(text, head, sizeof(head) - 1);
	memcpy(text + PATCH_TEXT_MAX - sizeof(tail) + 1, tail, sizeof(tail));
	assert_int_equal(patch_parse(text, PATCH_TEXT_MAX, &p, &e), 0);
	assert_int_equal(p.line_count, 1);
	patch_release(&p);
	text[PATCH_TEXT_MAX] = '\n';
	expect_fault(text, "a patch has at most");
	assert_int_equal(
		patch_parse("*** Begin Patch\n*** Add File: a\0b\n*** End Patch", 48, &p, &e), -1);
	assert_non_null(strstr(e.text, "NUL"));
}

/* old and want of any bytes; want NULL: *words says why not. */
static void expect_bytes(const char *text, const char *old, size_t len, const char *want,
                         const char *words)
{
	auto_patch struct patch p = { NULL };
	auto_buf struct buf have = BUF_INIT(10000), out = BUF_INIT(10000);
	int rc;

	assert_int_equal(patch_parse(text, strlen(text), &p, &e), 0);
	buf_add(&have, old, len);
	rc = patch_apply(&p, &p.sections[0], &have, &out, &e);
	if (rc != (want ? 0 : -1) || (want && strcmp(out.data ? out.data : "", want) != 0))
		print_error("%s\n-> %d %s %s\n", text, rc, out.data ? out.data : "",
		            rc ? e.text : "");
	assert_int_equal(rc, want ? 0 : -1);
	if (want)
		assert_string_equal(out.data ? out.data : "", want);
	else
		assert_non_null(strstr(e.text, words));
}

static void expect(const char *text, const char *old, const char *want)
{
	expect_bytes(text, old, strlen(old), want, NULL);
}

static void expect_misfit(const char *text, const char *old, const char *words)
{
	expect_bytes(text, old, strlen(old), NULL, words);
}

static void hunks_are_applied(void **state)
{
	(void)state;
	expect(P("*** Add File: f\n+a\n+\n"), "", "a\n\n");
	expect(U("-b\n+B\n"), "a\nb\nc\n", "a\nB\nc\n");
	expect(U("@@\n a\n+A\n@@\n-c\n"), "a\nb\nc\n", "a\nA\nb\n");
	expect(U(" a\n\n-b\n+B\n"), "a\n\nb\n", "a\n\nB\n");
	expect(U("@@ f {\n-x\n+y\n"), "x\n  f {\nx\nx\n}\n", "x\n  f {\ny\nx\n}\n");
	expect(U("@@ g\n@@ f\n-x\n+y\n"), "f\nx\ng\nf\nx\n", "f\nx\ng\nf\ny\n");
	expect(U("@@ f\n+new\n"), "e\nf\ng\n", "e\nf\nnew\ng\n");
	expect(U("+last\n"), "a\n", "a\nlast\n");
	expect(U("+first\n"), "", "first\n");
	expect(U("@@ a\n+last\n*** End of File\n"), "a\nb\n", "a\nb\nlast\n");
	expect(U("-x\n+y\n*** End of File\n"), "x\na\nx\n", "x\na\ny\n");
	expect(U("-a\n"), "a\n", "");
}

static void hunks_that_do_not_fit(void **state)
{
	(void)state;
	expect_misfit(U("-b\n"), "a\n", "hunk of line 3: what it replaces is not there");
	expect_misfit(U("-b\n"), "", "not there");
	expect_misfit(U("-a\n+b\n"), "a\nx\na\n", "more than once");
	expect_misfit(U("@@\n-c\n@@\n-a\n"), "a\nb\nc\n",
	              "hunk of line 5: what it replaces is not");
	expect_misfit(U("@@ no\n-a\n"), "a\n", "the line after its \"@@\"");
	expect_misfit(U("-a\n*** End of File\n"), "a\nb\n", "not there");
	expect_misfit(U("-a \n"), "a\n", "not there");
	expect_misfit(U("-a\n-b\n"), "a\n", "not there");
}

/* Line ends and bytes that no hunk names stay as they are. */
static void line_ends_and_bytes(void **state)
{
	(void)state;
	expect(U(" a\n-b\n+B\n"), "a\r\nb\r\nc", "a\r\nB\r\nc");
	expect(U(" b\n+c\n"), "a\nb", "a\nb\nc\n");
	expect(U(" b\n+c\n"), "a\r\nb", "a\r\nb\r\nc\r\n");
	expect(U("+c\n"), "a\nb", "a\nb\nc\n");
	expect(U("-a\n+A\n b\n"), "a\nb", "A\nb");
	expect(U("-b\n+B\n"), "a\nb", "a\nB\n");
	expect(U("-b\n"), "a\nb", "a\n");
	expect(U("-a\n"), "a\nb\r\n", "b\r\n");
	expect(U("-a\n+\xc3\xa9\n"), "\xff\xfe\na\n", "\xff\xfe\n\xc3\xa9\n");
	expect_bytes(U("-a\n+b\n"), "x\0y\na\n", 6, "x", NULL); /* as far as a string goes */
	expect_misfit(U("-a\r\n"), "a\r\n", "not there");
}

static void work_and_size_are_bounded(void **state)
{
	static const char add[] = P("*** Add File: f\n+12345678\n");
	auto_buf struct buf text = BUF_INIT(PATCH_TEXT_MAX), old = BUF_INIT(4 << 20);
	auto_buf struct buf out = BUF_INIT(1000), small = BUF_INIT(8);
	auto_patch struct patch p = { NULL }, q = { NULL };

	(void)state;
	buf_adds(&text, "*** Begin Patch\n*** Update File: f\n");
	for (int i = 0; i < 100000; i++)
		buf_addc(&text, '\n');
	buf_adds(&text, "-x\n*** End Patch\n");
	for (int i = 0; i < 1 << 21; i++)
		buf_addc(&old, '\n');
	assert_int_equal(patch_parse(text.data, text.len, &p, &e), 0);
	assert_int_equal(patch_apply(&p, &p.sections[0], &old, &out, &e), -1);
	assert_non_null(strstr(e.text, "too much work"));
	assert_int_equal(patch_parse(add, sizeof(add) - 1, &q, &e), 0);
	assert_int_equal(patch_apply(&q, &q.sections[0], &old, &small, &e), -1);
	assert_non_null(strstr(e.text, "larger than 8 bytes"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_patch_is_read),
		cmocka_unit_test(what_is_no_patch),
		cmocka_unit_test(bounds_of_a_patch),
		cmocka_unit_test(hunks_are_applied),
		cmocka_unit_test(hunks_that_do_not_fit),
		cmocka_unit_test(line_ends_and_bytes),
		cmocka_unit_test(work_and_size_are_bounded),
		cmocka_unit_test(files_of_a_patch_are_bounded),
	};

	return RUN_TESTS(tests);
}
