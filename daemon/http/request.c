/*
 * Checks of a request's head.
 *
 * libmicrohttpd accepts heads that another reader (a proxy in front) may take for a
 * different request: two lengths, a length beside chunks, a blank before the colon,
 * unknown transfer codings, bare CR, folded lines, NUL bytes.  Such a head is refused here and its
 * connection closed, before path or token are looked at.
 *
 * Two things cannot be seen, because libmicrohttpd 0.9.75 writes NULs over CR, LF and colon: a NUL
 * where a CR belongs, which it takes for one, and behind a line that ends with LF alone a line that
 * begins with a colon, which it takes for the empty line behind the head.
 */
#include "daemon/http/server.h"

#include "common/id.h"

#include <string.h>
#include <strings.h>

static const char token_chars[] = "!#$%&'*+-.^_`|~0123456789"
				  "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
static const char id_chars[] = "._-0123456789"
			       "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
static const char host_chars[] = ".-_:[]%0123456789"
				 "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

static bool made_of(const char *text, size_t len, const char *chars)
{
	return len > 0 && strspn(text, chars) == len;
}

static bool has_control(const char *text)
{
	for (const unsigned char *p = (const unsigned char *)text; *p; p++)
		if ((*p < 0x20 && *p != '\t') || *p == 0x7f)
			return true;
	return false;
}

/* -- headers ------------------------------------------------------------------------ */
static void count_header(struct http_head *h, const char *name, const char *value)
{
	const struct {
		const char *name;
		unsigned int *count;
		const char **value;
	} known[] = {
		{ "Host", &h->hosts, &h->host },
		{ "Content-Length", &h->lengths, &h->length_text },
		{ "Transfer-Encoding", &h->encodings, &h->encoding },
		{ "Authorization", &h->authorizations, &h->authorization },
		{ "X-Request-ID", &h->request_ids, &h->request_id },
		{ "Origin", &h->origins, &h->origin },
		{ "X-Forwarded-For", &h->forwards, &h->forwarded },
	};

	for (size_t i = 0; i < ARRAY_LEN(known); i++) {
		if (strcasecmp(name, known[i].name) == 0) {
			++*known[i].count;
			*known[i].value = value;
		}
	}
}

#define HEAD_MAX 65536 /* bytes; what is further away is not in the same buffer */

/* How far to is behind from; 0 when that is not known. */
static size_t distance(const char *from, const char *to)
{
	uintptr_t a = (uintptr_t)from, b = (uintptr_t)to;

	return b > a && b - a < HEAD_MAX ? b - a : 0;
}

/*
 * libmicrohttpd takes a head apart where it lies.  It ends a value at its first NUL, and
 * puts the rest of a line that is folded behind the name of the header; what another reader
 * would see shows in the bytes between.  Between two headers that is the end of a line.
 */
static bool is_line_end(const struct http_head *h, const char *next, size_t more_nuls)
{
	size_t len = distance(h->end, next), nuls = 0;

	for (size_t i = 0; i < len; i++) {
		if (h->end[i] == '\0')
			nuls++;
		else if (!strchr(" \t\r\n", h->end[i]))
			return false;
	}
	return nuls <= h->end_nuls + more_nuls;
}

/* Does the header follow the one before, and its value its name?  Then it is the last one seen. */
static bool in_place(struct http_head *h, const char *name, size_t name_len, const char *value,
                     size_t value_len)
{
	size_t to_value = distance(name, value);

	if (!is_line_end(h, name, 0) || (value_len && to_value <= name_len))
		return false;
	/* The colon is a NUL now, and a value that is empty may stand anywhere. */
	h->end = value_len ? value + value_len : name + name_len;
	h->end_nuls = value_len ? 2 : 3;
	return true;
}

