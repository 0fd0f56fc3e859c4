#include "daemon/api/sessions.h"

#include "common/buf.h"
#include "common/clock.h"
#include "common/log.h"
#include "daemon/api/api.h"
#include "daemon/api/engine.h"
#include "daemon/api/setup.h"
#include "daemon/model/model.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORKSPACE     "/workspace"
#define HOST_PATH_MAX 4096

struct json *api_session_json(const struct session *s)
{
	const struct model *m = s->harness[0] ? NULL : model_find(s->model);
	struct json *o = json_new_object();

	json_put_str(o, "id", s->id.text);
	json_put_time(o, "createdAt", s->created_ms);
	json_put_time(o, "updatedAt", s->updated_ms);
	json_put_str(o, "provider", m ? m->provider : NULL);
	json_put_str(o, "connection", m ? m->connection : NULL);
	json_put_str(o, "model", s->harness[0] ? NULL : s->model);
	json_put_str(o, "transportModel", m ? m->transport_model : NULL);
	json_put_str(o, "dialect", m ? m->dialect : NULL);
	json_put(o, "engine", engine_json(s));
	json_put_str(o, "cwd", s->cwd);
	json_put_str(o, "effort", s->effort);
	json_put_str(o, "approvals", s->planning ? "plan" : s->approvals);
	json_put_str(o, "instructions", s->instructions[0] ? s->instructions : NULL);
	json_put_str(o, "title", s->title[0] ? s->title : NULL);
	json_put_bool(o, "titleIsManual", s->title_is_manual);
	json_put_bool(o, "archived", s->archived);
	json_put(o, "usage",
	         usage_json(s->input_tokens, s->output_tokens, s->cached_tokens,
	                    s->reasoning_tokens, s->cost_nano));
	if (s->setup.state != SETUP_NONE)
		json_put(o, "repository", setup_json(&s->setup));
	else
		json_put_null(o, "repository");
	return o;
}

/* -- create ---------------------------------------------------------------------- */

/* Append one path segment; "." and "" do nothing, ".." takes one away. */
static bool walk(struct buf *out, const char *segment, size_t len)
{
	if (len == 0 || (len == 1 && segment[0] == '.'))
		return true;
	if (len == 2 && memcmp(segment, "..", 2) == 0) {
		if (out->len == 0)
			return false;
		buf_truncate(out, (size_t)(strrchr(out->data, '/') - out->data));
		return true;
	}
	buf_addc(out, '/');
	buf_add(out, segment, len);
	return true;
}

static bool in_workspace(const struct buf *path)
{
	size_t n = strlen(WORKSPACE);

	return !buf_failed(path) && path->len >= n && memcmp(path->data, WORKSPACE, n) == 0 &&
	       (!path->data[n] || path->data[n] == '/');
}

static bool resolve(const struct tenant *tenant, const char *text,
                    char ret_cwd[SESSION_CWD_MAX + 1])
{
	auto_buf struct buf out = BUF_INIT(HOST_PATH_MAX), guest = BUF_INIT(HOST_PATH_MAX);
	const char *at = text;

	if (*text != '/')
		buf_adds(&out, WORKSPACE);
	while (*at) {
		size_t len = strcspn(at, "/");

		if (!walk(&out, at, len))
			return false;
		at += len + (at[len] == '/');
	}
	if (!in_workspace(&out) && !buf_failed(&out) && out.data &&
	    registry_guest_path(tenant, out.data, &guest)) {
		buf_reset(&out);
		buf_adds(&out, guest.data);
	}
	if (!in_workspace(&out) || out.len > SESSION_CWD_MAX)
		return false;
	memcpy(ret_cwd, out.data, out.len + 1);
	return true;
}

bool sessions_cwd(const struct http_request *req, struct http_response *res, const char *text,
                  char ret_cwd[SESSION_CWD_MAX + 1])
{
	if (resolve(api_caller(req), text, ret_cwd))
		return true;
	http_error(req, res, 403, "workspace_not_allowed",
	           "cwd: not below " WORKSPACE ", or longer than %d bytes", SESSION_CWD_MAX);
	return false;
}

