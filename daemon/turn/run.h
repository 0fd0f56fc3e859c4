/*
 * run.h - one run of a turn's loop, and the steps that it takes (inside this folder only).
 *
 * Each function that returns an enum round is a step, or a part of one; the error is set
 * for ROUND_STORE and ROUND_FAILED.
 */
#ifndef DAEMON_TURN_RUN_H
#define DAEMON_TURN_RUN_H

#include "daemon/model/model.h"
#include "daemon/store/session.h"
#include "daemon/turn/attached.h"
#include "daemon/turn/context.h"
#include "daemon/turn/job.h"
#include "daemon/turn/seen.h"
#include "daemon/turn/transcript.h"

#define RUN_RETRY_MS 100 /* before the first other try */

/* What a round came to. */
enum round {
	ROUND_AGAIN,
	ROUND_OVER,   /* the turn ended, waits, or belongs to somebody else */
	ROUND_STORE,  /* the store did not answer: wait, then read the transcript anew */
	ROUND_FAILED, /* with the error that ends the turn */
};

struct engine;
struct mcp_tools;
struct harness_run;

struct run {
	struct job *job;
	const struct turns_conf *conf;
	struct session session;
	const struct engine *engine; /* NULL = not known yet */
	const struct model *model;
	struct transcript transcript;
	struct context context;
	struct attached attached;
	struct mcp_tools *remote;    /* remote.h; NULL = not asked for */
	struct model_tool *offered;  /* likewise */
	struct harness_run *harness; /* of its engine alone; NULL = not begun */
	bool placed;                 /* what came with the turn is in the sandbox */
	struct seen seen;            /* images of this run's results */

	uint32_t starting;    /* the call whose start we tried to commit and that we never ran; 0 =
	                         none */
	size_t child_answers; /* of the model, to child agents of this run */
	bool proven;          /* no sandbox of an earlier daemon is alive */
	bool settled;         /* the turn ended or waits for a person, as far as the store said */
};

/* What drives the turns of a session, chosen when the session is known. */
struct engine {
	/* Once, before the turn is told to have started. */
	enum round (*prepare)(struct run *r, struct err *e);
	enum round (*round)(struct run *r, struct err *e);
	void (*release)(struct run *r);
};

void run_publish(const struct run *r, const char *type, struct json *data);

/* -- run.c -- */
extern const struct engine engine_agent; /* asks a model and runs its calls */

/* The transcript is r's, and what came with the turn is told in it, when this is ROUND_AGAIN. */
enum round run_read(struct run *r, struct err *e);

/* -- prepare.c -- */
/* What every engine needs: the turn runs, and r has its session and what came with it. */
enum round run_prepare(struct run *r, struct err *e);

/* The session's model, if the tenant may still use it under the account it was opened with. */
enum round run_find_model(struct run *r, struct err *e);

/*
 * The daemon that started the call may be dead and its sandbox still alive, with the call
 * running in it.  The turn goes on when a sandbox of ours runs, whose runner holds the
 * tenant's lock.
 */
enum round run_prove(struct run *r, struct err *e);

/* What came with the turn is in the sandbox when this is ROUND_AGAIN. */
enum round run_place(struct run *r, struct err *e);

/* -- speak.c -- */
enum round run_ask_model(struct run *r, struct err *e);

/* -- calls.c -- */
/* Put a request about a call; ROUND_OVER: the turn waits for a person. */
enum round run_ask(struct run *r, const struct item *call, const struct request *q, struct err *e);

enum round run_step_call(struct run *r, const struct item *call, struct err *e);

/* -- finish.c -- */
/* Sleep before another try; false when there shall be none, because of cancel or stop. */
bool run_wait_retry(struct job *job, unsigned int *ms);

/* As run_wait_retry, but a cancelled turn still wants its end committed. */
bool run_wait_commit(struct job *job, unsigned int *ms);

/* End the turn with the error, unless it is over; r->settled says whether that is known. */
void run_fail(struct run *r, const struct err *e);

#endif
