/*
 * Event streams in numbers.
 *
 *   streams hold PORT TOKEN COUNT
 *       opens them, prints "ready" and holds them until its input ends
 *   streams fan PORT TOKEN SESSION OTHER_TOKEN OTHER_SESSION COUNT ROUNDS
 *       how long one event takes to the last byte of COUNT streams, and to one stream of
 *       another tenant; and the same for a process that writes the same bytes to as many
 *       sockets in a loop; all alternating
 *
 * In the sessions of fan no turn may start: then a turn that is queued, and one that is
 * cancelled, is one event each.
 */
#include "bench/net.h"
#include "common/clock.h"
#include "common/fd.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS 256

/* The reading ends of one set of streams. */
struct crowd {
	unsigned int count;
	int epoll_fd;
	int *fds;
	bool *ended; /* the event is there as a whole */
	unsigned int waiting;
	size_t bytes; /* of the last event, as one stream had it */
};

static void crowd_new(struct crowd *c, unsigned int count)
{
	*c = (struct crowd){ .count = count, .epoll_fd = epoll_create1(EPOLL_CLOEXEC) };
	c->fds = calloc(count, sizeof(c->fds[0]));
	c->ended = calloc(count, sizeof(c->ended[0]));
	if (c->epoll_fd < 0 || !c->fds || !c->ended)
		die("%u streams: %m", count);
}

static void crowd_add(struct crowd *c, unsigned int i, int fd)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.u32 = i };

	c->fds[i] = fd;
	if (epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0)
		die("epoll: %m");
}

static void crowd_open(struct crowd *c, unsigned int port, const char *token, unsigned int count)
{
	crowd_new(c, count);
	for (unsigned int i = 0; i < count; i++)
		crowd_add(c, i, open_stream(port, token));
}

/* A heartbeat is no event: a block that begins with a colon. */
static void take(struct crowd *c, unsigned int i)
{
	char data[8192];
	ssize_t n = recv(c->fds[i], data, sizeof(data), MSG_DONTWAIT);

	if (n <= 0)
		die("stream %u: %s", i, n < 0 ? strerror(errno) : "closed");
	if (data[0] == ':' && !c->ended[i])
		return;
	if (i == 0)
		c->bytes += (size_t)n;
	if (n >= 2 && memcmp(data + n - 2, "\n\n", 2) == 0) {
		c->ended[i] = true;
		c->waiting--;
	}
}

/* Until every stream has its event; when the last byte of it was read. */
static uint64_t crowd_wait(struct crowd *c)
{
	struct epoll_event events[EVENTS];

	c->waiting = c->count;
	c->bytes = 0;
	memset(c->ended, 0, c->count * sizeof(c->ended[0]));
	while (c->waiting > 0) {
		int n = epoll_wait(c->epoll_fd, events, EVENTS, 30000);

		if (n == 0)
			die("%u of %u streams have no event", c->waiting, c->count);
		for (int i = 0; i < n; i++)
			take(c, events[i].data.u32);
	}
	return clock_mono_us();
}

/* -- the other side: a process that writes in a loop ----------------------------------- */

struct order {
	unsigned int from, count; /* of its sockets */
	size_t len;
};

struct writer {
	int orders;
	struct crowd all, one;
};

static no_return void write_in_loop(int orders, const int *fds)
{
	static char data[8192];
	struct order o;

	while (recv(orders, &o, sizeof(o), 0) == (ssize_t)sizeof(o)) {
		memset(data, 'x', o.len);
		memcpy(data + o.len - 2, "\n\n", 2);
		for (unsigned int i = o.from; i < o.from + o.count; i++)
			if (send(fds[i], data, o.len, MSG_NOSIGNAL) < 0)
				_exit(1);
	}
	_exit(0);
}

static int listen_loopback(unsigned int *ret_port)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
		                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&at, len) < 0 || listen(fd, 64) < 0 ||
	    getsockname(fd, (struct sockaddr *)&at, &len) < 0)
		die("listen: %m");
	*ret_port = ntohs(at.sin_port);
	return fd;
}

static int accept_one(int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC), on = 1;

	if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) < 0)
		die("accept: %m");
	return fd;
}