static enum MHD_Result note_header(void *cls, enum MHD_ValueKind kind, const char *name,
                                   size_t name_len, const char *value, size_t value_len)
{
	struct http_head *h = cls;

	(void)kind;
	if (!value)
		value = "";
	if (!made_of(name, name_len, token_chars))
		h->fault = "a header name has a character that is not allowed";
	else if (strlen(value) != value_len || has_control(value))
		h->fault = "a header value has a control character";
	else if (!in_place(h, name, name_len, value, value_len))
		h->fault = "a header is folded, or has a NUL";
	else
		count_header(h, name, value);
	return h->fault ? MHD_NO : MHD_YES;
}

/* The last header ends two lines, one of which is empty. */
static void check_head_end(struct http_exchange *ex)
{
	const union MHD_ConnectionInfo *size =
		MHD_get_connection_info(ex->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
	const char *end = size ? ex->req.method + size->header_size : NULL;

	if (!ex->head.fault && !is_line_end(&ex->head, end, 2))
		ex->head.fault = "a header has a NUL";
}

static void read_headers(struct http_exchange *ex, const char *version)
{
	ex->head.end = version + strlen(version);
	ex->head.end_nuls = 2;
	MHD_get_connection_values_n(ex->mhd, MHD_HEADER_KIND, note_header, &ex->head);
	check_head_end(ex);
}

static const char *check_length(struct http_head *h)
{
	const char *p = h->length_text;

	if (h->lengths > 1)
		return "more than one Content-Length";
	if (!h->lengths)
		return NULL;
	for (; *p >= '0' && *p <= '9'; p++) {
		if (h->length > (UINT64_MAX - 9) / 10)
			return "Content-Length is too large a number";
		h->length = h->length * 10 + (uint64_t)(*p - '0');
	}
	if (*p || p == h->length_text)
		return "Content-Length is not a number";
	h->has_body = h->length > 0;
	return NULL;
}

static const char *check_framing(struct http_head *h, bool http_1_0)
{
	const char *fault = check_length(h);

	if (fault || !h->encodings)
		return fault;
	if (h->lengths)
		return "both Content-Length and Transfer-Encoding";
	if (h->encodings > 1 || strcasecmp(h->encoding, "chunked") != 0)
		return "Transfer-Encoding must be chunked, once";
	if (http_1_0)
		return "Transfer-Encoding does not exist in HTTP/1.0";
	h->has_body = true;
	return NULL;
}

static const char *check_headers(struct http_exchange *ex, bool http_1_0)
{
	struct http_head *h = &ex->head;
	const char *fault;

	if (h->fault)
		return h->fault;
	fault = check_framing(h, http_1_0);
	if (fault)
		return fault;
	if (h->hosts > 1 || (!h->hosts && !http_1_0))
		return "exactly one Host header is needed";
	if (h->hosts && !made_of(h->host, strlen(h->host), host_chars))
		return "the Host header is not a host";
	if (h->authorizations > 1)
		return "more than one Authorization header";
	if (h->origins > 1)
		return "more than one Origin header";
	return NULL;
}

/* A system call for each would be a tenth of what a small request costs. */
static struct uuid fresh_id(struct http_server *s)
{
	if (!s->noise_left) {
		random_bytes(s->noise, sizeof(s->noise));
		s->noise_left = ARRAY_LEN(s->noise);
	}
	return uuid_from(s->noise[--s->noise_left]);
}

void request_name(struct http_exchange *ex)
{
	struct uuid fresh;

	if (*ex->req.request_id)
		return;
	fresh = fresh_id(ex->server);
	memcpy(ex->req.request_id, fresh.text, sizeof(fresh.text));
}

static void set_request_id(struct http_exchange *ex)
{
	const struct http_head *h = &ex->head;
	size_t len = h->request_ids == 1 ? strlen(h->request_id) : 0;

	if (len <= HTTP_REQUEST_ID_MAX && made_of(h->request_id, len, id_chars))
		memcpy(ex->req.request_id, h->request_id, len + 1);
	else
		request_name(ex);
}

/* -- request line ------------------------------------------------------------------- */

/* The blank behind the method is a NUL now; a NUL before it would end the method early for us. */
static bool follows(const char *method, const char *url)
{
	size_t end = strlen(method), len = distance(method, url);

	for (size_t i = end + 1; i < len; i++)
		if (method[i] != ' ' && method[i] != '\t')
			return false;
	return len > end;
}

static const char *check_request_line(const struct http_exchange *ex, const char *url,
                                      const char *version)
{
	const char *method = ex->req.method;

	if (!made_of(method, strlen(method), token_chars))
		return "the method has a character that is not allowed";
	if (!follows(method, url))
		return "the method has a NUL";
	/* A NUL byte ends the target early for us; then the version stands further on. */
	if ((uintptr_t)version > (uintptr_t)url &&
	    (uintptr_t)version - (uintptr_t)url > ex->target_len + 1 &&
	    (uintptr_t)version - (uintptr_t)url < 65536)
		return "the request line has a NUL or too many blanks";
	return NULL;
}

/* What is well-formed and still not taken. */
static bool check_bounds(struct http_exchange *ex, const char *version)
{
	if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0) {
		http_error(&ex->req, &ex->res, 505, "http_version_not_supported",
		           "the version must be HTTP/1.1 or HTTP/1.0");
		return false;
	}
	if (strlen(ex->target) > HTTP_PATH_MAX) {
		http_error(&ex->req, &ex->res, 414, "uri_too_long",
		           "the path may have at most %d bytes", HTTP_PATH_MAX);
		return false;
	}
	return true;
}

