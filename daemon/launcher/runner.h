/*
 * runner.h - one runner process, as the launcher that started it sees it.
 */
#ifndef DAEMON_LAUNCHER_RUNNER_H
#define DAEMON_LAUNCHER_RUNNER_H

#include "common/err.h"
#include "daemon/launcher/disk.h"
#include "daemon/launcher/launcher.h"
#include "daemon/launcher/runner_log.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct runner {
	struct runner *next; /* the launcher's list */
	struct uuid tenant;
	uint64_t generation;
	pid_t pid;
	struct disk_places places; /* where its sandbox writes; n = 0: not opened yet */
	bool no_room;              /* killed for that */
	int log_fd;                /* read end of its standard error, non-blocking; -1 = ended */
	struct runner_log log;
};

/* What every runner is started from. */
struct runner_ground {
	const struct launcher_conf *conf;
	int state_fd;       /* of conf->state_dir */
	const char *cgroup; /* boundary service: the unit's own; else NULL */
};

/*
 * Start a tenant's runner.  What is executed comes from the ground and the registry
 * alone.  ret_pipes: write end to its input and read end
 * of its output, the caller's.  A program that cannot be executed shows as a runner
 * that ends with status 127 and a reason.
 */
int runner_start(const struct runner_ground *ground, const struct tenant *tenant,
                 struct runner **ret, int ret_pipes[2], struct err *e) must_check;

/* Take what its log pipe holds, at most 64 KiB.  False at the end of the stream. */
bool runner_read_log(struct runner *r);

/*
 * After it was reaped: take the rest of its log.  ret_cause says in one line why it
 * ended; "" for exit status 0.
 */
void runner_end(struct runner *r, int wait_status, char ret_cause[RUNNER_LOG_REASON]);

void runner_free(struct runner **r);

#endif
