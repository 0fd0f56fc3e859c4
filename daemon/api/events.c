#include "daemon/api/events.h"

#include "daemon/api/api.h"

#include <errno.h>
#include <stdlib.h>

/* Last-Event-ID, or -1 when there is none; false when it is no event id. */
static bool read_last_id(const struct http_request *req, int64_t *ret)
{
	const char *text = http_header(req, "Last-Event-ID");
	long long value;
	char *end;

	*ret = -1;
	if (!text)
		return true;
	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	value = strtoll(text, &end, 10);
	*ret = value;
	return errno == 0 && *end == '\0';
}

static int next_event(void *ctx, const char **ret_data, size_t *ret_len)
{
	return bus_next(ctx, ret_data, ret_len);
}

static void close_stream(void *ctx)
{
	bus_unsubscribe(ctx);
}

static void wake_stream(void *ctx)
{
	stream_wake(ctx);
}

static void attach_stream(void *ctx, struct stream *stream)
{
	bus_on_wake(ctx, wake_stream, stream);
}

void events_stream(const struct http_request *req, struct http_response *res, void *ctx)
{
	static const char *const known[] = { NULL };
	struct subscription *sub = NULL;
	struct api *api = ctx;
	struct err e = ERR_INIT;
	int64_t last;

	if (!api_query_known(req, res, known))
		return;
	if (!read_last_id(req, &last)) {
		http_error(req, res, 400, "invalid_last_event_id",
		           "Last-Event-ID: not a number from 0 to 9223372036854775807");
		return;
	}
	if (bus_subscribe(api->bus, api_tenant(req), last, &sub, &e)) {
		api_fail(req, res, &e);
		return;
	}
	res->stream = (struct stream_source){ next_event, close_stream, attach_stream, sub };
}