bool sessions_fits(const struct http_request *req, struct http_response *res, const char *name,
                   const struct json *text, size_t max)
{
	if (!text || json_str_len(text) <= max)
		return true;
	http_error(req, res, 400, "invalid_json", "%s: longer than %zu bytes", name, max);
	return false;
}

static bool effort_known(const char *effort)
{
	static const char *const names[] = { "none", "low", "medium", "high", "xhigh", "max" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (strcmp(names[i], effort) == 0)
			return true;
	return false;
}

/* The one of that id, or the first, among those that the caller may use; NULL = none. */
static const struct model *pick_model(const struct http_request *req, const char *id)
{
	for (size_t i = 0; i < model_count(); i++) {
		const struct model *m = model_at(i);

		if ((!id || strcmp(m->id, id) == 0) &&
		    registry_model_allowed(api_caller(req), m->id))
			return m;
	}
	return NULL;
}

static void no_model(const struct http_request *req, struct http_response *res)
{
	if (pick_model(req, NULL)) {
		http_error(req, res, 422, "model_not_available", "model: not in your catalogue");
		return;
	}
	http_set_header(res, "Retry-After", "60");
	http_error(req, res, 503, "model_catalog_empty", "the operator lists no model for you");
}

/* It brings its own model, and what that is told. */
static bool fits_harness(const struct http_request *req, struct http_response *res,
                         const struct json *const *v, const struct session *s)
{
	if (!s->harness[0] || (!v[0] && !v[5]))
		return true;
	http_error(req, res, 422, "invalid_engine", "%s: a harness brings its own",
	           v[0] ? "model" : "instructions");
	return false;
}

static bool set_place(const struct http_request *req, struct http_response *res,
                      const struct json *model, const struct json *cwd, struct session *s)
{
	const struct model *m = pick_model(req, model ? json_str(model) : NULL);

	if (!m && !s->harness[0]) {
		no_model(req, res);
		return false;
	}
	(void)snprintf(s->model, sizeof(s->model), "%s", s->harness[0] ? "harness" : m->id);
	(void)snprintf(s->credential, sizeof(s->credential), "%s",
	               s->harness[0] ? "" : m->credential);
	return sessions_cwd(req, res, cwd ? json_str(cwd) : WORKSPACE, s->cwd);
}

static bool set_words(const struct http_request *req, struct http_response *res,
                      const struct json *effort, const struct json *title, struct session *s)
{
	const char *word = effort ? json_str(effort) : "medium";

	if (!effort_known(word)) {
		http_error(req, res, 422, "invalid_effort",
		           "effort: one of none, low, medium, high, xhigh, max");
		return false;
	}
	(void)snprintf(s->effort, sizeof(s->effort), "%s", word);
	if (!sessions_fits(req, res, "title", title, SESSION_TITLE_MAX))
		return false;
	(void)snprintf(s->title, sizeof(s->title), "%s", title ? json_str(title) : "");
	s->title_is_manual = s->title[0] != '\0';
	return true;
}

static bool set_approvals(const struct http_request *req, struct http_response *res,
                          const struct json *approvals, struct session *s)
{
	enum tenant_approvals least = api_caller(req)->approvals, chosen = least, underneath;

	if (approvals && !registry_approvals(json_str(approvals), &chosen)) {
		http_error(req, res, 422, "invalid_approvals",
		           "approvals: one of sandbox, ask, plan");
		return false;
	}
	if (chosen < least) {
		http_error(req, res, 422, "invalid_approvals",
		           "approvals: the operator wants %s%s for you",
		           registry_approvals_name(least), least == TENANT_ASK ? " or plan" : "");
		return false;
	}
	if (s->harness[0] && chosen != TENANT_SANDBOX) {
		http_error(req, res, 422, "invalid_approvals",
		           "approvals: what a harness does is not asked about here; sandbox alone");
		return false;
	}
	s->planning = chosen == TENANT_PLAN;
	underneath = !s->planning ? chosen : least == TENANT_ASK ? least : TENANT_SANDBOX;
	(void)snprintf(s->approvals, sizeof(s->approvals), "%s",
	               registry_approvals_name(underneath));
	return true;
}

/* Store the session and begin with its repository, if it has one. */
static void insert(const struct http_request *req, struct http_response *res, struct api *api,
                   struct session *s, const struct client_request *key,
                   const struct setup_credential *credential)
{
	struct setup_job *place = NULL;
	struct err e = ERR_INIT;

	if (s->setup.state != SETUP_NONE && setups_take(api->setups, api_tenant(req), &place, &e)) {
		api_fail(req, res, &e);
		return;
	}
	if (session_insert(api->store, api_tenant(req), s, key, &e)) {
		api_fail(req, res, &e);
	} else {
		/* Also when it was there already, and nobody knows who works on it. */
		if (place && setup_is_open(&s->setup))
			setups_run(&place, &s->id, credential);
		api_json(res, 201, api_session_json(s));
	}
	setups_drop(&place);
}

void sessions_create(const struct http_request *req, struct http_response *res, void *ctx)
{
	static const struct json_field fields[] = {
		{ "model", JSON_STRING, false, true },
		{ "cwd", JSON_STRING, false, true },
		{ "effort", JSON_STRING, false, true },
		{ "title", JSON_STRING, false, true },
		{ "approvals", JSON_STRING, false, true },
		{ "instructions", JSON_STRING, false, true },
		{ "engine", JSON_OBJECT, false, true },
		{ "repository", JSON_OBJECT, false, true },
		{ "clientRequestId", JSON_STRING, false, true },
	};
	const struct json *v[ARRAY_LEN(fields)];
	char subject[SETUP_SUBJECT_SIZE];
	struct api_asked asked = { "session", subject, v, ARRAY_LEN(fields) - 2 };
	const struct client_request *key = NULL;
	auto_json struct json *doc = NULL;
	struct client_request room;
	struct setup_credential credential;
	struct api *api = ctx;
	struct session s = { .id = uuid_new() };

	if (!api_body(req, res, fields, ARRAY_LEN(fields), v, &doc) ||
	    !engine_read(req, res, v[6], &s) || !fits_harness(req, res, v, &s) ||
	    !set_place(req, res, v[0], v[1], &s) || !set_words(req, res, v[2], v[3], &s) ||
	    !set_approvals(req, res, v[4], &s) ||
	    !sessions_fits(req, res, "instructions", v[5], SESSION_INSTRUCTIONS_MAX) ||
	    !setup_read(req, res, api, &(struct setup_wish){ v[7], v[1] }, &s, &credential))
		return;
	(void)snprintf(s.instructions, sizeof(s.instructions), "%s", v[5] ? json_str(v[5]) : "");
	while (asked.n > 4 && !v[asked.n - 1])
		asked.n--; /* the digest of a body without them is that of earlier releases */
	setup_subject(&s.setup, subject);
	if (!api_client_request(req, res, v[8], &asked, &room, &key))
		return;
	s.created_ms = s.updated_ms = clock_wall_ms();
	insert(req, res, api, &s, key, credential.password ? &credential : NULL);
}

/* -- show and list ---------------------------------------------------------------------- */

void sessions_show(const struct http_request *req, struct http_response *res, void *ctx)
{
	struct api *api = ctx;
	struct session s;
	struct uuid id;
	struct err e = ERR_INIT;

	if (!api_no_query(req, res))
		return;
	if (!uuid_parse(req->params[0], &id))
		api_not_found(req, res, "session");
	else if (session_get(api->store, api_tenant(req), &id, &s, &e))
		api_fail_about(req, res, "session", &e);
	else
		api_json(res, 200, api_session_json(&s));
}

struct shown {
	const struct http_request *const *reqs;
	struct http_response *const *res;
	size_t n;
	struct uuid ids[HTTP_BATCH_MAX];
	bool open[HTTP_BATCH_MAX]; /* has no answer yet */
};
_Static_assert(HTTP_BATCH_MAX <= SESSION_IDS_MAX, "one query for all");

/* That all are of one tenant is the server's word; that it is true is for us to see to. */
static bool is_of_first(const struct shown *all, size_t i)
{
	struct err e = ERR_INIT;

	if (uuid_equal(api_tenant(all->reqs[i]), api_tenant(all->reqs[0])))
		return true;
	(void)err_set(&e, EPERM, "requests of two tenants came together");
	api_fail(all->reqs[i], all->res[i], &e);
	return false;
}

/* Which of them ask for a session; the others have their answer then. */
static struct session_ids asked_for(struct shown *all)
{
	struct session_ids wanted = { .n = 0 };

	for (size_t i = 0; i < all->n; i++) {
		if (!is_of_first(all, i) || !api_no_query(all->reqs[i], all->res[i]))
			continue;
		all->open[i] = uuid_parse(all->reqs[i]->params[0], &all->ids[i]);
		if (all->open[i])
			wanted.ids[wanted.n++] = all->ids[i];
		else
			api_not_found(all->reqs[i], all->res[i], "session");
	}
	return wanted;
}

static void show_row(void *ctx, const struct session *row)
{
	struct shown *all = ctx;

	for (size_t i = 0; i < all->n; i++) {
		if (!all->open[i] || !uuid_equal(&all->ids[i], &row->id))
			continue;
		all->open[i] = false;
		api_json(all->res[i], 200, api_session_json(row));
	}
}

void sessions_show_all(const struct http_request *const *reqs, struct http_response *const *res,
                       size_t n, void *ctx)
{
	struct api *api = ctx;
	struct shown all = { reqs, res, n };
	const struct session_ids wanted = asked_for(&all);
	struct err e = ERR_INIT;
	int rc = 0;

	if (wanted.n > 0)
		rc = session_each(api->store, api_tenant(reqs[0]), &wanted, show_row, &all, &e);
	for (size_t i = 0; i < n; i++) {
		log_request(reqs[i]->request_id);
		if (all.open[i] && rc)
			api_fail_about(reqs[i], res[i], "session", &e);
		else if (all.open[i])
			api_not_found(reqs[i], res[i], "session");
	}
}

static bool read_filter(const struct http_request *req, struct http_response *res,
                        enum session_filter *ret)
{
	const char *text = http_query(req, "archive");

	*ret = SESSION_ACTIVE;
	if (!text || strcmp(text, "active") == 0)
		return true;
	*ret = strcmp(text, "archived") == 0 ? SESSION_ARCHIVED : SESSION_ALL;
	if (*ret == SESSION_ARCHIVED || strcmp(text, "all") == 0)
		return true;
	http_error(req, res, 400, "invalid_archive_filter", "archive: active, archived or all");
	return false;
}

struct rows {
	struct json *data;
	struct session_key last;
};

static void add_row(void *ctx, const struct session *row)
{
	struct rows *rows = ctx;

	json_push(rows->data, api_session_json(row));
	rows->last = (struct session_key){ row->updated_ms, row->id };
}

static void answer_page(struct http_response *res, struct rows *rows, bool more)
{
	struct json *o = json_new_object();

	json_put(o, "data", rows->data);
	api_put_keyset(o, more, rows->last.updated_ms, &rows->last.id);
	api_json(res, 200, o);
}

void sessions_list(const struct http_request *req, struct http_response *res, void *ctx)
{
	static const char *const known[] = { "archive", "cursor", "limit", NULL };
	struct api *api = ctx;
	struct session_key after;
	struct session_page page = { 0 };
	struct rows rows = { 0 };
	struct err e = ERR_INIT;

	if (!api_query_known(req, res, known) || !api_limit(req, res, &page.limit) ||
	    !api_keyset(req, res, &after.updated_ms, &after.id) ||
	    !read_filter(req, res, &page.filter))
		return;
	page.after = after.updated_ms ? &after : NULL;
	rows.data = json_new_array();
	if (session_list(api->store, api_tenant(req), &page, add_row, &rows, &e)) {
		json_free(&rows.data);
		api_fail(req, res, &e);
	} else {
		answer_page(res, &rows, page.more);
	}
}
