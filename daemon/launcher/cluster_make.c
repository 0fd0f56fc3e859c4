/*
 * What is done to the database as its superuser.  This holds the power to start
 * single-user mode, which is the only way to the bootstrap superuser; it uses it before
 * the postmaster runs, with SQL that was embedded at build time, and never afterwards.
 * What comes out is a cluster in which nobody who can connect is superuser, has
 * CREATEROLE or belongs to a pg_* role, so that no SQL reaches a file or a program.
 * Configuration and pg_hba are written anew at each start.
 */
#include "daemon/launcher/cluster_make.h"

#include "common/fd.h"
#include "daemon/launcher/cluster_exec.h"
#include "daemon/store/sql.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BOOTSTRAP_ROLE "cloister_bootstrap"
#define SQL_MAX        65536
#define OUTPUT_MAX     (4 << 20) /* it names databases */
#define DATABASE_MAX   63        /* bytes of a name */

/*
 * Relative paths: the postmaster works in its data directory, and quoting rules of
 * the file need not be known.  Only errors that concern the whole cluster are logged,
 * and never a statement or a value of a tenant.
 */
static const char postgresql_conf[] =
	"listen_addresses = ''\n"
	"unix_socket_directories = '../run'\n"
	"unix_socket_permissions = 0700\n"
	"port = 5432\n"
	"superuser_reserved_connections = 0\n"
	"max_prepared_transactions = 0\n"
	"authentication_timeout = 10s\n"
	"shared_buffers = 64MB\n"
	"dynamic_shared_memory_type = posix\n"
	"max_parallel_workers_per_gather = 0\n"
	"jit = off\n"
	"fsync = on\n"
	"synchronous_commit = on\n"
	"full_page_writes = on\n"
	"wal_level = minimal\n"
	"max_wal_senders = 0\n"
	"min_wal_size = 32MB\n"
	"max_wal_size = 256MB\n"
	"autovacuum_naptime = 10min\n" /* a worker per database and naptime, many databases */
	"autovacuum_max_workers = 2\n"
	"logging_collector = off\n"
	"log_destination = 'stderr'\n"
	"log_min_messages = log\n"
	"log_min_error_statement = panic\n"
	"log_error_verbosity = terse\n"
	"log_statement = none\n"
	"log_checkpoints = off\n"
	"log_parameter_max_length = 0\n"
	"log_parameter_max_length_on_error = 0\n"
	"log_autovacuum_min_duration = -1\n"
	"log_timezone = 'UTC'\n"
	"timezone = 'UTC'\n"
	"lc_messages = 'C'\n"
	"update_process_title = off\n";

/*
 * The socket is reachable for this uid alone, so "trust" here means "the service
 * user".  Order matters: the first line that matches decides.
 */
static const char pg_hba_conf[] = "local all                          " BOOTSTRAP_ROLE " reject\n"
				  "local template0,template1,postgres all                reject\n"
				  "local all                          cloister_owner     trust\n"
				  "local cloister                     all                reject\n"
				  "local all                          +cloister_runtime  trust\n"
				  "local all                          all                reject\n"
				  "local replication                  all                reject\n"
				  "host  all                          all all            reject\n";

static int write_file(const char *dir, const char *name, const char *text, struct err *e)
{
	char path[4200];
	auto_close int fd = -1;

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_errno(e, "cannot write %s", path);
	if (fd_write_all(fd, text, strlen(text), e) < 0)
		return err_wrap(e, "%s", path);
	return 0;
}

static int write_settings(const char *data_dir, struct err *e)
{
	if (write_file(data_dir, "postgresql.conf", postgresql_conf, e) < 0 ||
	    write_file(data_dir, "postgresql.auto.conf", "", e) < 0 ||
	    write_file(data_dir, "pg_hba.conf", pg_hba_conf, e) < 0 ||
	    write_file(data_dir, "pg_ident.conf", "", e) < 0)
		return -1;
	return 0;
}

/* -- making and updating, in single-user mode -- */

struct single {
	const char *postgres; /* the program */
	const char *data_dir;
};

static int run_sql(const struct single *on, const char *database, const char *sql,
                   struct buf *output, struct err *e)
{
	const char *const argv[] = { on->postgres, "--single",         "-j",     "-D", on->data_dir,
		                     "-c",         "exit_on_error=on", database, NULL };

	if (cluster_command(argv, sql, output, e) < 0)
		return err_wrap(e, "database %s in single-user mode", database);
	return 0;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static int remove_tree(const char *path, struct err *e)
{
	if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) < 0 && errno != ENOENT)
		return err_errno(e, "cannot remove %s", path);
	return 0;
}

