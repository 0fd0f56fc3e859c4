#include "daemon/launcher/cluster_exec.h"

#include "common/clock.h"
#include "common/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define COMMAND_MS 120000

static char *const child_env[] = {
	(char[]){ "PATH=/usr/sbin:/usr/bin:/sbin:/bin" },
	(char[]){ "LC_ALL=C" },
	(char[]){ "TZ=UTC" },
	NULL,
};

/* Runs between fork and exec, so only async-signal-safe calls. */
static no_return void become_child(const struct cluster_child *spec, pid_t parent)
{
	char *const *argv;
	sigset_t hangup;

	/* PostgreSQL takes the mask away once it has its handlers: until then one would kill it. */
	(void)sigemptyset(&hangup);
	(void)sigaddset(&hangup, SIGHUP);
	if (prctl(PR_SET_PDEATHSIG, spec->death_signal) < 0 || getppid() != parent)
		_exit(126); /* the parent died before it could be watched */
	if (setpgid(0, 0) < 0 || dup2(spec->in, STDIN_FILENO) < 0 ||
	    dup2(spec->out, STDOUT_FILENO) < 0 || dup2(spec->out, STDERR_FILENO) < 0)
		_exit(126);
	if (spec->keep >= 0 && fcntl(spec->keep, F_SETFD, 0) < 0)
		_exit(126);
	for (int sig = 1; sig < SIGRTMAX; sig++)
		(void)signal(sig, SIG_DFL);
	(void)sigprocmask(SIG_SETMASK, &hangup, NULL);
	/* execve does not change the strings; its prototype is older than const. */
	memcpy(&argv, &spec->argv, sizeof(argv));
	execve(argv[0], argv, child_env);
	_exit(127);
}

pid_t cluster_spawn(const struct cluster_child *spec, struct err *e)
{
	pid_t parent = getpid();
	pid_t pid = fork();

	if (pid == 0)
		become_child(spec, parent);
	if (pid < 0)
		return err_errno(e, "cannot start %s", spec->argv[0]);
	return pid;
}

static int input_fd(const char *input, struct err *e)
{
	auto_close int fd = -1;

	if (!input) {
		fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
		return fd < 0 ? err_errno(e, "/dev/null") : fd_take(&fd);
	}
	fd = memfd_create("cloister-sql", MFD_CLOEXEC);
	if (fd < 0)
		return err_errno(e, "memfd_create");
	if (fd_write_all(fd, input, strlen(input), e) < 0)
		return -1;
	if (lseek(fd, 0, SEEK_SET) < 0)
		return err_errno(e, "lseek");
	return fd_take(&fd);
}

/* Until end of file; false when the time is over. */
static bool drain(int fd, struct buf *output)
{
	uint64_t deadline = clock_mono_ms() + COMMAND_MS;
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char chunk[4096];
	ssize_t n;

	for (;;) {
		int ready = poll(&p, 1, clock_left_ms(deadline));

		if (ready == 0)
			return false;
		if (ready < 0 && errno == EINTR)
			continue;
		n = read(fd, chunk, sizeof(chunk));
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n <= 0)
			return true;
		if ((size_t)n <= output->max - output->len)
			buf_add(output, chunk, (size_t)n);
	}
}

static const char *telling_line(const char *text)
{
	static const char *const marks[] = { "FATAL:  ", "PANIC:  ", "ERROR:  ", "error: " };
	const char *best = NULL;

	for (size_t i = 0; i < ARRAY_LEN(marks) && !best; i++) {
		best = strstr(text, marks[i]);
		if (best)
			best += strlen(marks[i]);
	}
	return best ? best : text;
}

static const char *remedy(const char *line)
{
	if (strstr(line, "No space left on device") || strstr(line, "Disk quota exceeded"))
		return "; free some space on the file system of the state directory";
	if (strstr(line, "Read-only file system") || strstr(line, "Permission denied"))
		return "; make the state directory writable for the service user";
	return "";
}

int cluster_complain(const char *context, const char *output, struct err *e)
{
	const char *line = telling_line(output);
	int len = (int)strcspn(line, "\n");

	if (len == 0)
		return err_set(e, EIO, "%s failed and said nothing", context);
	if (len > 300)
		len = 300;
	return err_set(e, EIO, "%s: %.*s%s", context, len, line, remedy(line));
}

int cluster_command(const char *const *argv, const char *input, struct buf *output, struct err *e)
{
	const char *slash = strrchr(argv[0], '/');
	const char *name = slash ? slash + 1 : argv[0];
	auto_close int in = input_fd(input, e);
	auto_close int from = -1;
	int pipe_fds[2];
	int status = 0;
	bool done;
	pid_t pid;

	if (in < 0)
		return -1;
	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return err_errno(e, "pipe");
	from = pipe_fds[0];
	pid = cluster_spawn(&(struct cluster_child){ argv, in, pipe_fds[1], -1, SIGKILL }, e);
	fd_close(&pipe_fds[1]);
	if (pid < 0)
		return -1;
	done = drain(from, output);
	if (!done)
		(void)kill(-pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!done)
		return err_set(e, ETIMEDOUT, "%s did not end within %d s", name, COMMAND_MS / 1000);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return err_set(e, ENOENT, "%s cannot be executed", argv[0]);
	if (status != 0)
		return cluster_complain(name, output->data ? output->data : "", e);
	return 0;
}
