#include "daemon/api/turns.h"

#include "daemon/api/api.h"
#include "daemon/api/attachments.h"
#include "daemon/api/public.h"
#include "daemon/tool/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_CHARS 262144 /* characters of assistantText in a result */

static struct json *turn_json(const struct turn *t, size_t input_len)
{
	struct json *o = json_new_object(), *error = NULL;

	json_put_str(o, "id", t->id.text);
	json_put_str(o, "sessionId", t->session.text);
	json_put_str(o, "clientRequestId",
	             t->client_request.text[0] ? t->client_request.text : NULL);
	json_put_str(o, "status", turn_state_name(t->state));
	json_put_strn(o, "input", t->input, input_len);
	json_put_bool(o, "inputTruncated", t->input[input_len] != '\0');
	public_put_attachments(o, t);
	json_put_time(o, "createdAt", t->created_ms);
	json_put_time(o, "startedAt", t->started_ms);
	json_put_time(o, "finishedAt", t->finished_ms);
	public_put_usage(o, t);
	if (t->error_code[0]) {
		error = json_new_object();
		json_put_str(error, "code", t->error_code);
		json_put_str(error, "message", t->error);
		json_put(o, "error", error);
	} else {
		json_put_null(o, "error");
	}
	return o;
}

struct json *api_turn_json(const struct turn *t)
{
	return turn_json(t, strlen(t->input));
}

struct json *api_turn_row_json(const struct turn *t)
{
	_Static_assert(TURN_INPUT_SHOWN > 4 * PUBLIC_CHARS, "a cut input has more characters");
	return turn_json(t, output_prefix(t->input, strlen(t->input), PUBLIC_CHARS));
}

/* The turn that the path names; the answer is made when there is none. */
static bool find_turn(const struct http_request *req, struct http_response *res,
                      const struct api *api, struct turn *ret)
{
	struct err e = ERR_INIT;
	struct uuid id;

	if (!api_no_query(req, res))
		return false;
	if (!uuid_parse(req->params[0], &id)) {
		api_not_found(req, res, "turn");
		return false;
	}
	if (turn_get(api->store, api_tenant(req), &id, ret, &e)) {
		api_fail_about(req, res, "turn", &e);
		return false;
	}
	return true;
}

/* -- create ---------------------------------------------------------------------- */

static bool blank(const char *text)
{
	return text[strspn(text, " \t\r\n\v\f")] == '\0';
}

static bool read_turn(const struct http_request *req, struct http_response *res, struct turn *t,
                      struct attachments *attached)
{
	static const struct json_field fields[] = {
		{ "clientRequestId", JSON_STRING, false, true },
		{ "input", JSON_STRING, true, false },
		{ "images", JSON_ARRAY, false, true },
		{ "files", JSON_ARRAY, false, true },
	};
	const struct json *v[ARRAY_LEN(fields)];
	auto_json struct json *doc = NULL;

	if (!api_body(req, res, fields, ARRAY_LEN(fields), v, &doc))
		return false;
	if (v[0] && !api_client_id(req, res, v[0], &t->client_request))
		return false;
	if (blank(json_str(v[1]))) {
		http_error(req, res, 422, "empty_input", "input: nothing but white space");
		return false;
	}
	if (!attachments_read(req, res, v[2], v[3], attached))
		return false;
	t->input = strdup(json_str(v[1]));
	if (t->input && attachments_put(attached, t))
		return true;
	http_error(req, res, 500, "internal_error", "no memory for the input");
	return false;
}

/* The registry may have changed since the session was made. */
static bool model_is_allowed(const struct http_request *req, struct http_response *res,
                             const struct api *api, const struct uuid *session)
{
	const struct tenant *caller = api_caller(req);
	struct err e = ERR_INIT;
	struct session s;

	if (!caller->models.given)
		return true;
	if (session_get(api->store, &caller->id, session, &s, &e)) {
		api_fail_about(req, res, "session", &e);
		return false;
	}
	if (registry_model_allowed(caller, s.model))
		return true;
	http_error(req, res, 422, "model_not_available",
	           "the session's model is not in your catalogue any more");
	return false;
}

/* What was accepted before is no new work, whatever the registry says by now. */
static bool is_known(const struct http_request *req, const struct api *api, struct turn *t)
{
	struct err e = ERR_INIT;

	return api_caller(req)->models.given && t->client_request.text[0] &&
	       turn_find(api->store, api_tenant(req), t, &e) == 0;
}

void turns_create(const struct http_request *req, struct http_response *res, void *ctx)
{
	auto_attachments struct attachments attached = { .count = 0 };
	struct turn t = { 0 };
	struct api *api = ctx;
	struct err e = ERR_INIT;

	if (!uuid_parse(req->params[0], &t.session)) {
		api_not_found(req, res, "session");
		return;
	}
	if (!read_turn(req, res, &t, &attached)) {
		turn_release(&t);
		return;
	}
	if (is_known(req, api, &t)) {
		api_json(res, 202, api_turn_json(&t));
		turn_release(&t);
		return;
	}
	if (!model_is_allowed(req, res, api, &t.session)) {
		turn_release(&t);
		return;
	}
	if (turns_submit(api->turns, api_tenant(req), &t, &e))
		api_fail_about(req, res, "session", &e);
	else
		api_json(res, 202, api_turn_json(&t));
	turn_release(&t);
}

/* -- list ---------------------------------------------------------------------- */

