/*
 * view.h - how the launcher and the server say together how things stand.
 *
 * The launcher knows processes and cgroups, the server everything else, and neither
 * believes the other's parser.  So the launcher writes what it knows, in rows of fixed size,
 * into a memory file that cannot grow; the server reads them, writes lines behind them, and
 * answers; and the launcher passes the lines on without a look into them.
 */
#ifndef DAEMON_LAUNCHER_VIEW_H
#define DAEMON_LAUNCHER_VIEW_H

#include "common/err.h"
#include "common/id.h"
#include "common/log.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define VIEW_SANDBOXES_MAX 4096
#define VIEW_OUT_MAX       ((size_t)4 << 20) /* bytes of lines */
#define VIEW_UNKNOWN       (-1)

struct view_sandbox {
	struct uuid tenant;
	int32_t pid; /* of its runner */
	uint64_t generation;
	int64_t memory; /* bytes; VIEW_UNKNOWN without cgroups */
	int64_t tasks;  /* of the kernel's; likewise */
};

struct view_head {
	uint32_t json; /* 1: lines of JSON, else for people */
	uint32_t sandboxes;
	uint32_t errors;
	uint32_t pid; /* of the launcher */
	struct log_line error[LOG_RECENT];
};

struct runner;

/*
 * The launcher's part; cgroup "" = there are none.  *ret_fd is the caller's, *ret_at the
 * place where lines begin.
 */
int view_open(const struct runner *first, const char *cgroup, bool json, int *ret_fd, off_t *ret_at,
              struct err *e) must_check;

/* The server's part: *ret_rows is the caller's.  What is then written to fd are the lines. */
int view_take(int fd, struct view_head *ret, struct view_sandbox **ret_rows, struct err *e)
	must_check;

/* Calls fn for each line. */
int view_lines(int fd, off_t at, void (*fn)(void *ctx, const char *line), void *ctx, struct err *e)
	must_check;

#endif
