#include "daemon/launcher/notify.h"

#include "common/fd.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static int set_address(struct notify *n, const char *name, struct err *e)
{
	size_t len = strlen(name);

	/* A path, or a name in the abstract namespace, which is written with an @. */
	if ((name[0] != '/' && name[0] != '@') || len < 2)
		return err_set(e, EAFNOSUPPORT, "NOTIFY_SOCKET is neither a path nor @name");
	if (len >= sizeof(n->address.sun_path))
		return err_set(e, ENAMETOOLONG, "NOTIFY_SOCKET is longer than %zu bytes",
		               sizeof(n->address.sun_path) - 1);
	n->address.sun_family = AF_UNIX;
	memcpy(n->address.sun_path, name, len);
	if (name[0] == '@')
		n->address.sun_path[0] = '\0';
	n->len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
	return 0;
}

int notify_take(struct notify *ret, struct err *e)
{
	const char *name = getenv("NOTIFY_SOCKET");
	int rc = 0;

	memset(ret, 0, sizeof(*ret));
	if (name)
		rc = set_address(ret, name, e);
	(void)unsetenv("NOTIFY_SOCKET");
	(void)unsetenv("WATCHDOG_PID");
	(void)unsetenv("WATCHDOG_USEC");
	return rc;
}

int notify_send(const struct notify *n, const char *state, struct err *e)
{
	auto_close int fd = -1;

	if (n->len == 0)
		return 0;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_errno(e, "open a socket for the service manager");
	if (sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&n->address,
	           n->len) < 0)
		return err_errno(e, "tell the service manager");
	return 0;
}