/* The last socket is the one that stands alone. */
static void writer_start(struct writer *w, unsigned int count)
{
	int pair[2], *theirs = calloc(count + 1UL, sizeof(*theirs));
	unsigned int port;
	auto_close int listener = listen_loopback(&port);
	pid_t pid;

	if (!theirs || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		die("writer: %m");
	crowd_new(&w->all, count);
	crowd_new(&w->one, 1);
	for (unsigned int i = 0; i <= count; i++) {
		int ours = dial(port);

		theirs[i] = accept_one(listener);
		crowd_add(i < count ? &w->all : &w->one, i < count ? i : 0, ours);
	}
	pid = fork();
	if (pid < 0)
		die("fork: %m");
	if (pid == 0) {
		(void)close(pair[0]);
		write_in_loop(pair[1], theirs);
	}
	(void)close(pair[1]);
	for (unsigned int i = 0; i <= count; i++)
		(void)close(theirs[i]);
	free(theirs);
	w->orders = pair[0];
}

static uint64_t writer_round(struct writer *w, struct crowd *c, size_t len)
{
	const struct order o = { c == &w->all ? 0 : w->all.count, c->count, len };
	uint64_t begin = clock_mono_us();

	if (send(w->orders, &o, sizeof(o), MSG_NOSIGNAL) < 0)
		die("writer: %m");
	return crowd_wait(c) - begin;
}

/* -- the daemon's side: a turn is queued, and cancelled ----------------------------------- */

struct side {
	const char *token, *session;
	int fd;
	size_t len; /* of the event that is measured, as one stream gets it */
	struct crowd streams;
};

static void side_open(struct side *s, unsigned int port, char **words, unsigned int count)
{
	s->token = words[0];
	s->session = words[1];
	s->fd = dial(port);
	crowd_open(&s->streams, port, s->token, count);
}

static uint64_t ask(struct side *s, const struct request *r, int status, struct answer *ret)
{
	uint64_t begin = clock_mono_us(), end;

	send_request(s->fd, r);
	end = crowd_wait(&s->streams);
	read_answer(s->fd, ret);
	if (ret->status != status)
		die("%s %s: %d %s", r->method, r->path, ret->status, ret->body);
	return end - begin;
}

static void side_round(struct side *s, struct figures *f)
{
	static struct answer a;
	char path[128], turn[64];
	const struct request queue = { "POST", path, s->token, "{\"input\":\"hello\"}" };
	const struct request cancel = { "POST", path, s->token, NULL };

	(void)snprintf(path, sizeof(path), "/v1/sessions/%s/turns", s->session);
	figures_add(f, ask(s, &queue, 202, &a));
	s->len = s->streams.bytes;
	if (!json_text(a.body, "id", turn, sizeof(turn)))
		die("a turn without an id: %s", a.body);
	(void)snprintf(path, sizeof(path), "/v1/turns/%s/cancel", turn);
	(void)ask(s, &cancel, 200, &a);
}

static void fan(char **words)
{
	unsigned int port = number(words[0]), count = number(words[5]), rounds = number(words[6]);
	static struct side many, one;
	static struct writer writer;
	struct figures f[4];

	figures_new(&f[0], "daemon_all", rounds);
	figures_new(&f[1], "daemon_one", rounds);
	figures_new(&f[2], "loop_all", rounds);
	figures_new(&f[3], "loop_one", rounds);
	writer_start(&writer, count);
	side_open(&many, port, words + 1, count);
	side_open(&one, port, words + 3, 1);
	for (unsigned int i = 0; i < rounds; i++) {
		side_round(&many, &f[0]);
		side_round(&one, &f[1]);
		figures_add(&f[2], writer_round(&writer, &writer.all, many.len));
		figures_add(&f[3], writer_round(&writer, &writer.one, one.len));
	}
	figures_print(f, ARRAY_LEN(f));
}

/* -- hold ----------------------------------------------------------------------------------- */

static void hold(char **words)
{
	unsigned int port = number(words[0]), count = number(words[2]);
	static struct crowd c;
	char byte;

	crowd_open(&c, port, words[1], count);
	(void)printf("ready\n");
	(void)fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
}

int main(int argc, char **argv)
{
	raise_descriptors();
	if (argc == 5 && strcmp(argv[1], "hold") == 0)
		hold(argv + 2);
	else if (argc == 9 && strcmp(argv[1], "fan") == 0)
		fan(argv + 2);
	else
		die("usage: streams hold PORT TOKEN COUNT | fan PORT TOKEN SESSION OTHER_TOKEN "
		    "OTHER_SESSION COUNT ROUNDS");
	return 0;
}
