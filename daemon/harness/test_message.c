#include "common/test.h"

#include "daemon/harness/ask.h"
#include "daemon/harness/line.h"
#include "daemon/harness/message.h"
#include "daemon/harness/outcome.h"

#include <stdio.h>
#include <string.h>

static struct message m;

static enum message_type read_line(const char *line)
{
	message_release(&m);
	message_read(line, strlen(line), &m);
	return m.type;
}

static int begin(void **state)
{
	(void)state;
	m = (struct message){ .doc = NULL };
	return 0;
}

static int end(void **state)
{
	(void)state;
	message_release(&m);
	return 0;
}

static void test_types(void **state)
{
	(void)state;
	assert_int_equal(read_line("{\"type\":\"start\",\"protocol\":1,\"seq\":1,\"run_id\":\"r\","
	                           "\"prompt\":\"p\",\"warnings\":[]}"),
	                 MESSAGE_START);
	assert_int_equal(m.seq, 1);
	assert_string_equal(m.run_id, "r");
	assert_null(m.op_id);
	assert_int_equal(read_line("{\"type\":\"delta\",\"text\":\"t\"}"), MESSAGE_DELTA);
	assert_string_equal(m.text, "t");
	assert_int_equal(m.seq, 0);
	assert_null(m.run_id);
	assert_int_equal(read_line("{\"type\":\"notify\",\"kind\":\"k\",\"data\":[1]}"),
	                 MESSAGE_NOTIFY);
	assert_string_equal(m.kind, "k");
	assert_int_equal(json_len(m.data), 1);
	assert_int_equal(read_line("{\"type\":\"notify\",\"kind\":\"k\"}"), MESSAGE_NOTIFY);
	assert_null(m.data);
	assert_int_equal(read_line("{\"type\":\"log\",\"message\":\"l\"}"), MESSAGE_LOG);
	assert_string_equal(m.text, "l");
	assert_int_equal(read_line(" {\"type\" : \"pong\",\"op_id\":\"0123456789ab\"}\r"),
	                 MESSAGE_PONG);
	assert_string_equal(m.op_id, "0123456789ab");
	assert_int_equal(read_line("{\"type\":\"ready\"}"), MESSAGE_READY);
	assert_int_equal(read_line("{\"type\":\"hello\"}"), MESSAGE_HELLO);
	assert_int_equal(read_line("{\"type\":\"result\",\"answer\":null}"), MESSAGE_RESULT);
	assert_int_equal(read_line("{\"type\":\"error\"}"), MESSAGE_ERROR);
	assert_string_equal(m.text, "");
	assert_int_equal(read_line("{\"type\":\"error\",\"error\":{\"code\":\"protocol\","
	                           "\"message\":\"no\"}}"),
	                 MESSAGE_ERROR);
	assert_string_equal(m.text, "no");
	assert_int_equal(read_line("{\"type\":\"error\",\"message\":\"flat\"}"), MESSAGE_ERROR);
	assert_string_equal(m.text, "flat");
	/* More than we know is no fault. */
	assert_int_equal(read_line("{\"type\":\"telemetry\",\"x\":1}"), MESSAGE_UNKNOWN);
	assert_int_equal(read_line("{\"type\":\"pong\",\"more\":{\"a\":[1,2]}}"), MESSAGE_PONG);
	assert_int_equal(read_line("{\"type\":\"malformed\"}"), MESSAGE_UNKNOWN);
}

