#include "daemon/api/events.h"

#include "daemon/api/api.h"
#include "daemon/turn/tell.h"

#include <errno.h>
#include <stdlib.h>

/* Bytes of a turn told again: text may grow sixfold in JSON, and stands in two events. */
#define AGAIN_MAX ((size_t)8 * 1024 * 1024)

bool events_last_id(const char *text, int64_t *ret)
{
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

/* -- live ------------------------------------------------------------------------------ */

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

/* -- of a turn that has ended ------------------------------------------------------------ */

/* Its subscription counts for the tenant's limit. */
struct again {
	struct subscription *sub;
	struct buf text;
	bool given;
};

static int next_again(void *ctx, const char **ret_data, size_t *ret_len)
{
	struct again *a = ctx;

	if (a->given)
		return -1;
	a->given = true;
	*ret_data = a->text.data;
	*ret_len = a->text.len;
	return 1;
}

static void close_again(void *ctx)
{
	struct again *a = ctx;

	bus_unsubscribe(a->sub);
	buf_release(&a->text);
	free(a);
}

/* Takes sub. */
static void stream_again(const struct http_request *req, struct http_response *res,
                         const struct api *api, const struct turn *t, struct subscription *sub)
{
	struct again *a = malloc(sizeof(*a));
	struct err e = ERR_INIT;

	if (!a) {
		bus_unsubscribe(sub);
		(void)err_set(&e, ERR_SHORTAGE, "no memory for a stream");
		api_fail(req, res, &e);
		return;
	}
	*a = (struct again){ .sub = sub, .text = BUF_INIT(AGAIN_MAX) };
	if (tell_again(api->store, api_tenant(req), t, &a->text, &e)) {
		close_again(a);
		api_fail(req, res, &e);
		return;
	}
	res->stream = (struct stream_source){ next_again, close_again, NULL, a };
}

/* -- which ------------------------------------------------------------------------------- */

struct wanted {
	struct bus_wish wish;
	struct uuid turn, session;
};

static bool read_id(const struct http_request *req, struct http_response *res, const char *name,
                    struct uuid *ret, const struct uuid **ret_id)
{
	const char *text = http_query(req, name);

	*ret_id = NULL;
	if (!text)
		return true;
	if (!uuid_parse(text, ret)) {
		http_error(req, res, 400, "invalid_query", "%s: not a lower-case UUID", name);
		return false;
	}
	*ret_id = ret;
	return true;
}

static bool read_wish(const struct http_request *req, struct http_response *res, struct wanted *ret)
{
	static const char *const known[] = { "sessionId", "turnId", NULL };

	if (!api_query_known(req, res, known) ||
	    !read_id(req, res, "turnId", &ret->turn, &ret->wish.turn) ||
	    !read_id(req, res, "sessionId", &ret->session, &ret->wish.session))
		return false;
	if (events_last_id(http_header(req, "Last-Event-ID"), &ret->wish.last_id))
		return true;
	http_error(req, res, 400, "invalid_last_event_id",
	           "Last-Event-ID: not a number from 0 to 9223372036854775807");
	return false;
}

static bool session_exists(const struct http_request *req, struct http_response *res,
                           const struct api *api, const struct bus_wish *wish)
{
	struct session session;
	struct err e = ERR_INIT;

	if (!wish->session ||
	    session_get(api->store, api_tenant(req), wish->session, &session, &e) == 0)
		return true;
	api_fail_about(req, res, "session", &e);
	return false;
}

/* Takes sub.  It is older than our look at the turn, so its end is in one of them. */
static void stream_turn(const struct http_request *req, struct http_response *res,
                        const struct api *api, const struct bus_wish *wish,
                        struct subscription *sub)
{
	struct err e = ERR_INIT;
	struct turn t = { 0 };

	if (turn_get(api->store, api_tenant(req), wish->turn, &t, &e)) {
		bus_unsubscribe(sub);
		api_fail_about(req, res, "turn", &e);
		return;
	}
	if (wish->session && !uuid_equal(wish->session, &t.session)) {
		bus_unsubscribe(sub);
		api_not_found(req, res, "turn");
	} else if (turn_state_terminal(t.state) && !bus_has_end(sub)) {
		stream_again(req, res, api, &t, sub);
	} else {
		res->stream =
			(struct stream_source){ next_event, close_stream, attach_stream, sub };
	}
	turn_release(&t);
}

void events_stream(const struct http_request *req, struct http_response *res, void *ctx)
{
	struct subscription *sub = NULL;
	struct wanted wanted;
	struct api *api = ctx;
	struct err e = ERR_INIT;

	if (!read_wish(req, res, &wanted) || !session_exists(req, res, api, &wanted.wish))
		return;
	if (bus_subscribe(api->bus, api_tenant(req), &wanted.wish, &sub, &e))
		api_fail(req, res, &e);
	else if (wanted.wish.turn)
		stream_turn(req, res, api, &wanted.wish, sub);
	else
		res->stream =
			(struct stream_source){ next_event, close_stream, attach_stream, sub };
}
