#include "daemon/model/courier_client.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/fdmsg.h"
#include "daemon/model/fault.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#define SHORTAGE_MS 200 /* until another try, when descriptors are short */

/* 0 when fd has one of the events. */
static int wait_for(int fd, short events, const struct courier_wait *w, struct err *e)
{
	struct pollfd p[] = { { .fd = w->cancel->fd, .events = POLLIN },
		              { .fd = fd, .events = events } };
	int n;

	do
		n = poll(p, 2, clock_left_ms(w->deadline_ms));
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return err_errno(e, "wait for a provider");
	if (p[0].revents)
		return err_set(e, MODEL_CANCELLED, "cancelled");
	if (n == 0)
		return err_set(e, MODEL_STALLED, "the provider said nothing for too long");
	return 0;
}

/*
 * The keeper is gone, and the server is about to end, which cancels whoever asks: what asked
 * goes on after the next start, and has not failed.
 */
static int gone(const struct courier_wait *w, struct err *e)
{
	const uint64_t end_ms = clock_mono_ms() + COURIER_GONE_MS;
	const struct courier_wait until = { w->cancel,
		                            end_ms < w->deadline_ms ? end_ms : w->deadline_ms };

	if (wait_for(-1, 0, &until, e) < 0 && e->code == MODEL_CANCELLED)
		return -1;
	return err_set(e, MODEL_FAILED, "the process that speaks to providers is gone");
}

/* The courier takes them from one queue, which may be full; that does not outlast a cancel. */
static int send_descriptor(int sock, int fd, const struct courier_wait *w, struct err *e)
{
	const char word = 0;

	while (fdmsg_send(sock, &word, 1, &fd, 1, MSG_DONTWAIT) != 1) {
		if (errno != EAGAIN)
			return gone(w, e);
		if (wait_for(sock, POLLOUT, w, e) < 0)
			return -1;
	}
	return 0;
}

static int send_all(int fd, const void *data, size_t len, const struct courier_wait *w,
                    struct err *e)
{
	const char *at = data;

	while (len > 0) {
		ssize_t n = send(fd, at, len, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return err_set(e, MODEL_UNREACHABLE,
			               "the process that speaks to providers takes no request");
		if (n < 0 && wait_for(fd, POLLOUT, w, e) < 0)
			return -1;
		at += n > 0 ? n : 0;
		len -= n > 0 ? (size_t)n : 0;
	}
	return 0;
}

/* Nobody was asked anything yet: what is short is waited for as an answer would be. */
static int make_pair(int ret_ends[2], const struct courier_wait *w, struct err *e)
{
	while (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ret_ends) < 0) {
		struct pollfd p = { .fd = w->cancel->fd, .events = POLLIN };
		int left = clock_left_ms(w->deadline_ms);

		(void)err_shortage(e, "make a socket for a request");
		if (e->code != ERR_SHORTAGE || left == 0)
			return -1;
		(void)poll(&p, 1, left < SHORTAGE_MS ? left : SHORTAGE_MS);
		if (cancel_fired(w->cancel))
			return err_set(e, MODEL_CANCELLED, "cancelled");
	}
	return 0;
}

int courier_open(int sock, const struct courier_ask *ask, const char *body,
                 const struct courier_wait *w, int *ret_fd, struct err *e)
{
	auto_close int ours = -1;
	auto_close int theirs = -1;
	int ends[2];

	if (make_pair(ends, w, e) < 0)
		return -1;
	ours = ends[0];
	theirs = ends[1];
	if (send_descriptor(sock, theirs, w, e) < 0)
		return -1;
	fd_close(&theirs);
	if (send_all(ours, ask, sizeof(*ask), w, e) < 0 || send_all(ours, body, ask->len, w, e) < 0)
		return -1;
	*ret_fd = fd_take(&ours);
	return 0;
}

static int receive(int fd, void *data, size_t len, const struct courier_wait *w, struct err *e)
{
	char *at = data;

	while (len > 0) {
		ssize_t n;

		if (wait_for(fd, POLLIN, w, e) < 0)
			return -1;
		n = recv(fd, at, len, MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			return err_set(e, MODEL_UNREACHABLE,
			               "the process that speaks to providers gave a request up");
		at += n > 0 ? n : 0;
		len -= n > 0 ? (size_t)n : 0;
	}
	return 0;
}

int courier_next(int fd, const struct courier_wait *w, struct courier_reply *ret, struct err *e)
{
	static const size_t sizes[] = {
		[COURIER_HEAD] = sizeof(struct courier_head),
		[COURIER_END] = sizeof(struct courier_end),
	};
	size_t kind;

	if (receive(fd, &ret->piece, sizeof(ret->piece), w, e) < 0)
		return -1;
	kind = ret->piece.kind;
	if (kind < COURIER_HEAD || kind > COURIER_END || ret->piece.len > COURIER_PIECE_MAX ||
	    (kind != COURIER_BODY && ret->piece.len != sizes[kind]))
		return err_set(e, MODEL_FAILED,
		               "the process that speaks to providers says what nobody knows");
	if (receive(fd, ret->body, ret->piece.len, w, e) < 0)
		return -1;
	if (kind == COURIER_END)
		ret->end.text[sizeof(ret->end.text) - 1] = '\0';
	return 0;
}
