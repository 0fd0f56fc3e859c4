#include "common/test.h"

#include "daemon/tool/test_tool.h"

#include "daemon/tool/image.h"

/* -- read_file ------------------------------------------------------------------------------ */

static void bytes_and_lines(void **state)
{
	(void)state;
	put("f", "one\ntwo\nthree");
	BEGINS("read_file", "{\"path\":\"f\"}", "one\ntwo\nthree");
	assert_false(last.result.truncated);
	BEGINS("read_file", "{\"path\":\"f\",\"offset\":4,\"limit\":3}",
	       "two\n[3 of 13 bytes; go on with offset 7]");
	assert_true(last.result.truncated);
	BEGINS("read_file", "{\"path\":\"f\",\"line\":2,\"lines\":1}",
	       "two\n[lines 2 to 2; go on with line 3]");
	assert_true(last.result.truncated);
	BEGINS("read_file", "{\"path\":\"f\",\"line\":2}", "two\nthree");
	assert_false(last.result.truncated);
	assert_int_equal(last.result.body_len, 9);
	BEGINS("read_file", "{\"path\":\"f\",\"line\":4}", "[the file has 3 lines]");
	BEGINS("read_file", "{\"path\":\"f\",\"line\":1,\"offset\":0}",
	       "error: invalid_arguments: ");
	BEGINS("read_file", "{\"path\":\"f\",\"line\":0}", "error: invalid_arguments: line: 0");
	BEGINS("read_file", "{\"path\":\"f\",\"lines\":10001}",
	       "error: invalid_arguments: lines: ");
	BEGINS("read_file", "{\"path\":\"f\",\"limit\":65537}",
	       "error: invalid_arguments: limit: ");
	put("f", "");
	BEGINS("read_file", "{\"path\":\"f\",\"line\":1}", "[the file has 0 lines]");
}

static void what_is_no_file(void **state)
{
	(void)state;
	assert_int_equal(mkfifo("fifo", 0600), 0);
	assert_int_equal(symlink("f", "link"), 0);
	BEGINS("read_file", "{\"path\":\"fifo\"}", "error: not_a_file: ");
	BEGINS("read_file", "{\"path\":\"fifo\",\"line\":1}", "error: not_a_file: ");
	BEGINS("read_file", "{\"path\":\".\"}", "error: not_a_file: ");
	BEGINS("read_file", "{\"path\":\"link\"}", "error: not_found: ");
	BEGINS("read_file", "{\"path\":\"/dev/zero\",\"line\":1}", "error: not_a_file: ");
	put_bytes("f", "\xff\n\0\n", 4);
	BEGINS("read_file", "{\"path\":\"link\"}", "\xef\xbf\xbd\n\xef\xbf\xbd\n");
	assert_true(last.result.lossy);
	BEGINS("read_file", "{\"path\":\"link\",\"line\":2}", "\xef\xbf\xbd\n");
	assert_true(last.result.lossy);
}

