#include "daemon/launcher/message.h"

#include "common/fd.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* Room for the two descriptors of LAUNCHER_STARTED and for nothing more. */
union control {
	char room[CMSG_SPACE(2 * sizeof(int))];
	struct cmsghdr align;
};

static void put_descriptors(struct msghdr *h, union control *c, const int fds[2])
{
	size_t size = (fds[1] < 0 ? 1 : 2) * sizeof(int);
	struct cmsghdr *item;

	memset(c, 0, sizeof(*c));
	h->msg_control = c->room;
	h->msg_controllen = CMSG_SPACE(size);
	item = CMSG_FIRSTHDR(h);
	item->cmsg_level = SOL_SOCKET;
	item->cmsg_type = SCM_RIGHTS;
	item->cmsg_len = CMSG_LEN(size);
	memcpy(CMSG_DATA(item), fds, size);
}

int launcher_send(int sock, const struct launcher_message *m, const int fds[2], struct err *e)
{
	struct launcher_message copy = *m;
	struct iovec part = { .iov_base = &copy, .iov_len = sizeof(copy) };
	struct msghdr h = { .msg_iov = &part, .msg_iovlen = 1 };
	union control control;
	ssize_t n;

	if (fds)
		put_descriptors(&h, &control, fds);
	do
		n = sendmsg(sock, &h, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return err_errno(e, "send a message between launcher and server");
	return 0;
}

/* Collects what came; returns how many descriptors that were, all of them owned by the caller. */
static size_t get_descriptors(struct msghdr *h, int ret_fds[2])
{
	size_t n = 0;

	for (struct cmsghdr *item = CMSG_FIRSTHDR(h); item; item = CMSG_NXTHDR(h, item)) {
		size_t len = item->cmsg_len - CMSG_LEN(0);

		if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = 0; at + sizeof(int) <= len && n < 2; at += sizeof(int))
			memcpy(&ret_fds[n++], CMSG_DATA(item) + at, sizeof(int));
	}
	return n;
}

static int check_text(const struct launcher_message *m, struct err *e)
{
	if (!memchr(m->cause, '\0', sizeof(m->cause)))
		return err_set(e, EPROTO, "message %u: the cause has no end", m->op);
	if (!memchr(m->tenant.text, '\0', sizeof(m->tenant.text)))
		return err_set(e, EPROTO, "message %u: the tenant's id has no end", m->op);
	return 0;
}

static int check_sandbox(const struct launcher_message *m, struct err *e)
{
	if (!uuid_valid(m->tenant.text, strlen(m->tenant.text)))
		return err_set(e, EPROTO, "message %u: the tenant's id is not a UUID", m->op);
	if (m->generation == 0)
		return err_set(e, EPROTO, "message %u: the generation is 0", m->op);
	return 0;
}

static size_t descriptors_of(uint32_t op)
{
	if (op == LAUNCHER_STARTED)
		return 2;
	return op == LAUNCHER_REGISTRY || op == LAUNCHER_STATUS ? 1 : 0;
}

static int check_order(const struct launcher_message *m, struct err *e)
{
	if (m->generation == 0)
		return err_set(e, EPROTO, "message %u: the number is 0", m->op);
	return 0;
}

static int check(const struct launcher_message *m, size_t descriptors, struct err *e)
{
	size_t wanted = descriptors_of(m->op);

	if (check_text(m, e) < 0)
		return -1;
	switch (m->op) {
	case LAUNCHER_READY:
		if (m->port == 0 || m->port > 65535)
			return err_set(e, EPROTO, "port %u is none", m->port);
		break;
	case LAUNCHER_STARTED:
		if (m->processes == 0)
			return err_set(e, EPROTO, "message %u: no process is allowed", m->op);
		if (check_sandbox(m, e) < 0)
			return -1;
		break;
	case LAUNCHER_START:
	case LAUNCHER_KILL:
	case LAUNCHER_EXITED:
	case LAUNCHER_PURGE:
		if (check_sandbox(m, e) < 0)
			return -1;
		break;
	case LAUNCHER_REGISTRY:
	case LAUNCHER_STATUS:
	case LAUNCHER_PAUSE:
	case LAUNCHER_DONE:
		if (check_order(m, e) < 0)
			return -1;
		break;
	case LAUNCHER_DRAIN:
		break;
	default:
		return err_set(e, EPROTO, "unknown message %u", m->op);
	}
	if (descriptors != wanted)
		return err_set(e, EPROTO, "message %u came with %zu descriptors, not %zu", m->op,
		               descriptors, wanted);
	return 0;
}

int launcher_receive(int sock, struct launcher_message *ret, int ret_fds[2], struct err *e)
{
	auto_close int first = -1, second = -1;
	struct launcher_message m;
	struct iovec part = { .iov_base = &m, .iov_len = sizeof(m) };
	union control control;
	struct msghdr h = { .msg_iov = &part,
		            .msg_iovlen = 1,
		            .msg_control = control.room,
		            .msg_controllen = sizeof(control.room) };
	int fds[2] = { -1, -1 };
	size_t descriptors;
	ssize_t n;

	do
		n = recvmsg(sock, &h, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == ECONNRESET)
		return 0;
	if (n < 0)
		return err_errno(e, "receive a message between launcher and server");
	descriptors = get_descriptors(&h, fds);
	first = fds[0];
	second = fds[1];
	if (n == 0 && descriptors == 0)
		return 0;
	if (n != sizeof(m) || (h.msg_flags & MSG_TRUNC))
		return err_set(e, EPROTO, "a message of %s than %zu bytes",
		               (size_t)n < sizeof(m) ? "less" : "more", sizeof(m));
	if (h.msg_flags & MSG_CTRUNC)
		return err_set(e, EPROTO, "a message came with too many descriptors");
	if (check(&m, descriptors, e) < 0)
		return -1;
	*ret = m;
	ret_fds[0] = fd_take(&first);
	ret_fds[1] = fd_take(&second);
	return 1;
}
