/* sql.h - the SQL of the folder sql/, embedded at build time. */
#ifndef DAEMON_STORE_SQL_H
#define DAEMON_STORE_SQL_H

#include <stddef.h>

struct sql_file {
	const char *name; /* "0001_name" for a migration */
	const char *text;
};

struct sql_list {
	const struct sql_file *files; /* migration N is files[N - 1] */
	size_t count;
};

/* For single-user mode, each a whole script. */
const char *sql_bootstrap_create(void);
const char *sql_bootstrap_update(void);
const char *sql_bootstrap_guard(void);

struct sql_list sql_control(void);
struct sql_list sql_tenant(void);

#endif
