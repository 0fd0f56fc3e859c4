/*
 * task.h - a child agent that does one thing with a context of its own (inside this folder
 * only).
 *
 *   task  {"prompt"}; what the child answers is the result
 *
 * The child works in the thread of the turn, with the tools of the session but for task and
 * questions.  It asks nobody: a call that a person would have to allow is refused.  Its
 * transcript is in memory alone, its steps are stored to be looked at, and when the daemon ends
 * while it works, its call is interrupted as any other.
 */
#ifndef DAEMON_TURN_TASK_H
#define DAEMON_TURN_TASK_H

#include "daemon/tool/tools.h"
#include "daemon/turn/run.h"

#define TASK_NAME      "task"
#define TASKS_MAX      8                 /* in one turn */
#define TASK_STEPS_MAX 64                /* answers of the model; they are the turn's, too */
#define TASK_BYTES_MAX ((size_t)4 << 20) /* of what is said and done */

bool task_is(const struct item *call);

/*
 * Let a child do what the call says; as tool_run(), with store codes and ENOMEM.  Not in
 * other threads than the turn's own.
 */
int task_run(struct run *r, const struct item *call, struct tool_outcome *ret, struct err *e)
	must_check;

#endif