/* Far more than is kept in memory: a line near its end, and one that is not looked for. */
static void a_huge_file(void **state)
{
	auto_close int fd = open("f", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	(void)state;
	assert_int_equal(ftruncate(fd, (off_t)100 << 20), 0);
	assert_int_equal(pwrite(fd, "\nlast\n", 6, ((off_t)100 << 20) - 6), 6);
	BEGINS("read_file", "{\"path\":\"f\",\"line\":2}", "last\n");
	assert_int_equal(ftruncate(fd, (off_t)1 << 40), 0);
	BEGINS("read_file", "{\"path\":\"f\",\"line\":4}",
	       "[line 4 is not within the first 268435456 bytes");
	BEGINS("read_file", "{\"path\":\"f\",\"line\":1,\"lines\":1}", "\xef\xbf\xbd");
	has(" bytes more]");
}

/* -- images --------------------------------------------------------------------------------- */

static void see(bool sees)
{
	sees_images = sees;
}

static void images_by_content(void **state)
{
	static const struct {
		const char *data;
		size_t len;
		const char *type;
	} cases[] = {
		{ "\x89PNG\r\n\x1a\nrest", 12, "image/png" },
		{ "\xff\xd8\xff\xe0rest", 8, "image/jpeg" },
		{ "GIF87arest", 10, "image/gif" },
		{ "GIF89arest", 10, "image/gif" },
		{ "RIFF\1\2\3\4WEBPrest", 16, "image/webp" },
	};
	char text[100];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		put_bytes("f.txt", cases[i].data, cases[i].len);
		see(true);
		(void)snprintf(text, sizeof(text), "[%s, %zu bytes; shown while", cases[i].type,
		               cases[i].len);
		BEGINS("read_file", "{\"path\":\"f.txt\"}", text);
		assert_string_equal(last.image.type, cases[i].type);
		assert_int_equal(last.image.len, cases[i].len);
		assert_memory_equal(last.image.data, cases[i].data, cases[i].len);
		BEGINS("read_file", "{\"path\":\"f.txt\",\"limit\":5}", "");
		assert_null(last.image.data);
		see(false);
		(void)snprintf(text, sizeof(text), "[%s, %zu bytes; this model cannot see images]",
		               cases[i].type, cases[i].len);
		BEGINS("read_file", "{\"path\":\"f.txt\"}", text);
		assert_null(last.image.data);
	}
	put("f.png", "text");
	see(true);
	BEGINS("read_file", "{\"path\":\"f.png\"}", "text");
	see(false);
}

static void images_have_a_bound(void **state)
{
	(void)state;
	see(true);
	put_bytes("f", "\xff\xd8\xff\xe0", 4);
	assert_int_equal(truncate("f", (off_t)IMAGE_MAX), 0);
	BEGINS("read_file", "{\"path\":\"f\"}", "[image/jpeg, 3145728 bytes; shown");
	assert_int_equal(last.image.len, IMAGE_MAX);
	assert_int_equal(truncate("f", (off_t)IMAGE_MAX + 1), 0);
	BEGINS("read_file", "{\"path\":\"f\"}",
	       "[image/jpeg, 3145729 bytes; too large to be shown, at most 3145728]");
	assert_null(last.image.data);
	see(false);
}

/* -- update_plan ---------------------------------------------------------------------------- */

#define STEP(step, status) "{\"step\":\"" step "\",\"status\":\"" status "\"}"
#define STEPS(steps)       "{\"steps\":[" steps "]}"

static void a_plan(void **state)
{
	auto_buf struct buf many = BUF_INIT(100000);

	(void)state;
	BEGINS("update_plan", STEPS(STEP("a", "completed") "," STEP("b", "in_progress")),
	       "the plan is shown");
	assert_int_equal(json_len(json_get(last.details, "plan")), 2);
	BEGINS("update_plan", STEPS(""), "error: invalid_arguments: steps: ");
	BEGINS("update_plan", STEPS(STEP("a", "done")), "error: invalid_arguments: steps[0]: ");
	BEGINS("update_plan", STEPS(STEP("", "pending")), "error: invalid_arguments: steps[0]: ");
	BEGINS("update_plan", STEPS("{\"step\":\"a\"}"),
	       "error: invalid_arguments: steps[0].status: ");
	BEGINS("update_plan", STEPS("{\"step\":\"a\",\"status\":\"pending\",\"x\":1}"),
	       "error: invalid_arguments: steps[0].x: ");
	BEGINS("update_plan", STEPS("7"), "error: invalid_arguments: steps[0]: ");
	for (int i = 0; i < 101; i++) {
		buf_addf(&many, "%s" STEP("a", "pending"), i ? "," : "{\"steps\":[");
		if (i != 99 && i != 100)
			continue;
		buf_adds(&many, "]}");
		BEGINS("update_plan", many.data, i == 99 ? "the plan" : "error: invalid_arguments");
		buf_truncate(&many, many.len - 2);
	}
}

