/*
 * agent.h - what child agents of a turn did, for people to look at.
 */
#ifndef DAEMON_STORE_AGENT_H
#define DAEMON_STORE_AGENT_H

#include "daemon/store/turn.h"

#define AGENT_DETAIL_MAX 2048 /* bytes */
#define AGENT_STEPS_MAX  256  /* of one agent; later ones are not kept */
#define AGENT_STEPS_READ 2048 /* of a turn */

struct agent_step {
	uint32_t call;     /* seq of the call that the agent works for */
	uint32_t number;   /* from 0 for each call */
	const char *state; /* "completed", "failed" or "info" */
	const char *title; /* 64 bytes at most */
	const char *detail;
	size_t detail_len;
};

/*
 * Add a step to a running turn, and count the tokens that it took for the session (usage has
 * no items).  One that is there already stays.  STORE_TENANT_FULL.
 */
int agent_step_add(struct store *s, const struct uuid *tenant, const struct uuid *turn,
                   const struct agent_step *step, const struct turn_step *usage, struct err *e)
	must_check;

/* Those of a turn by call and number, AGENT_STEPS_READ at most. */
int agent_steps(struct store *s, const struct uuid *tenant, const struct uuid *turn,
                void (*fn)(void *ctx, const struct agent_step *step), void *ctx, struct err *e)
	must_check;

#endif
