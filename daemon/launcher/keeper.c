#include "daemon/launcher/keeper.h"

#include "common/clock.h"
#include "common/fd.h"
#include "common/log.h"
#include "common/sanitizer.h"
#include "daemon/confine/confine.h"
#include "daemon/launcher/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define RESTART_MIN_MS 100
#define RESTART_MAX_MS 10000
#define STEADY_MS      60000 /* one that lived so long begins anew at once */

struct keeper {
	const struct kept *kept;
	int sock;
	int ready; /* where a first one says how it began; -1 = nobody listens any more */
};

/* -- what is kept ------------------------------------------------------------------------------ */

/* What the server is told of the start: nothing wrong is an empty text. */
static void tell(const struct keeper *k, const char *text)
{
	if (k->ready >= 0 && write(k->ready, text, strlen(text) + 1) < 0)
		_exit(1);
}

static no_return void be_kept(struct keeper *k, pid_t keeper)
{
	const struct kept *kept = k->kept;
	struct err e = ERR_INIT;

	child_begin(keeper);
	(void)signal(SIGPIPE, SIG_IGN);
	if (kept->begin(kept->ctx, k->sock, &e) < 0) {
		log_error("%s does not start: %s", kept->name, e.text);
		tell(k, e.text);
		_exit(1);
	}
	tell(k, "");
	fd_close(&k->ready);
	kept->work(kept->ctx);
	sanitizer_fault(kept->who);
	sanitizer_count_leaks();
	/* Threads that look names up may go on for a while; nobody waits for them. */
	_exit(0);
}

/* -- the keeper -------------------------------------------------------------------------------- */

/* Until it ends; how it did. */
static int run_one(struct keeper *k)
{
	pid_t keeper = getpid(), pid = fork();
	int status = 1 << 8; /* as of exit(1) */

	if (pid == 0)
		be_kept(k, keeper);
	fd_close(&k->ready); /* the server hears of a first one that ends without a word */
	while (pid > 0 && waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			break;
	return status;
}

/* One that ends in order has seen the server's end closed. */
static no_return void keep(struct keeper *k)
{
	unsigned int ms = RESTART_MIN_MS;

	for (;;) {
		uint64_t began = clock_mono_ms();
		int status = run_one(k);
		char how[CHILD_END_SIZE];

		/* One that was asked for a fault would end of it again and again. */
		if ((WIFEXITED(status) && WEXITSTATUS(status) == 0) || sanitizer_asked()) {
			sanitizer_fault("keeper");
			sanitizer_count_leaks();
			_exit(0);
		}
		child_describe(status, how);
		ms = clock_mono_ms() - began > STEADY_MS ? RESTART_MIN_MS : ms * 2;
		ms = ms < RESTART_MAX_MS ? ms : RESTART_MAX_MS;
		log_error("%s ended: %s; another one begins in %u ms", k->kept->name, how, ms);
		(void)poll(NULL, 0, (int)ms);
	}
}

static int compare(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

static no_return void be_keeper(struct keeper *k, pid_t server)
{
	int open[] = { k->sock, k->ready, k->kept->fd };
	const size_t n = k->kept->fd < 0 ? 2 : 3;
	struct err e = ERR_INIT;

	child_begin(server);
	qsort(open, n, sizeof(*open), compare);
	fd_close_from(STDERR_FILENO + 1, open, n);
	if (confine_process(&e) < 0) {
		tell(k, e.text);
		_exit(1);
	}
	keep(k);
}

/* -- the server's side ------------------------------------------------------------------------- */

/* 0 once the first one is ready. */
static int await_ready(const struct kept *kept, int ready, struct err *e)
{
	char said[sizeof(e->text)] = "";
	ssize_t n;

	do
		n = read(ready, said, sizeof(said) - 1);
	while (n < 0 && errno == EINTR);
	if (n == 1 && !said[0])
		return 0;
	return err_set(e, EPROTO, "%s does not start: %s", kept->name,
	               n > 0 ? said : "it ended without a word");
}

int keeper_start(const struct kept *kept, int *ret_sock, struct err *e)
{
	const pid_t server = getpid();
	struct keeper k = { .kept = kept };
	int ends[2], ready[2], rc = -1;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return err_errno(e, "make a socket for %s", kept->name);
	if (pipe2(ready, O_CLOEXEC) < 0) {
		(void)err_errno(e, "make a pipe for %s", kept->name);
		fd_close(&ends[0]);
		fd_close(&ends[1]);
		return -1;
	}
	k.sock = ends[1];
	k.ready = ready[1];
	pid = fork();
	if (pid == 0)
		be_keeper(&k, server);
	fd_close(&ends[1]);
	fd_close(&ready[1]);
	if (pid < 0)
		(void)err_errno(e, "fork %s", kept->name);
	else
		rc = await_ready(kept, ready[0], e);
	fd_close(&ready[0]);
	if (rc == 0) {
		*ret_sock = ends[0];
		return 0;
	}
	/* One that could not begin would not do better the next time, and nobody would hear of it.
	 */
	if (pid > 0 && kill(pid, SIGKILL) == 0)
		(void)waitpid(pid, NULL, 0);
	fd_close(&ends[0]);
	return -1;
}
