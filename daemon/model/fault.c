#include "daemon/model/fault.h"

#include "common/json.h"
#include "common/log.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MESSAGE_MAX 300 /* bytes of what the provider says itself */

struct word {
	const char *word;
	int code;
};

bool fault_passes(int code)
{
	return code == MODEL_BUSY || code == MODEL_UNREACHABLE || code == MODEL_CUT ||
	       code == MODEL_STALLED || code == MODEL_MALFORMED || code == MODEL_EMPTY;
}

/* Names that providers give to kinds of errors, as "type" or as "code". */
static const struct word names[] = {
	{ "context_length_exceeded", MODEL_CONTEXT },
	{ "exceed_context_size_error", MODEL_CONTEXT },
	{ "request_too_large", MODEL_CONTEXT },
	{ "insufficient_quota", MODEL_DENIED },
	{ "billing_error", MODEL_DENIED },
	{ "authentication_error", MODEL_DENIED },
	{ "permission_error", MODEL_DENIED },
	{ "invalid_api_key", MODEL_DENIED },
	{ "overloaded_error", MODEL_BUSY },
	{ "rate_limit_error", MODEL_BUSY },
	{ "rate_limit_exceeded", MODEL_BUSY },
	{ "api_error", MODEL_BUSY },
	{ "timeout_error", MODEL_BUSY },
	{ "server_error", MODEL_BUSY },
	{ "server_is_overloaded", MODEL_BUSY },
	{ "slow_down", MODEL_BUSY },
};

/* Where there is no name for it, only the message tells. */
static const char *const context_words[] = {
	"prompt is too long", "maximum context length", "context window",
	"context size",       "exceed context limit",
};

static int by_name(const char *name)
{
	for (size_t i = 0; name && i < ARRAY_LEN(names); i++)
		if (strcmp(names[i].word, name) == 0)
			return names[i].code;
	return 0;
}

static bool about_context(const char *message)
{
	for (size_t i = 0; message && i < ARRAY_LEN(context_words); i++)
		if (strcasestr(message, context_words[i]))
			return true;
	return false;
}

static int by_status(int status)
{
	if (status == 401 || status == 402 || status == 403)
		return MODEL_DENIED;
	if (status == 413)
		return MODEL_CONTEXT;
	if (status == 408 || status == 409 || status == 425 || status == 429 || status >= 500)
		return MODEL_BUSY;
	return status ? MODEL_REJECTED : MODEL_FAILED;
}

static int judge(const struct fault_report *r)
{
	int code = by_name(r->code);

	if (!code)
		code = by_name(r->type);
	/* A status of 4xx is more certain than a name that says "server". */
	if (code == MODEL_BUSY && r->status >= 400 && by_status(r->status) != MODEL_BUSY)
		code = 0;
	if (code)
		return code;
	if ((r->status == 0 || r->status == 400 || r->status == 422) && about_context(r->message))
		return MODEL_CONTEXT;
	return by_status(r->status);
}

static const char *describe(int code)
{
	switch (code) {
	case MODEL_CONTEXT:
		return "the conversation does not fit into the model's context";
	case MODEL_DENIED:
		return "the provider denies access; the operator has to look at key and account";
	case MODEL_BUSY:
		return "the provider is busy or has a fault of its own";
	case MODEL_REJECTED:
		return "the provider does not take the request";
	default:
		return "the provider failed";
	}
}

/* One line of printable text, cut between characters. */
static void clean(const char *message, char *ret, size_t size)
{
	size_t n = 0;

	while (message && message[n] && n + 1 < size) {
		ret[n] = (unsigned char)message[n] < 0x20 || message[n] == 0x7f ? ' ' : message[n];
		n++;
	}
	if (message && message[n])
		while (n && ((unsigned char)message[n] & 0xc0) == 0x80)
			n--;
	ret[n] = '\0';
}

/*
 * What is about the tenant's own request helps the tenant.  All else may name the operator's
 * account, limits and machines, and is the operator's to read.
 */
static bool is_for_the_tenant(int code)
{
	return code == MODEL_CONTEXT || code == MODEL_REJECTED;
}

int fault_set(const struct fault_report *r, struct err *e)
{
	int code = judge(r);
	bool told = is_for_the_tenant(code);
	char status[32] = "", message[MESSAGE_MAX + 1];

	clean(r->message, message, sizeof(message));
	if (r->status)
		(void)snprintf(status, sizeof(status), " (HTTP %d)", r->status);
	if (message[0] && !told)
		log_warn("%s%s: the provider says: %s", describe(code), status, message);
	return err_set(e, code, "%s%s%s%s", describe(code), status, message[0] && told ? ": " : "",
	               told ? message : "");
}

int fault_object(int status, const struct json *error, struct err *e)
{
	const struct fault_report r = {
		.status = status,
		.type = error ? json_str(json_get(error, "type")) : NULL,
		.code = error ? json_str(json_get(error, "code")) : NULL,
		.message = error ? (json_str(error) ? json_str(error)
		                                    : json_str(json_get(error, "message")))
		                 : NULL,
	};

	return fault_set(&r, e);
}

int fault_read(int status, const char *body, size_t len, struct err *e)
{
	auto_json struct json *o = NULL;
	const struct json *error;
	struct err cause = ERR_INIT;

	if (json_parse(body, len, &o, &cause) < 0)
		return fault_object(status, NULL, e);
	error = json_get(o, "error");
	return fault_object(status, error ? error : o, e);
}
