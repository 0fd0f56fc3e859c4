/*
 * cluster_make.h - what the launcher does to the database before it runs: making it, and
 * bringing it up to date, in single-user mode.
 *
 * The caller holds the lock of the cluster (cluster.h), and no process works on it.
 */
#ifndef DAEMON_LAUNCHER_CLUSTER_MAKE_H
#define DAEMON_LAUNCHER_CLUSTER_MAKE_H

#include "common/err.h"
#include "daemon/launcher/cluster.h"

/*
 * Make the data directory with the programs in bin.  It appears whole or not at all.  Where
 * an upgrade of the database was broken off, so that its data is there under another
 * name, none is made: EEXIST, and the error says what to rename.
 */
int cluster_make(const struct cluster *c, const char *bin, struct err *e) must_check;

/*
 * Write the configuration, and bring roles, privileges and the guard of every database to
 * what this release expects.  postgres is the program.  A cluster that was made without
 * the guard takes a moment for each database, once.
 */
int cluster_update(const struct cluster *c, const char *postgres, struct err *e) must_check;

#endif
