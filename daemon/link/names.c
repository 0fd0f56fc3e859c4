#include "daemon/link/names.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/sanitizer.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define STACK ((size_t)512 << 10)

/* Of the thread that looks up and the one that waits; the last one frees it. */
struct lookup {
	char host[256];
	char port[8];
	int done; /* eventfd */
	atomic_int users;
	struct addrinfo *found;
	int rc; /* of getaddrinfo(3) */
};

static atomic_uint lookups;

int names_wait(int fd, short events, int client, uint64_t deadline, struct err *e)
{
	struct pollfd p[] = { { .fd = fd, .events = events }, { .fd = client } };

	for (;;) {
		int n = poll(p, 2, clock_left_ms(deadline));

		if (n < 0 && errno != EINTR)
			return err_errno(e, "poll");
		if (n > 0 && p[1].revents)
			return err_set(e, ECANCELED, "nobody waits any more");
		if (n > 0)
			return 0;
		if (n == 0)
			return err_set(e, ETIMEDOUT, "no answer");
	}
}

int names_detach(void *(*run)(void *ctx), void *ctx, struct err *e)
{
	pthread_attr_t attr;
	pthread_t thread;
	int rc;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK + SANITIZER_STACK);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	rc = pthread_create(&thread, &attr, run, ctx);
	pthread_attr_destroy(&attr);
	if (rc)
		return err_set(e, rc, "no thread can be started");
	return 0;
}

static void let_go(struct lookup *l)
{
	if (atomic_fetch_sub(&l->users, 1) > 1)
		return;
	if (l->found)
		freeaddrinfo(l->found);
	fd_close(&l->done);
	free(l);
}

static void *look_up(void *ctx)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV };
	const uint64_t one = 1;
	struct lookup *l = ctx;

	l->rc = getaddrinfo(l->host, l->port, &hints, &l->found);
	if (write(l->done, &one, sizeof(one)) < 0)
		l->rc = EAI_SYSTEM; /* nobody will look at it */
	atomic_fetch_sub(&lookups, 1);
	let_go(l);
	return NULL;
}

static struct lookup *new_lookup(const char *host, uint16_t port, struct err *e)
{
	struct lookup *l = calloc(1, sizeof(*l));

	if (!l) {
		(void)err_set(e, ENOMEM, "no memory");
		return NULL;
	}
	(void)snprintf(l->host, sizeof(l->host), "%s", host);
	(void)snprintf(l->port, sizeof(l->port), "%u", port);
	l->users = 1;
	l->done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (l->done >= 0)
		return l;
	(void)err_errno(e, "eventfd");
	free(l);
	return NULL;
}

static int start(struct lookup *l, struct err *e)
{
	if (atomic_fetch_add(&lookups, 1) >= NAMES_LOOKUPS_MAX) {
		atomic_fetch_sub(&lookups, 1);
		return err_set(e, EAGAIN, "name service still has %d questions to answer",
		               NAMES_LOOKUPS_MAX);
	}
	atomic_fetch_add(&l->users, 1);
	if (names_detach(look_up, l, e) == 0)
		return 0;
	atomic_fetch_sub(&l->users, 1);
	atomic_fetch_sub(&lookups, 1);
	return -1;
}

static int take(struct lookup *l, struct addrinfo **ret, struct err *e)
{
	if (l->rc == EAI_NONAME)
		return err_set(e, ENOENT, "name not found");
	if (l->rc)
		return err_set(e, EIO, "name service: %s", gai_strerror(l->rc));
	*ret = mem_take(&l->found);
	return 0;
}

int names_look_up(const char *host, uint16_t port, int client, uint64_t deadline,
                  struct addrinfo **ret, struct err *e)
{
	struct lookup *l = new_lookup(host, port, e);
	uint64_t done;
	int rc = -1;

	if (!l)
		return -1;
	if (start(l, e) == 0 && names_wait(l->done, POLLIN, client, deadline, e) == 0) {
		/* What the other thread has written is ours to see once this has been read. */
		if (read(l->done, &done, sizeof(done)) == sizeof(done))
			rc = take(l, ret, e);
		else
			(void)err_errno(e, "eventfd");
	}
	let_go(l);
	return rc;
}
