#include "daemon/http/server.h"

#include "common/json.h"
#include "common/log.h"
#include "common/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define MESSAGE_MAX 1024

void http_set_header(struct http_response *res, const char *static_name, const char *fmt, ...)
{
	char *value;
	va_list ap;
	int len;

	if (res->header_count == ARRAY_LEN(res->headers)) {
		log_error("http: no room for header %s", static_name);
		return;
	}
	value = res->headers[res->header_count].value;
	va_start(ap, fmt);
	len = vsnprintf(value, sizeof(res->headers[0].value), fmt, ap);
	va_end(ap);
	if (len < 0 || (size_t)len >= sizeof(res->headers[0].value)) {
		log_error("http: header %s is too long", static_name);
		return;
	}
	for (; *value; value++)
		if ((unsigned char)*value < 0x20 || *value == 0x7f)
			*value = '?';
	res->headers[res->header_count++].name = static_name;
}

void http_error(const struct http_request *req, struct http_response *res, int status,
                const char *code, const char *fmt, ...)
{
	auto_buf struct buf text = BUF_INIT(MESSAGE_MAX * 3UL);
	char message[MESSAGE_MAX];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(message, sizeof(message), fmt, ap);
	va_end(ap);
	utf8_repair(message, strlen(message), &text);
	res->status = status;
	res->content_type = "application/json";
	buf_reset(&res->body);
	buf_adds(&res->body, "{\"error\":{\"code\":");
	json_write_string(code, strlen(code), &res->body);
	buf_adds(&res->body, ",\"message\":");
	json_write_string(text.data ? text.data : "", text.len, &res->body);
	buf_addf(&res->body, ",\"requestId\":\"%s\"}}", req->request_id);
}

static bool has_body(const struct http_exchange *ex)
{
	return ex->res.status != 204 && ex->res.status != 304;
}

/* A body that outgrew its ceiling cannot be sent in part. */
static void check_body(struct http_exchange *ex)
{
	if (!buf_failed(&ex->res.body))
		return;
	log_error("http: request %s: the answer has no room in memory or is over %d bytes",
	          ex->req.request_id, HTTP_RESPONSE_MAX);
	ex->res.header_count = 0;
	ex->res.body.max = HTTP_RESPONSE_MAX;
	http_error(&ex->req, &ex->res, 500, "internal_error", "the answer is too large");
}

/* Calls fn for every header of the answer; false as soon as fn says so. */
static bool each_header(const struct http_exchange *ex,
                        bool (*fn)(void *ctx, const char *name, const char *value), void *ctx)
{
	const struct http_response *res = &ex->res;

	if (has_body(ex) && !fn(ctx, "Content-Type", res->content_type))
		return false;
	if (!fn(ctx, "Cache-Control", "no-store") || !gate_headers(ex, fn, ctx))
		return false;
	for (size_t i = 0; i < res->header_count; i++)
		if (!fn(ctx, res->headers[i].name, res->headers[i].value))
			return false;
	return true;
}

static bool add_to_mhd(void *ctx, const char *name, const char *value)
{
	return MHD_add_response_header(ctx, name, value) == MHD_YES;
}

/*
 * libmicrohttpd takes a bare CR for the end of a line behind the last chunk, and others do not:
 * they may disagree on where a request with chunks ends.  So nothing is taken for the next one.
 */
struct MHD_Response *response_build(struct http_exchange *ex)
{
	struct MHD_Response *r;
	size_t len;
	char *data;

	check_body(ex);
	len = has_body(ex) ? ex->res.body.len : 0;
	data = buf_take(&ex->res.body);
	if (!data)
		return NULL;
	r = MHD_create_response_from_buffer(len, data, MHD_RESPMEM_MUST_FREE);
	if (!r) {
		free(data);
		return NULL;
	}
	if (!each_header(ex, add_to_mhd, r) ||
	    (ex->head.encodings && MHD_add_response_header(r, "Connection", "close") != MHD_YES)) {
		MHD_destroy_response(r);
		return NULL;
	}
	return r;
}

bool response_stream_headers(const struct http_exchange *ex, struct MHD_Response *r)
{
	return add_to_mhd(r, "Content-Type", "text/event-stream") &&
	       add_to_mhd(r, "Cache-Control", "no-cache") &&
	       add_to_mhd(r, "X-Accel-Buffering", "no") && gate_headers(ex, add_to_mhd, r);
}

static bool add_to_text(void *ctx, const char *name, const char *value)
{
	buf_addf(ctx, "%s: %s\r\n", name, value);
	return true;
}

void response_send_raw(struct http_exchange *ex, int fd)
{
	auto_buf struct buf text = BUF_INIT(16384);

	buf_addf(&text, "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Length: %zu\r\n",
	         ex->res.status, MHD_get_reason_phrase_for((unsigned int)ex->res.status),
	         ex->res.body.len);
	each_header(ex, add_to_text, &text);
	buf_adds(&text, "\r\n");
	if (!ex->req.method || strcmp(ex->req.method, "HEAD") != 0)
		buf_add(&text, ex->res.body.data, ex->res.body.len);
	/* Nothing else is in the socket, so this fits; if not, the client sees a close. */
	if (!buf_failed(&text))
		(void)!send(fd, text.data, text.len, MSG_NOSIGNAL | MSG_DONTWAIT);
}
