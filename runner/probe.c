/*
 * gVisor is executed here with the rights of the service user, no input and no
 * environment; what it says is bounded in size and time.  The answer that is kept
 * between starts is as safe as the locks that lie beside it.
 */
#include "runner/probe.h"

#include "common/attr.h"
#include "common/buf.h"
#include "common/clock.h"
#include "common/fd.h"
#include "common/json.h"
#include "runner/child.h"
#include "runner/place.h"
#include "runner/runner.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ANSWER_MAX     (256U << 10)
#define ANSWER_TIMEOUT 30000
#define CACHE_NAME     "runsc-facts"
#define CACHE_MAX      (ANSWER_MAX + 512)

/* -- asking -------------------------------------------------------------------------- */

static no_return void become_runsc(const char *path, const char *const *argv, int answer)
{
	const int fds[] = { -1, answer, answer };
	struct err e = ERR_INIT;

	child_reset_signals();
	if (child_bind(&e) == 0 && child_set_fds(fds, (int)ARRAY_LEN(fds), &e) == 0)
		(void)child_exec(path, argv, &e);
	_exit(127);
}

static int read_answer(int fd, struct buf *answer, struct err *e)
{
	uint64_t deadline = clock_mono_ms() + ANSWER_TIMEOUT;
	struct pollfd p = { .fd = fd, .events = POLLIN };

	for (;;) {
		char chunk[4096];
		ssize_t n;

		if (poll(&p, 1, clock_left_ms(deadline)) == 0)
			return err_set(e, ETIMEDOUT, "no answer within %d ms", ANSWER_TIMEOUT);
		n = read(fd, chunk, sizeof(chunk));
		if (n == 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return err_errno(e, "read its answer");
		if (n > 0)
			buf_add(answer, chunk, (size_t)n);
		if (buf_failed(answer))
			return err_set(e, EFBIG, "its answer is too long");
	}
}

/* What path says when it is called with one argument, on both of its outputs. */
static int ask(const char *path, const char *argument, struct buf *answer, struct err *e)
{
	const char *const argv[] = { "runsc", argument, NULL };
	auto_close int from = -1;
	auto_close int to = -1;
	int ends[2];
	int status;
	int got;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_errno(e, "make a pipe");
	from = ends[0];
	to = ends[1];
	pid = child_clone(0, e);
	if (pid < 0)
		return -1;
	if (pid == 0)
		become_runsc(path, argv, to);
	fd_close(&to);
	got = read_answer(from, answer, e);
	/* It may have closed its output and stayed. */
	(void)kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	if (got == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return err_set(e, ENOEXEC, "it could not be executed");
	return got;
}

static int ask_all(const char *path, struct buf *version, struct buf *flags, struct err *e)
{
	if (ask(path, "--version", version, e) < 0)
		return err_wrap(e, "%s --version", path);
	/* Its output ends without a line when there is none. */
	buf_addc(version, '\n');
	if (ask(path, "flags", flags, e) < 0)
		return err_wrap(e, "%s flags", path);
	buf_addc(flags, '\n');
	if (buf_failed(version) || buf_failed(flags))
		return err_set(e, ENOMEM, "no memory for what %s says", path);
	return 0;
}

static int read_words(const char *version, const char *flags, struct runsc_facts *ret,
                      struct err *e)
{
	struct runsc_facts facts = { "" };

	if (runsc_read_version(version, &facts, e) < 0 || runsc_read_flags(flags, &facts, e) < 0)
		return -1;
	*ret = facts;
	return 0;
}

/* -- keeping the answer ------------------------------------------------------------------ */

/* A line that another file, or the same one after a change, does not have. */
static int identify(const char *path, char *ret, size_t size, struct err *e)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return err_errno(e, "stat %s", path);
	(void)snprintf(ret, size, "%lu:%lu %ld %ld.%09ld %ld.%09ld\n", (unsigned long)st.st_dev,
	               (unsigned long)st.st_ino, (long)st.st_size, (long)st.st_mtim.tv_sec,
	               st.st_mtim.tv_nsec, (long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
	return 0;
}

bool probe_recall(char *text, const char *identity, struct runsc_facts *ret)
{
	struct err ignored = ERR_INIT;
	size_t start = strlen(identity);
	char *gap;

	if (strncmp(text, identity, start) != 0)
		return false;
	gap = strstr(text + start, "\n\n");
	if (!gap)
		return false;
	gap[1] = '\0';
	return read_words(text + start, gap + 2, ret, &ignored) == 0;
}

static bool recall(int dir, const char *identity, struct runsc_facts *ret)
{
	auto_close int fd = openat(dir, CACHE_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	auto_free char *text = NULL;
	struct err ignored = ERR_INIT;
	size_t len;

	return fd >= 0 && fd_read_all(fd, CACHE_MAX, &text, &len, &ignored) == 0 &&
	       probe_recall(text, identity, ret);
}

/* Losing it costs a moment at the next start, and nothing else. */
static void remember(int dir, const char *identity, const struct buf *version,
                     const struct buf *flags)
{
	struct err ignored = ERR_INIT;
	auto_close int fd = -1;
	char name[64];

	(void)snprintf(name, sizeof(name), CACHE_NAME ".%d", getpid());
	fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	if (fd_write_all(fd, identity, strlen(identity), &ignored) < 0 ||
	    fd_write_all(fd, version->data, version->len, &ignored) < 0 ||
	    fd_write_all(fd, "\n", 1, &ignored) < 0 ||
	    fd_write_all(fd, flags->data, flags->len, &ignored) < 0 ||
	    renameat(dir, name, dir, CACHE_NAME) < 0)
		(void)unlinkat(dir, name, 0);
}

int probe_facts(const char *path, const char *cache_dir, struct runsc_facts *ret, struct err *e)
{
	auto_buf struct buf version = BUF_INIT(ANSWER_MAX);
	auto_buf struct buf flags = BUF_INIT(ANSWER_MAX);
	auto_close int dir = -1;
	char identity[160];

	if (identify(path, identity, sizeof(identity), e) < 0)
		return -1;
	if (cache_dir && place_open(cache_dir, O_DIRECTORY, &dir, e) < 0)
		return -1;
	if (dir >= 0 && recall(dir, identity, ret))
		return 0;
	if (ask_all(path, &version, &flags, e) < 0)
		return -1;
	if (read_words(version.data, flags.data, ret, e) < 0)
		return err_wrap(e, "%s", path);
	if (dir >= 0)
		remember(dir, identity, &version, &flags);
	return 0;
}

/* -- for the operator -------------------------------------------------------------------- */

static void push_unknown(struct json *missing, struct json *absent, const struct runsc_facts *facts)
{
	const char *name;

	for (size_t i = 0; (name = runsc_flag_name(i)); i++)
		if (!facts->knows[i])
			json_push_str(runsc_flag_needed(i) ? missing : absent, name);
}

static int print(const char *path, const struct runsc_facts *facts, const char *const *argv,
                 struct err *e)
{
	auto_buf struct buf out = BUF_INIT(64U << 10);
	auto_json struct json *found = json_new_object();
	struct json *missing = json_new_array();
	struct json *absent = json_new_array();
	struct json *arguments = json_new_array();

	for (size_t i = 1; argv && argv[i]; i++)
		json_push_str(arguments, argv[i]);
	push_unknown(missing, absent, facts);
	json_put_str(found, "path", path);
	json_put_str(found, "version", facts->version);
	json_put_str(found, "spec", facts->spec);
	json_put_bool(found, "usable", argv != NULL);
	json_put_bool(found, "overlaySize", facts->overlay_size);
	json_put(found, "missing", missing);
	json_put(found, "notKnown", absent);
	json_put(found, "arguments", arguments);
	json_write(found, &out);
	buf_addc(&out, '\n');
	if (buf_failed(&out))
		return err_set(e, ENOMEM, "no memory for the answer");
	return fd_write_all(STDOUT_FILENO, out.data, out.len, e);
}

int probe_main(int argc, char *const *argv, struct err *e)
{
	const struct runsc_wish wish = { .network = true };
	const char *arguments[RUNSC_ARGS_MAX];
	struct runsc_facts facts = { "" };
	bool usable;

	if (argc != 4 || strcmp(argv[2], "--runsc") != 0 || argv[3][0] != '/') {
		err_set(e, EINVAL, "usage: cloister-runner probe --runsc /absolute/path");
		return EXIT_REFUSED;
	}
	if (probe_facts(argv[3], NULL, &facts, e) < 0)
		return EXIT_REFUSED;
	usable = runsc_decide(&facts, &wish, arguments, e) == 0;
	if (print(argv[3], &facts, usable ? arguments : NULL, e) < 0)
		return EXIT_REFUSED;
	return usable ? EXIT_ORDERLY : EXIT_REFUSED;
}
