#include "daemon/mcp/tools.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/log.h"
#include "common/utf8.h"
#include "daemon/mcp/result.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_MS    8000U  /* for the list of one server, unless its calls have less */
#define TURN_MS    20000U /* for those of all */
#define SLOW_MS    2000U  /* who says nothing for longer is left alone for a while */
#define CURSOR_MAX 1024   /* bytes */
#define TOLD_MAX   350    /* bytes of what is told of a server */
#define NAMED_MAX  120    /* bytes of names in one message */

struct tool {
	char name[MCP_NAME_MAX + 1];
	size_t server;
	size_t own; /* where the server's own name begins in name */
	bool read_only;
};

struct mcp_tools {
	struct mcp_turn turn;
	struct tool v[MCP_TURN_TOOLS_MAX];
	struct model_tool offered[MCP_TURN_TOOLS_MAX]; /* as v; description and schema are owned */
	size_t n;
	size_t bytes;
	atomic_bool changed; /* calls may run at once */
};

/* One server's list while it is read. */
struct listing {
	struct mcp_tools *tools;
	size_t server;
	size_t first;                /* of its tools */
	size_t left_out;             /* tools */
	char why[160];               /* of the first that was */
	char cursor[CURSOR_MAX + 1]; /* "" = the first page */
};

/* -- one tool -----------------------------------------------------------------------------------
 */

static void printf_like(2, 3) leave_out(struct listing *l, const char *fmt, ...)
{
	va_list ap;

	if (l->left_out++)
		return;
	va_start(ap, fmt);
	(void)vsnprintf(l->why, sizeof(l->why), fmt, ap);
	va_end(ap);
}

static bool is_plain(const char *name)
{
	return *name &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") ==
	               strlen(name);
}

/* What providers take, as far as it can be told here; they refuse a whole turn for one. */
static bool is_schema(const struct json *schema)
{
	const char *type = json_str(json_get(schema, "type"));
	const struct json *properties = json_get(schema, "properties");
	const struct json *required = json_get(schema, "required");

	if (!type || strcmp(type, "object") != 0 ||
	    (properties && json_type(properties) != JSON_OBJECT) ||
	    (required && json_type(required) != JSON_ARRAY))
		return false;
	for (size_t i = 0; required && i < json_len(required); i++)
		if (json_type(json_at(required, i)) != JSON_STRING)
			return false;
	return true;
}

static char *describe(const struct json *v)
{
	const char *text = json_str(v) ? json_str(v) : "";
	size_t len = strlen(text);
	auto_buf struct buf out = BUF_INIT(MCP_DESCRIPTION_MAX + 8);

	buf_add(&out, text,
	        len > MCP_DESCRIPTION_MAX ? utf8_whole(text, MCP_DESCRIPTION_MAX) : len);
	if (len > MCP_DESCRIPTION_MAX)
		buf_adds(&out, "\xe2\x80\xa6");
	return buf_take(&out);
}

static void add(struct listing *l, const struct tool *tool, const struct json *v)
{
	auto_buf struct buf schema = BUF_INIT(MCP_SCHEMA_MAX);
	auto_free char *description = describe(json_get(v, "description"));
	struct mcp_tools *t = l->tools;
	size_t bytes;

	json_write(json_get(v, "inputSchema"), &schema);
	if (buf_failed(&schema)) {
		leave_out(l, "%s: its schema has more than %zu bytes", tool->name, MCP_SCHEMA_MAX);
		return;
	}
	if (!description)
		abort();
	bytes = schema.len + strlen(description);
	if (t->n == MCP_TURN_TOOLS_MAX || t->n - l->first == MCP_SERVER_TOOLS_MAX ||
	    t->bytes + bytes > MCP_TURN_BYTES_MAX) {
		leave_out(l, "%s: there are more than fit", tool->name);
		return;
	}
	t->bytes += bytes;
	t->v[t->n] = *tool;
	t->offered[t->n] = (struct model_tool){ .name = t->v[t->n].name,
		                                .description = mem_take(&description),
		                                .schema = buf_take(&schema) };
	if (!t->offered[t->n++].schema)
		abort();
}

static size_t index_of(const struct mcp_tools *t, const char *name)
{
	size_t i = 0;

	while (i < t->n && strcmp(t->v[i].name, name) != 0)
		i++;
	return i;
}

/* Of two with one name nobody knows which is called, so neither passes for one that reads. */
static bool is_twice(struct listing *l, const struct tool *tool)
{
	size_t before = index_of(l->tools, tool->name);

	if (before == l->tools->n)
		return false;
	l->tools->v[before].read_only = false;
	leave_out(l, "%s: stands there twice", tool->name);
	return true;
}

