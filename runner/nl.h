/*
 * nl.h - question and answer over a netlink socket.
 *
 * The socket belongs to the network namespace it was opened in, whoever uses it
 * later.  Every wait ends after NL_TIMEOUT_MS.
 */
#ifndef RUNNER_NL_H
#define RUNNER_NL_H

#include "common/err.h"

#include <libmnl/libmnl.h>
#include <stddef.h>
#include <stdint.h>

#define NL_TIMEOUT_MS 5000
#define NL_MSG_MAX    8192 /* room for one request that is not a batch */

struct nl {
	struct mnl_socket *sock; /* NULL when closed */
	uint32_t seq;
};

#define NL_INIT              \
	{                    \
		.sock = NULL \
	}
#define auto_nl __attribute__((cleanup(nl_close)))

/* A bound socket in this process's network namespace; bus is NETLINK_ROUTE or NETLINK_NETFILTER. */
int nl_open_fd(int bus, int *ret_fd, struct err *e) must_check;

/* Take over such a socket; on failure too. */
int nl_adopt(int fd, struct nl *ret, struct err *e) must_check;

void nl_close(struct nl *nl);

/* Send one request (its sequence number is set here) and wait for its acknowledgement. */
int nl_request(struct nl *nl, struct nlmsghdr *request, struct err *e) must_check;

/*
 * Send a request that is answered by messages, and hand each to each(); that
 * returns MNL_CB_OK, or MNL_CB_ERROR with errno.  EINTR means that a dump was
 * not consistent: ask again.
 */
int nl_query(struct nl *nl, struct nlmsghdr *request, mnl_cb_t each, void *ctx, struct err *e)
	must_check;

/*
 * Send len bytes of several messages, of which acks ask for an acknowledgement,
 * and wait for all of these, or for the first that says no.  Sequence numbers are the caller's,
 * taken from nl->seq.
 */
int nl_batch(struct nl *nl, const void *data, size_t len, size_t acks, struct err *e) must_check;

#endif