static void a_plan_with_much_text(void **state)
{
	auto_buf struct buf text = BUF_INIT(100000);

	(void)state;
	buf_adds(&text, "{\"steps\":[{\"status\":\"pending\",\"step\":\"");
	for (int i = 0; i < 16384; i++)
		buf_addc(&text, 'x');
	buf_adds(&text, "\"}]}");
	BEGINS("update_plan", text.data, "the plan is shown");
	buf_truncate(&text, text.len - 4);
	buf_adds(&text, "x\"}]}");
	BEGINS("update_plan", text.data, "error: invalid_arguments: steps[0]: ");
}

/* A control character is one byte of text and six of JSON, and what is shown is stored so. */
static void a_plan_that_is_stored(void **state)
{
	(void)state;
	for (int i = 9900; i < 16000; i += 3000) {
		auto_buf struct buf text = BUF_INIT(100000);

		buf_adds(&text, "{\"steps\":[{\"status\":\"pending\",\"step\":\"");
		for (int k = 0; k < i; k++)
			buf_adds(&text, "\\u0001");
		buf_adds(&text, "\"}]}");
		BEGINS("update_plan", text.data,
		       i == 9900 ? "the plan is shown" : "error: invalid_arguments: steps: ");
		tool_outcome_store_details(&last);
		assert_non_null(last.result.details);
	}
}

/* -- all ------------------------------------------------------------------------------------ */

/* What each tool says of its arguments is JSON, and no tool takes an argument it does not name. */
static void every_schema(void **state)
{
	(void)state;
	for (size_t i = 0; i < tool_count(); i++) {
		const struct model_tool *t = tool_shown(i);
		auto_json struct json *schema = NULL;
		struct err e = ERR_INIT;

		assert_int_equal(json_parse(t->schema, strlen(t->schema), &schema, &e), 0);
		assert_int_equal(json_type(json_get(schema, "properties")), JSON_OBJECT);
		assert_false(json_bool(json_get(schema, "additionalProperties")));
		BEGINS(t->name, "{\"noSuchThing\":1}", "error: invalid_arguments: noSuchThing: ");
		BEGINS(t->name, "{\"a\":1,\"a\":2}", "error: invalid_arguments: line 1");
		BEGINS(t->name, "nonsense", "error: invalid_arguments: line 1");
	}
	BEGINS("no_such_tool", "{}", "error: unknown_tool: no_such_tool");
}

static void what_writes(void **state)
{
	static const char *const writing[] = { "shell",      "shell_write", "shell_stop",
		                               "write_file", "edit_file",   "apply_patch" };
	size_t n = 0;

	(void)state;
	for (size_t i = 0; i < tool_count(); i++) {
		struct item call = { .kind = ITEM_TOOL_CALL };

		(void)snprintf(call.tool, sizeof(call.tool), "%s", tool_shown(i)->name);
		n += tool_writes(&call);
	}
	assert_int_equal(n, ARRAY_LEN(writing));
	for (size_t i = 0; i < ARRAY_LEN(writing); i++) {
		struct item call = { .kind = ITEM_TOOL_CALL };

		(void)snprintf(call.tool, sizeof(call.tool), "%s", writing[i]);
		assert_true(tool_writes(&call));
	}
}

#define IN_ROOT(test) cmocka_unit_test_setup_teardown(test, enter, leave)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_ROOT(bytes_and_lines),       IN_ROOT(what_is_no_file),
		IN_ROOT(a_huge_file),           IN_ROOT(images_by_content),
		IN_ROOT(images_have_a_bound),   IN_ROOT(a_plan),
		IN_ROOT(a_plan_with_much_text), IN_ROOT(a_plan_that_is_stored),
		IN_ROOT(every_schema),          cmocka_unit_test(what_writes),
	};

	return RUN_TESTS(tests);
}
