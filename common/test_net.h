/*
 * test_net.h - ports of a unit test.  Include after common/test.h.
 */
#ifndef COMMON_TEST_NET_H
#define COMMON_TEST_NET_H

#include "common/test.h"

#include <arpa/inet.h>
#include <sys/socket.h>

/* A port of 127.0.0.1 that listens when backlog >= 0. */
static inline int open_port(int backlog, uint16_t *ret_port)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	if (backlog >= 0)
		assert_int_equal(listen(fd, backlog), 0);
	*ret_port = ntohs(at.sin_port);
	return fd;
}

#endif
