/*
 * The launcher's one ear beside its children.  What it understands is a number out of five
 * and a UUID, in a message of one size; anything else ends the call.  It never waits for a
 * caller: what a caller does not read lies in a bounded buffer until the caller is gone.
 */
#include "daemon/launcher/control.h"

#include "common/fd.h"
#include "common/log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define NAME     "control"
#define LINE_MAX 2100
#define OUT_MAX  ((size_t)16 << 20) /* the faults of the largest registry */
#define WAITING  4                  /* callers that wait for their turn */

/* First byte of a packet. */
enum packet {
	PACKET_OUT = '-',
	PACKET_ERROR = '!',
	PACKET_STATUS = '=', /* one digit follows; the last */
};

static int make_address(const char *state_dir, struct sockaddr_un *ret, struct err *e)
{
	int n;

	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	n = snprintf(ret->sun_path, sizeof(ret->sun_path), "%s/" NAME, state_dir);
	if (n < 0 || (size_t)n >= sizeof(ret->sun_path))
		return err_set(e, ENAMETOOLONG,
		               "state directory %.200s: too long for a socket in it", state_dir);
	return 0;
}

/* -- the launcher's side ---------------------------------------------------------------------- */

static void watch(struct control *c, int op, int fd, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.fd = fd };

	if (epoll_ctl(c->epoll_fd, op, fd, &event) < 0)
		log_error("control socket: epoll_ctl: %m");
}

/* Whatever descriptor: it stands for the place of another one. */
static void hold_reserve(struct control *c)
{
	if (c->reserve_fd < 0)
		c->reserve_fd = fcntl(c->epoll_fd, F_DUPFD_CLOEXEC, 0);
}

void control_forget(struct control *c)
{
	fd_close(&c->listen_fd);
	fd_close(&c->reserve_fd);
	fd_close(&c->epoll_fd);
}

int control_open(struct control *c, const char *state_dir, struct err *e)
{
	auto_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	auto_close int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	struct sockaddr_un at;

	if (make_address(state_dir, &at, e) < 0)
		return -1;
	/* The lock on the directory is ours, so what lies there is nobody's any more. */
	if (fd < 0 || epoll_fd < 0 || (unlink(at.sun_path) < 0 && errno != ENOENT) ||
	    bind(fd, (const struct sockaddr *)&at, sizeof(at)) < 0 ||
	    chmod(at.sun_path, 0600) < 0 || listen(fd, WAITING) < 0)
		return err_errno(e, "control socket %s", at.sun_path);
	*c = (struct control){ .fd = -1, .reserve_fd = -1, .out = BUF_INIT(OUT_MAX) };
	(void)snprintf(c->path, sizeof(c->path), "%s", at.sun_path);
	c->listen_fd = fd_take(&fd);
	c->epoll_fd = fd_take(&epoll_fd);
	hold_reserve(c);
	/* By its edge: one that cannot be taken is looked at again when there is another. */
	watch(c, EPOLL_CTL_ADD, c->listen_fd, EPOLLIN | EPOLLET);
	return 0;
}

static void hang_up(struct control *c)
{
	fd_close(&c->fd);
	buf_release(&c->out);
	c->asked = c->answered = false;
	watch(c, EPOLL_CTL_MOD, c->listen_fd, EPOLLIN | EPOLLET);
}

void control_close(struct control *c)
{
	if (c->epoll_fd < 0)
		return;
	if (c->fd >= 0)
		hang_up(c);
	(void)unlink(c->path);
	control_forget(c);
}

static bool trusted(int fd)
{
	struct ucred who;
	socklen_t len = sizeof(who);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0)
		return false;
	return who.uid == 0 || who.uid == geteuid();
}

