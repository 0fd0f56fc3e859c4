/*
 * external.h - a PostgreSQL server that somebody else runs (--database-url-file).
 *
 * The managed cluster is as it has to be because the launcher makes it so before it runs.
 * This one was prepared by its own superuser with sql_script(), and may have been changed
 * since, so what the tenants' walls stand on is looked at and refused by name.
 */
#ifndef DAEMON_STORE_EXTERNAL_H
#define DAEMON_STORE_EXTERNAL_H

#include "daemon/store/pg.h"

/* What privileged.release() has to return at least; grows as sql/bootstrap/4_control.sql says. */
#define EXTERNAL_RELEASE 1

#define EXTERNAL_TEMPLATE "cloister_template"

/*
 * As the owner, in the control database: the version of the server, the attributes of our
 * roles, the script's release, and what the database has to refuse.  STORE_UNFIT with
 * cause and remedy.
 */
int external_verify(struct pg *pg, struct err *e) must_check;

/* Log what is as servers come, and would be better otherwise on one of Cloister's alone. */
void external_warn(struct pg *pg);

/* The part of it that each tenant's database has to show for itself. */
int external_verify_tenant(struct pg *pg, struct err *e) must_check;

/* Which server it is, in a few words. */
int external_describe(struct pg *pg, char *ret_text, size_t size, struct err *e) must_check;

/* Add the remedy when pg_connect() was let in by nobody there; returns -1. */
int external_refused(struct err *e);

#endif
