/*
 * runsc.h - how gVisor is called, decided from what the binary says that it knows.
 */
#ifndef RUNNER_RUNSC_H
#define RUNNER_RUNSC_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>

/* The descriptor that runsc finds open beside 0 to 2. */
#define RUNSC_LOG_FD 3

#define RUNSC_FLAGS_MAX 64
#define RUNSC_ARGS_MAX  (RUNSC_FLAGS_MAX + 8)

/* What a binary is and can, read from its own words. */
struct runsc_facts {
	char version[64];
	char spec[32];               /* version of the OCI specification */
	bool knows[RUNSC_FLAGS_MAX]; /* by row of the table of flags */
	bool overlay_size;           /* --overlay2 takes a size */
};

/* From "runsc --version".  EINVAL for the words of another program. */
int runsc_read_version(const char *text, struct runsc_facts *ret, struct err *e) must_check;

/* From "runsc flags". */
int runsc_read_flags(const char *text, struct runsc_facts *ret, struct err *e) must_check;

struct runsc_wish {
	bool network; /* false: nothing but loopback */
	bool debug;   /* with a debug log */
};

/*
 * The arguments to run the bundle with, ended by NULL; they live as long as the
 * program.  ENOTSUP when the binary lacks a flag that a boundary hangs on.
 */
int runsc_decide(const struct runsc_facts *facts, const struct runsc_wish *wish,
                 const char *ret_argv[RUNSC_ARGS_MAX], struct err *e) must_check;

/* Row i of the table: the name without dashes; NULL after the last. */
const char *runsc_flag_name(size_t i);
bool runsc_flag_needed(size_t i);

/* Drop what runsc does not need, and execute it in the private root.  Returns only on failure. */
int runsc_exec(const char *const *argv, struct err *e);

#endif
