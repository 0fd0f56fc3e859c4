#include "daemon/model/courier_request.h"

#include "common/fd.h"
#include "common/sanitizer.h"
#include "daemon/model/fault.h"
#include "daemon/model/prompt.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONNECT_MS   20000L /* name, connection and TLS */
#define USER_AGENT   "cloister/0.1"
#define HEADER_BYTES 1400 /* of one line: a key and what stands before it */

_Static_assert(ENDPOINT_KEY_MAX <= REDACT_SECRET_MAX, "keys are kept out of answers");

struct courier_request *courier_request_new(const struct courier *c, int fd)
{
	struct courier_request *r = calloc(1, sizeof(*r));

	if (!r) {
		fd_close(&fd);
		return NULL;
	}
	r->courier = c;
	r->fd = fd;
	r->body = (struct buf)BUF_INIT(PROMPT_BYTES_MAX);
	r->out = (struct buf)BUF_INIT(2 * COURIER_OUT_MAX);
	return r;
}

/* Taking the handle out of the multi handle is what closes the connection. */
static void drop_easy(struct courier_request *r)
{
	if (!r->easy)
		return;
	(void)curl_multi_remove_handle(r->courier->multi, r->easy);
	curl_easy_cleanup(r->easy);
	r->easy = NULL;
	curl_slist_free_all(r->headers);
	r->headers = NULL;
}

void courier_request_free(struct courier_request **at)
{
	struct courier_request *r = *at;

	drop_easy(r);
	fd_close(&r->fd);
	buf_release(&r->body);
	buf_release(&r->out);
	free(r);
	*at = NULL;
}

/* -- to the server ---------------------------------------------------------------------------- */

static void put_piece(struct courier_request *r, enum courier_piece_kind kind, const void *data,
                      size_t len)
{
	const struct courier_piece piece = { kind, (uint32_t)len };

	buf_add(&r->out, &piece, sizeof(piece));
	buf_add(&r->out, data, len);
}

static void put_body(struct courier_request *r, const struct buf *bytes)
{
	size_t at = 0;

	while (at < bytes->len) {
		size_t n = bytes->len - at;

		n = n < COURIER_PIECE_MAX ? n : COURIER_PIECE_MAX;
		put_piece(r, COURIER_BODY, bytes->data + at, n);
		at += n;
	}
}

static void finish(struct courier_request *r, int code, const char *text)
{
	struct courier_end end = { .code = code };
	auto_buf struct buf clean = BUF_INIT(2048);
	struct redact redact;

	redact_init(&redact, r->redact.secret ? r->redact.secret : "");
	redact_take(&redact, text, strlen(text), &clean);
	redact_end(&redact, &clean);
	(void)snprintf(end.text, sizeof(end.text), "%s", clean.data ? clean.data : "");
	put_piece(r, COURIER_END, &end, sizeof(end));
	r->state = COURIER_ENDING;
	courier_request_write(r);
}

void courier_request_write(struct courier_request *r)
{
	while (r->out.len && r->state != COURIER_OVER) {
		ssize_t n = send(r->fd, r->out.data, r->out.len, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (n < 0)
			r->state = COURIER_OVER;
		else
			buf_consume(&r->out, (size_t)n);
	}
	if (buf_failed(&r->out) || (r->state == COURIER_ENDING && !r->out.len))
		r->state = COURIER_OVER;
	if (r->paused && r->state == COURIER_RUNNING && r->out.len < COURIER_OUT_MAX / 2) {
		r->paused = false;
		(void)curl_easy_pause(r->easy, CURLPAUSE_CONT);
	}
}

/* -- from the provider ------------------------------------------------------------------------ */

static bool is_type(const char *type, const char *wanted)
{
	return type && strncasecmp(type, wanted, strlen(wanted)) == 0;
}

/* What goes into a header again: visible ASCII. */
static bool fits_header(const char *text, size_t max)
{
	return strlen(text) <= max && endpoint_printable(text, 0x21);
}

/* The key is not to be carried past its redaction. */
static void put_session(const struct courier_request *r, struct courier_head *head)
{
	struct curl_header *h;

	if (r->ask.to == COURIER_TO_MODEL ||
	    curl_easy_header(r->easy, "mcp-session-id", 0, CURLH_HEADER, -1, &h) != CURLHE_OK)
		return;
	head->session_unfit = !*h->value || !fits_header(h->value, COURIER_SESSION_MAX) ||
	                      (r->redact.len && strstr(h->value, r->redact.secret));
	if (!head->session_unfit)
		(void)snprintf(head->session, sizeof(head->session), "%s", h->value);
}

static void put_head(struct courier_request *r)
{
	struct courier_head head = { .retry_after = -1 };
	const char *type = NULL;
	curl_off_t after = 0;
	long status = 0;

	if (r->head_sent)
		return;
	(void)curl_easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &status);
	(void)curl_easy_getinfo(r->easy, CURLINFO_RETRY_AFTER, &after);
	(void)curl_easy_getinfo(r->easy, CURLINFO_CONTENT_TYPE, &type);
	head.status = (int32_t)status;
	if (after > 0)
		head.retry_after = (int32_t)(after < INT32_MAX ? after : INT32_MAX);
	head.is_stream = is_type(type, "text/event-stream");
	head.is_json = is_type(type, "application/json");
	put_session(r, &head);
	r->head_sent = true;
	put_piece(r, COURIER_HEAD, &head, sizeof(head));
}