static void test_malformed(void **state)
{
	static const char *const lines[] = {
		"",
		"   ",
		"garbage",
		"[]",
		"1",
		"null",
		"\"result\"",
		"{}",
		"{\"type\":1}",
		"{\"type\":null}",
		"{\"type\":\"pong\"} {}",
		"{\"type\":\"pong\"",
		"{\"type\":\"pong\",\"type\":\"result\"}",
		"{'type':'pong'}",
		"{\"type\":\"pong\",}",
		"{\"type\":\"pong\",\"x\":NaN}",
		"{\"type\":\"delta\"}",
		"{\"type\":\"delta\",\"text\":1}",
		"{\"type\":\"delta\",\"text\":\"\\u0000\"}",
		"{\"type\":\"delta\",\"text\":\"\\ud800\"}",
		"{\"type\":\"delta\",\"text\":\"\xff\"}",
		"{\"type\":\"log\"}",
		"{\"type\":\"notify\",\"data\":1}",
		"{\"type\":\"start\",\"seq\":0}",
		"{\"type\":\"start\",\"seq\":-1}",
		"{\"type\":\"start\",\"seq\":1.5}",
		"{\"type\":\"start\",\"seq\":\"1\"}",
		"{\"type\":\"start\",\"seq\":99999999999999999999}",
		"{\"type\":\"start\",\"run_id\":7}",
		"{\"type\":\"start\",\"op_id\":{}}",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
		if (read_line(lines[i]) != MESSAGE_MALFORMED)
			print_error("not malformed: %s\n", lines[i]);
		assert_int_equal(m.type, MESSAGE_MALFORMED);
		assert_null(m.doc);
		assert_true(m.why.code);
	}
	message_read("{\"type\":\"pong\"}\0", 16, &m);
	assert_int_equal(m.type, MESSAGE_MALFORMED);
}

static void test_run_id_bound(void **state)
{
	char id[HARNESS_RUN_ID_MAX + 2], line[200];

	(void)state;
	memset(id, 'r', sizeof(id));
	id[HARNESS_RUN_ID_MAX + 1] = '\0';
	(void)snprintf(line, sizeof(line), "{\"type\":\"start\",\"run_id\":\"%s\"}", id + 1);
	assert_int_equal(read_line(line), MESSAGE_START);
	(void)snprintf(line, sizeof(line), "{\"type\":\"start\",\"run_id\":\"%s\"}", id);
	assert_int_equal(read_line(line), MESSAGE_MALFORMED);
}

/* What looks like many values within a text is none. */
static void test_values_bound(void **state)
{
	auto_buf struct buf b = BUF_INIT(HARNESS_LINE_MAX);

	(void)state;
	/* Colons, commas and brackets are counted, of which seven are not in the list. */
	buf_adds(&b, "{\"type\":\"notify\",\"kind\":\"k\",\"data\":[0");
	for (size_t i = 0; i < HARNESS_VALUES_MAX - 7; i++)
		buf_adds(&b, ",0");
	buf_adds(&b, "]}");
	assert_int_equal(read_line(b.data), MESSAGE_NOTIFY);
	buf_truncate(&b, b.len - 2);
	buf_adds(&b, ",0]}");
	assert_int_equal(read_line(b.data), MESSAGE_MALFORMED);
	assert_non_null(strstr(m.why.text, "16384 values"));
	buf_reset(&b);
	buf_adds(&b, "{\"type\":\"delta\",\"text\":\"\\\"");
	for (size_t i = 0; i < (size_t)2 * HARNESS_VALUES_MAX; i++)
		buf_adds(&b, ",[{");
	buf_adds(&b, "\"}");
	assert_int_equal(read_line(b.data), MESSAGE_DELTA);
}

static void test_abilities(void **state)
{
	struct message_abilities a;

	(void)state;
	assert_int_equal(read_line("{\"type\":\"ready\",\"pid\":7,\"protocol_version\":2,"
	                           "\"capabilities\":[\"hello\",\"op_id\",3,\"ping\",\"x\"]}"),
	                 MESSAGE_READY);
	message_abilities(&m, &a);
	assert_int_equal(a.version, 2);
	assert_int_equal(a.pid, 7);
	assert_true(a.hello && a.op_id && a.ping && !a.ask_id);
	assert_int_equal(read_line("{\"type\":\"ready\",\"protocol\":3}"), MESSAGE_READY);
	message_abilities(&m, &a);
	assert_int_equal(a.version, 3);
	assert_false(a.hello || a.op_id || a.ping || a.ask_id);
	assert_int_equal(read_line("{\"type\":\"ready\",\"protocol_version\":\"?\"}"),
	                 MESSAGE_READY);
	message_abilities(&m, &a);
	assert_int_equal(a.version, 1);
	assert_int_equal(read_line("{\"type\":\"ready\",\"capabilities\":\"hello\"}"),
	                 MESSAGE_READY);
	message_abilities(&m, &a);
	assert_int_equal(a.version, 1);
	assert_false(a.hello);
}

