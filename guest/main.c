/*
 * cloister-guest: PID 1 of a sandbox, the daemon's hand inside it.
 *
 * It runs among the tenant's processes, as root of the sandbox like them, and is
 * trusted by nobody: the daemon checks every byte it sends, and what it may do is
 * what the sandbox may do.  It speaks docs/protocol.md over its standard input and
 * output, which no process it starts inherits.  Killing it ends the sandbox.
 *
 * Outside of a sandbox (tests) it is not PID 1 and ends only its own descendants.
 */
#include "common/clock.h"
#include "common/fd.h"
#include "common/log.h"
#include "common/sanitizer.h"
#include "guest/call.h"
#include "guest/channel.h"
#include "guest/fault.h"
#include "guest/hello.h"
#include "guest/loop.h"
#include "guest/pool.h"
#include "guest/seal.h"
#include "guest/spool.h"
#include "guest/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define END_MS 2000 /* for the descendants to die when the guest is not PID 1 */

static struct {
	struct rlimit files; /* as started with: what an exec gets */
	bool greeted;
	bool ended;
	struct source children;
} guest;

static void reap(struct source *s, uint32_t events)
{
	struct signalfd_siginfo info;
	int status;
	pid_t pid;

	(void)events;
	if (s && read(s->fd, &info, sizeof(info)) < 0 && errno != EAGAIN)
		fault_die(GUEST_EXIT_START, "read signals: %s", strerror(errno));
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		pool_reaped(pid);
}

static void watch_children(void)
{
	sigset_t child;
	int fd;

	(void)sigemptyset(&child);
	(void)sigaddset(&child, SIGCHLD);
	(void)sigprocmask(SIG_BLOCK, &child, NULL);
	(void)signal(SIGPIPE, SIG_IGN);
	fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		fault_die(GUEST_EXIT_START, "signalfd: %s", strerror(errno));
	source_init(&guest.children, fd, reap);
	source_watch(&guest.children, EPOLLIN);
}

/* A call has up to four descriptors, and there may be 256 of them. */
static void raise_file_limit(void)
{
	struct rlimit all;

	if (getrlimit(RLIMIT_NOFILE, &guest.files) < 0)
		fault_die(GUEST_EXIT_START, "getrlimit: %s", strerror(errno));
	all = guest.files;
	all.rlim_cur = all.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &all) < 0)
		fault_die(GUEST_EXIT_START, "setrlimit: %s", strerror(errno));
}

static void make_dir(const char *path)
{
	/* A read-only root filesystem outside of a sandbox is no reason to stop. */
	if (mkdir(path, 0700) < 0 && errno != EEXIST && getpid() == 1)
		log_warn("make %s: %s", path, strerror(errno));
}

static void answer_hello(void)
{
	struct json *ready = json_new_object();

	json_put_int(ready, "version", FRAME_VERSION);
	json_put_int(ready, "pid", getpid());
	channel_send_json(FRAME_READY, 0, ready);
}

static void take_hello(const struct frame *f)
{
	struct hello hello;
	struct err e = ERR_INIT;

	if (hello_read(f, &hello, &e) < 0)
		fault_die(GUEST_EXIT_HANDSHAKE, "HELLO: %s", e.text);
	pool_open(hello.processes, &guest.files);
	answer_hello();
	guest.greeted = true;
}

static void on_frame(const struct frame *f)
{
	if (guest.greeted)
		calls_frame(f);
	else
		take_hello(f);
}

static void on_end(void)
{
	guest.ended = true;
}

/* Descriptors 0 and 1 become /dev/null, so that nothing writes into the protocol by mistake. */
static void take_channel(void)
{
	auto_close int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	auto_close int in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 10);
	auto_close int out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 10);
	struct err e = ERR_INIT;

	if (null < 0 || in < 0 || out < 0 || dup2(null, STDIN_FILENO) < 0 ||
	    dup2(null, STDOUT_FILENO) < 0)
		fault_die(GUEST_EXIT_START, "take over standard input and output: %s",
		          strerror(errno));
	if (fd_set_nonblocking(in, &e) < 0 || fd_set_nonblocking(out, &e) < 0)
		fault_die(GUEST_EXIT_START, "standard input or output: %s", e.text);
	channel_open(fd_take(&in), fd_take(&out), on_frame, on_end);
}

static void start(void)
{
	log_setup("guest", LOG_INFO);
	seal_self();
	if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
		fault_die(GUEST_EXIT_START, "become a subreaper: %s", strerror(errno));
	raise_file_limit();
	(void)umask(022);
	make_dir("/state/home");
	make_dir("/state/tmp");
	loop_open();
	watch_children();
	take_channel();
}

static void serve(void)
{
	while (!guest.ended) {
		struct turn t = { .now_ms = clock_mono_ms() };

		calls_turn(&t);
		turn_wake(&t, pool_turn(t.now_ms));
		channel_flush();
		loop_wait(clock_left_ms(t.wake_ms));
	}
}

/* The daemon is gone: nothing of the sandbox may outlive it. */
static int stop(void)
{
	bool gone = true;

	calls_close();
	spool_close();
	if (SANITIZED) {
		pool_close();
		sanitizer_await_children();
	}
	if (getpid() == 1)
		(void)kill(-1, SIGKILL);
	else
		gone = tree_kill(0, NULL, clock_mono_ms() + END_MS);
	pool_close();
	channel_close();
	source_close(&guest.children);
	loop_close();
	sanitizer_fault("guest");
	return gone ? 0 : GUEST_EXIT_TREE;
}

int main(void)
{
	start();
	serve();
	return stop();
}