static size_t take_bytes(char *data, size_t size, size_t count, void *ctx)
{
	struct courier_request *r = ctx;
	auto_buf struct buf clean = BUF_INIT((size_t)4 * CURL_MAX_WRITE_SIZE);

	(void)size; /* 1 */
	if (r->out.len >= COURIER_OUT_MAX) {
		r->paused = true;
		return CURL_WRITEFUNC_PAUSE;
	}
	put_head(r);
	redact_take(&r->redact, data, count, &clean);
	put_body(r, &clean);
	return buf_failed(&clean) || buf_failed(&r->out) ? 0 : count;
}

/* Which of our faults a result of curl is: what no second try mends, and all the rest. */
static int code_of(CURLcode result, bool reached)
{
	static const CURLcode final[] = {
		CURLE_PEER_FAILED_VERIFICATION,
		CURLE_SSL_CACERT_BADFILE,
		CURLE_SSL_ISSUER_ERROR,
		CURLE_URL_MALFORMAT,
	};

	if (result == CURLE_OK)
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(final); i++)
		if (final[i] == result)
			return MODEL_FAILED;
	/* The second is what it says of HTTP/0.9, which is what is not HTTP at all. */
	if (result == CURLE_WEIRD_SERVER_REPLY || result == CURLE_UNSUPPORTED_PROTOCOL)
		return MODEL_MALFORMED;
	return reached ? MODEL_CUT : MODEL_UNREACHABLE;
}

/* A tool of an MCP server may do something as soon as it is asked, answer or not. */
static bool was_sent(const struct courier_request *r)
{
	long bytes = 0;

	(void)curl_easy_getinfo(r->easy, CURLINFO_REQUEST_SIZE, &bytes);
	return r->ask.to != COURIER_TO_MODEL && bytes > 0;
}

void courier_request_done(struct courier_request *r, CURLcode result)
{
	auto_buf struct buf rest = BUF_INIT(REDACT_HELD_MAX);

	if (result == CURLE_OK || r->head_sent)
		put_head(r);
	redact_end(&r->redact, &rest);
	put_body(r, &rest);
	finish(r, code_of(result, r->head_sent || was_sent(r)),
	       result == CURLE_OK ? ""
	       : r->why[0]        ? r->why
	                          : curl_easy_strerror(result));
	drop_easy(r);
}

/* -- to the provider -------------------------------------------------------------------------- */

static void printf_like(2, 3) add_header(struct courier_request *r, const char *fmt, ...)
{
	char line[HEADER_BYTES];
	struct curl_slist *longer;
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	longer = curl_slist_append(r->headers, line);
	explicit_bzero(line, sizeof(line));
	if (!longer)
		abort();
	r->headers = longer;
}

static const struct declared_model *model_of(const struct courier_request *r)
{
	return &r->courier->conf->models->v[r->ask.place];
}

static const struct endpoint *endpoint_of(const struct courier_request *r)
{
	return r->ask.to == COURIER_TO_MODEL ? &model_of(r)->at
	                                     : &r->courier->conf->mcp[r->ask.place];
}