static void test_writing(void **state)
{
	auto_buf struct buf b = BUF_INIT(1000);
	auto_json struct json *answers = json_new_array();
	char id[HARNESS_OP_ID_LEN + 1], other[HARNESS_OP_ID_LEN + 1];

	(void)state;
	json_push_str(answers, "a\n");
	message_put_submit(&b, "r", "say \"hi\"\n", "0123456789ab");
	message_put_answer(&b, "r", answers, "q", NULL);
	message_put_answer(&b, "r", answers, NULL, NULL);
	message_put_cancel(&b, "r", NULL);
	message_put_hello(&b, "0123456789ab");
	message_put_ping(&b, NULL);
	message_put_shutdown(&b);
	assert_string_equal(
		b.data,
		"{\"op\":\"submit\",\"op_id\":\"0123456789ab\",\"run_id\":\"r\","
		"\"prompt\":\"say \\\"hi\\\"\\n\"}\n"
		"{\"op\":\"answer\",\"run_id\":\"r\",\"answers\":[\"a\\n\"],\"ask_id\":\"q\"}\n"
		"{\"op\":\"answer\",\"run_id\":\"r\",\"answers\":[\"a\\n\"]}\n"
		"{\"op\":\"cancel\",\"run_id\":\"r\"}\n"
		"{\"op\":\"hello\",\"op_id\":\"0123456789ab\",\"protocol_versions\":[1]}\n"
		"{\"op\":\"ping\"}\n"
		"{\"op\":\"shutdown\"}\n");
	message_op_id(id);
	message_op_id(other);
	assert_int_equal(strspn(id, "0123456789abcdef"), HARNESS_OP_ID_LEN);
	assert_string_not_equal(id, other);
}

/* -- questions ---------------------------------------------------------------------------- */

static int ask(const char *data, struct ask *ret)
{
	static struct json *doc;
	struct err e = ERR_INIT;

	json_free(&doc);
	*ret = (struct ask){ .id = NULL };
	return data && json_parse(data, strlen(data), &doc, &e) == 0 ? ask_read(doc, ret, &e) : -1;
}

static void assert_options(const struct ask *a, size_t i, const char *want)
{
	auto_buf struct buf b = BUF_INIT(1000);
	auto_json struct json *options = ask_options(a, i);

	json_write(options, &b);
	assert_string_equal(b.data, want);
}

static void test_questions(void **state)
{
	struct ask a;

	(void)state;
	assert_int_equal(ask("{\"kind\":\"ask\",\"ask_id\":\"0123456789ab\",\"questions\":["
	                     "{\"question\":\"one?\",\"options\":[\"a\",{\"label\":\"b\"}]},"
	                     "{\"text\":\"two?\"},\"three?\"]}",
	                     &a),
	                 0);
	assert_string_equal(a.id, "0123456789ab");
	assert_false(a.confirm);
	assert_int_equal(a.count, 3);
	assert_string_equal(ask_text(&a, 0), "one?");
	assert_string_equal(ask_text(&a, 1), "two?");
	assert_string_equal(ask_text(&a, 2), "three?");
	assert_options(&a, 0, "[\"a\",\"b\",\"custom\"]");
	assert_options(&a, 1, "[\"custom\"]");
	assert_options(&a, 2, "[\"custom\"]");
	assert_string_equal(ask_default(&a), "Unanswered");
	assert_int_equal(ask("{\"kind\":\"confirm\",\"prompt\":\"sure?\"}", &a), 0);
	assert_null(a.id);
	assert_true(a.confirm);
	assert_int_equal(a.count, 1);
	assert_string_equal(ask_text(&a, 0), "sure?");
	assert_options(&a, 0, "[\"yes\",\"no\"]");
	assert_string_equal(ask_default(&a), "no");
}

