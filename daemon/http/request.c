/*
 * Checks of a request's head.
 *
 * libmicrohttpd accepts heads that another reader (a proxy in front) may take for a
 * different request: two lengths, a length beside chunks, a blank before the colon,
 * unknown transfer codings, bare CR, folded lines, NUL bytes.  Such a head is refused here and its
 * connection closed, before path or token are looked at.  The target is decoded once, by us:
 * libmicrohttpd would decode %2F and cut at %00 first.
 */
#include "daemon/http/exchange.h"

#include "common/id.h"
#include "common/utf8.h"

#include <string.h>
#include <strings.h>

static const char token_chars[] = "!#$%&'*+-.^_`|~0123456789"
				  "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
static const char id_chars[] = "._-0123456789"
			       "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
static const char host_chars[] = ".-_:[]%0123456789"
				 "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
static const char path_chars[] = "/-._~!$&'()*+,;=:@0123456789"
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

void request_name(struct http_exchange *ex)
{
	struct uuid fresh;

	if (*ex->req.request_id)
		return;
	fresh = uuid_new();
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

/* -- target --------------------------------------------------------------------------- */
static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* The byte that %XX at p stands for; -1 when it is malformed or NUL. */
static int percent(const char *p)
{
	int high = hex_digit(p[1]);
	int low = high < 0 ? -1 : hex_digit(p[2]);

	return low < 0 || high + low == 0 ? -1 : high * 16 + low;
}

static const char *decode_path(char *path)
{
	char *out = path;

	if (path[0] != '/')
		return "the path must begin with a slash";
	for (const char *p = path; *p; p++) {
		int c = (unsigned char)*p;

		if (c == '%') {
			c = percent(p);
			if (c < 0x20 || c == 0x7f || c == '/' || c == '\\')
				return "the path has an escape that is not allowed";
			p += 2;
		} else if (!strchr(path_chars, c)) {
			return "the path has a character that is not allowed";
		}
		*out++ = (char)c;
	}
	*out = '\0';
	return utf8_valid(path, (size_t)(out - path)) ? NULL : "the path is not UTF-8";
}

static const char *check_segments(const char *path)
{
	if (!path[1])
		return NULL;
	while (*path) {
		size_t len = strcspn(++path, "/");

		if (!len)
			return "the path has an empty segment";
		if (path[0] == '.' && (len == 1 || (len == 2 && path[1] == '.')))
			return "the path has a dot segment";
		path += len;
	}
	return NULL;
}

static bool decode_query_text(char *text)
{
	char *out = text;

	for (const char *p = text; *p; p++) {
		int c = (unsigned char)*p;

		if (c == '%') {
			c = percent(p);
			if (c < 0)
				return false;
			p += 2;
		} else if (c == '+') {
			c = ' ';
		} else if (c <= 0x20 || c >= 0x7f || c == '#') {
			return false;
		}
		*out++ = (char)c;
	}
	*out = '\0';
	return utf8_valid(text, (size_t)(out - text));
}

static const char *add_parameter(struct http_exchange *ex, char *name)
{
	char *value = strchr(name, '=');

	if (value)
		*value++ = '\0';
	else
		value = name + strlen(name);
	if (!decode_query_text(name) || !decode_query_text(value))
		return "the query is not well-formed percent-encoded UTF-8";
	if (!*name)
		return "the query has a parameter without a name";
	if (http_query(&ex->req, name))
		return "the query has a parameter twice";
	if (ex->query_count == HTTP_QUERY_MAX)
		return "the query has too many parameters";
	ex->query[ex->query_count].name = name;
	ex->query[ex->query_count++].value = value;
	return NULL;
}

static const char *parse_query(struct http_exchange *ex, char *query)
{
	const char *fault = NULL;

	while (query && !fault) {
		char *next = strchr(query, '&');

		if (next)
			*next++ = '\0';
		if (*query)
			fault = add_parameter(ex, query);
		query = next;
	}
	return fault;
}

static const char *check_request_line(const struct http_exchange *ex, const char *url,
                                      const char *version)
{
	const char *method = ex->req.method;

	if (!made_of(method, strlen(method), token_chars))
		return "the method has a character that is not allowed";
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
	char *query = strchr(ex->target, '?');
	const char *fault;

	ex->req.method = method;
	ex->req.path = ex->target;
	read_headers(ex, version);
	set_request_id(ex);
	gate_origin(ex);
	if (query)
		*query++ = '\0';
	fault = check_request_line(ex, url, version);
	if (!fault)
		fault = check_headers(ex, strcmp(version, "HTTP/1.0") == 0);
	if (!fault && !(gate_check(ex) && check_bounds(ex, version)))
		return false;
	if (!fault)
		fault = decode_path(ex->target);
	if (!fault)
		fault = check_segments(ex->target);
	if (fault) {
		http_error(&ex->req, &ex->res, 400, "bad_request", "%s", fault);
		return false;
	}
	fault = parse_query(ex, query);
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
	const struct http_exchange *ex = r->inner;

	for (size_t i = 0; i < ex->query_count; i++)
		if (strcmp(ex->query[i].name, name) == 0)
			return ex->query[i].value;
	return NULL;
}

void http_each_query(const struct http_request *r,
                     void (*fn)(void *ctx, const char *name, const char *value), void *ctx)
{
	const struct http_exchange *ex = r->inner;

	for (size_t i = 0; i < ex->query_count; i++)
		fn(ctx, ex->query[i].name, ex->query[i].value);
}

const char *http_header(const struct http_request *r, const char *name)
{
	return MHD_lookup_connection_value(r->inner->mhd, MHD_HEADER_KIND, name);
}
