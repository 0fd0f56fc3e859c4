/*
 * What two MCP servers say to a turn that asks for their tools and calls one: the beginning of
 * a session, lists in pages, and a result.  Here the courier is this program: the first byte
 * says whether the servers begin sessions and take notifications well, and behind it are the
 * answers in their order, each up to a 0xff: a byte of what it is (below), one of more, and
 * its body, in which 0x01 stands for the id of the request.
 */
#include "fuzz/fuzz.h"

#include "common/attr.h"
#include "common/utf8.h"
#include "daemon/mcp/tools.h"
#include "daemon/model/fault.h"

#include <inttypes.h>
#include <stdbool.h>

#define OPENED_MAX 1000 /* requests of one input; it has fewer answers than that would need */

/* The first byte of an input. */
enum {
	BEGINS_BADLY = 1,
	NOTIFIED_BADLY = 2,
};

/* The first byte of an answer. */
enum {
	IS_STREAM = 1,
	IS_OTHER_TYPE = 2,
	HAS_STATUS = 4,    /* its second byte, from 200 on */
	NAMES_SESSION = 8, /* of its second byte, that often */
	ENDS_BADLY = 16,
	IS_SILENT = 32,
	IN_BYTES = 64,
};

static struct {
	const uint8_t *at, *end;
	bool begins_badly, notified_badly;
	unsigned int opened;
} script;

static struct {
	uint8_t kind, more;
	struct buf body;
	size_t given;
	bool head_given;
} reply;

/* -- the courier ------------------------------------------------------------------------------ */

static void check_ask(const struct courier_ask *ask, const char *body)
{
	struct err e = ERR_INIT;

	demand(++script.opened < OPENED_MAX);
	demand(ask->place < 2 && json_check(body, ask->len, &e) == 0);
	demand(memchr(ask->session, '\0', sizeof(ask->session)));
	demand(memchr(ask->version, '\0', sizeof(ask->version)));
	demand(!ask->version[0] || strspn(ask->version, "0123456789-") == strlen(ask->version));
	demand(ask->version[0] || !ask->session[0]);
}

static void put_text(const char *text, size_t len, int64_t id)
{
	for (size_t i = 0; i < len; i++) {
		if (text[i] == 1)
			buf_addf(&reply.body, "%" PRId64, id);
		else
			buf_addc(&reply.body, text[i]);
	}
}

static void take_answer(int64_t id)
{
	size_t left = (size_t)(script.end - script.at);
	const uint8_t *stop = left ? memchr(script.at, 0xff, left) : NULL;
	size_t len = stop ? (size_t)(stop - script.at) : left;

	reply.kind = len > 0 ? script.at[0] : ENDS_BADLY;
	reply.more = len > 1 ? script.at[1] : 0;
	if (len > 2)
		put_text((const char *)script.at + 2, len - 2, id);
	script.at += len + (stop != NULL);
}

static void answer_well(int64_t id, const char *method)
{
	static const char words[] = "{\"jsonrpc\":\"2.0\",\"id\":\1,\"result\":"
				    "{\"protocolVersion\":\"2025-06-18\"}}";

	reply.kind = method ? NAMES_SESSION : HAS_STATUS;
	reply.more = 2;
	if (method)
		put_text(words, strlen(words), id);
}

int courier_open(int sock, const struct courier_ask *ask, const char *body,
                 const struct courier_wait *w, int *ret_fd, struct err *e)
{
	auto_json struct json *message = NULL;
	const char *method;
	int64_t id;

	(void)sock;
	(void)w;
	check_ask(ask, body);
	demand(json_parse(body, ask->len, &message, e) == 0);
	id = json_int(json_get(message, "id"));
	method = json_str(json_get(message, "method"));
	reply.given = 0;
	reply.head_given = false;
	buf_reset(&reply.body);
	*ret_fd = -1;
	if (!json_get(message, "id") || !method) {
		if (script.notified_badly)
			take_answer(id);
		else
			answer_well(id, NULL);
	} else if (strcmp(method, "initialize") == 0 && !script.begins_badly) {
		answer_well(id, method);
	} else {
		take_answer(id);
	}
	return 0;
}

static void put_head(struct courier_head *head)
{
	*head = (struct courier_head){ .status = 200, .retry_after = -1 };
	if (reply.kind & HAS_STATUS)
		head->status = 200 + reply.more;
	head->is_stream = (reply.kind & IS_STREAM) != 0;
	head->is_json = !(reply.kind & (IS_STREAM | IS_OTHER_TYPE));
	if (!(reply.kind & NAMES_SESSION))
		return;
	head->session_unfit = reply.more == 0;
	memset(head->session, 's', reply.more < 255 ? reply.more : sizeof(head->session));
}

static void put_end(struct courier_end *end)
{
	*end = (struct courier_end){ .code = 0 };
	if (!(reply.kind & ENDS_BADLY))
		return;
	end->code = reply.more % 2 ? MODEL_UNREACHABLE : MODEL_CUT;
	(void)snprintf(end->text, sizeof(end->text), "no such host");
}

