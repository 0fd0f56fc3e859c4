#include "runner/report.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/fdmsg.h"

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

int report_pair(int ret_ends[2], struct err *e)
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ret_ends) < 0)
		return err_errno(e, "make a socket pair");
	return 0;
}

static int send_record(int channel, const struct record *rec, const int *fds, size_t n,
                       struct err *e)
{
	if (fdmsg_send(channel, rec, sizeof(*rec), fds, n, 0) != (ssize_t)sizeof(*rec))
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
	struct record rec;
	struct report got = { 0 };
	ssize_t n;

	if (wait_readable(channel, timeout_ms, e) < 0)
		return -1;
	n = fdmsg_receive(channel, &rec, sizeof(rec), got.fds, &got.fd_count, 0);
	if (n < 0 && errno == EMSGSIZE)
		return err_set(e, EPROTO, "a report that is too long");
	if (n < 0 && errno != ECONNRESET)
		return err_errno(e, "receive a report");
	if (n <= 0)
		return err_set(e, EPIPE, "the other side is gone");
	if (n == (ssize_t)sizeof(rec) && rec.why.code != 0) {
		rec.why.text[sizeof(rec.why.text) - 1] = '\0';
		*e = rec.why;
		close_fds(&got);
		return -1;
	}
	if (n != (ssize_t)sizeof(rec) || rec.step != (int32_t)step || got.fd_count != fd_count) {
		close_fds(&got);
		return err_set(e, EPROTO, "a report out of order");
	}
	got.step = step;
	got.value = rec.value;
	*ret = got;
	return 0;
}
