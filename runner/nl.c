#include "runner/nl.h"

#include "common/fd.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define ANSWER_MAX ((size_t)64 * 1024)
#define SEND_MAX   (256 * 1024) /* the kernel takes what it allows everybody, doubled */

int nl_open_fd(int bus, int *ret_fd, struct err *e)
{
	struct sockaddr_nl addr = { .nl_family = AF_NETLINK };
	struct timeval wait = { .tv_sec = NL_TIMEOUT_MS / 1000 };
	auto_close int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, bus);
	int room = SEND_MAX;
	int on = 1;

	if (fd < 0)
		return err_errno(e, "open a netlink socket");
	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)) < 0 ||
	    setsockopt(fd, SOL_NETLINK, NETLINK_CAP_ACK, &on, sizeof(on)) < 0)
		return err_errno(e, "set up a netlink socket");
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
		return err_errno(e, "bind a netlink socket");
	*ret_fd = fd_take(&fd);
	return 0;
}

int nl_adopt(int fd, struct nl *ret, struct err *e)
{
	struct mnl_socket *sock = mnl_socket_fdopen(fd);

	if (!sock) {
		int cause = errno;

		(void)close(fd);
		return err_set(e, cause, "cannot take over a netlink socket");
	}
	ret->sock = sock;
	ret->seq = 0;
	return 0;
}

void nl_close(struct nl *nl)
{
	if (nl->sock)
		(void)mnl_socket_close(nl->sock);
	nl->sock = NULL;
}

/* Receive until the callback machinery has seen the end of the answer to seq. */
static int receive(struct nl *nl, uint32_t seq, mnl_cb_t each, void *ctx, struct err *e)
{
	auto_free char *buf = malloc(ANSWER_MAX);
	unsigned int port = mnl_socket_get_portid(nl->sock);
	int more = MNL_CB_OK;

	if (!buf)
		return err_set(e, ENOMEM, "no memory for a netlink answer");
	while (more > MNL_CB_STOP) {
		ssize_t n = mnl_socket_recvfrom(nl->sock, buf, ANSWER_MAX);

		if (n < 0)
			return err_errno(e, "no answer from the kernel");
		more = mnl_cb_run(buf, (size_t)n, seq, port, each, ctx);
	}
	if (more < 0)
		return err_errno(e, "refused by the kernel");
	return 0;
}

static int send_bytes(struct nl *nl, const void *data, size_t len, struct err *e)
{
	if (mnl_socket_sendto(nl->sock, data, len) < 0)
		return err_errno(e, "ask the kernel");
	return 0;
}

int nl_request(struct nl *nl, struct nlmsghdr *request, struct err *e)
{
	request->nlmsg_flags |= NLM_F_REQUEST | NLM_F_ACK;
	return nl_query(nl, request, NULL, NULL, e);
}

int nl_query(struct nl *nl, struct nlmsghdr *request, mnl_cb_t each, void *ctx, struct err *e)
{
	request->nlmsg_flags |= NLM_F_REQUEST;
	request->nlmsg_seq = ++nl->seq;
	if (send_bytes(nl, request, request->nlmsg_len, e) < 0)
		return -1;
	return receive(nl, request->nlmsg_seq, each, ctx, e);
}

/* The kernel answers while it takes the request, so all that will come is there. */
static void drain(struct nl *nl)
{
	char buf[64];

	while (recv(mnl_socket_get_fd(nl->sock), buf, sizeof(buf), MSG_DONTWAIT | MSG_TRUNC) > 0)
		continue;
}

int nl_batch(struct nl *nl, const void *data, size_t len, size_t acks, struct err *e)
{
	if (send_bytes(nl, data, len, e) < 0)
		return -1;
	while (acks-- > 0)
		if (receive(nl, 0, NULL, NULL, e) < 0) {
			drain(nl);
			return -1;
		}
	return 0;
}