static int init_tree(const char *bin, const char *fresh, struct err *e)
{
	char initdb[4200], postgres[4200];
	const char *const argv[] = {
		initdb, "-D",   fresh,         "-U", BOOTSTRAP_ROLE,      "--auth=reject",
		"-E",   "UTF8", "--no-locale", "-k", "--no-instructions", NULL,
	};
	auto_buf struct buf output = BUF_INIT(OUTPUT_MAX);
	auto_buf struct buf sql = BUF_INIT(SQL_MAX);

	(void)snprintf(initdb, sizeof(initdb), "%s/initdb", bin);
	(void)snprintf(postgres, sizeof(postgres), "%s/postgres", bin);
	if (access(initdb, X_OK) < 0)
		return err_errno(e, "%s: install PostgreSQL, or name the directory of its programs",
		                 initdb);
	buf_adds(&sql, sql_roles());
	buf_adds(&sql, sql_guard());
	buf_adds(&sql, sql_template());
	buf_adds(&sql, sql_managed_make());
	if (buf_failed(&sql))
		return err_set(e, ENOMEM, "no memory");
	if (cluster_command(argv, NULL, &output, e) < 0 || write_settings(fresh, e) < 0)
		return -1;
	return run_sql(&(struct single){ postgres, fresh }, "template1", sql.data, &output, e);
}

/*
 * An upgrade to another PostgreSQL renames what was there to "data.VERSION", then what it
 * made in "upgrade" to "data".  Where the latter never happened, there is a database, and
 * an empty one in its place would look like the loss of all data.
 */
static int refuse_after_upgrade(const struct cluster *c, struct err *e)
{
	const struct dirent *entry;
	long version = 0, found;
	bool upgrade = false;
	DIR *dir = opendir(c->dir);

	if (!dir)
		return err_errno(e, "%s", c->dir);
	while ((entry = readdir(dir))) {
		if (strcmp(entry->d_name, "upgrade") == 0)
			upgrade = true;
		if (strncmp(entry->d_name, "data.", 5) != 0)
			continue;
		found = strtol(entry->d_name + 5, NULL, 10); /* 0: not a version */
		version = found > version ? found : version;
	}
	(void)closedir(dir);
	if (version > 0)
		return err_set(e, EEXIST,
		               "%s is missing and %s.%ld is there: an upgrade of the database was "
		               "broken off; rename %s.%ld to data and upgrade again, or move it "
		               "out of %s to begin with an empty database",
		               c->data_dir, c->data_dir, version, c->data_dir, version, c->dir);
	if (upgrade)
		return err_set(
			e, EEXIST,
			"%s is missing and %s/upgrade, of an upgrade that was broken off, is "
			"there; restore data from a backup, or move upgrade away to begin "
			"with an empty database",
			c->data_dir, c->dir);
	return 0;
}

/* The data directory gets its name only when it is complete. */
int cluster_make(const struct cluster *c, const char *bin, struct err *e)
{
	struct err ignored = ERR_INIT;
	char fresh[4200];

	(void)snprintf(fresh, sizeof(fresh), "%s/data.new", c->dir);
	if (refuse_after_upgrade(c, e) < 0 || remove_tree(fresh, e) < 0)
		return -1;
	if (init_tree(bin, fresh, e) < 0) {
		(void)remove_tree(fresh, &ignored); /* what happened first is the better report */
		return err_wrap(e, "cannot create the database cluster in %s", c->dir);
	}
	if (rename(fresh, c->data_dir) < 0)
		return err_errno(e, "cannot rename %s to %s", fresh, c->data_dir);
	return 0;
}

/* The next value of a column datname in what single-user mode prints; false: no more. */
static bool next_database(const char **at, char ret[DATABASE_MAX + 1])
{
	static const char mark[] = ": datname = \"";
	const char *found = strstr(*at, mark);
	size_t len;

	if (!found)
		return false;
	found += strlen(mark);
	len = strcspn(found, "\"");
	*at = found + len;
	(void)snprintf(ret, DATABASE_MAX + 1, "%.*s", (int)len, found);
	return true;
}

int cluster_update(const struct cluster *c, const char *postgres, struct err *e)
{
	const struct single on = { postgres, c->data_dir };
	auto_buf struct buf output = BUF_INIT(OUTPUT_MAX);
	auto_buf struct buf sql = BUF_INIT(SQL_MAX);
	char database[DATABASE_MAX + 1];
	const char *at;

	buf_adds(&sql, sql_roles());
	buf_adds(&sql, sql_privileged());
	buf_adds(&sql, sql_managed_update());
	if (buf_failed(&sql))
		return err_set(e, ENOMEM, "no memory");
	if (write_settings(c->data_dir, e) < 0 ||
	    run_sql(&on, "cloister", sql.data, &output, e) < 0)
		return -1;
	at = output.data ? output.data : "";
	while (next_database(&at, database)) {
		auto_buf struct buf ignored = BUF_INIT(SQL_MAX);

		if (run_sql(&on, database, sql_guard(), &ignored, e) < 0)
			return -1;
	}
	return 0;
}