/* Without a descriptor for it a caller is hung up on, rather than left to wait. */
static bool send_away(struct control *c)
{
	int fd;
	bool any;

	fd_close(&c->reserve_fd);
	fd = accept4(c->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	any = fd >= 0;
	fd_close(&fd);
	hold_reserve(c);
	log_error("control socket: no descriptor is left for a caller");
	return any;
}

static void take_caller(struct control *c)
{
	auto_close int fd = accept4(c->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	bool gone = fd >= 0 && !trusted(fd);

	if (gone)
		log_warn("control socket: a caller that is neither root nor this user");
	else if (fd < 0 && (errno == EMFILE || errno == ENFILE))
		gone = send_away(c);
	else if (fd < 0)
		gone = errno == ECONNABORTED || errno == EINTR;
	/* There may be another one behind it. */
	if (gone)
		watch(c, EPOLL_CTL_MOD, c->listen_fd, EPOLLIN | EPOLLET);
	if (gone || fd < 0)
		return;
	c->fd = fd_take(&fd);
	watch(c, EPOLL_CTL_MOD, c->listen_fd, 0); /* the next one when this is done */
	watch(c, EPOLL_CTL_ADD, c->fd, EPOLLIN);
}

static bool request_valid(const struct control_request *r, ssize_t len)
{
	static const struct uuid none = { "" };

	if (len != (ssize_t)sizeof(*r))
		return false;
	switch (r->word) {
	case CONTROL_RELOAD:
	case CONTROL_STATUS:
	case CONTROL_STATUS_JSON:
	case CONTROL_DRAIN:
		return memcmp(&r->tenant, &none, sizeof(none)) == 0;
	case CONTROL_PURGE:
		return r->tenant.text[UUID_TEXT_LEN] == '\0' &&
		       uuid_valid(r->tenant.text, strlen(r->tenant.text));
	default:
		return false;
	}
}

static bool take_request(struct control *c, struct control_request *ret)
{
	struct control_request room[2];
	ssize_t n = recv(c->fd, room, sizeof(room), 0);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	/* A second message, or the end: the caller does not wait for the answer any more. */
	if (c->asked || !request_valid(&room[0], n)) {
		hang_up(c);
		return false;
	}
	c->asked = true;
	*ret = room[0];
	return true;
}

/* Send what the caller takes now. */
static void send_packets(struct control *c)
{
	uint16_t len;

	while (c->fd >= 0 && c->out.len >= sizeof(len)) {
		memcpy(&len, c->out.data, sizeof(len));
		if (send(c->fd, c->out.data + sizeof(len), len, MSG_NOSIGNAL) < 0) {
			if (errno != EAGAIN && errno != EINTR)
				hang_up(c);
			else
				watch(c, EPOLL_CTL_MOD, c->fd, EPOLLIN | EPOLLOUT);
			return;
		}
		buf_consume(&c->out, sizeof(len) + len);
	}
	if (c->fd >= 0 && c->answered)
		hang_up(c);
	else if (c->fd >= 0)
		watch(c, EPOLL_CTL_MOD, c->fd, EPOLLIN);
}

bool control_serve(struct control *c, struct control_request *ret)
{
	struct epoll_event event;

	if (epoll_wait(c->epoll_fd, &event, 1, 0) < 1)
		return false;
	if (event.data.fd == c->listen_fd) {
		take_caller(c);
		return false;
	}
	if (event.events & EPOLLOUT)
		send_packets(c);
	return c->fd >= 0 && (event.events & ~(uint32_t)EPOLLOUT) && take_request(c, ret);
}

/* Some of it is the server's, and it goes to an operator's terminal. */
static void mask_control(char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];
		bool c1 = c >= 0x80 && c <= 0x9f && i > 0 && (unsigned char)text[i - 1] == 0xc2;

		if (c1)
			text[i - 1] = '?';
		if (c1 || c < 0x20 || c == 0x7f)
			text[i] = '?';
	}
}

static void put_packet(struct control *c, enum packet kind, const char *text)
{
	size_t size = strnlen(text, LINE_MAX);
	uint16_t len = (uint16_t)(size + 1);
	char *at;

	if (!c->asked || c->answered)
		return;
	buf_add(&c->out, &len, sizeof(len));
	buf_addc(&c->out, (char)kind);
	at = buf_extend(&c->out, size);
	if (at) {
		memcpy(at, text, size);
		mask_control(at, size);
	}
	if (buf_failed(&c->out))
		hang_up(c); /* and the caller knows that it did not hear all */
}

void control_line(struct control *c, bool error, const char *text)
{
	put_packet(c, error ? PACKET_ERROR : PACKET_OUT, text);
}

void control_end(struct control *c, int exit_status)
{
	const char digit[2] = { (char)('0' + exit_status), '\0' };

	put_packet(c, PACKET_STATUS, digit);
	/* What ends may be another's, who has gone; this one's request is on its way. */
	if (!c->asked)
		return;
	c->answered = true;
	send_packets(c);
}

/* -- the operator's side ----------------------------------------------------------------------- */

static int dial(const char *state_dir, struct err *e)
{
	auto_close int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct sockaddr_un at;

	if (make_address(state_dir, &at, e) < 0)
		return -1;
	if (fd >= 0 && connect(fd, (const struct sockaddr *)&at, sizeof(at)) == 0)
		return fd_take(&fd);
	if (fd >= 0 && (errno == ENOENT || errno == ECONNREFUSED))
		return err_set(e, errno, "no cloisterd runs with the state directory %.200s",
		               state_dir);
	return err_errno(e, "%s", at.sun_path);
}

/* One packet; the exit status, or -2 for more to come. */
static int take_packet(const char *packet, void (*say)(bool error, const char *line))
{
	switch (packet[0]) {
	case PACKET_OUT:
	case PACKET_ERROR:
		say(packet[0] == PACKET_ERROR, packet + 1);
		return -2;
	case PACKET_STATUS:
		return packet[1] >= '0' && packet[1] <= '9' ? packet[1] - '0' : 1;
	default:
		return 1;
	}
}

int control_ask(const char *state_dir, const struct control_request *request,
                void (*say)(bool error, const char *line), struct err *e)
{
	auto_close int fd = dial(state_dir, e);
	char packet[LINE_MAX + 2];
	int status = -2;

	if (fd < 0)
		return -1;
	if (send(fd, request, sizeof(*request), MSG_NOSIGNAL) < 0)
		return err_errno(e, "ask cloisterd");
	while (status == -2) {
		ssize_t n = recv(fd, packet, sizeof(packet) - 1, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return err_set(e, EPIPE, "cloisterd ended the call; see its log");
		packet[n] = '\0';
		status = take_packet(packet, say);
	}
	return status;
}
