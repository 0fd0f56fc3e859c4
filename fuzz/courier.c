/*
 * The courier with one request: what the server asks, which may have been taken over, and what
 * a provider or an MCP server answers to it, over a connection of this machine.  The server is
 * told one head before any body, and one end; the key comes back in none of them.
 *
 * The first byte chooses who is asked and how much of the question is ours, the second is the
 * size of the pieces of the answer.  Then comes the question, when it is not ours, and the
 * answer, in which 0x01 stands for the key.
 */
#include "fuzz/fuzz.h"

#include "common/attr.h"
#include "common/fd.h"
#include "daemon/model/courier_client.h"
#include "daemon/model/courier_request.h"
#include "daemon/model/prompt.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

#define KEY      "sk-0123456789-abcdef"
#define BODY     "{\"a\":1}"
#define PASSES   20000
#define TOLD_MAX ((size_t)64 << 20)

/* The first byte: these, and who is asked. */
#define IS_FOREIGN 0x40 /* the question comes from the input */
#define STAYS_OPEN 0x80 /* the connection, behind the answer */

static struct models models;
static struct endpoint server;
static struct courier_conf conf;
static struct courier courier;
static int ear = -1;

/* -- the two that are asked ------------------------------------------------------------------- */

static void set_endpoint(struct endpoint *at, unsigned int port)
{
	char url[64];
	struct err e = ERR_INIT;

	(void)snprintf(url, sizeof(url), "http://127.0.0.1:%u/v1", port);
	demand(endpoint_url(at, url, "apiKeyFile", &e) == 0);
}

static void prepare(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
		                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);

	if (ear >= 0)
		return;
	ear = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	demand(ear >= 0 && bind(ear, (const struct sockaddr *)&at, sizeof(at)) == 0);
	demand(listen(ear, 16) == 0 && getsockname(ear, (struct sockaddr *)&at, &len) == 0);
	models.n = 1;
	set_endpoint(&models.v[0].at, ntohs(at.sin_port));
	set_endpoint(&server, ntohs(at.sin_port));
	conf = (struct courier_conf){ .models = &models, .mcp = &server, .mcp_count = 1 };
	courier.conf = &conf;
	memcpy(courier.keys[0], KEY, sizeof(KEY));
	memcpy(courier.mcp_keys[0], KEY, sizeof(KEY));
	demand(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
}

struct far {
	int fd;
	struct buf answer, heard;
	size_t piece;
	bool stays;
};

