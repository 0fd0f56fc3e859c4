#include "daemon/link/link.h"

#include "common/authorities.h"
#include "common/fd.h"
#include "common/log.h"
#include "daemon/launcher/keeper.h"
#include "daemon/link/carry.h"
#include "daemon/link/fault.h"
#include "daemon/link/names.h"
#include "daemon/link/reach.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define SPARE    8   /* connections that are told that there are too many; others wait */
#define PAUSE_MS 100 /* before what was short is tried again */

struct link {
	const struct link_conf *conf;
	char *authorities;
	size_t authorities_len;
	struct reach reach;
	int listener;
	int sock; /* readable when the server is gone */
	atomic_uint visits;
	pthread_mutex_t lock;
	pthread_cond_t freed;
	unsigned int in_use; /* (locked) of the places that were declared */
};

struct visit {
	struct link *link;
	int client;
};

/* -- one connection ------------------------------------------------------------------------------
 */

/* What libpq sent is read, so that closing the socket takes nothing away from it. */
static void empty(int client)
{
	char scrap[4096];

	for (int i = 0; i < 64 && recv(client, scrap, sizeof(scrap), MSG_DONTWAIT) > 0; i++)
		;
}

static void turn_away(const struct visit *v, const char *sqlstate, const struct err *e)
{
	if (e->code == ECANCELED)
		return;
	fault_log(e->text);
	fault_tell(v->client, sqlstate, e->text);
	empty(v->client);
}

static void connect_through(const struct visit *v)
{
	const struct reach *to = &v->link->reach;
	struct err e = ERR_INIT;
	SSL *server = NULL;

	if (reach_open(to, v->client, &server, &e) < 0) {
		turn_away(v, "08001", &e);
		return;
	}
	if (carry(server, v->client, &e) < 0) {
		(void)err_wrap(&e, "PostgreSQL at %s, port %u", to->host, to->port);
		turn_away(v, "08006", &e);
	}
	reach_close(&server);
}

/* It speaks first: one that says nothing is not worth a connection out. */
static bool speaks(int client)
{
	struct pollfd p = { .fd = client, .events = POLLIN };

	return poll(&p, 1, LINK_PATIENCE_MS) == 1 && !(p.revents & (POLLHUP | POLLERR));
}

/* One that was closed a moment ago may still be on its way out. */
static bool take_place(struct link *l)
{
	struct timespec until;
	int rc = 0;
	bool taken;

	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += LINK_PLACE_MS / 1000;
	pthread_mutex_lock(&l->lock);
	while (l->in_use >= l->conf->connections && rc == 0)
		rc = pthread_cond_clockwait(&l->freed, &l->lock, CLOCK_MONOTONIC, &until);
	taken = l->in_use < l->conf->connections;
	l->in_use += taken;
	pthread_mutex_unlock(&l->lock);
	return taken;
}

static void free_place(struct link *l)
{
	pthread_mutex_lock(&l->lock);
	l->in_use--;
	pthread_cond_signal(&l->freed);
	pthread_mutex_unlock(&l->lock);
}

static void *be_visited(void *ctx)
{
	struct visit *v = ctx;
	struct link *l = v->link;
	struct err e = ERR_INIT;

	if (!speaks(v->client)) {
		(void)err_set(&e, ECANCELED, "nobody wants anything");
	} else if (take_place(l)) {
		connect_through(v);
		free_place(l);
	} else {
		(void)err_set(&e, EAGAIN,
		              "all %u connections to the database that there may be are in use",
		              l->conf->connections);
	}
	if (e.code)
		turn_away(v, "53300", &e);
	fd_close(&v->client);
	free(v);
	atomic_fetch_sub(&l->visits, 1);
	return NULL;
}

/* -- the loop ------------------------------------------------------------------------------------
 */

static void admit(struct link *l, int client)
{
	struct visit *v = calloc(1, sizeof(*v));
	struct err e = ERR_INIT;

	if (!v) {
		fd_close(&client);
		return;
	}
	*v = (struct visit){ l, client };
	atomic_fetch_add(&l->visits, 1);
	if (names_detach(be_visited, v, &e) == 0)
		return;
	turn_away(v, "53200", &e);
	atomic_fetch_sub(&l->visits, 1);
	fd_close(&v->client);
	free(v);
}

