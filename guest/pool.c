#include "guest/pool.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/fdmsg.h"
#include "guest/fault.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define SPARES_MAX 4
#define QUIET_MS   25 /* no spare is forked while an exec has just started: it would slow it */

static struct {
	struct supervisor *all;
	size_t count;
	size_t spares;
	size_t max;
	struct rlimit files;
	uint64_t spare_due_ms; /* 0 = there is one */
} pool;

static void pool_drop(struct supervisor *s)
{
	struct supervisor **at = &pool.all;

	while (*at && *at != s)
		at = &(*at)->next;
	if (*at)
		*at = s->next;
	pool.count--;
	pool.spares -= !s->busy;
	source_close(&s->sock);
	free(s);
}

/* Its tree is gone, so it is as good as new. */
static void pool_recycle(struct supervisor *s)
{
	s->owner = NULL;
	s->on_report = NULL;
	s->busy = false;
	pool.spares++;
	pool.spare_due_ms = 0;
	if (pool.spares > SPARES_MAX)
		pool_drop(s);
}

bool report_is_last(const struct report *r)
{
	return r->type == REPORT_FAILED || r->type == REPORT_GONE ||
	       (r->type == REPORT_ENDED && r->gone);
}

static void supervisor_lost(struct supervisor *s)
{
	if (s->owner)
		fault_die(GUEST_EXIT_TREE, "the supervisor of a running command died");
	pool_drop(s);
}

static void sock_ready(struct source *source, uint32_t events)
{
	struct supervisor *s = source_owner(source, struct supervisor, sock);
	struct report r;
	ssize_t n = recv(source->fd, &r, sizeof(r), MSG_DONTWAIT);

	(void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n != (ssize_t)sizeof(r) || !s->busy) {
		supervisor_lost(s);
		return;
	}
	if (s->owner)
		s->on_report(s->owner, &r);
	if (report_is_last(&r))
		pool_recycle(s);
}

/* The parent's end of the socket; -1 with e. */
static int fork_supervisor(pid_t *ret_pid, struct err *e)
{
	auto_close int ours = -1;
	auto_close int theirs = -1;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_set(e, FAULT_AGAIN, "no socket for a command: %s", strerror(errno));
	ours = pair[0];
	theirs = pair[1];
	*ret_pid = fork();
	if (*ret_pid < 0)
		return err_set(e, FAULT_AGAIN, "no process for a command: %s", strerror(errno));
	if (*ret_pid == 0)
		supervisor_main(theirs, &pool.files);
	return fd_take(&ours);
}

/* A new spare; NULL with e. */
static struct supervisor *pool_fork(struct err *e)
{
	struct supervisor *s;
	pid_t pid = -1;
	int sock;

	if (pool.count >= pool.max) {
		(void)err_set(e, FAULT_AGAIN, "%zu commands run or left processes", pool.count);
		return NULL;
	}
	sock = fork_supervisor(&pid, e);
	if (sock < 0)
		return NULL;
	s = calloc(1, sizeof(*s));
	if (!s) {
		fd_close(&sock); /* which ends the supervisor */
		(void)err_set(e, FAULT_AGAIN, "no memory for a command");
		return NULL;
	}
	source_init(&s->sock, sock, sock_ready);
	s->pid = pid;
	s->next = pool.all;
	pool.all = s;
	pool.count++;
	pool.spares++;
	source_watch(&s->sock, EPOLLIN);
	return s;
}

static struct supervisor *find_spare(void)
{
	struct supervisor *s = pool.all;

	while (s && s->busy)
		s = s->next;
	return s;
}

static int send_order(const struct supervisor *s, enum order order, const int *fds, size_t n)
{
	uint32_t word = order;

	return fdmsg_send(s->sock.fd, &word, sizeof(word), fds, n, MSG_DONTWAIT) < 0 ? -1 : 0;
}

struct supervisor *pool_run(const int *fds, void *owner,
                            void (*on_report)(void *owner, const struct report *r), struct err *e)
{
	struct supervisor *s;

	/* A tenant may have killed spares; a fresh one takes the job or nothing does. */
	while ((s = find_spare()) && send_order(s, ORDER_RUN, fds, 4) < 0)
		pool_drop(s);
	if (!s) {
		s = pool_fork(e);
		if (!s)
			return NULL;
		if (send_order(s, ORDER_RUN, fds, 4) < 0) {
			(void)err_set(e, FAULT_AGAIN, "start a command: %s", strerror(errno));
			pool_drop(s);
			return NULL;
		}
	}
	s->busy = true;
	s->owner = owner;
	s->on_report = on_report;
	pool.spares--;
	if (!pool.spares)
		pool.spare_due_ms = clock_mono_ms() + QUIET_MS;
	return s;
}

void pool_order(struct supervisor *s, enum order order, const int *fds, size_t n)
{
	/* A tenant may have stopped it; it must run to kill. */
	(void)kill(s->pid, SIGCONT);
	if (send_order(s, order, fds, n) < 0)
		fault_die(GUEST_EXIT_TREE, "the supervisor of a command takes no orders: %s",
		          strerror(errno));
}

size_t pool_left(void)
{
	size_t n = 0;

	for (const struct supervisor *s = pool.all; s; s = s->next)
		n += s->busy && !s->on_report;
	return n;
}

void pool_reaped(pid_t pid)
{
	struct supervisor *s = pool.all;

	while (s && s->pid != pid)
		s = s->next;
	if (s)
		supervisor_lost(s);
}

uint64_t pool_turn(uint64_t now_ms)
{
	struct err e = ERR_INIT;

	if (!pool.spare_due_ms || now_ms < pool.spare_due_ms)
		return pool.spare_due_ms;
	pool.spare_due_ms = 0;
	/* Not having a spare costs the next exec some milliseconds, no more. */
	(void)pool_fork(&e);
	return 0;
}

void pool_open(size_t max, const struct rlimit *files)
{
	pool.max = max;
	pool.files = *files;
	pool.spare_due_ms = 1;
}

void pool_close(void)
{
	while (pool.all)
		pool_drop(pool.all);
}
