/*
 * The launcher's part in the database: it runs PostgreSQL as the service user.  What it
 * does as superuser is in cluster_make.c, and done before the postmaster runs.
 */
#include "daemon/launcher/cluster.h"

#include "common/clock.h"
#include "common/fd.h"
#include "daemon/launcher/cluster_exec.h"
#include "daemon/launcher/cluster_make.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define VERSION_MAX    256
#define LOG_MAX        (4 << 20)
#define READY_MS       60000
#define PREDECESSOR_MS 30000 /* for one that is shutting down */
#define ENDING         20    /* connections that PostgreSQL has not yet closed */
#define LIVE_MS        3000  /* for one that does not look like it */

static void sleep_ms(long ms)
{
	struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

	(void)nanosleep(&t, NULL);
}

static int check_version(const struct cluster *c, const char *postgres, struct err *e)
{
	const char *const argv[] = { postgres, "-V", NULL };
	auto_buf struct buf output = BUF_INIT(VERSION_MAX);
	auto_free char *data = NULL;
	auto_close int fd = -1;
	char path[4200];
	size_t len;
	const char *have;

	(void)snprintf(path, sizeof(path), "%s/PG_VERSION", c->data_dir);
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_errno(e,
		                 "%s: not a complete database cluster; restore it or move %s away",
		                 path, c->data_dir);
	if (fd_read_all(fd, 64, &data, &len, e) < 0 || cluster_command(argv, NULL, &output, e) < 0)
		return -1;
	data[strcspn(data, "\n")] = '\0';
	have = strstr(output.data ? output.data : "", "PostgreSQL) ");
	have = have ? have + strlen("PostgreSQL) ") : "?";
	len = strspn(have, "0123456789");
	if (len != strlen(data) || strncmp(have, data, len) != 0)
		return err_set(
			e, EINVAL,
			"%s was made by PostgreSQL %s and %s is version %.*s; use the "
			"programs of version %s (--postgres-bin), or upgrade it: "
			"upgrade-database STATE USER OLD_BIN NEW_BIN (docs/operate-debian.md, "
			"docs/operate-nixos.md)",
			c->data_dir, data, postgres, (int)len, have, data);
	return 0;
}

/* -- who runs on it -- */

struct pid_file {
	pid_t pid;       /* 0 = none */
	char status[16]; /* "starting", "ready", "stopping"... */
};

static void read_pid_file(const struct cluster *c, struct pid_file *ret)
{
	struct err ignored = ERR_INIT;
	auto_free char *text = NULL;
	auto_close int fd = -1;
	char path[4200];
	const char *line;
	size_t len;

	*ret = (struct pid_file){ .pid = 0 };
	(void)snprintf(path, sizeof(path), "%s/postmaster.pid", c->data_dir);
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fd_read_all(fd, 16384, &text, &len, &ignored) < 0)
		return;
	ret->pid = (pid_t)labs(strtol(text, NULL, 10)); /* negative in single-user mode */
	line = text;
	for (int i = 1; i < 8 && line; i++) {
		line = strchr(line, '\n');
		line = line ? line + 1 : NULL;
	}
	if (line)
		(void)snprintf(ret->status, sizeof(ret->status), "%.*s", (int)strcspn(line, " \n"),
		               line);
}

/* PostgreSQL works in its data directory; another process with a recycled pid does not. */
static bool runs_here(const struct cluster *c, pid_t pid)
{
	struct stat theirs, ours;
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%d/cwd", (int)pid);
	return pid > 0 && stat(path, &theirs) == 0 && stat(c->data_dir, &ours) == 0 &&
	       theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino;
}

static int held_by(const struct cluster *c, pid_t pid, struct err *e)
{
	return err_set(e, EBUSY,
	               "another PostgreSQL (process %d) is running on %s; stop it, or use another "
	               "state directory",
	               (int)pid, c->data_dir);
}

