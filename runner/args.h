/*
 * args.h - the command line of cloister-runner, read into a plan that nothing acts on yet.
 */
#ifndef RUNNER_ARGS_H
#define RUNNER_ARGS_H

#include "common/err.h"
#include "common/id.h"

#include <stdbool.h>
#include <stdint.h>

/* What a directory was when the operator declared it. */
struct place_id {
	uint64_t device;
	uint64_t inode;
};

enum boundary {
	BOUNDARY_NONE,
	BOUNDARY_DEVELOPMENT, /* no cgroup limits */
	BOUNDARY_SERVICE,     /* needs the delegated cgroup of a service manager */
};

/* All strings are borrowed from argv. */
struct runner_args {
	struct uuid tenant;
	const char *workspace;
	struct place_id workspace_id;
	const char *state;
	struct place_id state_id;
	const char *rootfs;
	const char *guest;
	const char *runsc;
	const char *slirp4netns;
	const char *runtime_dir;
	const char *debug_log; /* NULL: no debug log */
	enum boundary boundary;
};

/*
 * Read "serve --option value ...".  Every option may stand once and all but
 * --debug-log must; paths are absolute.  *ret is untouched on failure (EINVAL).
 */
int args_parse(int argc, char *const *argv, struct runner_args *ret, struct err *e) must_check;

/* "DEV:INO" in canonical decimal. */
bool args_place_id(const char *text, struct place_id *ret);

/* Write the table of options to standard output. */
void args_help(void);

#endif