static bool take_visits(struct link *l)
{
	int client = accept4(l->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (client < 0)
		return errno == EAGAIN || errno == ECONNABORTED || errno == EINTR;
	admit(l, client);
	return true;
}

/* Until the server is gone; nobody sends anything by that socket. */
static void work(void *ctx)
{
	struct link *l = ctx;

	for (;;) {
		bool full = atomic_load(&l->visits) >= l->conf->connections + SPARE;
		struct pollfd p[] = { { .fd = l->sock, .events = POLLIN },
			              { .fd = full ? -1 : l->listener, .events = POLLIN } };

		if (poll(p, 2, full ? PAUSE_MS : -1) < 1)
			continue;
		if (p[0].revents)
			return;
		if (p[1].revents && !take_visits(l))
			(void)poll(p, 1, PAUSE_MS);
	}
}

/* -- the start -----------------------------------------------------------------------------------
 */

static int begin(void *ctx, int sock, struct err *e)
{
	struct link *l = ctx;
	const char *from = l->conf->ca_file ? l->conf->ca_file : authorities_path();

	l->sock = sock;
	if (reach_init(&l->reach, l->conf, l->authorities, l->authorities_len, e) < 0)
		return err_wrap(e, "%s", from);
	return confine_link(l->conf->mode, l->conf->port, e);
}

static int check(const struct link_conf *conf, struct err *e)
{
	size_t len = strlen(conf->host);

	if (len == 0 || len > LINK_HOST_MAX || conf->port == 0)
		return err_set(e, EINVAL,
		               "the database's host needs a name of at most %d bytes and "
		               "a port",
		               LINK_HOST_MAX);
	if (conf->connections == 0 || conf->connections > LINK_CONNECTIONS_MAX)
		return err_set(e, EINVAL, "%u connections to the database are not from 1 to %d",
		               conf->connections, LINK_CONNECTIONS_MAX);
	return 0;
}

static int read_authorities(struct link *l, struct err *e)
{
	const char *given = l->conf->ca_file;
	const char *path = given ? given : authorities_path();
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return err_errno(e, "%s: authorities for the database's certificate; %s", path,
		                 given ? "correct sslrootcert= in its URL"
		                       : "install ca-certificates");
	if (fd_read_all(fd, AUTHORITIES_MAX, &l->authorities, &l->authorities_len, e) < 0)
		return err_wrap(e, "%s", path);
	return 0;
}

/* A socket that a predecessor left; anything else is nobody's to remove. */
static int remove_stale(const char *path, struct err *e)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : err_errno(e, "%s", path);
	if (!S_ISSOCK(st.st_mode))
		return err_set(e, EEXIST, "%s is in the way, and no socket", path);
	return unlink(path) < 0 ? err_errno(e, "remove %s", path) : 0;
}

static int open_listener(const char *socket_dir, struct err *e)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int n = snprintf(at.sun_path, sizeof(at.sun_path), "%s/.s.PGSQL.5432", socket_dir);

	if (fd < 0)
		return err_errno(e, "a socket for the database");
	if (n < 0 || (size_t)n >= sizeof(at.sun_path))
		return err_set(e, ENAMETOOLONG, "%s: too long a path for a socket", socket_dir);
	if (remove_stale(at.sun_path, e) < 0)
		return -1;
	if (bind(fd, (const struct sockaddr *)&at, sizeof(at)) < 0 ||
	    chmod(at.sun_path, S_IRUSR | S_IWUSR) < 0 || listen(fd, SOMAXCONN) < 0)
		return err_errno(e, "listen at %s", at.sun_path);
	return fd_take(&fd);
}

int link_start(const struct link_conf *conf, const char *socket_dir, int *ret_sock, struct err *e)
{
	struct link l = { .conf = conf,
		          .listener = -1,
		          .lock = PTHREAD_MUTEX_INITIALIZER,
		          .freed = PTHREAD_COND_INITIALIZER };
	struct kept kept = { .name = "the process that speaks to the database",
		             .who = "link",
		             .begin = begin,
		             .work = work,
		             .ctx = &l };
	int rc = -1;

	if (check(conf, e) < 0 || read_authorities(&l, e) < 0)
		return -1;
	kept.fd = l.listener = open_listener(socket_dir, e);
	if (l.listener >= 0)
		rc = keeper_start(&kept, ret_sock, e);
	fd_close(&l.listener);
	free(l.authorities);
	return rc;
}
