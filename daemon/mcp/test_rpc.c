/* What is sent, byte for byte, and what a message that came is taken for. */
#include "common/test.h"

#include "common/utf8.h"
#include "daemon/mcp/result.h"
#include "daemon/mcp/rpc.h"

#include <stdlib.h>
#include <string.h>

static void what_is_sent(void **state)
{
	static const char arguments[] = "{ \"a\" : 1.50,\"b\":\"\\u0061\" }";
	auto_buf struct buf out = BUF_INIT(1 << 16);

	(void)state;
	rpc_request(&out, 7, "tools/list", "{}");
	assert_string_equal(out.data, "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/list\","
	                              "\"params\":{}}");
	buf_reset(&out);
	rpc_notification(&out, "a/b", "{}");
	assert_string_equal(out.data, "{\"jsonrpc\":\"2.0\",\"method\":\"a/b\",\"params\":{}}");
	buf_reset(&out);
	rpc_call(&out, 8, "say", arguments, strlen(arguments));
	assert_string_equal(out.data,
	                    "{\"jsonrpc\":\"2.0\",\"id\":8,\"method\":\"tools/call\",\"params\":{"
	                    "\"name\":\"say\",\"arguments\":{ \"a\" : 1.50,\"b\":\"\\u0061\" }}}");
}

static void arguments_are_an_object(void **state)
{
	static const char *const bad[] = {
		"",        "null", "[]", "\"x\"", "{}{}", "{}}", "{\"a\":1,\"a\":2}", "{\"a\":NaN}",
		"{'a':1}",
	};
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(rpc_arguments_check("{}", 2, &e), 0);
	assert_int_equal(rpc_arguments_check(" {\"a\":{}} ", 10, &e), 0);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (rpc_arguments_check(bad[i], strlen(bad[i]), &e) == 0)
			fail_msg("taken: %s", bad[i]);
}

/* For who waits for the answer to 5; the code is 0 for one that is read. */
static void what_comes(void **state)
{
	static const struct {
		const char *text;
		int code;
		enum rpc_kind kind;
	} cases[] = {
		{ "{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{}}", 0, RPC_RESULT },
		{ "{\"jsonrpc\":\"2.0\",\"id\":6,\"result\":{}}", 0, RPC_OTHER },
		{ "{\"jsonrpc\":\"2.0\",\"id\":\"5\",\"result\":{}}", 0, RPC_OTHER },
		{ "{\"jsonrpc\":\"2.0\",\"id\":5.0,\"result\":{}}", 0, RPC_OTHER },
		{ "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{}}", 0, RPC_OTHER },
		{ "{\"jsonrpc\":\"2.0\",\"result\":{}}", 0, RPC_OTHER },
		{ "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}", 0, RPC_OTHER },
		{ "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}", 0,
		  RPC_LIST_CHANGED },
		{ "{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\"}", 0, RPC_REQUEST },
		{ "{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"ping\"}", 0, RPC_REQUEST },
		{ "{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}", MCP_MALFORMED, RPC_OTHER },
		{ "{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":7}", MCP_MALFORMED, RPC_OTHER },
		{ "{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":[]}", MCP_MALFORMED, RPC_OTHER },
		{ "{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":null}", MCP_MALFORMED, RPC_OTHER },
		{ "{\"jsonrpc\":\"2.0\",\"id\":5,\"error\":{\"code\":-1}}", MCP_ERROR, RPC_OTHER },
		{ "{\"jsonrpc\":\"2.0\",\"id\":5,\"error\":{},\"result\":{}}", MCP_MALFORMED,
		  RPC_OTHER },
		{ "{\"jsonrpc\":\"2.0\",\"id\":5}", MCP_MALFORMED, RPC_OTHER },
		{ "{\"jsonrpc\":\"2.0\",\"id\":5,\"id\":5,\"result\":{}}", MCP_MALFORMED,
		  RPC_OTHER },
		{ "{\"jsonrpc\":2.0,\"id\":5,\"result\":{}}", MCP_MALFORMED, RPC_OTHER },
		{ "{\"id\":5,\"result\":{}}", MCP_MALFORMED, RPC_OTHER },
		{ "[{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{}}]", MCP_MALFORMED, RPC_OTHER },
		{ "", MCP_MALFORMED, RPC_OTHER },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		auto_json struct json *message = NULL;
		enum rpc_kind kind = RPC_OTHER;
		struct err e = ERR_INIT;
		int rc = rpc_read(cases[i].text, strlen(cases[i].text), 5, &kind, &message, &e);

		if ((rc ? e.code : 0) != cases[i].code || (!rc && kind != cases[i].kind))
			fail_msg("%s: %d %d %s", cases[i].text, rc, (int)kind, e.text);
		assert_int_equal(message == NULL, rc != 0);
	}
}

