/*
 * Bytes of a client, against the real server and libmicrohttpd.  Every request that reaches a
 * handler must be one that a strict reader finds, too, in the same order: what two
 * readers could take for different requests is what smuggling is made of.
 */
#include "fuzz/fuzz.h"

#include "common/buf.h"
#include "common/fd.h"
#include "common/log.h"
#include "daemon/http/http.h"
#include "daemon/http/target.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define SENT_MAX    8192 /* bytes; what they are answered with fits into the socket */
#define HANDLED_MAX 1024
#define BODY_MAX    4000
#define PATIENCE    60000 /* ms */
#define REQUEST_MS  300   /* what is not whole by then is cut */

/* -- what the server hands over ------------------------------------------------------------- */

static struct handled {
	char *method, *path, *body;
	size_t body_len;
} handled[HANDLED_MAX];

static size_t handled_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void handle(const struct http_request *req, struct http_response *res, void *ctx)
{
	(void)ctx;
	res->content_type = "text/plain";
	buf_adds(&res->body, "yes");
	pthread_mutex_lock(&lock);
	demand(handled_count < HANDLED_MAX);
	handled[handled_count++] = (struct handled){
		text_of(req->method, strlen(req->method)),
		text_of(req->path, strlen(req->path)),
		text_of(req->body, req->body_len),
		req->body_len,
	};
	pthread_mutex_unlock(&lock);
}

static void forget(void)
{
	for (size_t i = 0; i < handled_count; i++) {
		free(handled[i].method);
		free(handled[i].path);
		free(handled[i].body);
	}
	handled_count = 0;
}

static const struct http_route routes[] = {
	{ "GET", "/", handle, HTTP_OPEN | HTTP_INLINE },
	{ "GET", "/{a}", handle, HTTP_OPEN | HTTP_INLINE },
	{ "POST", "/{a}", handle, HTTP_OPEN | HTTP_INLINE },
	{ "PATCH", "/{a}/{b}", handle, HTTP_OPEN | HTTP_INLINE },
	{ "DELETE", "/{a}/{b}/{c}", handle, HTTP_OPEN | HTTP_INLINE },
	{ 0 },
};

static const void *nobody(void *ctx, const char *token, size_t len)
{
	(void)ctx;
	(void)token;
	(void)len;
	return NULL;
}

/* -- a strict reader ------------------------------------------------------------------------ */

struct text {
	const char *at;
	size_t len;
};

/* The next line without its end, which may be LF alone; false when there is none. */
static bool next_line(struct text *rest, struct text *ret)
{
	const char *feed = rest->len ? memchr(rest->at, '\n', rest->len) : NULL;

	if (!feed)
		return false;
	*ret = (struct text){ rest->at, (size_t)(feed - rest->at) };
	rest->len -= ret->len + 1;
	rest->at = feed + 1;
	if (ret->len && ret->at[ret->len - 1] == '\r')
		ret->len--;
	return true;
}

static bool has_control(const struct text *t)
{
	for (size_t i = 0; i < t->len; i++)
		if (((unsigned char)t->at[i] < 0x20 && t->at[i] != '\t') || t->at[i] == 0x7f)
			return true;
	return false;
}

static bool is_token(const char *at, size_t len)
{
	static const char marks[] = "!#$%&'*+-.^_`|~";

	for (size_t i = 0; i < len; i++)
		if (!(at[i] >= '0' && at[i] <= '9') &&
		    !((at[i] | 32) >= 'a' && (at[i] | 32) <= 'z') &&
		    !(at[i] && strchr(marks, at[i])))
			return false;
	return len > 0;
}

static bool is_text(const struct text *t, const char *wanted)
{
	return t->len == strlen(wanted) && strncasecmp(t->at, wanted, t->len) == 0;
}

struct strict {
	struct text method, target, version;
	unsigned int lengths, encodings, hosts;
	size_t length;
	char body[SENT_MAX];
	size_t body_len;
};

