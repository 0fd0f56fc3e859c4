#include "daemon/doctor/net.h"

#include "common/fd.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

bool net_connects(const char *address, uint16_t port, int timeout_ms)
{
	auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	socklen_t len = sizeof(int);
	int failed = 0;

	if (fd < 0 || inet_pton(AF_INET, address, &to.sin_addr) != 1)
		return false;
	if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0)
		return true;
	if (errno != EINPROGRESS || poll(&p, 1, timeout_ms) != 1)
		return false;
	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &len) == 0 && failed == 0;
}

bool net_reached(const struct net_listener *l)
{
	auto_close int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	return fd >= 0;
}

static bool listen_on(const struct in_addr *address, struct net_listener *ret)
{
	auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = *address };
	socklen_t len = sizeof(at);

	if (fd < 0 || bind(fd, (const struct sockaddr *)&at, sizeof(at)) < 0 || listen(fd, 8) < 0 ||
	    getsockname(fd, (struct sockaddr *)&at, &len) < 0 ||
	    !inet_ntop(AF_INET, address, ret->address, sizeof(ret->address)))
		return false;
	ret->port = ntohs(at.sin_port);
	ret->fd = fd;
	if (!net_connects(ret->address, ret->port, 1000) || !net_reached(ret))
		return false;
	(void)fd_take(&fd);
	return true;
}

size_t net_listen(struct net_listener *ret, size_t max)
{
	const struct in_addr loopback = { htonl(INADDR_LOOPBACK) };
	struct ifaddrs *list = NULL;
	size_t n = 0;

	if (getifaddrs(&list) < 0)
		list = NULL;
	for (const struct ifaddrs *i = list; i && n + 1 < max; i = i->ifa_next) {
		struct sockaddr_in address;

		if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET ||
		    (i->ifa_flags & IFF_LOOPBACK))
			continue;
		memcpy(&address, i->ifa_addr, sizeof(address));
		if (listen_on(&address.sin_addr, &ret[n]))
			n++;
	}
	freeifaddrs(list);
	if (listen_on(&loopback, &ret[n]))
		n++;
	return n;
}

void net_close(struct net_listener *l, size_t n)
{
	for (size_t i = 0; i < n; i++)
		fd_close(&l[i].fd);
}

bool net_resolves(const char *name)
{
	const struct addrinfo want = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM };
	struct addrinfo *found = NULL;
	int failed;

	/* The defaults wait for half a minute where there is no network. */
	(void)setenv("RES_OPTIONS", "timeout:1 attempts:2", 1);
	failed = getaddrinfo(name, NULL, &want, &found);
	if (!failed)
		freeaddrinfo(found);
	return !failed;
}