static void test_bad_questions(void **state)
{
	auto_buf struct buf b = BUF_INIT(10000);
	struct ask a;

	(void)state;
	assert_int_equal(ask("{}", &a), -1);
	assert_int_equal(ask("[]", &a), -1);
	assert_int_equal(ask("{\"questions\":[]}", &a), -1);
	assert_int_equal(ask("{\"questions\":[{}]}", &a), -1);
	assert_int_equal(ask("{\"questions\":[\"\"]}", &a), -1);
	assert_int_equal(ask("{\"questions\":[{\"text\":\"t\",\"options\":7}]}", &a), -1);
	assert_int_equal(ask("{\"questions\":[{\"text\":\"t\",\"options\":[{}]}]}", &a), -1);
	assert_int_equal(ask("{\"questions\":[{\"text\":\"t\",\"options\":[\"\"]}]}", &a), -1);
	assert_int_equal(ask("{\"kind\":\"confirm\"}", &a), -1);
	for (size_t extra = 0; extra < 2; extra++) {
		buf_reset(&b);
		buf_adds(&b, "{\"questions\":[\"q\"");
		for (size_t i = 1; i < ASK_QUESTIONS_MAX + extra; i++)
			buf_adds(&b, ",\"q\"");
		buf_adds(&b, "]}");
		assert_int_equal(ask(b.data, &a), extra ? -1 : 0);
		buf_reset(&b);
		buf_adds(&b, "{\"questions\":[{\"text\":\"q\",\"options\":[\"o\"");
		for (size_t i = 1; i < ASK_OPTIONS_MAX + extra; i++)
			buf_adds(&b, ",\"o\"");
		buf_adds(&b, "]}]}");
		assert_int_equal(ask(b.data, &a), extra ? -1 : 0);
		buf_reset(&b);
		buf_addf(&b, "{\"ask_id\":\"%0*d\",\"questions\":[\"q\"]}",
		         (int)(ASK_ID_MAX + extra), 0);
		assert_int_equal(ask(b.data, &a), extra ? -1 : 0);
	}
	(void)ask(NULL, &a);
}

/* -- outcomes ----------------------------------------------------------------------------- */

static void take(struct outcome *o, const char *line)
{
	assert_int_equal(read_line(line), MESSAGE_RESULT);
	outcome_take(o, m.doc);
}

static void test_outcome(void **state)
{
	auto_outcome struct outcome o;

	(void)state;
	outcome_init(&o);
	take(&o, "{\"type\":\"result\",\"answer\":\"a\",\"errors\":[],\"cancelled\":false}");
	assert_int_equal(o.count, 0);
	assert_false(o.cancelled);
	take(&o, "{\"type\":\"result\",\"cancelled\":true,"
	         "\"errors\":[{\"code\":\"unknown\",\"message\":\"ignored\"},"
	         "{\"code\":\"budget\",\"message\":\"ignored\"},{\"code\":\"timeout\"}],"
	         "\"error_messages\":[\"first\\nsecond line\",\"first\",\"third\"]}");
	assert_true(o.cancelled);
	assert_int_equal(o.count, 3);
	assert_string_equal(o.errors.data, "first\nthird");
	assert_string_equal(o.code, "budget");
}