static bool read_request_line(struct strict *r, const struct text *line)
{
	struct text *words[] = { &r->method, &r->target, &r->version };
	const char *at = line->at, *end = at + line->len;

	for (size_t i = 0; i < 3; i++) {
		const char *stop = at;

		while (stop < end && *stop != ' ')
			stop++;
		*words[i] = (struct text){ at, (size_t)(stop - at) };
		while (stop < end && *stop == ' ')
			stop++;
		at = stop;
	}
	return at == end && !has_control(line) && is_token(r->method.at, r->method.len) &&
	       r->target.len && r->version.len == 8 && memcmp(r->version.at, "HTTP/1.", 7) == 0 &&
	       (r->version.at[7] == '0' || r->version.at[7] == '1');
}

static bool read_length(struct strict *r, const struct text *value)
{
	r->lengths++;
	r->length = 0;
	for (size_t i = 0; i < value->len; i++) {
		if (value->at[i] < '0' || value->at[i] > '9' || r->length > SENT_MAX)
			return false;
		r->length = r->length * 10 + (size_t)(value->at[i] - '0');
	}
	return value->len > 0;
}

static bool read_header(struct strict *r, const struct text *line)
{
	const char *colon = memchr(line->at, ':', line->len);
	struct text name, value;

	if (!colon || has_control(line))
		return false;
	name = (struct text){ line->at, (size_t)(colon - line->at) };
	value = (struct text){ colon + 1, line->len - name.len - 1 };
	while (value.len && (*value.at == ' ' || *value.at == '\t')) {
		value.at++;
		value.len--;
	}
	while (value.len && (value.at[value.len - 1] == ' ' || value.at[value.len - 1] == '\t'))
		value.len--;
	if (is_text(&name, "Content-Length") && !read_length(r, &value))
		return false;
	if (is_text(&name, "Transfer-Encoding")) {
		r->encodings++;
		if (!is_text(&value, "chunked"))
			return false;
	}
	r->hosts += is_text(&name, "Host");
	return is_token(name.at, name.len);
}

static bool read_head(struct strict *r, struct text *rest)
{
	struct text line;

	do {
		if (!next_line(rest, &line))
			return false;
	} while (!line.len); /* empty lines before a request */
	if (!read_request_line(r, &line))
		return false;
	for (;;) {
		if (!next_line(rest, &line))
			return false;
		if (!line.len)
			break;
		if (!read_header(r, &line))
			return false;
	}
	if (r->lengths + r->encodings > 1 || r->hosts > 1)
		return false;
	return r->version.at[7] == '1' ? r->hosts == 1 : !r->encodings;
}

static bool take_bytes(struct strict *r, struct text *rest, size_t len)
{
	if (len > rest->len || len > sizeof(r->body) - r->body_len)
		return false;
	memcpy(r->body + r->body_len, rest->at, len);
	r->body_len += len;
	rest->at += len;
	rest->len -= len;
	return true;
}

static bool is_crlf(const struct text *t, size_t at)
{
	return at + 1 < t->len && memcmp(t->at + at, "\r\n", 2) == 0;
}

/*
 * As libmicrohttpd reads the lines between chunks: they end with CRLF, LF, or CR alone, which
 * in an extension is a character like others.
 */
static bool next_chunk_line(struct text *rest, struct text *ret)
{
	bool extension = false;
	size_t len = 0;

	while (len < rest->len && rest->at[len] != '\n' &&
	       (rest->at[len] != '\r' || (extension && !is_crlf(rest, len))))
		extension = rest->at[len++] == ';' || extension;
	if (len == rest->len)
		return false;
	*ret = (struct text){ rest->at, len };
	len += is_crlf(rest, len) ? 2 : 1;
	rest->at += len;
	rest->len -= len;
	return true;
}

static bool read_chunk_size(const struct text *line, size_t *ret)
{
	char digits[32] = "";
	size_t n = 0;

	while (n < line->len && n < sizeof(digits) - 1 && line->at[n] &&
	       strchr("0123456789abcdefABCDEF", line->at[n])) {
		digits[n] = line->at[n];
		n++;
	}
	*ret = strtoul(digits, NULL, 16);
	return n > 0 && (n == line->len || line->at[n] == ';');
}

