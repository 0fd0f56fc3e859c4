#include "daemon/link/database.h"

#include "common/fd.h"
#include "common/log.h"
#include "daemon/launcher/cluster.h"
#include "daemon/launcher/remedy.h"
#include "daemon/link/link.h"
#include "daemon/store/login.h"
#include "daemon/store/patience.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINK_DIR  "/db"
#define LINK_PORT 5432U

/* -- the password, while others are forked ---------------------------------------------------- */

int database_put_aside(struct database *d, struct err *e)
{
	auto_close int in = -1;
	int ends[2], rc;

	if (!d->url)
		return 0;
	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_errno(e, "make a pipe for the password of the database");
	d->aside = ends[0];
	in = ends[1];
	/* Shorter than a pipe is deep. */
	rc = fd_write_all(in, d->url->password, strlen(d->url->password), e);
	url_wipe(d->url);
	return rc;
}

int database_take_back(struct database *d, struct err *e)
{
	size_t len = 0;

	while (d->url && len < URL_PASSWORD_MAX) {
		ssize_t n = read(d->aside, d->url->password + len, URL_PASSWORD_MAX - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_errno(e, "take the password of the database back");
		if (n == 0)
			break;
		len += (size_t)n;
	}
	fd_close(&d->aside);
	return 0;
}

/* -- the link ----------------------------------------------------------------------------- */

static int start_link(struct database *d, struct err *e)
{
	const struct database_url *url = d->url;
	const struct link_conf conf = {
		.host = url->host,
		.port = (uint16_t)url->port,
		.ca_file = url->ca_file[0] ? url->ca_file : NULL,
		.connections = d->connections,
		.mode = d->mode,
	};

	if (strlen(d->state_dir) + strlen(LINK_DIR) > CLUSTER_SOCKET_DIR_MAX)
		return err_set(e, ENAMETOOLONG,
		               "state directory %.200s is longer than %zu bytes, too long for the "
		               "path of a Unix socket below it; use a shorter one",
		               d->state_dir, CLUSTER_SOCKET_DIR_MAX - strlen(LINK_DIR));
	(void)snprintf(d->socket_dir, sizeof(d->socket_dir), "%s" LINK_DIR, d->state_dir);
	if (mkdir(d->socket_dir, 0700) < 0 && errno != EEXIST)
		return err_errno(e, "%s", d->socket_dir);
	log_info("database: %s port %u, over TLS", url->host, url->port);
	return link_start(&conf, d->socket_dir, &d->link, e);
}

/* Whoever changed to an external database may wonder where all sessions are. */
static void warn_of_managed(const struct database *d)
{
	char path[PATH_MAX];
	int n = snprintf(path, sizeof(path), "%s/pg/data", d->state_dir);

	if (n < (int)sizeof(path) && access(path, F_OK) == 0)
		log_warn("the database in %s is not used: --database-url-file names another one",
		         path);
}

int database_link(struct database *d, struct err *e)
{
	if (!d->url)
		return 0;
	warn_of_managed(d);
	if (!d->url->local)
		return start_link(d, e);
	(void)snprintf(d->socket_dir, sizeof(d->socket_dir), "%s", d->url->host);
	log_info("database: %s port %u", d->url->host, d->url->port);
	return 0;
}

/* -- the store ------------------------------------------------------------------------------ */

/* The link gives each of its errors a remedy by itself. */
static int explain(const struct database *d, struct err *e)
{
	char state[SQLSTATE_SIZE];
	const char *remedy = NULL;

	if (e->code != STORE_UNAVAILABLE)
		return -1;
	if (login_sqlstate(e->text, state))
		remedy = login_remedy(state);
	else if (d->url->local)
		remedy = "see that PostgreSQL runs, and that it listens there "
			 "(unix_socket_directories)";
	return remedy ? err_remedy(e, remedy) : -1;
}

static int open_patiently(const struct database *d, const struct store_conf *conf, int stop_fd,
                          struct store **ret, struct err *e)
{
	struct patience patience = patience_begin(stop_fd);

	while (store_open(conf, ret, e) < 0) {
		(void)explain(d, e);
		if (patience_wait(&patience, e) < 0)
			return -1;
	}
	return 0;
}

static struct store_external external_of(const struct database *d)
{
	return (struct store_external){ d->url->local ? d->url->port : LINK_PORT,
		                        d->url->password };
}

int database_open(struct database *d, struct store_conf *conf, int stop_fd, struct store **ret,
                  struct err *e)
{
	struct store_external external;
	int rc;

	if (!d->url)
		return store_open(conf, ret, e);
	external = external_of(d);
	conf->socket_dir = d->socket_dir;
	conf->external = &external;
	rc = open_patiently(d, conf, stop_fd, ret, e);
	conf->external = NULL;
	url_wipe(d->url);
	return rc;
}

int database_examine(struct database *d, char *ret_text, size_t size, struct err *e)
{
	const struct store_external external = external_of(d);
	const struct store_conf conf = { .socket_dir = d->socket_dir, .external = &external };
	int rc = store_examine(&conf, ret_text, size, e);

	url_wipe(d->url);
	return rc < 0 ? explain(d, e) : 0;
}

void database_release(struct database *d)
{
	fd_close(&d->aside);
	fd_close(&d->link);
}
