/*
 * Turns in numbers.
 *
 *   turns PORT TOKEN INPUT ROUNDS <SESSIONS
 *
 * Every session of the input has one turn under way all the time, until so many turns have
 * ended in all.  Prints, for each, the time from the first byte of the request to the last
 * byte of the event turn.completed, and what passed between tool.started and tool.finished.
 * Then it waits for another line of input, which is a number of rounds, and does it again.
 */
#include "bench/net.h"
#include "common/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define SENDERS  64
#define SESSIONS 10000
#define UUID     36

struct session {
	char id[UUID + 1];
	bool accepted, completed;
	uint64_t begin_us, tool_us;
};

/* A connection that sends one request at a time. */
struct sender {
	int fd;
	struct session *busy;
	size_t len;
	char data[8192];
};

static struct {
	unsigned int port;
	const char *token;
	char body[4096];
	struct session sessions[SESSIONS];
	size_t count;
	struct session *ready[SESSIONS]; /* to begin a turn, a ring */
	size_t first, waiting;
	struct sender senders[SENDERS];
	size_t sender_count;
	size_t left, under_way; /* turns to begin; turns begun and not ended */
	int stream, epoll_fd;
	char data[1 << 20]; /* of the stream */
	size_t len;
	struct figures turn, tool;
} all;

static void put_ready(struct session *s)
{
	all.ready[(all.first + all.waiting++) % SESSIONS] = s;
}

static int compare(const void *a, const void *b)
{
	const struct session *x = a, *y = b;

	return strcmp(x->id, y->id);
}

static struct session *find(const char *id)
{
	struct session key;

	(void)snprintf(key.id, sizeof(key.id), "%s", id);
	return bsearch(&key, all.sessions, all.count, sizeof(key), compare);
}

/* -- sending ------------------------------------------------------------------------------ */

static void begin(struct sender *on)
{
	struct session *s = all.ready[all.first];
	char path[128];
	const struct request r = { "POST", path, all.token, all.body };

	all.first = (all.first + 1) % SESSIONS;
	all.waiting--;
	all.left--;
	all.under_way++;
	s->accepted = s->completed = false;
	s->begin_us = clock_mono_us();
	on->busy = s;
	(void)snprintf(path, sizeof(path), "/v1/sessions/%s/turns", s->id);
	send_request(on->fd, &r);
}

static void send_more(void)
{
	for (size_t i = 0; i < all.sender_count && all.left && all.waiting; i++)
		if (!all.senders[i].busy)
			begin(&all.senders[i]);
}

static void over(struct session *s)
{
	if (!s->accepted || !s->completed)
		return;
	all.under_way--;
	put_ready(s);
}

static void take_answer(struct sender *from)
{
	ssize_t n = recv(from->fd, from->data + from->len, sizeof(from->data) - from->len,
	                 MSG_DONTWAIT);
	static struct answer a;
	struct session *s = from->busy;

	if (n <= 0)
		die("no answer: %s", n < 0 ? strerror(errno) : "closed");
	from->len += (size_t)n;
	if (!answer_length(from->data, from->len, &a))
		return;
	if (a.status != 202 || !s)
		die("a turn was answered %d %s", a.status, a.body);
	from->len = 0;
	from->busy = NULL;
	s->accepted = true;
	over(s);
}

/* -- the stream --------------------------------------------------------------------------- */

static bool is(const char *event, const char *type)
{
	const char *at = strstr(event, "event: ");

	return at && strncmp(at + 7, type, strlen(type)) == 0 && at[7 + strlen(type)] == '\n';
}

static void take_event(const char *event)
{
	uint64_t now = clock_mono_us();
	struct session *s;
	char id[UUID + 1];

	if (event[0] == ':')
		return;
	if (is(event, "replay.reset") || is(event, "turn.failed"))
		die("%s", event);
	s = json_text(event, "sessionId", id, sizeof(id)) ? find(id) : NULL;
	if (!s)
		return;
	if (is(event, "tool.started"))
		s->tool_us = now;
	else if (is(event, "tool.finished"))
		figures_add(&all.tool, now - s->tool_us);
	if (!is(event, "turn.completed"))
		return;
	figures_add(&all.turn, now - s->begin_us);
	s->completed = true;
	over(s);
}

static void take_stream(void)
{
	ssize_t n =
		recv(all.stream, all.data + all.len, sizeof(all.data) - 1 - all.len, MSG_DONTWAIT);
	char *at = all.data, *end;

	if (n <= 0)
		die("the event stream: %s", n < 0 ? strerror(errno) : "closed");
	all.len += (size_t)n;
	all.data[all.len] = '\0';
	while ((end = strstr(at, "\n\n"))) {
		*end = '\0';
		take_event(at);
		at = end + 2;
	}
	all.len -= (size_t)(at - all.data);
	memmove(all.data, at, all.len);
	if (all.len == sizeof(all.data) - 1)
		die("an event is too long");
}

/* -- ---------------------------------------------------------------------------------------- */

static void watch(int fd, void *what)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = what };

	if (epoll_ctl(all.epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0)
		die("epoll: %m");
}

static void read_sessions(void)
{
	char line[64];

	while (fgets(line, sizeof(line), stdin) && line[0] != '\n') {
		if (strlen(line) != UUID + 1 || all.count == SESSIONS)
			die("not a session: %s", line);
		memcpy(all.sessions[all.count++].id, line, UUID);
	}
	if (!all.count)
		die("no sessions");
	qsort(all.sessions, all.count, sizeof(all.sessions[0]), compare);
	for (size_t i = 0; i < all.count; i++)
		put_ready(&all.sessions[i]);
}

static void open_all(void)
{
	all.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (all.epoll_fd < 0)
		die("epoll: %m");
	all.stream = open_stream(all.port, all.token);
	watch(all.stream, NULL);
	all.sender_count = all.count < SENDERS ? all.count : SENDERS;
	for (size_t i = 0; i < all.sender_count; i++) {
		all.senders[i].fd = dial(all.port);
		watch(all.senders[i].fd, &all.senders[i]);
	}
}

static void run(unsigned int rounds)
{
	struct epoll_event events[SENDERS + 1];

	figures_new(&all.turn, "turn", rounds);
	figures_new(&all.tool, "tool", rounds);
	all.left = rounds;
	send_more();
	while (all.under_way) {
		int n = epoll_wait(all.epoll_fd, events, SENDERS + 1, 60000);

		if (n == 0)
			die("%zu turns have no end", all.under_way);
		for (int i = 0; i < n; i++) {
			if (events[i].data.ptr)
				take_answer(events[i].data.ptr);
			else
				take_stream();
		}
		send_more();
	}
	figures_print((struct figures[]){ all.turn, all.tool }, 2);
	free(all.turn.us);
	free(all.tool.us);
}

/* The rest of an input line that stands for a JSON text; it must need no escapes. */
static void set_input(const char *text)
{
	if (strpbrk(text, "\"\\\n"))
		die("the input must need no escapes: %s", text);
	(void)snprintf(all.body, sizeof(all.body), "{\"input\":\"%s\"}", text);
}

int main(int argc, char **argv)
{
	char line[64];

	if (argc != 5)
		die("usage: turns PORT TOKEN INPUT ROUNDS <SESSIONS");
	raise_descriptors();
	all.port = number(argv[1]);
	all.token = argv[2];
	set_input(argv[3]);
	read_sessions();
	open_all();
	run(number(argv[4]));
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		run(number(line));
	}
	return 0;
}
