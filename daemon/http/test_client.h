/*
 * test_client.h - for the tests of daemon/http: a server with a small route table and
 * a client that sends exactly the bytes it is given.
 */
#ifndef DAEMON_HTTP_TEST_CLIENT_H
#define DAEMON_HTTP_TEST_CLIENT_H

#include "common/test.h"

#include "common/clock.h"
#include "common/fd.h"
#include "daemon/http/http.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define TOKEN     "0123456789abcdef0123456789abcdef"
#define HOST      "Host: test\r\n"
#define AUTH      HOST "Authorization: Bearer " TOKEN "\r\n"
#define MAX_BODY  70000
#define PATIENCE  10000 /* ms a client waits before the test fails */
#define REPLY_MAX (1 << 20)

static inline const void *test_authenticate(void *ctx, const char *token, size_t len)
{
	(void)ctx;
	return len == strlen(TOKEN) && memcmp(token, TOKEN, len) == 0 ? "tenant" : NULL;
}

static inline struct http_conf test_conf(const struct http_route *routes)
{
	return (struct http_conf){
		.host = "127.0.0.1",
		.max_body = MAX_BODY,
		.workers = 2,
		.max_connections = 2000,
		.max_streams = 1500,
		.heartbeat_ms = 60000,
		.routes = routes,
		.authenticate = test_authenticate,
	};
}

static inline struct http_server *test_server(const struct http_conf *conf)
{
	struct http_server *s = NULL;
	struct err e = ERR_INIT;
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	if (http_start(conf, &s, &e) < 0)
		fail_msg("%s", e.text);
	return s;
}

static inline int dial(const struct http_server *s)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(http_port(s)) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	return fd;
}

static inline void say_bytes(int fd, const void *data, size_t len)
{
	const char *p = data;

	while (len > 0) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

		if (n < 0) /* the server may refuse early: what it said counts */
			return;
		p += n;
		len -= (size_t)n;
	}
}

static inline void say(int fd, const char *text)
{
	say_bytes(fd, text, strlen(text));
}

/* One more piece of bytes; 0 at the end of the connection, -1 after wait_ms of silence. */
static inline ssize_t hear(int fd, char *into, size_t max, int wait_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	ssize_t n;

	if (poll(&p, 1, wait_ms) == 0)
		return -1;
	n = recv(fd, into, max, 0);
	return n < 0 ? 0 : n;
}

struct reply {
	int status;
	size_t head_len, body_len, len; /* of text */
	char *text;                     /* head and what came behind it */
};

static inline void reply_free(struct reply *r)
{
	free(r->text);
	*r = (struct reply){ 0 };
}

static inline bool has_head(struct reply *r)
{
	char *end = strstr(r->text, "\r\n\r\n");
	char *length;

	if (!end)
		return false;
	r->head_len = (size_t)(end - r->text) + 4;
	r->status = (int)strtol(r->text + 9, NULL, 10);
	length = strcasestr(r->text, "\r\nContent-Length: ");
	r->body_len = length && length < end ? strtoul(length + 18, NULL, 10) : 0;
	return true;
}

/* Read one answer (for HEAD: only its head), leaving what follows in r; frees the last one. */
static inline void next_reply(int fd, struct reply *r, bool head_only)
{
	size_t used = r->text ? r->head_len + r->body_len : 0;

	if (!r->text)
		r->text = calloc(1, REPLY_MAX + 1);
	assert_non_null(r->text);
	r->len -= used;
	memmove(r->text, r->text + used, r->len);
	r->text[r->len] = '\0';
	r->head_len = r->body_len = 0;
	while (!has_head(r) || (!head_only && r->len < r->head_len + r->body_len)) {
		ssize_t n = hear(fd, r->text + r->len, REPLY_MAX - r->len, PATIENCE);

		if (n <= 0)
			fail_msg("no answer (%zd) but: %s", n, r->text);
		r->len += (size_t)n;
		r->text[r->len] = '\0';
	}
	if (head_only)
		r->body_len = 0;
}

/* Read to the end of the connection. */
static inline void last_reply(int fd, struct reply *r)
{
	ssize_t n;

	r->text = calloc(1, REPLY_MAX + 1);
	assert_non_null(r->text);
	while ((n = hear(fd, r->text + r->len, REPLY_MAX - r->len, PATIENCE)) > 0)
		r->len += (size_t)n;
	r->text[r->len] = '\0';
	if (n < 0)
		fail_msg("the connection stays open after: %s", r->text);
	(void)has_head(r);
}

static inline bool says(const struct reply *r, const char *part)
{
	return strstr(r->text, part) != NULL;
}

static inline size_t count_of(const char *text, const char *part)
{
	size_t n = 0;

	while ((text = strstr(text, part))) {
		n++;
		text += strlen(part);
	}
	return n;
}

/* One request on a connection of its own; the answer is owned by the caller. */
static inline struct reply ask(const struct http_server *s, const char *request)
{
	struct reply r = { 0 };
	int fd = dial(s);

	say(fd, request);
	next_reply(fd, &r, strncmp(request, "HEAD", 4) == 0);
	close(fd);
	return r;
}

static inline void expect(const struct http_server *s, const char *request, int status,
                          const char *part)
{
	struct reply r = ask(s, request);

	if (r.status != status || !says(&r, part))
		fail_msg("%s -> %s (wanted %d %s)", request, r.text, status, part);
	assert_true(says(&r, "X-Request-ID: "));
	assert_true(says(&r, "Cache-Control: no-store\r\n"));
	assert_true(says(&r, "X-Content-Type-Options: nosniff\r\n"));
	reply_free(&r);
}

static inline void nap(unsigned int ms)
{
	usleep(ms * 1000);
}

/* Wait until *value is wanted; fails the test after a while. */
static inline void wait_for(const atomic_int *value, int wanted)
{
	uint64_t deadline = clock_mono_ms() + PATIENCE;

	while (atomic_load(value) != wanted) {
		if (clock_mono_ms() > deadline)
			fail_msg("waited for %d, have %d", wanted, atomic_load(value));
		nap(1);
	}
}

#endif
