/* sql.h - the SQL of the folder sql/, embedded at build time. */
#ifndef DAEMON_STORE_SQL_H
#define DAEMON_STORE_SQL_H

#include <stddef.h>
#include <stdio.h>

struct sql_file {
	const char *name; /* "0001_name" for a migration */
	const char *text;
};

struct sql_list {
	const struct sql_file *files; /* migration N is files[N - 1] */
	size_t count;
};

/*
 * For superusers, in the order in which they are run; each may be run again.  What a managed
 * cluster needs is for single-user mode, and all of it, among statements of its own,
 * what sql_script() prints.
 */
const char *sql_roles(void);
const char *sql_guard(void);
const char *sql_template(void); /* of the database that others are copies of */
const char *sql_privileged(void);

const char *sql_managed_make(void);
const char *sql_managed_update(void);

/* All that prepares an external server, for psql. */
void sql_script(FILE *out);

struct sql_list sql_control(void);
struct sql_list sql_tenant(void);

#endif
