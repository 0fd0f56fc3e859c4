#include "common/fdmsg.h"

#include "common/fd.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

union control {
	char room[CMSG_SPACE(FDMSG_MAX * sizeof(int))];
	struct cmsghdr align;
};
_Static_assert(CMSG_SPACE(FDMSG_MAX * sizeof(int)) == CMSG_LEN(FDMSG_MAX * sizeof(int)),
               "padding would have room for one descriptor more than the receiver's array");

ssize_t fdmsg_send(int sock, const void *data, size_t len, const int *fds, size_t count, int flags)
{
	union control control = { .room = { 0 } };
	const union {
		const void *given;
		void *wanted; /* by iovec, which is for both directions */
	} bytes = { data };
	struct iovec part = { .iov_base = bytes.wanted, .iov_len = len };
	struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1 };
	ssize_t n;

	if (count > FDMSG_MAX) {
		errno = EINVAL;
		return -1;
	}
	if (count) {
		m.msg_control = control.room;
		m.msg_controllen = CMSG_SPACE(count * sizeof(int));
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(&control.align), fds, count * sizeof(int));
	}
	do
		n = sendmsg(sock, &m, flags | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n;
}

/* The kernel installs no more than there is room for, and then says so. */
static size_t take_fds(struct msghdr *m, int fds[FDMSG_MAX])
{
	const struct cmsghdr *c = CMSG_FIRSTHDR(m);
	size_t count;

	for (size_t i = 0; i < FDMSG_MAX; i++)
		fds[i] = -1;
	if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
		return 0;
	count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	memcpy(fds, CMSG_DATA(c), count * sizeof(int));
	return count;
}

/*
 * The kernel cuts the descriptors of a message for want of room in the receiver's array, which
 * is then full, and for want of room in its table.
 */
static int fault_of(const struct msghdr *m, ssize_t n, size_t len, size_t count)
{
	if (m->msg_flags & MSG_TRUNC)
		return EMSGSIZE;
	if (!(m->msg_flags & MSG_CTRUNC))
		return 0;
	return (size_t)n == len && count < FDMSG_MAX ? EMFILE : EMSGSIZE;
}

ssize_t fdmsg_receive(int sock, void *data, size_t len, int fds[FDMSG_MAX], size_t *ret_count,
                      int flags)
{
	union control control;
	struct iovec part = { .iov_base = data, .iov_len = len };
	struct msghdr m = { .msg_iov = &part,
		            .msg_iovlen = 1,
		            .msg_control = control.room,
		            .msg_controllen = sizeof(control.room) };
	ssize_t n;
	int fault;

	do
		n = recvmsg(sock, &m, flags | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		m.msg_controllen = 0;
	*ret_count = take_fds(&m, fds);
	fault = n < 0 ? 0 : fault_of(&m, n, len, *ret_count);
	if (fault) {
		for (size_t i = 0; i < *ret_count; i++)
			fd_close(&fds[i]);
		*ret_count = 0;
		errno = fault;
		return -1;
	}
	return n;
}