static void test_a_code_has_a_bound(void **state)
{
	(void)state;
	for (int extra = 0; extra < 2; extra++) {
		auto_outcome struct outcome o;
		char line[200];

		outcome_init(&o);
		(void)snprintf(line, sizeof(line),
		               "{\"type\":\"result\",\"errors\":[{\"code\":\"%0*d\"}]}",
		               OUTCOME_CODE_MAX + extra, 0);
		take(&o, line);
		assert_int_equal(o.count, 1);
		assert_int_equal(strlen(o.code), extra ? 0 : OUTCOME_CODE_MAX);
	}
}

static void test_outcome_hides_nothing(void **state)
{
	auto_outcome struct outcome o;
	auto_buf struct buf b = BUF_INIT(100000);

	(void)state;
	outcome_init(&o);
	take(&o, "{\"type\":\"result\",\"errors\":[{\"code\":\"x\",\"message\":\"\"},7,null]}");
	assert_int_equal(o.count, 3);
	assert_string_equal(o.code, "x");
	assert_int_equal(o.errors.len, 0);
	buf_adds(&b, "{\"type\":\"result\",\"error_messages\":[\"x");
	for (int i = 0; i < OUTCOME_ERRORS_MAX; i++)
		buf_adds(&b, "\xc3\xa9");
	buf_adds(&b, "\"]}");
	take(&o, b.data);
	assert_int_equal(o.count, 4);
	assert_int_equal(o.errors.len, OUTCOME_TEXT_MAX - 1);
	assert_memory_equal(o.errors.data + o.errors.len - 2, "\xc3\xa9", 2);
	buf_reset(&b);
	buf_adds(&b, "{\"type\":\"result\",\"error_messages\":[\"a\"");
	for (int i = 0; i < 5000; i++)
		buf_addf(&b, ",\"%d\"", i);
	buf_adds(&b, "]}");
	take(&o, b.data);
	assert_int_equal(o.count, 5005);
	assert_in_range(o.errors.len, 4000, OUTCOME_ERRORS_MAX);
	assert_false(buf_failed(&o.errors));
}

static void test_usage(void **state)
{
	struct outcome_usage u;

	(void)state;
	assert_int_equal(read_line("{\"type\":\"result\",\"usage\":{\"input\":5,\"output\":7}}"),
	                 MESSAGE_RESULT);
	u = outcome_usage(json_get(m.doc, "usage"));
	assert_int_equal(u.input, 5);
	assert_int_equal(u.output, 7);
	assert_int_equal(read_line("{\"type\":\"result\",\"usage\":{\"input\":-5,\"output\":1.5}}"),
	                 MESSAGE_RESULT);
	u = outcome_usage(json_get(m.doc, "usage"));
	assert_int_equal(u.input + u.output, 0);
	assert_int_equal(read_line("{\"type\":\"result\",\"usage\":{\"input\":1000000000000,"
	                           "\"output\":9007199254740991}}"),
	                 MESSAGE_RESULT);
	u = outcome_usage(json_get(m.doc, "usage"));
	assert_int_equal(u.input, 1000000000000);
	assert_int_equal(u.output, 1000000000000);
	u = outcome_usage(NULL);
	assert_int_equal(u.input + u.output, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_types, begin, end),
		cmocka_unit_test_setup_teardown(test_malformed, begin, end),
		cmocka_unit_test_setup_teardown(test_run_id_bound, begin, end),
		cmocka_unit_test_setup_teardown(test_values_bound, begin, end),
		cmocka_unit_test_setup_teardown(test_abilities, begin, end),
		cmocka_unit_test(test_writing),
		cmocka_unit_test(test_questions),
		cmocka_unit_test(test_bad_questions),
		cmocka_unit_test_setup_teardown(test_outcome, begin, end),
		cmocka_unit_test_setup_teardown(test_outcome_hides_nothing, begin, end),
		cmocka_unit_test_setup_teardown(test_a_code_has_a_bound, begin, end),
		cmocka_unit_test_setup_teardown(test_usage, begin, end),
	};

	return RUN_TESTS(tests);
}
