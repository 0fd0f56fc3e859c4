/*
 * inside.h - what is proven with a sandbox (inside this folder only).
 */
#ifndef DAEMON_DOCTOR_INSIDE_H
#define DAEMON_DOCTOR_INSIDE_H

#include "daemon/doctor/report.h"
#include "daemon/sandbox/sandbox.h"
#include "daemon/tenant/policy.h"

struct inside {
	struct report *report;
	struct uuid tenant;
	const struct limits *limits; /* of that tenant; NULL = the profile has none */
	const char *leaf;            /* its cgroup; NULL likewise */
	const char *workspace;       /* on the host */
	struct sandboxes *sandboxes;
	uint64_t shell_ms; /* what a shell that does nothing takes here; found by the checks */
};

/*
 * The body of a server process (launcher.h): ctx is a struct inside, whose sandboxes is
 * made here.  Asks the launcher to end when all is proven.  Returns its exit status.
 */
int inside_main(void *ctx, int launcher_sock, const char *database_socket_dir);

/* The checks, with sandboxes as they are. */
void inside_check(struct inside *in);

/* -- parts, for their tests ------------------------------------------------------------- */

enum inside_reach {
	REACHED,
	REFUSED, /* at once, by somebody */
	SILENT,  /* nothing came back */
	BROKEN,  /* nothing was tried, or nothing that can be understood came out */
};

/* What a try to connect came to. */
enum inside_reach inside_judge(const struct exec_result *result, const char *output);

#endif
