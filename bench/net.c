#include "bench/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

void die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)fputs("bench: ", stderr);
	(void)vfprintf(stderr, fmt, ap);
	(void)fputc('\n', stderr);
	va_end(ap);
	exit(1);
}

unsigned int number(const char *text)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (*end || value < 1 || value > 10000000)
		die("%s: not a number from 1 on", text);
	return (unsigned int)value;
}

void raise_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		die("descriptors: %m");
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		die("descriptors: %m");
}

int dial(unsigned int port)
{
	struct sockaddr_in to = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int on = 1;

	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 ||
	    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) < 0)
		die("connect to port %u: %m", port);
	return fd;
}

void send_all(int fd, const char *data, size_t len)
{
	while (len > 0) {
		ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

		if (n < 0)
			die("send: %m");
		data += n;
		len -= (size_t)n;
	}
}

void send_request(int fd, const struct request *r)
{
	const char *body = r->body ? r->body : "";
	char text[8192];
	int len = snprintf(text, sizeof(text),
	                   "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n"
	                   "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
	                   r->method, r->path, r->token, strlen(body), body);

	if (len < 0 || (size_t)len >= sizeof(text))
		die("%s %s: too long", r->method, r->path);
	send_all(fd, text, (size_t)len);
}

size_t answer_length(const char *data, size_t len, struct answer *ret)
{
	const char *end = memmem(data, len, "\r\n\r\n", 4);
	const char *at = data;
	size_t head, body = 0;

	if (!end)
		return 0;
	head = (size_t)(end - data) + 4;
	while (at < end) {
		const char *next = memmem(at, (size_t)(end - at) + 2, "\r\n", 2);

		if (strncasecmp(at, "Content-Length:", 15) == 0)
			body = strtoul(at + 15, NULL, 10);
		at = next + 2;
	}
	if (len < head + body)
		return 0;
	if (len < 12 || body >= sizeof(ret->body))
		die("an answer that cannot be understood: %.100s", data);
	ret->status = (int)strtol(data + 9, NULL, 10);
	ret->len = body;
	memcpy(ret->body, data + head, body);
	ret->body[body] = '\0';
	return head + body;
}

void read_answer(int fd, struct answer *ret)
{
	char data[sizeof(ret->body)];
	size_t len = 0;

	while (!answer_length(data, len, ret)) {
		ssize_t n = recv(fd, data + len, sizeof(data) - len, 0);

		if (n <= 0)
			die("no answer: %s", n < 0 ? strerror(errno) : "the connection was closed");
		len += (size_t)n;
	}
}

/* Byte by byte, so that nothing of what comes behind the comment is taken. */
int open_stream(unsigned int port, const char *token)
{
	static const char first[] = "\r\n\r\n: ok\n\n";
	const struct request r = { "GET", "/v1/events", token, NULL };
	char head[4096];
	size_t len = 0;
	int fd = dial(port);

	send_request(fd, &r);
	while (!memmem(head, len, first, sizeof(first) - 1)) {
		if (len == sizeof(head) || recv(fd, head + len, 1, 0) != 1)
			die("no event stream: %.*s", (int)len, head);
		len++;
	}
	return fd;
}

bool json_text(const char *json, const char *key, char *ret, size_t size)
{
	char quoted[64];
	const char *at;
	size_t len;

	(void)snprintf(quoted, sizeof(quoted), "\"%s\":\"", key);
	at = strstr(json, quoted);
	if (!at)
		return false;
	at += strlen(quoted);
	len = strcspn(at, "\"");
	if (len >= size)
		return false;
	memcpy(ret, at, len);
	ret[len] = '\0';
	return true;
}

/* -- figures ------------------------------------------------------------------------- */

void figures_new(struct figures *f, const char *name, size_t max)
{
	*f = (struct figures){ name, calloc(max, sizeof(f->us[0])), 0, max };
	if (!f->us)
		die("no memory for %zu figures", max);
}

void figures_add(struct figures *f, uint64_t us)
{
	if (f->n < f->max)
		f->us[f->n++] = us;
}

void figures_print(struct figures *all, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		(void)printf("%s\"%s\":[", i ? "," : "{", all[i].name);
		for (size_t k = 0; k < all[i].n; k++)
			(void)printf("%s%llu", k ? "," : "", (unsigned long long)all[i].us[k]);
		(void)printf("]");
		all[i].n = 0;
	}
	(void)printf("}\n");
	(void)fflush(stdout);
}