static void serve(struct far *f)
{
	char words[8192];
	ssize_t came;
	size_t n;

	if (f->fd < 0)
		f->fd = accept4(ear, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (f->fd < 0)
		return;
	while ((came = recv(f->fd, words, sizeof(words), 0)) > 0)
		buf_add(&f->heard, words, (size_t)came);
	n = f->answer.len < f->piece ? f->answer.len : f->piece;
	if (n && send(f->fd, f->answer.data, n, MSG_NOSIGNAL) == (ssize_t)n)
		buf_consume(&f->answer, n);
	else if (n)
		buf_reset(&f->answer); /* it is not wanted any more */
	if (!f->answer.len && !f->stays)
		(void)shutdown(f->fd, SHUT_WR);
}

static bool begins(const struct buf *b, const char *with)
{
	return b->len >= strlen(with) && memcmp(b->data, with, strlen(with)) == 0;
}

/* Lines of a head, without its end; what a question could smuggle in would be one more. */
static size_t count_lines(const char *at, const char *end)
{
	size_t n = 0;

	for (; at < end; at++)
		n += *at == '\n';
	return n;
}

static void check_heard(const struct courier_ask *ask, const struct buf *heard, const char *body)
{
	static const char *const firsts[] = { "POST /v1/chat/completions HTTP/1.1\r\n",
		                              "POST /v1 HTTP/1.1\r\n", "DELETE /v1 HTTP/1.1\r\n" };
	const char *end = heard->len ? memmem(heard->data, heard->len, "\r\n\r\n", 4) : NULL;
	size_t lines = ask->to == COURIER_TO_MODEL ? 6 : 6 + !!ask->session[0] + !!ask->version[0];

	if (!end)
		return;
	demand(begins(heard, firsts[ask->to]));
	demand(count_lines(heard->data, end) == lines - (ask->to == COURIER_TO_MCP_END));
	end += 4;
	demand(heard->len - (size_t)(end - heard->data) <= ask->len);
	demand(memcmp(end, body, heard->len - (size_t)(end - heard->data)) == 0);
}

/* -- the server, which asked ------------------------------------------------------------------ */

struct near {
	int fd;
	struct buf told;
};

static void hear(struct near *s)
{
	char bytes[65536];
	ssize_t n;

	while ((n = recv(s->fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
		buf_add(&s->told, bytes, (size_t)n);
	demand(!buf_failed(&s->told));
}

static void check_head(const char *data, size_t len)
{
	struct courier_head head;

	demand(len == sizeof(head));
	memcpy(&head, data, sizeof(head));
	demand(head.retry_after >= -1 && memchr(head.session, '\0', sizeof(head.session)));
	demand(!head.session_unfit || !head.session[0]);
	for (const char *c = head.session; *c; c++)
		demand(*c > ' ' && *c < 127);
	demand(!(head.is_stream && head.is_json) && !strstr(head.session, KEY));
}

static void check_end(const char *data, size_t len, bool headed)
{
	struct courier_end end;

	demand(len == sizeof(end));
	memcpy(&end, data, sizeof(end));
	demand(memchr(end.text, '\0', sizeof(end.text)) && !strstr(end.text, KEY));
	demand(end.code || headed);
}

/* A head, bodies and an end, and of each what has to be there. */
static void check_told(const struct buf *told, bool over)
{
	auto_buf struct buf all = BUF_INIT(TOLD_MAX);
	struct courier_piece piece = { .kind = 0 };
	bool headed = false;

	for (size_t at = 0; at < told->len; at += piece.len) {
		demand(piece.kind != COURIER_END && told->len - at >= sizeof(piece));
		memcpy(&piece, told->data + at, sizeof(piece));
		at += sizeof(piece);
		demand(piece.len <= COURIER_PIECE_MAX && piece.len <= told->len - at);
		demand(piece.kind >= COURIER_HEAD && piece.kind <= COURIER_END);
		if (piece.kind == COURIER_HEAD)
			check_head(told->data + at, piece.len);
		else if (piece.kind == COURIER_BODY)
			buf_add(&all, told->data + at, piece.len);
		else
			check_end(told->data + at, piece.len, headed);
		demand(piece.kind != COURIER_BODY || (headed && piece.len > 0));
		demand(piece.kind != COURIER_HEAD || !headed);
		headed |= piece.kind == COURIER_HEAD;
	}
	demand(!over || piece.kind == COURIER_END);
	demand(!all.len || !memmem(all.data, all.len, KEY, strlen(KEY)));
}

/* -- one request ------------------------------------------------------------------------------ */

struct question {
	struct courier_ask ask;
	const char *body;
	size_t body_len; /* that is here */
};

static void send_question(int fd, const struct question *q)
{
	int room = 1 << 20;

	demand(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)) == 0);
	demand(send(fd, &q->ask, sizeof(q->ask), MSG_DONTWAIT) == (ssize_t)sizeof(q->ask));
	demand(!q->body_len ||
	       send(fd, q->body, q->body_len, MSG_DONTWAIT) == (ssize_t)q->body_len);
}

static bool is_visible(const char *text, size_t size)
{
	const char *end = memchr(text, '\0', size);

	for (; end && text < end; text++)
		if (*text <= ' ' || *text >= 127)
			return false;
	return end != NULL;
}

static bool is_sound(const struct question *q)
{
	return q->ask.place == 0 && q->ask.to <= 2 && q->ask.len >= 1 &&
	       q->ask.len <= PROMPT_BYTES_MAX &&
	       is_visible(q->ask.session, sizeof(q->ask.session)) &&
	       is_visible(q->ask.version, sizeof(q->ask.version));
}

static void take_results(struct courier_request *r)
{
	struct CURLMsg *m;
	int left;

	while ((m = curl_multi_info_read(courier.multi, &left)))
		if (m->msg == CURLMSG_DONE && r->easy == m->easy_handle)
			courier_request_done(r, m->data.result);
}

/* True when it came to its end. */
static bool work(struct courier_request *r, struct near *s, struct far *f)
{
	int running, passes = 0;

	while (r->state == COURIER_RUNNING || r->state == COURIER_ENDING) {
		demand(++passes < PASSES);
		demand(curl_multi_perform(courier.multi, &running) == CURLM_OK);
		take_results(r);
		serve(f);
		courier_request_write(r);
		hear(s);
		/* Who waits for more of an answer gives it up. */
		if (f->stays && !f->answer.len && passes > 60 && r->state == COURIER_RUNNING)
			return false;
	}
	return true;
}

static void run(const struct question *q, struct far *f)
{
	struct near s = { .told = BUF_INIT(TOLD_MAX) };
	struct courier_request *r;
	bool over;
	int ends[2];

	demand(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
	s.fd = ends[0];
	send_question(s.fd, q);
	courier.multi = curl_multi_init();
	r = courier_request_new(&courier, ends[1]);
	demand(courier.multi && r);
	for (int i = 0; i < 4 && r->state == COURIER_READING; i++)
		courier_request_read(r);
	demand((r->state == COURIER_OVER) == !is_sound(q));
	demand((r->state == COURIER_RUNNING) == (is_sound(q) && q->body_len == q->ask.len));
	over = r->state == COURIER_RUNNING && work(r, &s, f);
	check_told(&s.told, over);
	if (is_sound(q))
		check_heard(&q->ask, &f->heard, q->body);
	courier_request_free(&r);
	demand(curl_multi_cleanup(courier.multi) == CURLM_OK);
	fd_close(&s.fd);
	buf_release(&s.told);
}

/* How much of data it took. */
static size_t take_question(const uint8_t *data, size_t size, struct question *ret)
{
	size_t left;

	if (size < sizeof(ret->ask))
		return 0;
	memcpy(&ret->ask, data, sizeof(ret->ask));
	left = size - sizeof(ret->ask);
	ret->body = (const char *)data + sizeof(ret->ask);
	ret->body_len = left < ret->ask.len ? left : ret->ask.len;
	return sizeof(ret->ask) + ret->body_len;
}

static void put_answer(struct far *f, const uint8_t *data, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		if (data[i] == 1)
			buf_adds(&f->answer, KEY);
		else
			buf_addc(&f->answer, (char)data[i]);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct question q = { .ask = { .len = strlen(BODY) },
		              .body = BODY,
		              .body_len = strlen(BODY) };
	struct far f = { .fd = -1, .answer = BUF_INIT(TOLD_MAX), .heard = BUF_INIT(TOLD_MAX) };
	size_t at = 2;

	if (size < 2)
		return 0;
	prepare();
	q.ask.to = data[0] % 3;
	f.stays = data[0] & STAYS_OPEN;
	if (data[0] & IS_FOREIGN)
		at += take_question(data + 2, size - 2, &q);
	put_answer(&f, data + at, size - at);
	f.piece = (size_t)data[1] * 16 + f.answer.len / 1000 + 1;
	run(&q, &f);
	fd_close(&f.fd);
	buf_release(&f.answer);
	buf_release(&f.heard);
	return 0;
}