static void read_tool(struct listing *l, const struct json *v)
{
	const char *id = mcp_servers_of(l->tools->turn.mcp)->v[l->server].id;
	const char *name = json_str(json_get(v, "name"));
	const struct json *hint = json_get(json_get(v, "annotations"), "readOnlyHint");
	struct tool tool = { .server = l->server, .own = strlen(MCP_PREFIX) + strlen(id) + 2 };

	if (!name || !is_plain(name) || tool.own + strlen(name) > MCP_NAME_MAX) {
		leave_out(l, "a tool whose name is not 1 to %zu of letters, digits, _ and -",
		          MCP_NAME_MAX - tool.own);
		return;
	}
	(void)snprintf(tool.name, sizeof(tool.name), MCP_PREFIX "%s__%s", id, name);
	tool.read_only = json_type(hint) == JSON_BOOL && json_bool(hint);
	if (is_twice(l, &tool))
		return;
	if (is_schema(json_get(v, "inputSchema")))
		add(l, &tool, v);
	else
		leave_out(l, "%s: its schema is not that of an object", tool.name);
}

/* -- one server ---------------------------------------------------------------------------------
 */

static void write_list(void *ctx, int64_t id, struct buf *out)
{
	const struct listing *l = ctx;
	auto_buf struct buf params = BUF_INIT((size_t)8 * CURSOR_MAX);

	if (!l->cursor[0]) {
		rpc_request(out, id, "tools/list", "{}");
		return;
	}
	buf_adds(&params, "{\"cursor\":");
	json_write_string(l->cursor, strlen(l->cursor), &params);
	buf_addc(&params, '}');
	rpc_request(out, id, "tools/list", params.data);
}

static int read_page(struct listing *l, const struct json *result, struct err *e)
{
	const struct json *list = json_get(result, "tools");
	const struct json *next = json_get(result, "nextCursor");

	if (!list || json_type(list) != JSON_ARRAY)
		return err_set(e, MCP_MALFORMED, "the server's list of tools is none");
	for (size_t i = 0; i < json_len(list); i++)
		read_tool(l, json_at(list, i));
	l->cursor[0] = '\0';
	if (!next || json_type(next) == JSON_NULL)
		return 0;
	if (!json_str(next) || json_str_len(next) > CURSOR_MAX)
		return err_set(e, MCP_MALFORMED,
		               "the server's list goes on where nobody can follow");
	(void)snprintf(l->cursor, sizeof(l->cursor), "%s", json_str(next));
	return 0;
}

static int list_server(struct listing *l, uint64_t deadline_ms, struct err *e)
{
	struct mcp_use u = { .mcp = l->tools->turn.mcp,
		             .tenant = l->tools->turn.tenant,
		             .server = l->server,
		             .cancel = l->tools->turn.cancel,
		             .deadline_ms = deadline_ms };
	const struct mcp_question q = { write_list, l, true };

	for (int page = 0; page < MCP_PAGES_MAX; page++) {
		auto_json struct json *message = NULL;

		if (mcp_ask(&u, &q, &message, e) < 0 ||
		    read_page(l, json_get(message, "result"), e) < 0)
			return -1;
		if (!l->cursor[0])
			return 0;
	}
	leave_out(l, "there are more than %d pages of them", MCP_PAGES_MAX);
	return 0;
}

/* What was read of a list that was not whole. */
static void drop_from(struct mcp_tools *t, size_t first)
{
	while (t->n > first) {
		struct model_tool *o = &t->offered[--t->n];
		union {
			const char *in;
			char *out;
		} own[] = { { o->description }, { o->schema } };

		t->bytes -= strlen(o->description) + strlen(o->schema);
		free(own[0].out);
		free(own[1].out);
	}
}

static void tell(const struct mcp_turn *turn, const char *id, const char *what)
{
	char text[400];

	(void)snprintf(text, sizeof(text), "MCP server %s: %.*s", id,
	               (int)utf8_whole(what, strnlen(what, TOLD_MAX)), what);
	log_warn("tenant %s: %s", turn->tenant.text, text);
	turn->missing(turn->ctx, text);
}

static void tell_left_out(const struct mcp_turn *turn, const char *id, const struct listing *l)
{
	char text[300];

	(void)snprintf(text, sizeof(text), "%zu of its tools %s left out; the first: %s",
	               l->left_out, l->left_out == 1 ? "is" : "are", l->why);
	tell(turn, id, text);
}

