/*
 * launcher.h - the process that may start programs.
 *
 * Powers: it forks and executes PostgreSQL and the runner, as the service user,
 * without capabilities; in the service profile it also arranges the unit's cgroup.  It has no
 * network socket and parses nothing that came from one: it reads its own copy of the registry and
 * fixed-size messages from the server. The server is its child, forked before anything is accepted.
 * When the launcher dies, however it dies, everything it started dies too.
 */
#ifndef DAEMON_LAUNCHER_LAUNCHER_H
#define DAEMON_LAUNCHER_LAUNCHER_H

#include "common/err.h"
#include "daemon/launcher/disk.h"
#include "daemon/tenant/guarded.h"
#include "daemon/tenant/registry.h"

#define LAUNCHER_HOSTS_MAX 256

struct launcher_conf {
	const char *state_dir; /* absolute, canonical, ours, 0700 */
	const char *runner;    /* programs: absolute paths */
	const char *guest;
	const char *rootfs;
	const char *runsc;
	const char *slirp4netns;
	const char *postgres_bin;    /* directory; NULL = no database */
	unsigned int db_connections; /* that the server may open */
	const char *boundary;        /* "service" or "development" */
	const char *host; /* where the server listens, for what is printed; NULL = nothing */
	char *const *host_addresses; /* networks denied to every sandbox */
	size_t host_address_count;   /* at most LAUNCHER_HOSTS_MAX */
	unsigned int drain_seconds;
	struct disk_limits disk;
	const struct registry *registry;
	const char *registry_path;     /* where it can be read again; NULL = nowhere */
	const struct guarded *guarded; /* what it must not make a tenant's; NULL = nothing */
	/* Body of the server process; returns its exit status. */
	int (*server)(void *ctx, int launcher_sock, const char *database_socket_dir);
	/* Called once the server's process has its own copy of everything; NULL = not. */
	void (*forget)(void *ctx);
	void *ctx;
};

/*
 * Check what must be there, start PostgreSQL, fork the server, serve its messages
 * until it ends or a TERM or INT signal asks to stop, then end everything: drain,
 * sandboxes, PostgreSQL.  A second signal hastens each step.  Prints the address on
 * standard output when the server is ready.  For a process with one thread.
 * Returns the exit status of the program: 0 after an orderly stop, 1 when a part
 * ended by itself or had to be killed, the server's own when it ended before it was
 * ready; -1 with e when the start failed.
 */
int launcher_run(const struct launcher_conf *conf, struct err *e) must_check;

#endif