bool request_check(struct http_exchange *ex, const char *method, const char *url,
                   const char *version)
{
	char *query = target_split(ex->target);
	const char *fault;

	ex->req.method = method;
	ex->req.path = ex->target;
	read_headers(ex, version);
	set_request_id(ex);
	gate_origin(ex);
	fault = check_request_line(ex, url, version);
	if (!fault)
		fault = check_headers(ex, strcmp(version, "HTTP/1.0") == 0);
	if (!fault && !(gate_check(ex) && check_bounds(ex, version)))
		return false;
	if (!fault)
		fault = target_path(ex->target);
	if (fault) {
		http_error(&ex->req, &ex->res, 400, "bad_request", "%s", fault);
		return false;
	}
	fault = target_query(query, &ex->query);
	if (fault)
		http_error(&ex->req, &ex->res, 400, "invalid_query", "%s", fault);
	return !fault;
}

/* -- for the rest of the server and for handlers ------------------------------------------ */
bool request_token(const struct http_exchange *ex, const char **ret, size_t *ret_len)
{
	const char *value = ex->head.authorization;

	if (!value || strncasecmp(value, "Bearer ", 7) != 0)
		return false;
	*ret = value + 7 + strspn(value + 7, " ");
	*ret_len = strlen(*ret);
	return *ret_len > 0;
}

bool request_media_type_ok(const struct http_exchange *ex)
{
	static const char json[] = "application/json";
	const char *type, *method = ex->req.method;
	size_t len;

	if (!ex->body.len || (strcmp(method, "POST") != 0 && strcmp(method, "PATCH") != 0))
		return true;
	type = http_header(&ex->req, "Content-Type");
	if (!type)
		return false;
	type += strspn(type, " \t");
	len = strcspn(type, ";");
	while (len > 0 && (type[len - 1] == ' ' || type[len - 1] == '\t'))
		len--;
	return len == sizeof(json) - 1 && strncasecmp(type, json, len) == 0;
}

const char *http_query(const struct http_request *r, const char *name)
{
	return target_value(&r->inner->query, name);
}

void http_each_query(const struct http_request *r,
                     void (*fn)(void *ctx, const char *name, const char *value), void *ctx)
{
	const struct target_query *query = &r->inner->query;

	for (size_t i = 0; i < query->count; i++)
		fn(ctx, query->v[i].name, query->v[i].value);
}

const char *http_header(const struct http_request *r, const char *name)
{
	return MHD_lookup_connection_value(r->inner->mhd, MHD_HEADER_KIND, name);
}
