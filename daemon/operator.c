#include "daemon/operator.h"

#include "common/fd.h"
#include "daemon/tenant/trusted.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int check_place(const char *path, const char *state_dir, const struct registry *r,
                       struct err *e)
{
	const char *dir;
	const struct tenant *t = registry_shows(r, path, &dir);

	if (trusted_path_inside(path, state_dir))
		return err_set(e, EINVAL, "lies inside the state directory");
	if (!t)
		return 0;
	if (dir == t->workspace)
		return err_set(e, EINVAL, "lies inside the workspace of %s, who can read it",
		               t->name);
	return err_set(e, EINVAL,
	               "lies inside --workspace-root %.200s, where the agent can read it", dir);
}

int operator_token(const struct options *o, const char *state_dir, const struct registry *r,
                   unsigned char ret[TOKEN_DIGEST], struct err *e)
{
	auto_free char *path = NULL;
	int rc = trusted_canonical(o->metrics_token_file, &path, e);

	if (rc == 0)
		rc = check_place(path, state_dir, r, e);
	if (rc == 0)
		rc = token_read_file(path, ret, e);
	if (rc == 0 && registry_match(r, ret, NULL))
		rc = err_set(e, EINVAL, "holds the token of a tenant; draw one of its own");
	return rc < 0 ? err_wrap(e, "--metrics-token-file") : 0;
}

static int read_url_here(const char *path, struct database_url *ret, struct err *e)
{
	auto_free char *text = NULL;
	size_t len;
	int rc;

	if (trusted_read(path, TRUSTED_SECRET, URL_MAX, &text, &len, e) < 0)
		return -1;
	rc = url_parse(text, len, ret, e);
	sodium_memzero(text, len);
	return rc < 0 ? err_wrap(e, "%.200s", path) : 0;
}

struct answer {
	int rc;
	struct err e;
	struct database_url url;
};

static int take_answer(int fd, struct database_url *ret, struct err *e)
{
	struct answer a;
	char *at = (char *)&a;
	size_t len = 0;
	ssize_t n = 1;

	while (len < sizeof(a) && n != 0) {
		n = read(fd, at + len, sizeof(a) - len);
		if (n > 0)
			len += (size_t)n;
		else if (n < 0 && errno != EINTR)
			break;
	}
	if (len < sizeof(a))
		(void)err_set(&a.e, EIO, "the process that reads it ended without an answer");
	*e = a.e;
	if (len == sizeof(a) && a.rc == 0)
		*ret = a.url;
	sodium_memzero(&a, sizeof(a));
	return e->code ? -1 : 0;
}

/*
 * libpq leaves copies of the line in its heap, and every process that is forked later would
 * have them.  So another process reads the file and takes the line apart, and ends; here there
 * is one copy of the password, whose place is known (url_wipe()).
 */
static int read_url(const char *path, struct database_url *ret, struct err *e)
{
	auto_close int out = -1;
	int ends[2], rc;
	pid_t pid;

	*ret = (struct database_url){ .port = 0 };
	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_errno(e, "make a pipe");
	out = ends[0];
	pid = fork();
	if (pid == 0) {
		struct answer a = { .e = ERR_INIT };

		a.rc = read_url_here(path, &a.url, &a.e);
		_exit(fd_write_all(ends[1], &a, sizeof(a), e) < 0);
	}
	fd_close(&ends[1]);
	if (pid < 0)
		return err_errno(e, "start a process that reads it");
	rc = take_answer(out, ret, e);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return rc;
}

static bool is_ours(const struct stat *st)
{
	return st->st_uid == 0 || st->st_uid == geteuid();
}

/*
 * The directory of a socket and what is above it, of which only the last ones may be missing.
 * What lies in one that is open to all, such as /tmp, must be ours.
 */