static void add_mcp_headers(struct courier_request *r)
{
	const char *name = endpoint_of(r)->key_header;

	add_header(r, "Accept: application/json, text/event-stream");
	if (r->redact.len && *name)
		add_header(r, "%s: %s", name, r->redact.secret);
	else if (r->redact.len)
		add_header(r, "Authorization: Bearer %s", r->redact.secret);
	if (r->ask.session[0])
		add_header(r, "Mcp-Session-Id: %s", r->ask.session);
	if (r->ask.version[0])
		add_header(r, "MCP-Protocol-Version: %s", r->ask.version);
}

static void add_model_headers(struct courier_request *r, const struct declared_model *m)
{
	bool messages = m->dialect == DIALECT_MESSAGES;
	bool versioned = false;

	add_header(r, "Accept: text/event-stream");
	if (r->redact.len)
		add_header(r, messages ? "x-api-key: %s" : "Authorization: Bearer %s",
		           r->redact.secret);
	for (size_t i = 0; i < m->header_count; i++) {
		add_header(r, "%s: %s", m->headers[i].name, m->headers[i].value);
		versioned = versioned || strcasecmp(m->headers[i].name, "anthropic-version") == 0;
	}
	if (messages && !versioned)
		add_header(r, "anthropic-version: 2023-06-01");
}

static void add_headers(struct courier_request *r)
{
	add_header(r, "Content-Type: application/json");
	add_header(r, "Expect:"); /* no waiting before a large body */
	if (r->ask.to == COURIER_TO_MODEL)
		add_model_headers(r, model_of(r));
	else
		add_mcp_headers(r);
}

static void set_long(CURL *easy, CURLoption option, long value)
{
	if (curl_easy_setopt(easy, option, value) != CURLE_OK)
		abort(); /* a curl that cannot be told so is not to be used */
}

static void set_pointer(CURL *easy, CURLoption option, const void *value)
{
	if (curl_easy_setopt(easy, option, value) != CURLE_OK)
		abort();
}

