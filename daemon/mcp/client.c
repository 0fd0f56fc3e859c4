#include "daemon/mcp/client.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/log.h"
#include "daemon/model/fault.h"
#include "daemon/model/sse.h"

#include <stdlib.h>
#include <string.h>

#define ANSWERS_MAX 8    /* to requests of the server's in one exchange */
#define ANSWER_MS   2000 /* for each */

struct reception {
	struct mcp_exchange *x;
	struct courier_head head; /* status 0 = not here yet */
	struct sse sse;
	struct buf body; /* of an answer that is no stream */
	size_t total;
	unsigned int answers;
	struct json *result;
	bool over;
};

static int open_request(const struct mcp_peer *peer, enum courier_to to, const struct buf *body,
                        const struct courier_wait *wait, int *ret_fd, struct err *e)
{
	struct courier_ask ask = { .place = peer->place, .len = (uint32_t)body->len, .to = to };

	memcpy(ask.session, peer->session, sizeof(ask.session));
	memcpy(ask.version, peer->version, sizeof(ask.version));
	return courier_open(peer->courier, &ask, body->data, wait, ret_fd, e);
}

/* What the courier calls a fault, which may name hosts, in words for everybody. */
static int translate(struct err *e)
{
	static const struct {
		int model;
		enum mcp_code code;
		const char *text;
	} rows[] = {
		{ MODEL_CANCELLED, MCP_CANCELLED, "cancelled" },
		{ MODEL_STALLED, MCP_TIMEOUT, "the server did not answer in time" },
		{ MODEL_UNREACHABLE, MCP_UNREACHABLE, "the server cannot be reached" },
		{ MODEL_CUT, MCP_CUT, "the server's answer ends in the middle" },
		{ MODEL_MALFORMED, MCP_MALFORMED, "the server does not speak HTTP" },
	};

	if (e->code != MODEL_CANCELLED && e->code != MODEL_STALLED)
		log_warn("MCP: %s", e->text);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (rows[i].model == e->code)
			return err_set(e, rows[i].code, "%s", rows[i].text);
	return err_set(e, MCP_UNREACHABLE,
	               "the server cannot be spoken to; the log names the cause");
}

/* -- messages ------------------------------------------------------------------------------- */

static int answer_server(struct reception *r, const struct json *request, struct err *e)
{
	struct courier_wait wait = { r->x->wait.cancel, clock_mono_ms() + ANSWER_MS };
	auto_buf struct buf body = BUF_INIT(4096);
	struct err ignored = ERR_INIT;

	if (r->answers++ == ANSWERS_MAX)
		return err_set(e, MCP_MALFORMED,
		               "the server asks more than %d things in one answer", ANSWERS_MAX);
	rpc_answer(&body, request);
	if (!buf_failed(&body) && mcp_tell(r->x->peer, COURIER_TO_MCP, &body, &wait, &ignored) < 0)
		log_debug("MCP: %s", ignored.text);
	return 0;
}

static int take_message(struct reception *r, const char *text, size_t len, struct err *e)
{
	auto_json struct json *message = NULL;
	enum rpc_kind kind = RPC_OTHER;

	if (r->result)
		return 0;
	if (len > MCP_MESSAGE_MAX)
		return err_set(e, MCP_TOO_LARGE, "the server's answer has more than 4 MiB");
	if (rpc_read(text, len, r->x->id, &kind, &message, e) < 0)
		return -1;
	switch (kind) {
	case RPC_RESULT:
		r->result = mem_take(&message);
		return 0;
	case RPC_REQUEST:
		return answer_server(r, message, e);
	case RPC_LIST_CHANGED:
		r->x->list_changed = true;
		return 0;
	case RPC_OTHER:
		break;
	}
	return 0;
}

static int on_event(void *ctx, const char *type, const char *data, size_t len, struct err *e)
{
	if (*type && strcmp(type, "message") != 0)
		return 0;
	return take_message(ctx, data, len, e);
}

/* -- bytes ---------------------------------------------------------------------------------- */

static bool is_good(const struct reception *r)
{
	return r->head.status >= 200 && r->head.status < 300;
}

static int take_head(struct reception *r, const struct courier_head *head, struct err *e)
{
	struct mcp_exchange *x = r->x;

	r->head = *head;
	if (head->session_unfit)
		return err_set(e, MCP_MALFORMED,
		               "the server gives its session a name that is not 1 to %d bytes of "
		               "visible ASCII",
		               COURIER_SESSION_MAX);
	memcpy(x->session, head->session, sizeof(x->session));
	x->session[sizeof(x->session) - 1] = '\0';
	return 0;
}

