/*
 * cluster.h - the managed PostgreSQL cluster.
 *
 * A private directory, a Unix socket below it and no TCP.  The bootstrap superuser
 * can be reached only in single-user mode, while the cluster is stopped; pg_hba
 * rejects it.  What the server connects as can create databases and nothing else
 * (docs/architecture.md, "Database roles").
 *
 * Below state_dir/pg: "data", "run" (the socket), "log" and "lock".  Every process of
 * the cluster holds an flock on "lock", so whoever gets it knows that all are gone.
 */
#ifndef DAEMON_LAUNCHER_CLUSTER_H
#define DAEMON_LAUNCHER_CLUSTER_H

#include "common/err.h"

#include <sys/types.h>

#define CLUSTER_SOCKET_DIR_MAX 80  /* bytes; a Unix socket path holds 107 */
#define CLUSTER_CONNECTIONS    100 /* where nobody needs another number of them */

struct cluster {
	char dir[4096]; /* state_dir/pg */
	char data_dir[4096];
	char socket_dir[CLUSTER_SOCKET_DIR_MAX + 1];
	pid_t pid; /* postmaster, child of the caller; -1 = not running */
};

/*
 * Make the cluster below state_dir (absolute, ours, 0700) when there is none, bring
 * roles and configuration up to date in single-user mode, start the postmaster and
 * wait until it accepts connections (at most 60 s; recovery after a crash included).
 * An earlier postmaster that is still shutting down gets 30 s for it.  Errors name
 * cause and remedy, among them: binaries missing, another major version made the
 * data, an upgrade of it was broken off, directory read-only or full, another postmaster
 * holds it.  connections: what the server may open at most.
 *
 * The postmaster gets SIGINT (fast shutdown) when the calling thread ends: call it from
 * one that lives as long as the process.
 */
int cluster_start(struct cluster *c, const char *state_dir, const char *postgres_bin,
                  unsigned int connections, struct err *e) must_check;

/* Fast shutdown, immediate after 20 s, kill after 5 more; reaps.  0 when it stopped in order. */
int cluster_stop(struct cluster *c, struct err *e) must_check;

/* Empty the log when it has grown past its ceiling (4 MiB).  To be called now and then. */
void cluster_trim_log(const struct cluster *c);

#endif