/* One line, bounded, and nothing that a terminal would obey. */
static void a_servers_own_words(void **state)
{
	auto_buf struct buf text = BUF_INIT(1 << 16);
	struct json *message = NULL;
	enum rpc_kind kind;
	struct err e = ERR_INIT;

	(void)state;
	buf_adds(&text, "{\"jsonrpc\":\"2.0\",\"id\":5,\"error\":{\"code\":7,\"message\":\"a\\nb"
	                "\\u001b[31mx");
	for (int i = 0; i < 1000; i++)
		buf_adds(&text, "\xc3\xa9");
	buf_adds(&text, "\"}}");
	assert_int_equal(rpc_read(text.data, text.len, 5, &kind, &message, &e), -1);
	assert_int_equal(e.code, MCP_ERROR);
	assert_memory_equal(e.text, "a b [31m", 8);
	assert_true(strlen(e.text) < 320);
	assert_non_null(strstr(e.text, "(7)"));
	assert_true(utf8_valid(e.text, strlen(e.text)));
}

/* Each of these takes some hundred bytes when it is parsed. */
static void many_values(void **state)
{
	auto_buf struct buf text = BUF_INIT(1 << 20);
	struct json *message = NULL;
	enum rpc_kind kind;
	struct err e = ERR_INIT;

	(void)state;
	buf_adds(&text, "{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{\"structuredContent\":[{}");
	for (int i = 0; i < 40000; i++)
		buf_adds(&text, ",{}");
	buf_adds(&text, "]}}");
	assert_int_equal(rpc_read(text.data, text.len, 5, &kind, &message, &e), -1);
	assert_int_equal(e.code, MCP_TOO_LARGE);
}

static void answers_to_a_server(void **state)
{
	static const char ping[] = "{\"jsonrpc\":\"2.0\",\"id\":\"a\\\"b\",\"method\":\"ping\"}";
	auto_buf struct buf out = BUF_INIT(4096);
	auto_json struct json *request = NULL;
	enum rpc_kind kind;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(rpc_read(ping, strlen(ping), 5, &kind, &request, &e), 0);
	rpc_answer(&out, request);
	assert_string_equal(out.data, "{\"jsonrpc\":\"2.0\",\"id\":\"a\\\"b\",\"result\":{}}");
}

static void read_result(const char *text, int code, const char *want)
{
	auto_json struct json *result = NULL;
	struct mcp_result got = { NULL, 0, false };
	struct err e = ERR_INIT;
	int rc;

	assert_int_equal(json_parse(text, strlen(text), &result, &e), 0);
	rc = mcp_result_read(result, &got, &e);
	assert_int_equal(rc ? e.code : 0, code);
	if (want)
		assert_string_equal(got.text, want);
	free(got.text);
}

static void results(void **state)
{
	(void)state;
	read_result("{\"content\":[]}", 0, "");
	read_result("{\"content\":[{\"type\":\"text\"},{\"type\":\"text\",\"text\":7},[],null]}", 0,
	            "[content without a type, not shown]\n[content without a type, not shown]");
	read_result("{\"content\":[{\"type\":\"resource\"},{\"type\":\"audio\"}]}", 0,
	            "[resource: , 0 bytes, not shown]\n[audio: , 0 bytes, not shown]");
	read_result("{\"structuredContent\":{\"a\":[1]}}", 0, "{\"a\":[1]}");
	read_result("{\"content\":{}}", MCP_MALFORMED, NULL);
	read_result("{}", MCP_MALFORMED, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_sent),        cmocka_unit_test(arguments_are_an_object),
		cmocka_unit_test(what_comes),          cmocka_unit_test(a_servers_own_words),
		cmocka_unit_test(answers_to_a_server), cmocka_unit_test(results),
		cmocka_unit_test(many_values),
	};

	return RUN_TESTS(tests);
}