static int check_replaceable(char *dir, struct err *e)
{
	struct stat st, below = { .st_mode = 0 };
	bool has_below = false;

	for (;;) {
		char *slash = strrchr(dir, '/');
		bool there = stat(dir, &st) == 0;

		if (!there && errno != ENOENT)
			return err_errno(e, "%.100s", dir);
		if (there && (st.st_mode & S_IWOTH) &&
		    (!has_below || !(st.st_mode & S_ISVTX) || !is_ours(&below)))
			return err_set(e, EPERM,
			               "%.100s is open to all, and so anybody could listen "
			               "there in place of PostgreSQL; have it listen in a "
			               "directory of its own (unix_socket_directories)",
			               dir);
		if (there) {
			below = st;
			has_below = true;
		}
		if (slash == dir)
			return 0;
		*slash = '\0';
	}
}

/*
 * Where a socket lies that anybody could make, anybody could be asked for the password.  The
 * directory may come and go with PostgreSQL; then it is the one above that counts.
 */
static int check_socket_dir(struct database_url *url, const char *state_dir,
                            const struct registry *r, struct err *e)
{
	auto_free char *path = NULL;

	if (!url->local)
		return 0;
	if (trusted_canonical(url->host, &path, e) < 0 || check_place(path, state_dir, r, e) < 0)
		return err_wrap(e, "the directory of the socket, %.100s", url->host);
	/* What was judged is what is used. */
	if (strlen(path) >= sizeof(url->host))
		return err_set(e, ENAMETOOLONG,
		               "the directory of the socket, %.100s: its path is "
		               "too long without links",
		               url->host);
	(void)snprintf(url->host, sizeof(url->host), "%s", path);
	return check_replaceable(path, e);
}

/* The file at path, and everything on the way to it; path is canonical. */
static int check_unchangeable(const char *path, struct err *e)
{
	char dir[URL_PATH_MAX + 1];
	struct stat st;
	char *slash;

	/* That it is missing is for the link to say. */
	if (stat(path, &st) < 0)
		return 0;
	if (!is_ours(&st))
		return err_set(e, EPERM, "owned by uid %u, must be root's or the service's",
		               st.st_uid);
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return err_set(e, EPERM, "mode %04o, group or others can write it",
		               st.st_mode & 07777);
	(void)snprintf(dir, sizeof(dir), "%s", path);
	slash = strrchr(dir, '/');
	if (slash == dir)
		return 0;
	*slash = '\0';
	if (trusted_directory(dir, &st, e) < 0)
		return -1;
	if (!is_ours(&st) || (st.st_mode & (S_IWGRP | S_IWOTH)))
		return err_set(e, EPERM,
		               "%.100s: others than root and the service can replace what "
		               "is in it",
		               dir);
	return 0;
}

/* Whoever could put another authority there could be the server. */
static int check_authorities(struct database_url *url, const char *state_dir,
                             const struct registry *r, struct err *e)
{
	auto_free char *path = NULL;
	int rc;

	if (!url->ca_file[0])
		return 0;
	rc = trusted_canonical(url->ca_file, &path, e);
	if (rc == 0)
		rc = check_place(path, state_dir, r, e);
	if (rc == 0 && strlen(path) >= sizeof(url->ca_file))
		rc = err_set(e, ENAMETOOLONG, "its path is too long without links");
	if (rc == 0)
		rc = check_unchangeable(path, e);
	if (rc < 0)
		return err_wrap(e, "sslrootcert, %.100s", url->ca_file);
	/* What was judged is what is opened. */
	(void)snprintf(url->ca_file, sizeof(url->ca_file), "%s", path);
	return 0;
}

int operator_database_url(const struct options *o, const char *state_dir, const struct registry *r,
                          struct database_url *ret, struct err *e)
{
	auto_free char *path = NULL;
	int rc = trusted_canonical(o->database_url_file, &path, e);

	if (rc == 0)
		rc = check_place(path, state_dir, r, e);
	if (rc == 0)
		rc = read_url(path, ret, e);
	if (rc == 0)
		rc = check_socket_dir(ret, state_dir, r, e);
	if (rc == 0)
		rc = check_authorities(ret, state_dir, r, e);
	if (rc == 0)
		return 0;
	url_wipe(ret);
	return err_wrap(e, "--database-url-file");
}
