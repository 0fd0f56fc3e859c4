/*
 * The supervisor of an exec.
 *
 * Power: root of the sandbox, like everything in it; none over the daemon, whose
 * pipes it closes first of all.  As child subreaper it inherits whatever its exec
 * leaves behind, so "no child" means that the whole tree is gone.  It blocks every
 * signal, so that a tenant's broadcast does not end it.  Its exec starts with an own session,
 * default signals and the environment of the job, nothing else.
 */
#include "guest/supervisor.h"

#include "common/fd.h"
#include "common/fdmsg.h"
#include "common/sanitizer.h"
#include "guest/job.h"
#include "guest/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct supervision {
	int sock;
	int signals;
	int discard[2];
	pid_t child; /* process of the exec; 0 once it was waited for */
	bool busy;   /* something of the tree may be left */
};

struct command {
	enum order order;
	int fds[FDMSG_MAX]; /* owned */
};

static void send_report(const struct supervision *s, const struct report *r)
{
	/* Fails only when PID 1 is gone; the next read of the socket ends this process. */
	if (send(s->sock, r, sizeof(*r), MSG_NOSIGNAL) < 0)
		errno = 0;
}

static void close_all(int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++)
		fd_close(&fds[i]);
}

/* False at the end of file. */
static bool receive(int sock, struct command *c)
{
	uint32_t order = 0;
	size_t count;

	if (fdmsg_receive(sock, &order, sizeof(order), c->fds, &count, 0) != (ssize_t)sizeof(order))
		return false;
	c->order = (enum order)order;
	return true;
}

static bool is_program(const char *path, int *ret_code)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return false;
	if (S_ISREG(st.st_mode) && access(path, X_OK) == 0)
		return true;
	*ret_code = EACCES;
	return false;
}

/* Path of the program: as given when it has a slash, else the first match in the job's PATH. */
static int find_program(const struct job *job, char ret_path[PATH_MAX])
{
	const char *dirs = job_getenv(job, "PATH");
	int code = ENOENT;

	if (strchr(job->argv[0], '/'))
		return snprintf(ret_path, PATH_MAX, "%s", job->argv[0]) < PATH_MAX ? 0
		                                                                   : ENAMETOOLONG;
	while (dirs && *dirs) {
		size_t len = strcspn(dirs, ":");
		int n = snprintf(ret_path, PATH_MAX, "%.*s/%s", (int)len, len ? dirs : ".",
		                 job->argv[0]);

		if (n < PATH_MAX && is_program(ret_path, &code))
			return 0;
		dirs += len + (dirs[len] == ':');
	}
	return code;
}

/* What a new process is to become, and why it did not. */
struct start {
	const char *path;
	const struct job *job;
	const int *stdio;
	int code;
};

/* The new process, on a stack of its own in the memory of the supervisor, which waits. */
static int become_job(void *arg)
{
	struct start *s = arg;
	sigset_t none;

	(void)sigemptyset(&none);
	if (setsid() >= 0 && dup2(s->stdio[0], 0) == 0 && dup2(s->stdio[1], 1) == 1 &&
	    dup2(s->stdio[2], 2) == 2) {
		fd_close_from(3, NULL, 0);
		(void)sigprocmask(SIG_SETMASK, &none, NULL);
		(void)execve(s->path, s->job->argv, s->job->envp);
	}
	s->code = errno;
	return 127; /* which is its exit code */
}

/*
 * In gVisor a process that shares memory until its exec is far cheaper than a fork, and
 * every system call counts: posix_spawn also asks for each of 64 signals, which are as they
 * must be already (set_up).
 */
static int spawn(const char *path, const struct job *job, const int *stdio, pid_t *ret_pid)
{
	static char stack[65536] __attribute__((aligned(16)));
	struct start start = { .path = path, .job = job, .stdio = stdio };
	pid_t pid =
		clone(become_job, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, &start);

	if (pid < 0)
		return errno;
	if (start.code)
		(void)waitpid(pid, NULL, 0);
	else
		*ret_pid = pid;
	return start.code;
}

static void fail(struct report *r, enum stage stage, int code)
{
	r->type = REPORT_FAILED;
	r->stage = stage;
	r->code = code;
}

static void start_job(struct supervision *s, const struct job *job, const int *stdio,
                      struct report *r)
{
	char path[PATH_MAX];
	int code;

