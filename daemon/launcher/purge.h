/*
 * purge.h - removing the files that are kept of a tenant.
 */
#ifndef DAEMON_LAUNCHER_PURGE_H
#define DAEMON_LAUNCHER_PURGE_H

#include "common/err.h"
#include "common/id.h"

/*
 * Remove the tenant's directories in the state directory (state.h), whose descriptor is
 * given.  No sandbox of the tenant may run.  What was begun and interrupted is taken up
 * again.  May take long: for a process of its own.
 */
int purge_files(int state_fd, const struct uuid *tenant, struct err *e) must_check;

#endif
