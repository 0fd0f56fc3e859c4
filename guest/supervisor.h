/*
 * supervisor.h - the process that runs one exec at a time and answers for its tree.
 *
 * Order and report are fixed-size messages on a SOCK_SEQPACKET pair; descriptors
 * travel with the orders that need them.  End of file means: kill and exit.
 */
#ifndef GUEST_SUPERVISOR_H
#define GUEST_SUPERVISOR_H

#include "common/attr.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

enum order {
	ORDER_RUN = 1, /* with 4 descriptors: flat job, standard input, output, error */
	ORDER_DISCARD, /* with 2 descriptors, read ends: throw away what the survivors write */
	ORDER_KILL,    /* kill the whole tree; ignored when there is none */
};

enum report_type {
	REPORT_FAILED = 1, /* nothing was run: stage and code; the supervisor is free */
	REPORT_ENDED,      /* the process ended: status, survivors; free when gone */
	REPORT_GONE,       /* the last survivor ended: free */
};

enum stage {
	STAGE_START, /* making the process */
	STAGE_CWD,
	STAGE_EXEC,
};

struct report {
	uint32_t type;
	uint32_t stage;
	int32_t code;   /* errno value */
	int32_t status; /* as from waitpid(2) */
	uint32_t survivors;
	uint32_t gone; /* REPORT_ENDED: nothing of the tree is left */
};

/* Body of a freshly forked supervisor.  files is the descriptor limit its execs get. */
void supervisor_main(int sock, const struct rlimit *files) no_return;

#endif
