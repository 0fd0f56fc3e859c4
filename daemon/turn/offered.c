#include "daemon/turn/offered.h"

#include "common/attr.h"
#include "daemon/tool/schema.h"
#include "daemon/tool/tools.h"
#include "daemon/turn/task.h"

#include <pthread.h>

#define OFFERED_MAX 64

static const struct model_tool questions[] = {
	{ "ask_user", "Ask the person a question, and wait for the answer.",
	  SCHEMA_OBJECT(
		  SCHEMA_TEXT(
			  "question",
			  "what to ask") ","
					 "\"options\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},"
					 "\"description\":\"answers to choose from\"}," SCHEMA_INT(
						 "expiresInSeconds", "1", "2592000",
						 "default: never"),
		  "\"question\"") },
	{ "plan_enter",
	  "Propose to plan before anything is changed; the person decides. While planning, "
	  "only what reads is run.",
	  SCHEMA_OBJECT(SCHEMA_TEXT("reason", "why planning first would help"), "") },
	{ "plan_exit", "Show the plan to the person, who approves it or not.",
	  SCHEMA_OBJECT(SCHEMA_TEXT("plan", "the plan"), "\"plan\"") },
};

static const struct model_tool task = {
	TASK_NAME,
	"Let a child agent do a part of the work with a context of its own, and wait for its answer. "
	"It has the same tools but for this one and questions, sees nothing of this session and "
	"can ask nobody, so tell it all that it needs to know and what to answer.",
	SCHEMA_OBJECT(SCHEMA_TEXT("prompt", "what to do, and what to answer"), "\"prompt\"")
};

static struct model_tool offered[OFFERED_MAX];
static size_t count;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void collect(void)
{
	for (size_t i = 0; i < tool_count(); i++)
		offered[count++] = *tool_shown(i);
	offered[count++] = task;
	for (size_t i = 0; i < ARRAY_LEN(questions); i++)
		offered[count++] = questions[i];
}

const struct model_tool *offered_tools(size_t *ret_count)
{
	(void)pthread_once(&once, collect);
	*ret_count = count;
	return offered;
}

const struct model_tool *offered_to_child(size_t *ret_count)
{
	(void)pthread_once(&once, collect);
	*ret_count = tool_count();
	return offered;
}