/* Wait for the lock that every process of the cluster holds. */
static int take_lock(const struct cluster *c, int *ret_fd, struct err *e)
{
	uint64_t begin = clock_mono_ms();
	auto_close int fd = -1;
	struct pid_file file;
	char path[4200];

	(void)snprintf(path, sizeof(path), "%s/lock", c->dir);
	fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_errno(e, "cannot open %s; the state directory must be writable", path);
	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		uint64_t waited = clock_mono_ms() - begin;

		if (errno != EWOULDBLOCK && errno != EINTR)
			return err_errno(e, "cannot lock %s", path);
		read_pid_file(c, &file);
		if (waited > LIVE_MS && strcmp(file.status, "ready") == 0)
			return held_by(c, file.pid, e);
		if (waited > PREDECESSOR_MS)
			return err_set(
				e, EBUSY,
				"%s is still locked after %d s: another Cloister starts here, or "
				"a PostgreSQL does not end; see who has it open (fuser)",
				path, PREDECESSOR_MS / 1000);
		sleep_ms(20);
	}
	*ret_fd = fd_take(&fd);
	return 0;
}

/*
 * With the lock held no process of ours is left, so files that claim one are stale,
 * whatever process has the pid now.  One that somebody started by hand has no lock.
 */
static int clear_stale(const struct cluster *c, struct err *e)
{
	static const char *const names[] = { "data/postmaster.pid", "run/.s.PGSQL.5432.lock",
		                             "run/.s.PGSQL.5432" };
	struct pid_file file;
	char path[4200];

	read_pid_file(c, &file);
	if (runs_here(c, file.pid))
		return held_by(c, file.pid, e);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", c->dir, names[i]);
		if (unlink(path) < 0 && errno != ENOENT)
			return err_errno(e, "cannot remove %s", path);
	}
	return 0;
}

/* -- the postmaster -- */

void cluster_trim_log(const struct cluster *c)
{
	char path[4200];
	struct stat st;

	(void)snprintf(path, sizeof(path), "%s/log", c->dir);
	if (lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > LOG_MAX &&
	    truncate(path, 0) < 0)
		return; /* the next call tries again */
}

static int open_log(const struct cluster *c, off_t *ret_size, struct err *e)
{
	auto_close int fd = -1;
	char path[4200];
	struct stat st;

	cluster_trim_log(c);
	(void)snprintf(path, sizeof(path), "%s/log", c->dir);
	/* Appending, so that emptying it works while PostgreSQL writes. */
	fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(e, "cannot open %s; the state directory must be writable", path);
	*ret_size = st.st_size;
	return fd_take(&fd);
}

static int complain_from_log(int log, off_t since, struct err *e)
{
	char text[8192];
	ssize_t n = pread(log, text, sizeof(text) - 1, since);

	text[n > 0 ? n : 0] = '\0';
	return cluster_complain("PostgreSQL did not start", text, e);
}

static int wait_ready(struct cluster *c, int log, off_t since, struct err *e)
{
	uint64_t deadline = clock_mono_ms() + READY_MS;
	struct err ignored = ERR_INIT;
	struct pid_file file;
	int status;

	for (;;) {
		if (waitpid(c->pid, &status, WNOHANG) == c->pid) {
			c->pid = -1;
			return complain_from_log(log, since, e);
		}
		read_pid_file(c, &file);
		if (file.pid == c->pid && strcmp(file.status, "ready") == 0)
			return 0;
		if (clock_left_ms(deadline) == 0)
			break;
		sleep_ms(5);
	}
	if (cluster_stop(c, &ignored) < 0)
		c->pid = -1; /* nothing more can be done to it */
	return err_set(e, ETIMEDOUT, "PostgreSQL is not ready after %d s; see %s/log",
	               READY_MS / 1000, c->dir);
}