int courier_next(int fd, const struct courier_wait *w, struct courier_reply *ret, struct err *e)
{
	size_t left = reply.body.len - reply.given;
	size_t n = reply.kind & IN_BYTES ? 1 : left < COURIER_PIECE_MAX ? left : COURIER_PIECE_MAX;

	(void)fd;
	(void)w;
	if (!reply.head_given && !(reply.kind & ENDS_BADLY && !reply.body.len)) {
		ret->piece = (struct courier_piece){ COURIER_HEAD, sizeof(ret->head) };
		put_head(&ret->head);
		reply.head_given = true;
	} else if (left) {
		ret->piece = (struct courier_piece){ COURIER_BODY, (uint32_t)n };
		memcpy(ret->body, reply.body.data + reply.given, n);
		reply.given += n;
	} else if (reply.kind & IS_SILENT) {
		return err_set(e, MODEL_STALLED, "nothing came");
	} else {
		ret->piece = (struct courier_piece){ COURIER_END, sizeof(ret->end) };
		put_end(&ret->end);
	}
	return 0;
}

/* -- what is made of it ----------------------------------------------------------------------- */

static bool allow(void *ctx, const char *server)
{
	(void)ctx;
	(void)server;
	return true;
}

/* One line for a person, whatever the server says. */
static void check_missing(void *ctx, const char *text)
{
	(void)ctx;
	demand(*text && utf8_valid(text, strlen(text)) && strlen(text) < 400);
	for (const char *c = text; *c; c++)
		demand((unsigned char)*c >= ' ' && *c != 127);
}

static bool is_name(const char *name, const char *server)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789_-";
	char begin[64];
	size_t len;

	(void)snprintf(begin, sizeof(begin), "mcp__%s__", server);
	len = strlen(begin);
	return strncmp(name, begin, len) == 0 && name[len] && strlen(name) <= MCP_NAME_MAX &&
	       strspn(name, letters) == strlen(name);
}

static void check_schema(const char *text)
{
	auto_json struct json *schema = NULL;
	struct err e = ERR_INIT;

	demand(strlen(text) <= MCP_SCHEMA_MAX);
	demand(json_parse(text, strlen(text), &schema, &e) == 0);
	demand(strcmp(json_str(json_get(schema, "type")), "object") == 0);
}

static size_t check_tool(const struct model_tool *tool)
{
	demand(is_name(tool->name, "one") || is_name(tool->name, "two-2"));
	demand(mcp_is_name(tool->name));
	demand(strlen(tool->description) <= MCP_DESCRIPTION_MAX + 3);
	demand(utf8_valid(tool->description, strlen(tool->description)));
	check_schema(tool->schema);
	return strlen(tool->description) + strlen(tool->schema);
}

static size_t check_tools(const struct mcp_tools *t)
{
	size_t n, bytes = 0;
	const struct model_tool *all = mcp_tools_offered(t, &n);

	demand(n <= MCP_TURN_TOOLS_MAX);
	for (size_t i = 0; i < n; i++) {
		bytes += check_tool(&all[i]);
		demand(mcp_tools_know(t, all[i].name) != MCP_UNKNOWN);
		for (size_t k = 0; k < i; k++)
			demand(strcmp(all[i].name, all[k].name) != 0);
	}
	demand(bytes <= MCP_TURN_BYTES_MAX);
	demand(mcp_tools_know(t, "mcp__one__") == MCP_UNKNOWN);
	return n;
}

static void call(struct mcp_tools *t, size_t i)
{
	size_t n;
	const struct mcp_call c = { mcp_tools_offered(t, &n)[i].name, "{\"a\":1}", 7 };
	struct mcp_result result = { NULL, 0, false };
	struct err e = ERR_INIT;
	bool sent;

	if (mcp_tools_call(t, &c, &result, &sent, &e) == 0)
		demand(sent && utf8_valid(result.text, result.len));
	else
		demand(e.text[0] && utf8_valid(e.text, strlen(e.text)));
	free(result.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct mcp_servers servers = {
		.v = { { "one", 60000 }, { "two-2", 60000 } },
		.n = 2,
	};
	const struct cancel never = { .fd = -1 };
	struct mcp_turn turn = { .tenant = { "0191d2b4-0000-7000-8000-000000000001" },
		                 .cancel = &never,
		                 .allowed = allow,
		                 .missing = check_missing };
	struct err e = ERR_INIT;
	struct mcp_tools *t;
	size_t n;

	if (size < 1)
		return 0;
	script.at = data + 1;
	script.end = data + size;
	script.begins_badly = data[0] & BEGINS_BADLY;
	script.notified_badly = data[0] & NOTIFIED_BADLY;
	script.opened = 0;
	reply.body = (struct buf)BUF_INIT((size_t)8 << 20);
	demand(mcp_new(&servers, -1, &turn.mcp, &e) == 0);
	t = mcp_tools_get(&turn);
	n = check_tools(t);
	for (size_t i = 0; i < n && i < 2; i++)
		call(t, i);
	mcp_tools_free(&t);
	mcp_free(&turn.mcp);
	buf_release(&reply.body);
	return 0;
}
