/*
 * A session is driven by the agent of the server, or by the tenant's own program, which is
 * run in the sandbox and nowhere else.
 */
#include "daemon/api/engine.h"

#include "common/utf8.h"
#include "daemon/store/harness_line.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ARGS_MAX  64
#define PAGE_SIZE ((size_t)1 << 20)  /* bytes of lines in a page, or one line */
#define TEXT_MAX  ((size_t)16 << 20) /* bytes of one that had to be repaired */

/* -- sessions ----------------------------------------------------------------------------- */

static bool refuse(const struct http_request *req, struct http_response *res, const char *why)
{
	http_error(req, res, 422, "invalid_engine", "engine: %s", why);
	return false;
}

static bool command_fits(const struct json *command)
{
	size_t n = json_len(command);

	for (size_t i = 0; i < n; i++)
		if (json_type(json_at(command, i)) != JSON_STRING)
			return false;
	return n >= 1 && n <= ARGS_MAX && json_str_len(json_at(command, 0)) > 0;
}

static bool read_harness(const struct http_request *req, struct http_response *res,
                         const struct json *command, struct session *s)
{
	auto_buf struct buf text = BUF_INIT(SESSION_HARNESS_MAX);

	if (!command_fits(command))
		return refuse(req, res,
		              "command: 1 to 64 strings, of which the first is not empty");
	json_write(command, &text);
	if (buf_failed(&text))
		return refuse(req, res, "command: more than 4096 bytes as JSON");
	memcpy(s->harness, text.data, text.len + 1);
	return true;
}

bool engine_read(const struct http_request *req, struct http_response *res,
                 const struct json *engine, struct session *s)
{
	static const struct json_field fields[] = { { "kind", JSON_STRING, true, false },
		                                    { "command", JSON_ARRAY, false, false } };
	const struct json *v[ARRAY_LEN(fields)];
	struct json_faults faults = { .count = 0 };

	if (!engine)
		return true;
	if (!json_fields(engine, "engine", fields, ARRAY_LEN(fields), v, &faults)) {
		http_error(req, res, 400, "invalid_json", "%s", faults.first.text);
		return false;
	}
	if (strcmp(json_str(v[0]), "harness") == 0)
		return read_harness(req, res, v[1], s);
	if (strcmp(json_str(v[0]), "agent") != 0)
		return refuse(req, res, "kind: one of agent, harness");
	return v[1] ? refuse(req, res, "command: only a harness has one") : true;
}

struct json *engine_json(const struct session *s)
{
	struct json *o = json_new_object(), *command = NULL;
	struct err e = ERR_INIT;

	json_put_str(o, "kind", s->harness[0] ? "harness" : "agent");
	if (s->harness[0] && json_parse(s->harness, strlen(s->harness), &command, &e) == 0)
		json_put(o, "command", command);
	return o;
}

/* -- lines -------------------------------------------------------------------------------- */

static void add_line(void *ctx, const struct harness_line *line)
{
	auto_buf struct buf text = BUF_INIT(TEXT_MAX);
	struct json *o = json_new_object();

	json_put_int(o, "number", line->number);
	json_put_bool(o, "lossy", utf8_repair(line->text, line->len, &text));
	json_put_strn(o, "line", text.data ? text.data : "", text.len);
	json_push(ctx, o);
}

/* "after": the number of a line. */
static bool read_after(const struct http_request *req, struct http_response *res, uint32_t *ret)
{
	const char *text = http_query(req, "after");
	unsigned long long n = 0;

	if (text && *text && !text[strspn(text, "0123456789")] && strlen(text) <= 10)
		n = strtoull(text, NULL, 10);
	else if (text)
		n = UINT64_MAX;
	*ret = n <= INT32_MAX ? (uint32_t)n : 0;
	if (n <= INT32_MAX)
		return true;
	http_error(req, res, 400, "invalid_cursor", "after: not the number of a line");
	return false;
}

void lines_list(const struct http_request *req, struct http_response *res, void *ctx)
{
	static const char *const known[] = { "after", "limit", NULL };
	struct harness_page page = { .bytes = PAGE_SIZE };
	struct api *api = ctx;
	struct json *o, *data;
	struct err e = ERR_INIT;
	struct uuid id;

	if (!api_query_known(req, res, known) || !api_limit(req, res, &page.limit) ||
	    !read_after(req, res, &page.after))
		return;
	if (!uuid_parse(req->params[0], &id)) {
		api_not_found(req, res, "turn");
		return;
	}
	page.turn = &id;
	data = json_new_array();
	if (harness_lines_list(api->store, api_tenant(req), &page, add_line, data, &e)) {
		json_free(&data);
		api_fail_about(req, res, "turn", &e);
		return;
	}
	o = json_new_object();
	if (page.more && json_len(data))
		json_put_int(o, "nextAfter",
		             json_int(json_get(json_at(data, json_len(data) - 1), "number")));
	else
		json_put_null(o, "nextAfter");
	json_put(o, "data", data);
	api_json(res, 200, o);
}
