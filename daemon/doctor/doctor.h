/*
 * doctor.h - would this machine serve?  Every answer comes from trying.
 *
 * The doctor is the launcher for a sandbox of its own: a tenant of its own, with a
 * workspace, state and database cluster in a temporary directory, which it removes.  It
 * touches nothing of a service that runs: no file, no socket, no cgroup of its unit.  In an
 * external database it only looks.
 * docs/doctor.md lists the checks.
 */
#ifndef DAEMON_DOCTOR_DOCTOR_H
#define DAEMON_DOCTOR_DOCTOR_H

#include "daemon/launcher/launcher.h"
#include "daemon/store/url.h"

struct doctor_conf {
	/* What serve would be given.  state_dir as the operator wrote it; no registry, server
	   and context; postgres_bin may be NULL. */
	struct launcher_conf serve;
	const char *tenants;           /* path of the registry; NULL = local mode */
	struct database_url *database; /* wiped once it was used; NULL = the managed one */
	struct err database_fault;     /* of the file that says it; code 0 = none */
};

/* For a process with one thread.  Exit status: 0 when nothing failed, else 1. */
int doctor_run(const struct doctor_conf *conf);

#endif
