/* The repository that a session begins with. */
#include "daemon/api/setup.h"

#include "daemon/api/api.h"
#include "daemon/setup/repository.h"

#include <stdio.h>
#include <string.h>

#define PLACE        "/workspace/repositories/"
#define ANY_USER     "x-access-token" /* what servers that take a token alone expect, or ignore */
#define INVALID(...) http_error(req, res, 422, "invalid_repository", __VA_ARGS__)

struct json *setup_json(const struct setup *s)
{
	struct json *o, *error;

	if (s->state == SETUP_NONE)
		return NULL;
	o = json_new_object();
	json_put_str(o, "url", s->url);
	json_put_str(o, "ref", s->ref[0] ? s->ref : NULL);
	json_put_str(o, "branch", s->branch[0] ? s->branch : NULL);
	json_put_str(o, "state", setup_state_name(s->state));
	json_put_str(o, "commit", s->head[0] ? s->head : NULL);
	if (s->state != SETUP_FAILED) {
		json_put_null(o, "error");
		return o;
	}
	error = json_new_object();
	json_put_str(error, "code", s->code);
	json_put_str(error, "message", s->error);
	json_put(o, "error", error);
	return o;
}

/* -- reading ------------------------------------------------------------------------------ */

struct shape {
	const char *path;
	const struct json_field *fields;
	size_t n;
};

static bool match(const struct http_request *req, struct http_response *res,
                  const struct shape *shape, const struct json *object, const struct json **ret)
{
	struct json_faults faults = { .count = 0 };

	if (json_fields(object, shape->path, shape->fields, shape->n, ret, &faults))
		return true;
	http_error(req, res, 400, "invalid_json", "%s", faults.first.text);
	return false;
}

/* v may be NULL, which is none. */
static bool read_credential(const struct http_request *req, struct http_response *res,
                            const char *path, const struct json *v, struct setup_credential *ret)
{
	static const struct json_field fields[] = { { "username", JSON_STRING, false, true },
		                                    { "password", JSON_STRING, true, false } };
	const struct shape shape = { path, fields, ARRAY_LEN(fields) };
	const struct json *part[ARRAY_LEN(fields)];
	const char *fault;

	*ret = (struct setup_credential){ NULL, NULL };
	if (!v)
		return true;
	if (!match(req, res, &shape, v, part))
		return false;
	ret->username = part[0] ? json_str(part[0]) : ANY_USER;
	ret->password = json_str(part[1]);
	fault = repository_secret_fault(ret->username, REPOSITORY_USERNAME_MAX);
	if (fault) {
		INVALID("%s.username: %s", path, fault);
		return false;
	}
	fault = repository_secret_fault(ret->password, REPOSITORY_PASSWORD_MAX);
	if (fault)
		INVALID("%s.password: %s", path, fault);
	return !fault;
}

static bool read_ref(const struct http_request *req, struct http_response *res, const char *name,
                     const struct json *v, char ret[SETUP_REF_MAX + 1])
{
	const char *fault = v ? repository_ref_fault(json_str(v)) : NULL;

	if (fault) {
		INVALID("repository.%s: %s", name, fault);
		return false;
	}
	(void)snprintf(ret, SETUP_REF_MAX + 1, "%s", v ? json_str(v) : "");
	return true;
}

/* The session's directory is the repository's: made, or there and empty. */
static bool set_place(const struct http_request *req, struct http_response *res, bool has_cwd,
                      struct session *s)
{
	if (!has_cwd)
		(void)snprintf(s->cwd, sizeof(s->cwd), PLACE "%s", s->id.text);
	if (strcmp(s->cwd, "/workspace") != 0)
		return true;
	INVALID("cwd: a repository needs a directory below /workspace");
	return false;
}

bool setup_read(const struct http_request *req, struct http_response *res, struct api *api,
                const struct setup_wish *wish, struct session *s, struct setup_credential *ret)
{
	static const struct json_field fields[] = {
		{ "url", JSON_STRING, true, false },
		{ "ref", JSON_STRING, false, true },
		{ "branch", JSON_STRING, false, true },
		{ "credential", JSON_OBJECT, false, true },
	};
	static const struct shape shape = { "repository", fields, ARRAY_LEN(fields) };
	const struct json *v[ARRAY_LEN(fields)];
	const char *fault;

	*ret = (struct setup_credential){ NULL, NULL };
	if (!wish->repository)
		return true;
	if (!match(req, res, &shape, wish->repository, v))
		return false;
	fault = repository_url_fault(json_str(v[0]), setups_allow_http(api->setups));
	if (fault) {
		INVALID("repository.url: %s", fault);
		return false;
	}
	if (v[2] && strcmp(json_str(v[2]), "HEAD") == 0) {
		INVALID("repository.branch: no branch can be called HEAD");
		return false;
	}
	(void)snprintf(s->setup.url, sizeof(s->setup.url), "%s", json_str(v[0]));
	if (!read_ref(req, res, "ref", v[1], s->setup.ref) ||
	    !read_ref(req, res, "branch", v[2], s->setup.branch) ||
	    !read_credential(req, res, "repository.credential", v[3], ret) ||
	    !set_place(req, res, wish->has_cwd, s))
		return false;
	s->setup.private = ret->password != NULL;
	s->setup.state = SETUP_PENDING;
	return true;
}

void setup_subject(const struct setup *s, char ret[SETUP_SUBJECT_SIZE])
{
	*ret = '\0';
	if (s->state != SETUP_NONE)
		(void)snprintf(ret, SETUP_SUBJECT_SIZE, "%s %s %s %d", s->url, s->ref, s->branch,
		               s->private);
}

/* -- another try ---------------------------------------------------------------------------- */

static void answer_conflict(const struct http_request *req, struct http_response *res)
{
	http_error(req, res, 409, "setup_not_failed",
	           "the session has no repository whose set-up failed");
}

void sessions_setup(const struct http_request *req, struct http_response *res, void *ctx)
{
	static const struct json_field fields[] = { { "credential", JSON_OBJECT, false, true } };
	const struct json *v[ARRAY_LEN(fields)];
	auto_json struct json *doc = NULL;
	struct setup_credential credential;
	struct setup_job *place = NULL;
	struct api *api = ctx;
	struct err e = ERR_INIT;
	struct session s;
	struct uuid id;

	if (!api_body(req, res, fields, ARRAY_LEN(fields), v, &doc) ||
	    !read_credential(req, res, "credential", v[0], &credential))
		return;
	if (!uuid_parse(req->params[0], &id)) {
		api_not_found(req, res, "session");
		return;
	}
	if (session_get(api->store, api_tenant(req), &id, &s, &e) == 0 &&
	    setups_take(api->setups, api_tenant(req), &place, &e) == 0 &&
	    setup_retry(api->store, api_tenant(req), &id, v[0] != NULL, &e) == 0) {
		setups_run(&place, &id, v[0] ? &credential : NULL);
		s.setup.state = SETUP_PENDING;
		api_json(res, 202, api_session_json(&s));
	} else if (e.code == STORE_CONFLICT) {
		answer_conflict(req, res);
	} else {
		api_fail_about(req, res, "session", &e);
	}
	setups_drop(&place);
}