static int start_postmaster(struct cluster *c, const char *postgres, const char *connections,
                            int lock, struct err *e)
{
	const char *const argv[] = { postgres, "-D", c->data_dir, "-c", connections, NULL };
	auto_close int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	auto_close int log = -1;
	off_t since = 0;

	if (null < 0)
		return err_errno(e, "/dev/null");
	log = open_log(c, &since, e);
	if (log < 0)
		return -1;
	c->pid = cluster_spawn(&(struct cluster_child){ argv, null, log, lock, SIGINT }, e);
	if (c->pid < 0)
		return -1;
	return wait_ready(c, log, since, e);
}

static int make_dir(const char *path, struct err *e)
{
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return err_errno(e,
		                 "cannot create %s; the state directory must be writable, with "
		                 "space left, for the service user",
		                 path);
	return 0;
}

static int prepare_paths(struct cluster *c, const char *state_dir, struct err *e)
{
	*c = (struct cluster){ .pid = -1 };
	/* With "/pg/run" the socket directory must keep within its limit. */
	if (strlen(state_dir) + strlen("/pg/run") > CLUSTER_SOCKET_DIR_MAX)
		return err_set(e, ENAMETOOLONG,
		               "state directory %.200s is longer than %zu bytes, too long for the "
		               "path of a Unix socket below it; use a shorter one",
		               state_dir, CLUSTER_SOCKET_DIR_MAX - strlen("/pg/run"));
	(void)snprintf(c->dir, sizeof(c->dir), "%s/pg", state_dir);
	(void)snprintf(c->data_dir, sizeof(c->data_dir), "%s/pg/data", state_dir);
	(void)snprintf(c->socket_dir, sizeof(c->socket_dir), "%s/pg/run", state_dir);
	if (make_dir(c->dir, e) < 0 || make_dir(c->socket_dir, e) < 0)
		return -1;
	return 0;
}

int cluster_start(struct cluster *c, const char *state_dir, const char *postgres_bin,
                  unsigned int connections, struct err *e)
{
	auto_close int lock = -1;
	char postgres[4200], most[64];

	(void)snprintf(postgres, sizeof(postgres), "%s/postgres", postgres_bin);
	(void)snprintf(most, sizeof(most), "max_connections=%u", connections + ENDING);
	if (access(postgres, X_OK) < 0)
		return err_errno(e, "%s: install PostgreSQL, or name the directory of its programs",
		                 postgres);
	if (prepare_paths(c, state_dir, e) < 0 || take_lock(c, &lock, e) < 0)
		return -1;
	if (access(c->data_dir, F_OK) < 0 && cluster_make(c, postgres_bin, e) < 0)
		return -1;
	if (check_version(c, postgres, e) < 0 || clear_stale(c, e) < 0 ||
	    cluster_update(c, postgres, e) < 0)
		return -1;
	return start_postmaster(c, postgres, most, lock, e);
}

/* True when the postmaster is gone and reaped. */
static bool await_end(struct cluster *c, uint64_t ms, int *status)
{
	uint64_t deadline = clock_mono_ms() + ms;

	for (;;) {
		pid_t pid = waitpid(c->pid, status, WNOHANG);

		if (pid == c->pid || (pid < 0 && errno == ECHILD))
			return true;
		if (clock_left_ms(deadline) == 0)
			return false;
		sleep_ms(5);
	}
}

int cluster_stop(struct cluster *c, struct err *e)
{
	static const struct {
		int signal;
		uint64_t ms;
	} steps[] = { { SIGINT, 20000 }, { SIGQUIT, 5000 }, { SIGKILL, 5000 } };
	int status = 0;
	size_t i;

	if (c->pid < 0)
		return 0;
	for (i = 0; i < ARRAY_LEN(steps); i++) {
		(void)kill(c->pid, steps[i].signal);
		if (await_end(c, steps[i].ms, &status))
			break;
	}
	if (i == ARRAY_LEN(steps))
		return err_set(e, EBUSY, "PostgreSQL (process %d) cannot be killed", (int)c->pid);
	c->pid = -1;
	if (i > 0 || status != 0)
		return err_set(e, EIO,
		               "PostgreSQL did not stop in order; it will recover at the next "
		               "start");
	return 0;
}