struct rows {
	struct json *data;
	struct turn_key last;
};

static void add_row(void *ctx, const struct turn *t)
{
	struct rows *rows = ctx;

	json_push(rows->data, api_turn_row_json(t));
	rows->last = (struct turn_key){ t->created_ms, t->id };
}

static void answer_page(const struct http_request *req, struct http_response *res,
                        const struct api *api, struct turn_page *page)
{
	struct rows rows = { .data = json_new_array() };
	struct json *o = json_new_object();
	struct err e = ERR_INIT;
	int rc = turn_list(api->store, api_tenant(req), page, add_row, &rows, &e);

	json_put(o, "data", rows.data);
	api_put_keyset(o, page->more, rows.last.created_ms, &rows.last.id);
	if (rc == 0) {
		api_json(res, 200, o);
		return;
	}
	json_free(&o);
	api_fail(req, res, &e);
}

void turns_list(const struct http_request *req, struct http_response *res, void *ctx)
{
	static const char *const known[] = { "sessionId", "cursor", "limit", NULL };
	const char *text = http_query(req, "sessionId");
	struct turn_page page = { 0 };
	struct turn_key after;
	struct uuid session;

	if (!api_query_known(req, res, known) || !api_limit(req, res, &page.limit) ||
	    !api_keyset(req, res, &after.created_ms, &after.id))
		return;
	if (text && !uuid_parse(text, &session)) {
		http_error(req, res, 400, "invalid_query", "sessionId: not a lower-case UUID");
		return;
	}
	page.session = text ? &session : NULL;
	page.after = after.created_ms ? &after : NULL;
	answer_page(req, res, ctx, &page);
}

/* -- show, result, cancel ------------------------------------------------------------ */

void turns_show(const struct http_request *req, struct http_response *res, void *ctx)
{
	struct turn t = { 0 };

	if (!find_turn(req, res, ctx, &t))
		return;
	api_json(res, 200, api_turn_json(&t));
	turn_release(&t);
}

static struct json *tool_json(const struct item *result)
{
	struct json *o = json_new_object();

	json_put_str(o, "callId", result->call_id);
	json_put_str(o, "name", result->tool);
	json_put_bool(o, "truncated", result->truncated);
	json_put_bool(o, "lossy", result->lossy);
	json_put_int(o, "totalBytes", (int64_t)result->total_bytes);
	public_put_details(o, "details", result);
	return o;
}

static struct json *completion_json(const struct turn *t)
{
	struct json *o = json_new_object();

	json_put_str(o, "status", "completed");
	json_put_null(o, "reason");
	json_put_int(o, "reasoningTokens", (int64_t)t->reasoning_tokens);
	return o;
}

static struct json *output_json(const struct turn *t, const struct item_list *list)
{
	struct json *o = json_new_object(), *tools = json_new_array();
	const struct item *answer = NULL;
	char id[80] = "";
	size_t fits = 0;

	for (size_t i = 0; i < list->count; i++) {
		if (list->items[i].kind == ITEM_ASSISTANT)
			answer = &list->items[i];
		else if (list->items[i].kind == ITEM_TOOL_RESULT)
			json_push(tools, tool_json(&list->items[i]));
	}
	if (answer) {
		fits = output_prefix(answer->body, answer->body_len, ANSWER_CHARS);
		(void)snprintf(id, sizeof(id), "%s-%u", t->id.text, answer->seq);
	}
	json_put_str(o, "responseId", id);
	json_put_strn(o, "assistantText", answer ? answer->body : "", fits);
	json_put_bool(o, "assistantTextTruncated", answer && fits < answer->body_len);
	json_put(o, "completion", completion_json(t));
	json_put(o, "tools", tools);
	return o;
}

static void answer_result(const struct http_request *req, struct http_response *res,
                          const struct api *api, const struct turn *t)
{
	struct item_list list = { 0 };
	struct err e = ERR_INIT;
	struct json *o;

	if (t->state == TURN_COMPLETED &&
	    turn_items(api->store, api_tenant(req), &t->id, &list, &e)) {
		api_fail(req, res, &e);
		return;
	}
	o = json_new_object();
	json_put(o, "turn", api_turn_json(t));
	if (t->state == TURN_COMPLETED)
		json_put(o, "output", output_json(t, &list));
	else
		json_put_null(o, "output");
	api_json(res, 200, o);
	item_list_release(&list);
}

void turns_result(const struct http_request *req, struct http_response *res, void *ctx)
{
	struct turn t = { 0 };

	if (!find_turn(req, res, ctx, &t))
		return;
	if (turn_state_terminal(t.state))
		answer_result(req, res, ctx, &t);
	else
		http_error(req, res, 409, "turn_not_terminal", "the turn is %s",
		           turn_state_name(t.state));
	turn_release(&t);
}

void turns_end(const struct http_request *req, struct http_response *res, void *ctx)
{
	struct turn t = { 0 };
	struct api *api = ctx;
	struct err e = ERR_INIT;
	struct uuid id;

	if (!api_no_body(req, res))
		return;
	if (!uuid_parse(req->params[0], &id)) {
		api_not_found(req, res, "turn");
		return;
	}
	if (turns_cancel(api->turns, api_tenant(req), &id, &t, &e)) {
		api_fail_about(req, res, "turn", &e);
		return;
	}
	api_json(res, 200, api_turn_json(&t));
	turn_release(&t);
}
