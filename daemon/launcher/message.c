#include "daemon/launcher/message.h"

#include "common/fd.h"
#include "common/fdmsg.h"

#include <errno.h>
#include <string.h>

int launcher_send(int sock, const struct launcher_message *m, const int fds[2], struct err *e)
{
	size_t count = !fds ? 0 : fds[1] < 0 ? 1 : 2;

	if (fdmsg_send(sock, m, sizeof(*m), fds, count, 0) < 0)
		return err_errno(e, "send a message between launcher and server");
	return 0;
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

/* lost: it came with descriptors, for which there was no room here. */
static int check(const struct launcher_message *m, size_t descriptors, bool lost, struct err *e)
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
	if (lost && !wanted)
		return err_set(e, EPROTO, "message %u came with descriptors", m->op);
	if (!lost && descriptors != wanted)
		return err_set(e, EPROTO, "message %u came with %zu descriptors, not %zu", m->op,
		               descriptors, wanted);
	return 0;
}

int launcher_receive(int sock, struct launcher_message *ret, int ret_fds[2], struct err *e)
{
	struct launcher_message m;
	int fds[FDMSG_MAX];
	size_t descriptors;
	ssize_t n = fdmsg_receive(sock, &m, sizeof(m), fds, &descriptors, 0);
	bool lost = n < 0 && errno == EMFILE;

	if (lost)
		n = sizeof(m);
	if (n < 0 && errno == ECONNRESET)
		return 0;
	if (n < 0 && errno == EMSGSIZE)
		return err_set(e, EPROTO, "a message of more than %zu bytes or %d descriptors",
		               sizeof(m), FDMSG_MAX);
	if (n < 0)
		return err_errno(e, "receive a message between launcher and server");
	if (n == 0 && descriptors == 0)
		return 0;
	if (n == sizeof(m) && check(&m, descriptors, lost, e) == 0) {
		*ret = m;
		ret_fds[0] = fds[0];
		ret_fds[1] = fds[1];
		return 1;
	}
	for (size_t i = 0; i < descriptors; i++)
		fd_close(&fds[i]);
	return n == sizeof(m) ? -1
	                      : err_set(e, EPROTO, "a message of less than %zu bytes", sizeof(m));
}