static void get_server(struct mcp_tools *t, const struct mcp_turn *turn, size_t i, uint64_t end_ms)
{
	const char *id = mcp_servers_of(turn->mcp)->v[i].id;
	struct listing l = { .tools = t, .server = i, .first = t->n };
	unsigned int call_ms = mcp_servers_of(turn->mcp)->v[i].call_ms;
	uint64_t began = clock_mono_ms(),
		 own_end_ms = began + (call_ms < LIST_MS ? call_ms : LIST_MS);
	struct err e = ERR_INIT;

	if (mcp_is_resting(turn->mcp, &turn->tenant, i)) {
		tell(turn, id, "did not answer a moment ago; its tools are not there");
		return;
	}
	if (list_server(&l, own_end_ms < end_ms ? own_end_ms : end_ms, &e) < 0) {
		drop_from(t, l.first);
		if (e.code == MCP_CANCELLED)
			return;
		if (clock_mono_ms() - began > SLOW_MS)
			mcp_rest(turn->mcp, &turn->tenant, i);
		(void)err_wrap(&e, "its tools are not there");
		tell(turn, id, e.text);
	} else if (l.left_out) {
		tell_left_out(turn, id, &l);
	}
}

/* -- a turn's ------------------------------------------------------------------------------------
 */

struct mcp_tools *mcp_tools_get(const struct mcp_turn *turn)
{
	struct mcp_tools *t = calloc(1, sizeof(*t));
	uint64_t end_ms = clock_mono_ms() + TURN_MS;

	if (!t)
		abort();
	t->turn = *turn;
	for (size_t i = 0; turn->mcp && i < mcp_servers_of(turn->mcp)->n; i++)
		if (turn->allowed(turn->ctx, mcp_servers_of(turn->mcp)->v[i].id) &&
		    !cancel_fired(turn->cancel))
			get_server(t, turn, i, end_ms);
	return t;
}

void mcp_tools_free(struct mcp_tools **at)
{
	if (!*at)
		return;
	drop_from(*at, 0);
	free(*at);
	*at = NULL;
}

const struct model_tool *mcp_tools_offered(const struct mcp_tools *t, size_t *ret_count)
{
	*ret_count = t->n;
	return t->offered;
}

bool mcp_tools_changed(const struct mcp_tools *t)
{
	return atomic_load(&t->changed);
}

bool mcp_is_name(const char *name)
{
	return strncmp(name, MCP_PREFIX, strlen(MCP_PREFIX)) == 0;
}

/* What the tenant may use can have changed since. */
static bool is_allowed(const struct mcp_tools *t, size_t i)
{
	const struct mcp_servers *servers = mcp_servers_of(t->turn.mcp);

	return t->turn.allowed(t->turn.ctx, servers->v[t->v[i].server].id);
}

enum mcp_known mcp_tools_know(const struct mcp_tools *t, const char *name)
{
	size_t i = index_of(t, name);

	if (i == t->n || !is_allowed(t, i))
		return MCP_UNKNOWN;
	return t->v[i].read_only ? MCP_READ_ONLY : MCP_WRITES;
}

struct calling {
	const char *own;
	const struct mcp_call *call;
};

static void write_call(void *ctx, int64_t id, struct buf *out)
{
	const struct calling *c = ctx;

	rpc_call(out, id, c->own, c->call->arguments, c->call->len);
}

int mcp_tools_call(struct mcp_tools *t, const struct mcp_call *call, struct mcp_result *ret,
                   bool *ret_sent, struct err *e)
{
	size_t i = index_of(t, call->tool);
	const struct tool *tool = &t->v[i];
	auto_json struct json *message = NULL;
	struct calling calling = { .call = call };
	const struct mcp_question q = { write_call, &calling };
	struct mcp_use u = { .mcp = t->turn.mcp,
		             .tenant = t->turn.tenant,
		             .cancel = t->turn.cancel };
	int rc;

	*ret_sent = false;
	if (i == t->n || !is_allowed(t, i))
		return err_set(e, MCP_UNREACHABLE, "there is no such tool");
	calling.own = tool->name + tool->own;
	u.server = tool->server;
	u.deadline_ms = clock_mono_ms() + mcp_servers_of(t->turn.mcp)->v[tool->server].call_ms;
	rc = mcp_ask(&u, &q, &message, e);
	if (u.list_changed)
		atomic_store(&t->changed, true);
	*ret_sent = u.sent;
	return rc < 0 ? -1 : mcp_result_read(json_get(message, "result"), ret, e);
}
