/* migrate.h - bring a schema up to what this release has. */
#ifndef DAEMON_STORE_MIGRATE_H
#define DAEMON_STORE_MIGRATE_H

#include "daemon/store/pg.h"
#include "daemon/store/sql.h"

/*
 * Apply to the given schema (of which the table "migration" keeps the record) every
 * file that it lacks, each in one transaction.  A schema that is ahead is left alone:
 * migrations keep working with the release before them.  One that could not would say so,
 *
 *     UPDATE app.migration SET oldest = 14;
 *
 * and every release with fewer files than that fails here, with the remedy (STORE_UNAVAILABLE),
 * instead of writing what the newer one would misread.
 */
int migrate(struct pg *pg, const char *schema, struct sql_list list, struct err *e) must_check;

#endif