	if (chdir(job->cwd) < 0) {
		fail(r, STAGE_CWD, errno);
		return;
	}
	code = find_program(job, path);
	if (!code)
		code = spawn(path, job, stdio, &s->child);
	if (chdir("/") < 0 && !code)
		code = errno;
	/* execve has neither of these two: they come from making the process. */
	if (code)
		fail(r, code == EAGAIN || code == ENOMEM ? STAGE_START : STAGE_EXEC, code);
}

static void run(struct supervision *s, int *fds)
{
	struct report r = { .type = 0 };
	struct err e = ERR_INIT;
	auto_free char *flat = NULL;
	auto_job struct job job = { .cwd = NULL };
	size_t len = 0;

	s->child = 0;
	if (fd_read_all(fds[0], JOB_FLAT_MAX, &flat, &len, &e) < 0 ||
	    job_unfold(flat, len, &job, &e) < 0)
		fail(&r, STAGE_START, e.code);
	else
		start_job(s, &job, fds + 1, &r);
	if (r.type)
		send_report(s, &r);
	else
		s->busy = true;
}

static void finish(struct supervision *s, int status, bool gone)
{
	struct report r = { .type = REPORT_ENDED, .status = status, .gone = gone };

	r.survivors = gone ? 0 : (uint32_t)tree_count();
	s->child = 0;
	s->busy = !gone;
	send_report(s, &r);
}

static void report_gone(struct supervision *s)
{
	struct report r = { .type = REPORT_GONE };

	s->busy = false;
	close_all(s->discard, 2);
	send_report(s, &r);
}

static void reap(struct supervision *s)
{
	int status, ended = 0;
	bool has_ended = false;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (pid == s->child) {
			has_ended = true;
			ended = status;
		}
	if (has_ended)
		finish(s, ended, pid < 0);
	else if (s->busy && !s->child && pid < 0)
		report_gone(s);
}

static void kill_all(struct supervision *s)
{
	bool running = s->child != 0;
	int status = 0;

	if (!s->busy)
		return;
	(void)tree_kill(s->child, &status, UINT64_MAX);
	if (running)
		finish(s, status, true);
	else
		report_gone(s);
}

static void obey(struct supervision *s, struct command *c)
{
	switch (c->order) {
	case ORDER_RUN:
		run(s, c->fds);
		break;
	case ORDER_DISCARD:
		for (int i = 0; i < 2 && s->busy; i++) {
			fd_close(&s->discard[i]);
			s->discard[i] = fd_take(&c->fds[i]);
		}
		break;
	case ORDER_KILL:
		kill_all(s);
		break;
	}
	close_all(c->fds, FDMSG_MAX);
}

static void discard_output(int *fd)
{
	char junk[16384];
	ssize_t n = read(*fd, junk, sizeof(junk));

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		fd_close(fd);
}

static void serve(struct supervision *s)
{
	struct pollfd p[4] = {
		{ .fd = s->sock, .events = POLLIN },
		{ .fd = s->signals, .events = POLLIN },
		{ .fd = s->discard[0], .events = POLLIN },
		{ .fd = s->discard[1], .events = POLLIN },
	};
	struct signalfd_siginfo info;
	struct command c;
	int status;

	if (poll(p, ARRAY_LEN(p), -1) < 0)
		return;
	for (int i = 0; i < 2; i++)
		if (p[2 + i].revents)
			discard_output(&s->discard[i]);
	if (p[1].revents && read(s->signals, &info, sizeof(info)) > 0)
		reap(s);
	if (!p[0].revents)
		return;
	if (receive(s->sock, &c)) {
		obey(s, &c);
		return;
	}
	(void)tree_kill(s->child, &status, UINT64_MAX);
	sanitizer_fault("exec");
	sanitizer_count_leaks();
	_exit(0);
}

static void set_up(struct supervision *s, const struct rlimit *files)
{
	sigset_t all, child;

	(void)sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, NULL);
	for (int sig = 1; sig < NSIG; sig++)
		(void)signal(sig, SIG_DFL);
	fd_close_from(3, &s->sock, 1);
	/* Reports go where those of PID 1 go. */
	if ((!SANITIZED && dup2(STDIN_FILENO, STDERR_FILENO) < 0) ||
	    setrlimit(RLIMIT_NOFILE, files) < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_NAME, "cloister-exec", 0, 0, 0) < 0)
		_exit(1);
	(void)sigemptyset(&child);
	(void)sigaddset(&child, SIGCHLD);
	s->signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	if (s->signals < 0)
		_exit(1);
}

void supervisor_main(int sock, const struct rlimit *files)
{
	struct supervision s = { .sock = sock, .signals = -1, .discard = { -1, -1 } };

	set_up(&s, files);
	for (;;)
		serve(&s);
}
