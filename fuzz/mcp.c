/*
 * Messages of MCP servers, and arguments that are sent to them: what is read is text, what is
 * written is one message of JSON with the very bytes of the arguments in it.
 */
#include "fuzz/fuzz.h"

#include "common/utf8.h"
#include "daemon/mcp/result.h"
#include "daemon/mcp/rpc.h"

#include <stdlib.h>
#include <string.h>

static void expect_json(const struct buf *text)
{
	struct err e = ERR_INIT;

	demand(!buf_failed(text) && json_check(text->data, text->len, &e) == 0);
}

static void read_result(const struct json *message)
{
	struct mcp_result result = { NULL, 0, false };
	struct err e = ERR_INIT;

	if (mcp_result_read(json_get(message, "result"), &result, &e) == 0)
		demand(utf8_valid(result.text, result.len) && strlen(result.text) == result.len);
	free(result.text);
}

static void read_message(const char *text, size_t len)
{
	auto_buf struct buf answer = BUF_INIT(1 << 20);
	auto_json struct json *message = NULL;
	enum rpc_kind kind = RPC_OTHER;
	struct err e = ERR_INIT;

	if (rpc_read(text, len, 1, &kind, &message, &e) < 0) {
		demand(!message && (e.code == MCP_MALFORMED || e.code == MCP_ERROR));
		return;
	}
	if (kind == RPC_RESULT)
		read_result(message);
	if (kind == RPC_REQUEST) {
		rpc_answer(&answer, message);
		expect_json(&answer);
	}
}

static void send_arguments(const char *text, size_t len)
{
	auto_buf struct buf call = BUF_INIT(1 << 20);
	struct err e = ERR_INIT;

	if (rpc_arguments_check(text, len, &e) < 0)
		return;
	rpc_call(&call, 1, "tool", text, len);
	expect_json(&call);
	demand(memmem(call.data, call.len, text, len) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	read_message((const char *)data, size);
	send_arguments((const char *)data, size);
	return 0;
}
