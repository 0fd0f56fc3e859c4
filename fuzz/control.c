/*
 * What processes of ours say to each other: one of them may have been taken over.  The first
 * byte chooses who listens: to messages of launcher and server, to pieces of the courier, to
 * a compiled registry, or to what a runner writes on its standard error.  Bits above those let
 * the launcher's control socket listen instead: to words of an operator, each after a byte of
 * its length, and to what it is to tell them.  Or it is the operator who listens, to packets of
 * an answer, each after two bytes of its length.
 */
#include "fuzz/files.h"
#include "fuzz/fuzz.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/log.h"
#include "daemon/launcher/control.h"
#include "daemon/launcher/message.h"
#include "daemon/launcher/runner_log.h"
#include "daemon/model/courier_client.h"
#include "daemon/tenant/compiled.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A socket that has these bytes and then ends. */
static int socket_with(int type, const uint8_t *data, size_t size)
{
	int room = 1 << 20, ends[2];

	demand(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) == 0);
	demand(setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)) == 0);
	demand(send(ends[1], data, size, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)size);
	fd_close(&ends[1]);
	return ends[0];
}

static void hear_launcher(const uint8_t *data, size_t size)
{
	auto_close int sock = socket_with(SOCK_SEQPACKET, data, size);
	struct launcher_message m;
	struct err e = ERR_INIT;
	int fds[2] = { -1, -1 };

	if (launcher_receive(sock, &m, fds, &e) == 1) {
		demand(size == sizeof(m));
		demand(m.op >= LAUNCHER_READY && m.op <= LAUNCHER_DONE);
		demand(memchr(m.cause, '\0', sizeof(m.cause)));
		demand(memchr(m.tenant.text, '\0', sizeof(m.tenant.text)));
		demand(m.op != LAUNCHER_STARTED && m.op != LAUNCHER_REGISTRY); /* without files */
	}
	demand(fds[0] < 0 && fds[1] < 0);
}

static void hear_courier(const uint8_t *data, size_t size)
{
	auto_close int sock = socket_with(SOCK_STREAM, data, size);
	struct cancel cancel = { .fd = -1 };
	const struct courier_wait w = { &cancel, clock_mono_ms() + 60000 };
	static struct courier_reply reply;
	struct err e = ERR_INIT;
	size_t taken = 0;

	while (courier_next(sock, &w, &reply, &e) == 0) {
		taken += sizeof(reply.piece) + reply.piece.len;
		demand(taken <= size && reply.piece.len <= COURIER_PIECE_MAX);
		if (reply.piece.kind == COURIER_END)
			demand(memchr(reply.end.text, '\0', sizeof(reply.end.text)));
	}
	demand(e.text[0]);
}

static void take_registry(const uint8_t *data, size_t size)
{
	auto_close int fd = memfd_create("registry", MFD_CLOEXEC);
	struct registry *r = NULL;
	struct err e = ERR_INIT;

	demand(fd >= 0 && write(fd, data, size) == (ssize_t)size && lseek(fd, 0, SEEK_SET) == 0);
	if (registry_take(fd, &r, &e) == 0) {
		demand(registry_count(r) > 0 && registry_count(r) <= REGISTRY_MAX_TENANTS);
		for (size_t i = 0; i < registry_count(r); i++)
			demand(registry_find(r, &registry_at(r, i)->id) == registry_at(r, i));
	} else {
		demand(!r && e.text[0]);
	}
	registry_free(&r);
}

static void hear_runner(const uint8_t *data, size_t size)
{
	static const struct uuid tenant = { "0191d2b4-0000-7000-8000-000000000001" };
	static struct runner_log whole, cut;

	runner_log_init(&whole, &tenant, 0);
	runner_log_init(&cut, &tenant, 0);
	runner_log_feed(&whole, (const char *)data, size, 0);
	for (size_t i = 0; i < size; i++)
		runner_log_feed(&cut, (const char *)data + i, 1, 0);
	runner_log_end(&whole, 0);
	runner_log_end(&cut, 0);
	demand(memchr(whole.reason, '\0', sizeof(whole.reason)));
	demand(strcmp(whole.reason, cut.reason) == 0 && whole.budget == cut.budget);
}

/* -- the control socket ----------------------------------------------------------------------- */

static int call_launcher(const struct control *c)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	(void)snprintf(at.sun_path, sizeof(at.sun_path), "%s", c->path);
	demand(fd >= 0 && connect(fd, (const struct sockaddr *)&at, sizeof(at)) == 0);
	return fd;
}

/* What may be asked, and nothing beside it. */
static bool is_request(const uint8_t *data, size_t size)
{
	struct control_request r;
	bool named = false;

	if (size != sizeof(r))
		return false;
	memcpy(&r, data, sizeof(r));
	for (size_t i = 0; i < sizeof(r.tenant); i++)
		named |= ((const char *)&r.tenant)[i] != 0;
	if (r.word == CONTROL_PURGE)
		return !r.tenant.text[36] && uuid_valid(r.tenant.text, 36);
	return r.word >= CONTROL_RELOAD && r.word <= CONTROL_DRAIN && !named;
}

/* A byte that no terminal obeys, behind the one before it. */
static bool is_tame(const char *at)
{
	unsigned char c = (unsigned char)at[0];

	return c >= ' ' && c != 127 && !(c >= 0x80 && c < 0xa0 && (unsigned char)at[-1] == 0xc2);
}

