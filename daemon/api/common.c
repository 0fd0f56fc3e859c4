#include "daemon/api/api.h"

#include "common/log.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	int code;
	int status;
	const char *name;
	bool retry; /* with Retry-After */
} failures[] = {
	{ STORE_UNAVAILABLE, 503, "store_unavailable", true },
	{ ERR_SHORTAGE, 503, "busy", true },
	{ STORE_NOT_FOUND, 404, "not_found", false },
	{ STORE_BUSY, 409, "session_busy", false },
	{ STORE_KEY_REUSED, 409, "idempotency_conflict", false },
	{ STORE_NO_SUCH_TURN, 422, "invalid_fork_point", false },
	{ STORE_TENANT_FULL, 507, "tenant_storage_full", false },
	{ BUS_TENANT_LIMIT, 429, "tenant_event_subscriber_limit", true },
	{ TURNS_QUEUE_FULL, 429, "turn_queue_full", true },
	{ TURNS_TENANT_QUEUE_FULL, 429, "tenant_turn_queue_full", true },
	{ SETUPS_FULL, 429, "setup_limit", true },
	{ SETUPS_STOPPING, 503, "server_stopping", true },
	{ TURNS_STOPPING, 503, "server_stopping", true },
	{ TURNS_BAD_DECISION, 422, "invalid_decision", false },
};

/* What is told instead of the error's own text, which is the operator's to know; NULL = that. */
static const char *public_text(int code)
{
	if (code == STORE_UNAVAILABLE)
		return "the database does not answer";
	return code == ERR_SHORTAGE ? "the server is short of descriptors or memory" : NULL;
}

static void log_own(const struct err *e)
{
	static struct log_pace pace;
	unsigned int left_out;

	if (log_paced(&pace, &left_out))
		log_warn("%s (%u more since the last line)", e->text, left_out);
}

void api_fail(const struct http_request *req, struct http_response *res, const struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(failures); i++) {
		if (failures[i].code != e->code)
			continue;
		const char *text = public_text(e->code);

		if (failures[i].retry)
			http_set_header(res, "Retry-After", "1");
		if (text)
			log_own(e);
		http_error(req, res, failures[i].status, failures[i].name, "%s",
		           text ? text : e->text);
		return;
	}
	log_error("%s", e->text);
	http_error(req, res, 500, "internal_error", "the server failed; its log names the cause");
}

void api_not_found(const struct http_request *req, struct http_response *res, const char *what)
{
	char code[64];

	(void)snprintf(code, sizeof(code), "%s_not_found", what);
	http_error(req, res, 404, code, "no such %s", what);
}

void api_fail_about(const struct http_request *req, struct http_response *res, const char *what,
                    const struct err *e)
{
	if (e->code == STORE_NOT_FOUND)
		api_not_found(req, res, what);
	else
		api_fail(req, res, e);
}

void api_json(struct http_response *res, int status, struct json *o)
{
	res->status = status;
	json_write(o, &res->body);
	json_free(&o);
}

bool api_body(const struct http_request *req, struct http_response *res,
              const struct json_field *fields, size_t n, const struct json **values,
              struct json **ret_doc)
{
	struct json_faults faults = { 0 };
	struct err e = ERR_INIT;

	if (!api_no_query(req, res))
		return false;
	if (req->body_len == 0)
		*ret_doc = json_new_object();
	else if (json_too_many(req->body, req->body_len, JSON_VALUES_MAX)) {
		http_error(req, res, 400, "invalid_json", "more than %d values", JSON_VALUES_MAX);
		return false;
	} else if (json_parse(req->body, req->body_len, ret_doc, &e)) {
		http_error(req, res, 400, "invalid_json", "%s", e.text);
		return false;
	}
	if (json_fields(*ret_doc, "", fields, n, values, &faults))
		return true;
	http_error(req, res, 400, "invalid_json", "%s", faults.first.text);
	return false;
}

struct query_check {
	const char *const *names;
	char unknown[64];
};

static void check_name(void *ctx, const char *name, const char *value)
{
	struct query_check *check = ctx;

	(void)value;
	for (const char *const *known = check->names; *known; known++)
		if (strcmp(*known, name) == 0)
			return;
	(void)snprintf(check->unknown, sizeof(check->unknown), "%s", *name ? name : "(empty)");
}

bool api_query_known(const struct http_request *req, struct http_response *res,
                     const char *const *names)
{
	struct query_check check = { .names = names };

	http_each_query(req, check_name, &check);
	if (!check.unknown[0])
		return true;
	http_error(req, res, 400, "invalid_query", "unknown query parameter %s", check.unknown);
	return false;
}

bool api_no_query(const struct http_request *req, struct http_response *res)
{
	static const char *const none[] = { NULL };

	return api_query_known(req, res, none);
}

bool api_no_body(const struct http_request *req, struct http_response *res)
{
	auto_json struct json *doc = NULL;

	return api_body(req, res, NULL, 0, NULL, &doc);
}

bool api_keyset(const struct http_request *req, struct http_response *res, uint64_t *ret_ms,
                struct uuid *ret_id)
{
	const char *text = http_query(req, "cursor");
	char *dot;

	*ret_ms = 0;
	if (!text)
		return true;
	*ret_ms = *text >= '1' && *text <= '9' ? strtoull(text, &dot, 10) : 0;
	if (*ret_ms && *ret_ms <= INT64_MAX / 1000 && *dot == '.' && uuid_parse(dot + 1, ret_id))
		return true;
	http_error(req, res, 400, "invalid_cursor", "cursor: not one that a page gave");
	return false;
}

void api_put_keyset(struct json *page, bool more, uint64_t ms, const struct uuid *id)
{
	char cursor[64];

	(void)snprintf(cursor, sizeof(cursor), "%" PRIu64 ".%s", ms, id->text);
	json_put_str(page, "nextCursor", more ? cursor : NULL);
}

bool api_limit(const struct http_request *req, struct http_response *res, size_t *ret_limit)
{
	const char *text = http_query(req, "limit");
	unsigned long value = 50;
	char *end;

	if (text) {
		value = *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : 0;
		if (value < 1 || value > 100 || *end) {
			http_error(req, res, 400, "invalid_limit",
			           "limit is a number from 1 to 100");
			return false;
		}
	}
	*ret_limit = value;
	return true;
}

const void *api_authenticate(void *ctx, const char *token, size_t len)
{
	const struct api *api = ctx;

	return roster_admit(api->roster, token, len);
}

void api_release(void *ctx, const void *principal)
{
	const struct api *api = ctx;

	roster_leave(api->roster, principal);
}

bool api_still(void *ctx, const void *principal)
{
	const struct api *api = ctx;

	return roster_still(api->roster, principal);
}

bool api_is_operator(void *ctx, const char *token, size_t len)
{
	const struct api *api = ctx;
	unsigned char digest[TOKEN_DIGEST];

	return token_digest(token, len, digest) &&
	       sodium_memcmp(digest, api->operator_digest, sizeof(digest)) == 0;
}

const struct uuid *api_party(void *ctx, const void *principal)
{
	const struct caller *caller = principal;

	(void)ctx;
	return &caller->tenant->id;
}
