/*
 * What a browser is told, and which of its pages may ask.
 *
 * A page of any site can make a browser send requests to any address, this machine's
 * loopback too, and a name that its owner points at 127.0.0.1 after the page was loaded
 * makes them requests of the same origin.  So an Origin that the operator did not list is
 * refused before route and token are looked at, and in local mode, where there may be no
 * token, a Host that is not loopback's own name is refused as well.  Answers name the
 * origin that may read them only when it is listed; credentials that a browser adds by
 * itself are never asked for.
 *
 * Whoever sends tokens that are nobody's is counted (throttle.h).  Only the refusals: what
 * is answered does not depend on which token was nearly right, for there is no such thing.
 */
#include "daemon/http/server.h"

#include "common/clock.h"
#include "common/log.h"
#include "daemon/metrics/metrics.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MAX_AGE "600" /* seconds that a browser may remember the answer to a preflight */

void gate_origin(struct http_exchange *ex)
{
	const struct http_conf *conf = &ex->server->conf;
	const struct http_head *h = &ex->head;

	for (size_t i = 0; h->origins == 1 && i < conf->origin_count; i++)
		if (strcmp(h->origin, conf->origins[i]) == 0)
			ex->cors = conf->origins[i];
}

static bool host_is_local(const struct http_exchange *ex)
{
	static const char *const names[] = { "127.0.0.1", "localhost", "[::1]" };
	char wanted[32];

	for (size_t i = 0; ex->head.hosts && i < ARRAY_LEN(names); i++) {
		(void)snprintf(wanted, sizeof(wanted), "%s:%u", names[i], ex->server->port);
		if (strcasecmp(ex->head.host, wanted) == 0)
			return true;
	}
	return false;
}

bool gate_check(struct http_exchange *ex)
{
	if (ex->head.origins && !ex->cors) {
		http_error(&ex->req, &ex->res, 403, "origin_not_allowed",
		           "pages of this origin may not use this server; --cors-origin lists "
		           "those that may");
		return false;
	}
	if (ex->server->conf.local_hosts && !host_is_local(ex)) {
		http_error(&ex->req, &ex->res, 403, "invalid_host",
		           "Host must be 127.0.0.1, localhost or [::1], with port %u",
		           ex->server->port);
		return false;
	}
	return true;
}

bool gate_preflight(struct http_exchange *ex)
{
	if (!ex->cors || strcmp(ex->req.method, "OPTIONS") != 0)
		return false;
	ex->res.status = 204;
	return true;
}

/* -- tokens that are nobody's ------------------------------------------------------------- */

static void log_flood(const struct in6_addr *client)
{
	static struct log_pace pace;
	char text[INET6_ADDRSTRLEN] = "?";
	unsigned int left_out;

	if (!log_paced(&pace, &left_out))
		return;
	if (IN6_IS_ADDR_V4MAPPED(client))
		(void)inet_ntop(AF_INET, &client->s6_addr[12], text, sizeof(text));
	else
		(void)inet_ntop(AF_INET6, client, text, sizeof(text));
	log_warn("http: too many wrong tokens from %s (and %u more answers of this kind since the "
	         "last line)",
	         text, left_out);
}

/* In how many seconds one more would be in time; 0 = this one was. */
static unsigned int count_attempt(struct http_exchange *ex)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(ex->mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	struct throttle *t = &ex->server->throttle;
	struct in6_addr client;
	unsigned int wait;

	if (!info || !info->client_addr)
		return 0;
	client = throttle_client(t, info->client_addr, ex->head.forwarded);
	wait = throttle_count(t, &client, clock_mono_ms());
	if (wait)
		log_flood(&client);
	return wait;
}

void gate_refuse(struct http_exchange *ex, bool tried)
{
	unsigned int wait = tried ? count_attempt(ex) : 0;

	if (tried)
		metric_count(METRIC_ATTEMPTS, wait ? 1 : 0);
	if (wait) {
		http_error(&ex->req, &ex->res, 429, "too_many_attempts",
		           "a valid bearer token is needed, and too many that are not have come "
		           "from this address");
		http_set_header(&ex->res, "Retry-After", "%u", wait);
		return;
	}
	http_error(&ex->req, &ex->res, 401, "unauthorized", "a valid bearer token is needed");
	http_set_header(&ex->res, "WWW-Authenticate", "Bearer");
}

bool gate_headers(const struct http_exchange *ex,
                  bool (*fn)(void *ctx, const char *name, const char *value), void *ctx)
{
	static const struct {
		const char *name, *value;
	} always[] = {
		{ "X-Content-Type-Options", "nosniff" },
		{ "Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'" },
		{ "Referrer-Policy", "no-referrer" },
		{ "Cross-Origin-Resource-Policy", "same-origin" },
	}, to_pages[] = {
		{ "Access-Control-Allow-Methods", "GET, POST, PATCH, DELETE, OPTIONS" },
		{ "Access-Control-Allow-Headers", "Authorization, Content-Type, Last-Event-ID" },
		{ "Access-Control-Expose-Headers", "Retry-After, X-Request-ID" },
		{ "Access-Control-Max-Age", MAX_AGE },
	};
	bool ok = fn(ctx, "X-Request-ID", ex->req.request_id);

	for (size_t i = 0; ok && i < ARRAY_LEN(always); i++)
		ok = fn(ctx, always[i].name, always[i].value);
	if (!ex->server->conf.origin_count)
		return ok;
	ok = ok && fn(ctx, "Vary", "Origin");
	if (ex->cors)
		ok = ok && fn(ctx, "Access-Control-Allow-Origin", ex->cors);
	for (size_t i = 0; ok && ex->cors && i < ARRAY_LEN(to_pages); i++)
		ok = fn(ctx, to_pages[i].name, to_pages[i].value);
	return ok;
}
