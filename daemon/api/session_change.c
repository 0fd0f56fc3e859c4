/* What changes a session, makes another of it, or takes it away. */
#include "daemon/api/api.h"
#include "daemon/api/sessions.h"

#include "common/clock.h"

/* The id in the path; false with the answer made when it cannot be one. */
static bool read_id(const struct http_request *req, struct http_response *res, struct uuid *ret)
{
	if (uuid_parse(req->params[0], ret))
		return true;
	api_not_found(req, res, "session");
	return false;
}

static void answer(const struct http_request *req, struct http_response *res, int status,
                   const struct session *s, const struct err *e)
{
	if (e->code)
		api_fail_about(req, res, "session", e);
	else
		api_json(res, status, api_session_json(s));
}

/* -- change ----------------------------------------------------------------------------- */

/* Whether exactly one thing is to be changed; false with the answer made. */
static bool is_one(const struct http_request *req, struct http_response *res,
                   const struct json *const *v, size_t n)
{
	size_t changes = 0;

	for (size_t i = 0; i < n; i++)
		changes += v[i] != NULL;
	if (changes == 0)
		http_error(req, res, 400, "empty_patch",
		           "neither title, archived nor instructions");
	else if (changes > 1)
		http_error(req, res, 422, "non_atomic_patch",
		           "title, archived and instructions: one at a time");
	return changes == 1;
}

/* A session's engine never changes, so it may be asked for before.  False with the answer made. */
static bool takes_instructions(const struct http_request *req, struct http_response *res,
                               const struct api *api, const struct uuid *id)
{
	struct session s = { 0 };
	struct err e = ERR_INIT;

	if (session_get(api->store, api_tenant(req), id, &s, &e))
		api_fail_about(req, res, "session", &e);
	else if (s.harness[0])
		http_error(req, res, 422, "invalid_engine",
		           "instructions: a harness brings its own");
	else
		return true;
	return false;
}

void sessions_change(const struct http_request *req, struct http_response *res, void *ctx)
{
	static const struct json_field fields[] = {
		{ "title", JSON_STRING, false, true },
		{ "archived", JSON_BOOL, false, true },
		{ "instructions", JSON_STRING, false, true },
	};
	const struct json *v[ARRAY_LEN(fields)];
	auto_json struct json *doc = NULL;
	struct session_change change = { .now_ms = clock_wall_ms() };
	struct api *api = ctx;
	struct err e = ERR_INIT;
	struct session s = { 0 };
	struct uuid id;
	bool archived;

	if (!api_body(req, res, fields, ARRAY_LEN(fields), v, &doc) ||
	    !sessions_fits(req, res, "title", v[0], SESSION_TITLE_MAX) ||
	    !sessions_fits(req, res, "instructions", v[2], SESSION_INSTRUCTIONS_MAX) ||
	    !is_one(req, res, v, ARRAY_LEN(fields)))
		return;
	if (!read_id(req, res, &id) || (v[2] && !takes_instructions(req, res, api, &id)))
		return;
	archived = json_bool(v[1]);
	change.title = json_str(v[0]);
	change.archived = v[1] ? &archived : NULL;
	change.instructions = json_str(v[2]);
	if (session_update(api->store, api_tenant(req), &id, &change, &s, &e) == 0)
		e.code = 0;
	answer(req, res, 200, &s, &e);
}

/* -- delete ----------------------------------------------------------------------------- */

void sessions_delete(const struct http_request *req, struct http_response *res, void *ctx)
{
	struct api *api = ctx;
	struct err e = ERR_INIT;
	struct uuid id;

	if (!api_no_body(req, res) || !read_id(req, res, &id))
		return;
	if (session_delete(api->store, api_tenant(req), &id, &e)) {
		api_fail_about(req, res, "session", &e);
	} else {
		turns_forget_session(api->turns, &id);
		setups_forget(api->setups, api_tenant(req), &id);
		res->status = 204;
	}
}

/* -- fork ------------------------------------------------------------------------------- */

/* Where the fork begins; false with the answer made. */
static bool read_through(const struct http_request *req, struct http_response *res,
                         const struct json *const *v, uint32_t *room, struct session_fork *f)
{
	if (!v[0])
		return true;
	if (json_int(v[0]) < 0 || json_int(v[0]) > INT32_MAX) {
		http_error(req, res, 400, "invalid_json", "throughTurn: not from 0 to %d",
		           INT32_MAX);
		return false;
	}
	if (v[1] || v[2]) {
		http_error(req, res, 422, "unsupported_fork_shape",
		           "throughTurn: not together with title or cwd");
		return false;
	}
	*room = (uint32_t)json_int(v[0]);
	f->through = room;
	return true;
}

void sessions_fork(const struct http_request *req, struct http_response *res, void *ctx)
{
	static const struct json_field fields[] = {
		{ "throughTurn", JSON_INT, false, true },
		{ "title", JSON_STRING, false, true },
		{ "cwd", JSON_STRING, false, true },
		{ "clientRequestId", JSON_STRING, false, true },
	};
	const struct json *v[ARRAY_LEN(fields)];
	const struct api_asked asked = { "fork", req->params[0], v, ARRAY_LEN(fields) - 1 };
	char cwd[SESSION_CWD_MAX + 1];
	auto_json struct json *doc = NULL;
	struct session_fork f = { .through = NULL };
	struct client_request room;
	struct session s = { .id = uuid_new() };
	struct api *api = ctx;
	struct err e = ERR_INIT;
	uint32_t through;

	if (!api_body(req, res, fields, ARRAY_LEN(fields), v, &doc) ||
	    !read_through(req, res, v, &through, &f) ||
	    !sessions_fits(req, res, "title", v[1], SESSION_TITLE_MAX) ||
	    (v[2] && !sessions_cwd(req, res, json_str(v[2]), cwd)) ||
	    !api_client_request(req, res, v[3], &asked, &room, &f.key) ||
	    !read_id(req, res, &f.source))
		return;
	f.title = json_str(v[1]);
	f.cwd = v[2] ? cwd : NULL;
	s.created_ms = s.updated_ms = clock_wall_ms();
	if (session_fork(api->store, api_tenant(req), &f, &s, &e) == 0)
		e.code = 0;
	answer(req, res, 201, &s, &e);
}