/* Whatever the trailer is: the connection is closed behind it, and nothing may be taken. */
static bool read_chunks(struct strict *r, struct text *rest)
{
	struct text line;
	size_t len;

	do {
		if (!next_chunk_line(rest, &line) || !read_chunk_size(&line, &len) ||
		    !take_bytes(r, rest, len))
			return false;
		if (len && (!next_chunk_line(rest, &line) || line.len))
			return false;
	} while (len);
	rest->len = 0;
	return true;
}

/* The next request, and rest behind it; false when there is none that is whole and clear. */
static bool next_request(struct text *rest, struct strict *ret)
{
	*ret = (struct strict){ .lengths = 0 };
	if (!read_head(ret, rest))
		return false;
	if (ret->encodings)
		return read_chunks(ret, rest);
	return !ret->lengths || take_bytes(ret, rest, ret->length);
}

static bool is_same(const struct handled *h, const struct strict *r)
{
	char *path = text_of(r->target.at, r->target.len);
	bool same;

	(void)target_split(path);
	same = !target_path(path) && strcmp(h->path, path) == 0 && is_text(&r->method, h->method) &&
	       h->body_len == r->body_len && memcmp(h->body, r->body, r->body_len) == 0;
	free(path);
	return same;
}

/* In their order; those in between were answered without a handler. */
static bool finds(struct text *rest, const struct handled *h)
{
	static struct strict r;

	while (next_request(rest, &r))
		if (is_same(h, &r))
			return true;
	return false;
}

/* -- the client ----------------------------------------------------------------------------- */

static int dial(uint16_t port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	demand(fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0);
	return fd;
}

/* libFuzzer looks at the time by a signal, which interrupts either. */
static ssize_t hear(int fd, char *into, size_t max)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	ssize_t n;
	int r;

	do
		r = poll(&p, 1, PATIENCE);
	while (r < 0 && errno == EINTR);
	demand(r == 1);
	do
		n = recv(fd, into, max, 0);
	while (n < 0 && errno == EINTR);
	return n;
}

/* Say it, say no more, and hear all that is answered. */
static void talk(int fd, const char *data, size_t size)
{
	char answer[4096];
	bool first = true;
	ssize_t n;

	if (send(fd, data, size, MSG_NOSIGNAL) == (ssize_t)size)
		(void)shutdown(fd, SHUT_WR);
	do {
		n = hear(fd, answer, sizeof(answer));
		demand(!first || n < 9 || memcmp(answer, "HTTP/1.1 ", 9) == 0);
		first = false;
	} while (n > 0);
}

static struct http_server *serve(void)
{
	static struct http_server *server;
	const struct http_conf conf = {
		.host = "127.0.0.1",
		.max_body = BODY_MAX,
		.workers = 1,
		.max_connections = 64,
		.max_streams = 1,
		.idle_ms = 1000,
		.request_ms = REQUEST_MS,
		.routes = routes,
		.authenticate = nobody,
	};
	struct err e = ERR_INIT;

	if (!server) {
		log_setup("fuzz", LOG_ERROR);
		demand(http_start(&conf, &server, &e) == 0);
	}
	return server;
}

static bool is_end(char c)
{
	return c == '\r' || c == '\n' || c == '\0';
}

/*
 * libmicrohttpd writes NULs over CR and LF, and over the colon of a header.  One at either end of
 * a line it reads as if it had, and a line that begins with a colon as an empty one: it cannot be
 * told any more what was there (daemon/http/request.c).
 */
static bool has_hidden_end(const struct text *t)
{
	for (size_t i = 0; i < t->len; i++) {
		bool begins = !i || is_end(t->at[i - 1]);
		bool ends = i + 1 == t->len || is_end(t->at[i + 1]);

		if ((!t->at[i] && (begins || ends)) || (t->at[i] == ':' && begins))
			return true;
	}
	return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct text rest = { (const char *)data, size < SENT_MAX ? size : SENT_MAX };
	bool unclear = has_hidden_end(&rest);
	auto_close int fd = dial(http_port(serve()));

	talk(fd, rest.at, rest.len);
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < handled_count; i++)
		demand(unclear || finds(&rest, &handled[i]));
	forget();
	pthread_mutex_unlock(&lock);
	return 0;
}
