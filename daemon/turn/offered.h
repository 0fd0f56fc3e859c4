/*
 * offered.h - the tools and questions as a model is told of them.
 */
#ifndef DAEMON_TURN_OFFERED_H
#define DAEMON_TURN_OFFERED_H

#include "daemon/model/prompt.h"

#include <stddef.h>

/* All tools, in the order in which a model is told. */
const struct model_tool *offered_tools(size_t *ret_count);

/* Those of a child agent: all but questions and task. */
const struct model_tool *offered_to_child(size_t *ret_count);

#endif