static int take_body(struct reception *r, const struct courier_reply *reply, struct err *e)
{
	const struct sse_receiver to = { on_event, r };

	r->total += reply->piece.len;
	if (r->total > MCP_STREAM_MAX || (!r->head.is_stream && r->total > MCP_MESSAGE_MAX))
		return err_set(e, MCP_TOO_LARGE, "the server's answer has more than %d MiB",
		               r->head.is_stream ? 16 : 4);
	if (!is_good(r))
		return 0;
	if (!r->head.is_stream) {
		buf_add(&r->body, reply->body, reply->piece.len);
		return 0;
	}
	if (sse_feed(&r->sse, reply->body, reply->piece.len, &to, e) == 0)
		return 0;
	if (e->code < MCP_CANCELLED)
		return err_set(e, MCP_TOO_LARGE, "the server's answer has more than 4 MiB");
	return -1;
}

/* Without a body that is to be believed: what status says is enough. */
static int refused(const struct reception *r, struct err *e)
{
	int status = r->head.status;

	if (status == 404 && r->x->peer->session[0])
		return err_set(e, MCP_EXPIRED, "the server does not know the session any more");
	if (status == 400)
		return err_set(e, MCP_BAD, "the server refuses the request (400)");
	if (status == 401 || status == 403)
		return err_set(e, MCP_REFUSED, "the server does not take the operator's token (%d)",
		               status);
	if (status >= 300 && status < 400)
		return err_set(e, MCP_REFUSED,
		               "the server redirects (%d), and redirects are not followed", status);
	return err_set(e, MCP_REFUSED, "the server refuses the request (%d)", status);
}

static int take_end(struct reception *r, const struct courier_end *end, struct err *e)
{
	r->over = true;
	if (r->result)
		return 0;
	if (end->code) {
		(void)err_set(e, end->code, "%s", end->text);
		return translate(e);
	}
	if (!is_good(r))
		return refused(r, e);
	if (r->head.is_stream)
		return err_set(e, MCP_CUT, "the server's stream ends without an answer");
	if (!r->head.is_json)
		return err_set(e, MCP_MALFORMED,
		               "the server's answer is neither JSON nor a stream");
	if (take_message(r, r->body.data ? r->body.data : "", r->body.len, e) < 0)
		return -1;
	return r->result ? 0 : err_set(e, MCP_MALFORMED, "the server answers what was not asked");
}

static int take_reply(struct reception *r, const struct courier_reply *reply, struct err *e)
{
	switch (reply->piece.kind) {
	case COURIER_HEAD:
		r->x->sent = true;
		return take_head(r, &reply->head, e);
	case COURIER_BODY:
		return take_body(r, reply, e);
	default:
		/* An error after a connection was made may be one after the request arrived. */
		r->x->sent = r->x->sent || reply->end.code != MODEL_UNREACHABLE;
		return take_end(r, &reply->end, e);
	}
}

static int receive(struct reception *r, int fd, struct err *e)
{
	auto_free struct courier_reply *reply = malloc(sizeof(*reply));

	if (!reply)
		abort();
	while (!r->over && !r->result) {
		if (courier_next(fd, &r->x->wait, reply, e) < 0) {
			r->x->sent = true;
			return translate(e);
		}
		if (take_reply(r, reply, e) < 0)
			return -1;
		if (!r->over && !r->result && clock_left_ms(r->x->wait.deadline_ms) == 0)
			return err_set(e, MCP_TIMEOUT, "the server did not answer in time");
	}
	return 0;
}

int mcp_exchange(struct mcp_exchange *x, struct json **ret, struct err *e)
{
	struct reception r = { .x = x, .body = BUF_INIT(MCP_MESSAGE_MAX) };
	auto_close int fd = -1;
	int rc;

	if (buf_failed(x->body))
		return err_set(e, MCP_TOO_LARGE, "the request has more than 1 MiB");
	if (open_request(x->peer, COURIER_TO_MCP, x->body, &x->wait, &fd, e) < 0)
		return translate(e);
	sse_init(&r.sse);
	rc = receive(&r, fd, e);
	sse_release(&r.sse);
	buf_release(&r.body);
	if (rc == 0)
		*ret = r.result;
	else
		json_free(&r.result);
	return rc;
}

int mcp_tell(const struct mcp_peer *peer, enum courier_to to, const struct buf *body,
             const struct courier_wait *wait, struct err *e)
{
	auto_free struct courier_reply *reply = malloc(sizeof(*reply));
	auto_close int fd = -1;

	if (!reply)
		abort();
	if (open_request(peer, to, body, wait, &fd, e) < 0)
		return translate(e);
	do {
		if (courier_next(fd, wait, reply, e) < 0)
			return translate(e);
	} while (reply->piece.kind == COURIER_BODY && clock_left_ms(wait->deadline_ms) > 0);
	if (reply->piece.kind == COURIER_END && reply->end.code)
		return err_set(e, MCP_UNREACHABLE, "the server cannot be reached");
	if (reply->piece.kind == COURIER_HEAD && reply->head.status == 404 && peer->session[0])
		return err_set(e, MCP_EXPIRED, "the server does not know the session any more");
	if (reply->piece.kind == COURIER_HEAD &&
	    (reply->head.status < 200 || reply->head.status > 299))
		return err_set(e, MCP_REFUSED, "the server refuses the request (%d)",
		               reply->head.status);
	return 0;
}
