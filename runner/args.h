/*
 * args.h - the command line of cloister-runner, read into a plan that nothing acts on yet.
 */
#ifndef RUNNER_ARGS_H
#define RUNNER_ARGS_H

#include "common/err.h"
#include "common/id.h"
#include "runner/egress.h"

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

/* What a system call that the runner does not need comes to. */
enum confine_mode {
	CONFINE_ENFORCE, /* EPERM, and a line in the kernel's log */
	CONFINE_KILL,    /* the runner dies: shows what is missing on its list */
};

/* What a sandbox may use. */
struct limits {
	uint32_t cpus;   /* hundredths of a CPU; service only */
	uint64_t memory; /* bytes; service only, but what is kept in memory is sized by it always */
	uint32_t processes; /* of the tenant, inside */
};

/* Several directories as one workspace: the sandbox sees each below it, by its last name. */
#define PARTS_MAX 16

struct part {
	const char *path;
	struct place_id id;
};

/* All strings are borrowed from argv. */
struct runner_args {
	struct uuid tenant;
	const char *workspace; /* NULL with parts */
	struct place_id workspace_id;
	struct part parts[PARTS_MAX];
	size_t n_parts;
	const char *state;
	struct place_id state_id;
	const char *rootfs;
	const char *guest;
	const char *runsc;
	const char *slirp4netns;
	const char *runtime_dir;
	const char *debug_log; /* NULL: no debug log */
	enum boundary boundary;
	const char *cgroup; /* service: the unit's own directory below /sys/fs/cgroup; else NULL */
	struct limits limits;
	struct egress egress; /* settled */
	enum confine_mode confine;
};

/*
 * Read "serve --option value ...".  Paths are absolute; the table that args_help()
 * writes says which options may be left out and which may stand more than once.
 * *ret is untouched on failure (EINVAL).
 */
int args_parse(int argc, char *const *argv, struct runner_args *ret, struct err *e) must_check;

/* "DEV:INO" in canonical decimal. */
bool args_place_id(const char *text, struct place_id *ret);

/* Write the table of options to standard output. */
void args_help(void);

#endif