static void set_security(CURL *easy, const struct courier *c)
{
	struct curl_blob authorities = { c->authorities, c->authorities_len, CURL_BLOB_NOCOPY };

	set_pointer(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	set_long(easy, CURLOPT_FOLLOWLOCATION, 0);
	set_long(easy, CURLOPT_SSL_VERIFYPEER, 1);
	set_long(easy, CURLOPT_SSL_VERIFYHOST, 2);
	set_long(easy, CURLOPT_SSLVERSION, CURL_SSLVERSION_TLSv1_2);
	if (c->authorities) {
		set_pointer(easy, CURLOPT_CAINFO_BLOB, &authorities);
		set_pointer(easy, CURLOPT_PROXY_CAINFO_BLOB, &authorities);
	}
}

static void set_url(struct courier_request *r)
{
	static const char *const paths[] = {
		[DIALECT_CHAT] = "/chat/completions",
		[DIALECT_RESPONSES] = "/responses",
		[DIALECT_MESSAGES] = "/messages",
	};
	const struct endpoint *ep = endpoint_of(r);
	char url[2048];

	/* What is sent in clear text to this machine does not leave it, key and all. */
	if (ep->local && !ep->secure)
		set_pointer(r->easy, CURLOPT_PROXY, "");
	(void)snprintf(url, sizeof(url), "%s%s", ep->url,
	               r->ask.to == COURIER_TO_MODEL ? paths[model_of(r)->dialect] : "");
	set_pointer(r->easy, CURLOPT_URL, url);
}

static void set_body(struct courier_request *r)
{
	if (r->ask.to == COURIER_TO_MCP_END) {
		set_pointer(r->easy, CURLOPT_CUSTOMREQUEST, "DELETE");
		return;
	}
	set_pointer(r->easy, CURLOPT_POSTFIELDS, r->body.data ? r->body.data : "");
	set_long(r->easy, CURLOPT_POSTFIELDSIZE, (long)r->body.len);
}

/*
 * HTTP/1.1, so that a request that is given up closes its connection.  QUICK_EXIT lets a
 * thread that looks a name up go on by itself, or removing the handle would wait for it.
 * curl sends a request again by itself when a connection that served before ends without an
 * answer; a call of an MCP server's tool, which is sent once, so gets one of its own.
 */
static void set_transfer(struct courier_request *r)
{
	set_url(r);
	set_body(r);
	set_pointer(r->easy, CURLOPT_USERAGENT, USER_AGENT);
	set_pointer(r->easy, CURLOPT_HTTPHEADER, r->headers);
	set_pointer(r->easy, CURLOPT_ERRORBUFFER, r->why);
	set_pointer(r->easy, CURLOPT_PRIVATE, r);
	set_long(r->easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
	set_long(r->easy, CURLOPT_NOSIGNAL, 1);
	set_long(r->easy, CURLOPT_QUICK_EXIT, 1);
	set_long(r->easy, CURLOPT_TCP_KEEPALIVE, 1);
	set_long(r->easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
	if (r->ask.to != COURIER_TO_MODEL) {
		set_long(r->easy, CURLOPT_FRESH_CONNECT, 1);
		set_long(r->easy, CURLOPT_FORBID_REUSE, 1);
	}
	set_pointer(r->easy, CURLOPT_WRITEDATA, r);
	if (curl_easy_setopt(r->easy, CURLOPT_WRITEFUNCTION, take_bytes) != CURLE_OK)
		abort();
}

/* The directory has one link for each thread, which the loop is one of, and two of its own. */
static bool too_many_threads(void)
{
	struct stat st;

	return stat("/proc/self/task", &st) == 0 &&
	       st.st_nlink >= 3 + SANITIZER_OWN_THREADS + COURIER_THREADS_MAX;
}

static void start(struct courier_request *r)
{
	const struct courier *c = r->courier;
	int running;

	redact_init(&r->redact, r->ask.to == COURIER_TO_MODEL ? c->keys[r->ask.place]
	                                                      : c->mcp_keys[r->ask.place]);
	if (too_many_threads()) {
		finish(r, MODEL_UNREACHABLE,
		       "name service does not answer, and too many wait for it");
		return;
	}
	r->easy = curl_easy_init();
	if (!r->easy)
		abort();
	add_headers(r);
	set_security(r->easy, c);
	set_transfer(r);
	if (curl_multi_add_handle(c->multi, r->easy) != CURLM_OK)
		abort();
	r->state = COURIER_RUNNING;
	/* Its look-up begins now, so that it counts for who comes next. */
	(void)curl_multi_perform(c->multi, &running);
}

/* -- from the server -------------------------------------------------------------------------- */

static void take_body(struct courier_request *r, const char *data, size_t len)
{
	buf_add(&r->body, data, len);
	if (buf_failed(&r->body) || r->body.len > r->ask.len)
		r->state = COURIER_OVER;
	else if (r->body.len == r->ask.len)
		start(r);
}

/* Nothing of it may name another place, or end a header and begin one of its own. */
static bool is_sound(const struct courier_request *r)
{
	const struct courier_conf *conf = r->courier->conf;
	const struct courier_ask *ask = &r->ask;
	size_t places = ask->to == COURIER_TO_MODEL ? (conf->models ? conf->models->n : 0)
	                                            : conf->mcp_count;

	return ask->to <= COURIER_TO_MCP_END && ask->place < places && ask->len &&
	       ask->len <= PROMPT_BYTES_MAX && memchr(ask->session, 0, sizeof(ask->session)) &&
	       memchr(ask->version, 0, sizeof(ask->version)) &&
	       fits_header(ask->session, COURIER_SESSION_MAX) &&
	       fits_header(ask->version, COURIER_VERSION_MAX);
}

static void take_ask(struct courier_request *r, const char *data, size_t len)
{
	size_t n = sizeof(r->ask) - r->ask_len;

	n = n < len ? n : len;
	memcpy((char *)&r->ask + r->ask_len, data, n);
	r->ask_len += n;
	if (r->ask_len < sizeof(r->ask))
		return;
	if (!is_sound(r))
		r->state = COURIER_OVER;
	else if (len > n)
		take_body(r, data + n, len - n);
}

/* Nothing is to come any more when it runs: what does, and the end, mean that it is given up. */
void courier_request_read(struct courier_request *r)
{
	char data[65536];
	ssize_t n = recv(r->fd, data, sizeof(data), MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0 || r->state != COURIER_READING)
		r->state = COURIER_OVER;
	else if (r->ask_len < sizeof(r->ask))
		take_ask(r, data, (size_t)n);
	else
		take_body(r, data, (size_t)n);
}
