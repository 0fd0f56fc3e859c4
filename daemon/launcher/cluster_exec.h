/*
 * cluster_exec.h - how the launcher runs PostgreSQL's programs.
 *
 * Every child has its own process group, an empty signal mask, a fixed environment,
 * no descriptor but the ones named here, and ends with its parent.
 */
#ifndef DAEMON_LAUNCHER_CLUSTER_EXEC_H
#define DAEMON_LAUNCHER_CLUSTER_EXEC_H

#include "common/buf.h"
#include "common/err.h"

#include <sys/types.h>

struct cluster_child {
	const char *const *argv; /* argv[0] is the path */
	int in;                  /* standard input */
	int out;                 /* standard output and error */
	int keep;                /* also inherited; -1 = none */
	int death_signal;        /* sent when the calling thread ends */
};

/* Fork and execute; the child's pid, or -1. */
pid_t cluster_spawn(const struct cluster_child *spec, struct err *e) must_check;

/*
 * Run a program to its end with input (NULL = none) as its standard input.  What it
 * printed is appended to output, up to its ceiling.  A failure (also: not done within
 * two minutes) is reported with the line that tells most.
 */
int cluster_command(const char *const *argv, const char *input, struct buf *output, struct err *e)
	must_check;

/* Fail with context and the most telling line of what a program of PostgreSQL printed. */
int cluster_complain(const char *context, const char *output, struct err *e) must_check;

#endif