/* Lines of the launcher's, without what a terminal would obey, and the status at the end. */
static void hear_answer(int fd)
{
	char packet[4096];
	bool over = false;
	ssize_t n;

	while ((n = recv(fd, packet, sizeof(packet), MSG_DONTWAIT)) > 0) {
		demand(!over && strchr("-!=", packet[0]) && n <= 2101);
		for (ssize_t i = 1; i < n; i++)
			demand(is_tame(packet + i));
		over = packet[0] == '=';
		demand(!over || (n == 2 && packet[1] == '3'));
	}
	demand(over);
}

static void tell_caller(struct control *c, int fd, const char *text)
{
	control_line(c, false, text);
	control_line(c, true, text);
	control_end(c, CONTROL_BUSY);
	demand(c->fd < 0);
	hear_answer(fd);
}

static void hear_operator(const uint8_t *data, size_t size)
{
	struct control_request got;
	struct control c = { .fd = -1 };
	struct err e = ERR_INIT;
	size_t len = data[0] < size ? data[0] : size - 1;
	char *text = text_of(data + 1 + len, size - 1 - len);
	bool asked = false;
	int fd;

	demand(control_open(&c, input_dir(), &e) == 0);
	fd = call_launcher(&c);
	demand(send(fd, data + 1, len, MSG_NOSIGNAL) == (ssize_t)len);
	for (int i = 0; i < 4 && !asked; i++)
		asked = control_serve(&c, &got);
	demand(asked == is_request(data + 1, len) && (c.fd >= 0) == asked);
	demand(!asked || memcmp(&got.word, data + 1, sizeof(got.word)) == 0);
	if (asked)
		tell_caller(&c, fd, text);
	fd_close(&fd);
	control_close(&c);
	free(text);
}

/* -- who asked it ----------------------------------------------------------------------------- */

#define PACKETS_MAX 64 /* more than that would fill the socket */
#define LINE_ROOM   2101

struct packet {
	const uint8_t *at;
	size_t len;
};

static struct {
	int listen_fd;
	const struct control_request *request;
	struct packet v[PACKETS_MAX];
	size_t n, said; /* how many there are, how many have been heard */
} answer;

static void cut_answer(const uint8_t *data, size_t size)
{
	answer.n = answer.said = 0;
	while (size >= 2 && answer.n < PACKETS_MAX) {
		size_t len = (size_t)data[0] << 8 | data[1];

		data += 2;
		size -= 2;
		len = len < size ? len : size;
		answer.v[answer.n++] = (struct packet){ data, len };
		data += len;
		size -= len;
	}
}

/* A launcher, which says what the input says, when it was asked. */
static void *give_answer(void *ctx)
{
	struct control_request asked = { .word = 0 };
	auto_close int fd = accept4(answer.listen_fd, NULL, NULL, SOCK_CLOEXEC);

	(void)ctx;
	demand(fd >= 0 && recv(fd, &asked, sizeof(asked), 0) == (ssize_t)sizeof(asked));
	demand(asked.word == answer.request->word && !asked.tenant.text[0]);
	for (size_t i = 0; i < answer.n; i++)
		if (send(fd, answer.v[i].at, answer.v[i].len, MSG_NOSIGNAL) < 0)
			break; /* enough was heard */
	return NULL;
}

/* The next packet, and it is a line. */
static void hear_line(bool error, const char *line)
{
	const struct packet *p = &answer.v[answer.said];
	size_t len;

	demand(answer.said++ < answer.n && p->len && p->at[0] == (error ? '!' : '-'));
	len = strnlen((const char *)p->at + 1, (p->len < LINE_ROOM ? p->len : LINE_ROOM) - 1);
	demand(strlen(line) == len && memcmp(line, p->at + 1, len) == 0);
}

/* What the first packet that is no line says; no status when there is none. */
static int find_status(size_t *ret_lines)
{
	const struct packet *p = answer.v, *end = answer.v + answer.n;

	while (p < end && p->len && strchr("-!", p->at[0]) && p->at[0])
		p++;
	*ret_lines = (size_t)(p - answer.v);
	if (p == end || !p->len)
		return -1;
	if (p->at[0] != '=')
		return 1;
	return p->len > 1 && p->at[1] >= '0' && p->at[1] <= '9' ? p->at[1] - '0' : 1;
}

static int listen_here(void)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	(void)snprintf(at.sun_path, sizeof(at.sun_path), "%s/control", input_dir());
	(void)unlink(at.sun_path);
	demand(fd >= 0 && bind(fd, (const struct sockaddr *)&at, sizeof(at)) == 0);
	demand(listen(fd, 1) == 0);
	return fd;
}

static void hear_daemon(const uint8_t *data, size_t size)
{
	const struct control_request request = { .word = CONTROL_STATUS };
	auto_close int listen_fd = listen_here();
	struct err e = ERR_INIT;
	pthread_t thread;
	size_t lines;
	int wanted;

	cut_answer(data, size);
	wanted = find_status(&lines);
	answer.listen_fd = listen_fd;
	answer.request = &request;
	demand(pthread_create(&thread, NULL, give_answer, NULL) == 0);
	demand(control_ask(input_dir(), &request, hear_line, &e) == wanted);
	demand(pthread_join(thread, NULL) == 0);
	demand(answer.said == lines && (wanted < 0) == !!e.text[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2 || size > (size_t)64 << 10)
		return 0;
	log_setup("fuzz", LOG_ERROR);
	if (data[0] / 4 == 16)
		hear_operator(data + 1, size - 1);
	else if (data[0] / 4 == 17)
		hear_daemon(data + 1, size - 1);
	else if (data[0] % 4 == 0)
		hear_launcher(data + 1, size - 1);
	else if (data[0] % 4 == 1)
		hear_courier(data + 1, size - 1);
	else if (data[0] % 4 == 2)
		take_registry(data + 1, size - 1);
	else
		hear_runner(data + 1, size - 1);
	return 0;
}
