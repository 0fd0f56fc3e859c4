#include "runner/report.h"

#include "common/clock.h"
#include "common/fd.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct record {
	int32_t step;
	int32_t value;
	struct err why; /* code 0: none */
};

union control {
	char bytes[CMSG_SPACE(REPORT_FDS_MAX * sizeof(int))];
	struct cmsghdr align;
};

int report_pair(int ret_ends[2], struct err *e)
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ret_ends) < 0)
		return err_errno(e, "make a socket pair");
	return 0;
}

static int send_record(int channel, const struct record *rec, const int *fds, size_t n,
                       struct err *e)
{
	union control control = { 0 };
	struct record copy = *rec;
	struct iovec data = { .iov_base = &copy, .iov_len = sizeof(copy) };
	struct msghdr m = { .msg_iov = &data, .msg_iovlen = 1 };

	if (n > 0) {
		struct cmsghdr *c = &control.align;

		m.msg_control = control.bytes;
		m.msg_controllen = CMSG_SPACE(n * sizeof(int));
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	}
	if (sendmsg(channel, &m, MSG_NOSIGNAL) != (ssize_t)sizeof(copy))
		return err_errno(e, "report step %d", rec->step);
	return 0;
}

int report_send(int channel, const struct report *r, struct err *e)
{
	struct record rec = { .step = (int32_t)r->step, .value = r->value };

	return send_record(channel, &rec, r->fds, r->fd_count, e);
}

void report_error(int channel, enum report_step step, const struct err *why)
{
	struct record rec = { .step = (int32_t)step, .why = *why };
	struct err ignored = ERR_INIT;

	if (rec.why.code == 0)
		rec.why.code = EIO;
	if (send_record(channel, &rec, NULL, 0, &ignored) < 0)
		return; /* the runner is gone, and so is everybody who could read it */
}

static void take_fds(struct msghdr *m, struct report *ret)
{
	struct cmsghdr *c = CMSG_FIRSTHDR(m);

	ret->fd_count = 0;
	if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
		return;
	ret->fd_count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	memcpy(ret->fds, CMSG_DATA(c), ret->fd_count * sizeof(int));
}

static void close_fds(struct report *r)
{
	for (size_t i = 0; i < r->fd_count; i++)
		fd_close(&r->fds[i]);
	r->fd_count = 0;
}

static int wait_readable(int channel, int timeout_ms, struct err *e)
{
	uint64_t deadline = timeout_ms < 0 ? 0 : clock_mono_ms() + (uint64_t)timeout_ms;
	struct pollfd p = { .fd = channel, .events = POLLIN };
	int n;

	do
		n = poll(&p, 1, clock_left_ms(deadline));
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return err_errno(e, "wait for a report");
	if (n == 0)
		return err_set(e, ETIMEDOUT, "no report within %d ms", timeout_ms);
	return 0;
}

int report_wait(int channel, enum report_step step, size_t fd_count, int timeout_ms,
                struct report *ret, struct err *e)
{
	union control control = { 0 };
	struct record rec;
	struct iovec data = { .iov_base = &rec, .iov_len = sizeof(rec) };
	struct msghdr m = { .msg_iov = &data,
		            .msg_iovlen = 1,
		            .msg_control = control.bytes,
		            .msg_controllen = sizeof(control.bytes) };
	struct report got = { 0 };
	ssize_t n;

	if (wait_readable(channel, timeout_ms, e) < 0)
		return -1;
	n = recvmsg(channel, &m, MSG_CMSG_CLOEXEC);
	if (n < 0 && errno != ECONNRESET)
		return err_errno(e, "receive a report");
	if (n <= 0)
		return err_set(e, EPIPE, "the other side is gone");
	take_fds(&m, &got);
	if (n == (ssize_t)sizeof(rec) && rec.why.code != 0) {
		rec.why.text[sizeof(rec.why.text) - 1] = '\0';
		*e = rec.why;
		close_fds(&got);
		return -1;
	}
	if (n != (ssize_t)sizeof(rec) || rec.step != (int32_t)step || got.fd_count != fd_count ||
	    (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
		close_fds(&got);
		return err_set(e, EPROTO, "a report out of order");
	}
	got.step = step;
	got.value = rec.value;
	*ret = got;
	return 0;
}
