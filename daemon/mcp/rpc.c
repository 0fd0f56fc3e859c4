#include "daemon/mcp/rpc.h"

#include "common/fd.h"
#include "common/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define WORDS_MAX ((size_t)300) /* bytes of a server's own words */

void rpc_request(struct buf *out, int64_t id, const char *method, const char *params)
{
	buf_addf(out, "{\"jsonrpc\":\"2.0\",\"id\":%" PRId64 ",\"method\":\"%s\",\"params\":", id,
	         method);
	buf_adds(out, params);
	buf_addc(out, '}');
}

void rpc_notification(struct buf *out, const char *method, const char *params)
{
	buf_addf(out, "{\"jsonrpc\":\"2.0\",\"method\":\"%s\",\"params\":", method);
	buf_adds(out, params);
	buf_addc(out, '}');
}

void rpc_call(struct buf *out, int64_t id, const char *tool, const char *arguments, size_t len)
{
	buf_addf(out,
	         "{\"jsonrpc\":\"2.0\",\"id\":%" PRId64
	         ",\"method\":\"tools/call\",\"params\":{\"name\":",
	         id);
	json_write_string(tool, strlen(tool), out);
	buf_adds(out, ",\"arguments\":");
	buf_add(out, arguments, len);
	buf_adds(out, "}}");
}

int rpc_arguments_check(const char *arguments, size_t len, struct err *e)
{
	auto_json struct json *doc = NULL;

	if (json_parse(arguments, len, &doc, e))
		return -1;
	return json_type(doc) == JSON_OBJECT ? 0 : err_set(e, EINVAL, "must be an object");
}

void rpc_answer(struct buf *out, const struct json *request)
{
	const struct json *method = json_get(request, "method");
	bool ping = json_str(method) && strcmp(json_str(method), "ping") == 0;

	buf_adds(out, "{\"jsonrpc\":\"2.0\",\"id\":");
	json_write(json_get(request, "id"), out);
	buf_adds(out, ping ? ",\"result\":{}}"
	                   : ",\"error\":{\"code\":-32601,\"message\":\"Method not found\"}}");
}

/* -- what came ------------------------------------------------------------------------------ */

static int malformed(struct err *e, const char *what)
{
	return err_set(e, MCP_MALFORMED, "the server's message is no JSON-RPC: %s", what);
}

/* A server may say anything: one line of it, without what a terminal would obey. */
static int refused(const struct json *error, struct err *e)
{
	const char *text = json_str(json_get(error, "message"));
	auto_buf struct buf line = BUF_INIT(WORDS_MAX);

	for (size_t i = 0; text && text[i] && line.len < WORDS_MAX; i++)
		buf_addc(&line, (unsigned char)text[i] < ' ' || text[i] == 0x7f ? ' ' : text[i]);
	if (line.len)
		buf_truncate(&line, utf8_whole(line.data, line.len));
	return err_set(e, MCP_ERROR, "%s (%" PRId64 ")", line.len ? line.data : "no reason given",
	               json_int(json_get(error, "code")));
}

static int read_call(const struct json *message, enum rpc_kind *ret_kind, struct err *e)
{
	const char *method = json_str(json_get(message, "method"));
	const struct json *id = json_get(message, "id");

	if (!method)
		return malformed(e, "its method is no string");
	if (id && json_type(id) != JSON_INT && json_type(id) != JSON_STRING)
		return malformed(e, "its id is neither a string nor an integer");
	*ret_kind = id                                                        ? RPC_REQUEST
	            : strcmp(method, "notifications/tools/list_changed") == 0 ? RPC_LIST_CHANGED
	                                                                      : RPC_OTHER;
	return 0;
}

static int read_answer(const struct json *message, int64_t id, enum rpc_kind *ret_kind,
                       struct err *e)
{
	const struct json *of = json_get(message, "id"), *error = json_get(message, "error");
	const struct json *result = json_get(message, "result");

	if (!result == !error)
		return malformed(e, "it has not exactly one of method, result and error");
	if (!of || json_type(of) != JSON_INT || json_int(of) != id) {
		*ret_kind = RPC_OTHER;
		return 0;
	}
	if (error)
		return refused(error, e);
	*ret_kind = RPC_RESULT;
	return json_type(result) == JSON_OBJECT ? 0 : malformed(e, "its result is no object");
}

int rpc_read(const char *text, size_t len, int64_t id, enum rpc_kind *ret_kind, struct json **ret,
             struct err *e)
{
	auto_json struct json *message = NULL;
	struct err cause = ERR_INIT;
	const char *version;
	int rc;

	if (json_too_many(text, len, JSON_VALUES_MAX))
		return err_set(e, MCP_TOO_LARGE, "the server's answer has more than %d values",
		               JSON_VALUES_MAX);
	if (json_parse(text, len, &message, &cause))
		return malformed(e, cause.text);
	version = json_str(json_get(message, "jsonrpc"));
	if (json_type(message) != JSON_OBJECT || !version || strcmp(version, "2.0") != 0)
		return malformed(e, "it is no object with \"jsonrpc\": \"2.0\"");
	rc = json_get(message, "method") ? read_call(message, ret_kind, e)
	                                 : read_answer(message, id, ret_kind, e);
	if (rc == 0)
		*ret = mem_take(&message);
	return rc;
}
