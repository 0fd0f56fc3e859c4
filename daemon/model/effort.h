/*
 * effort.h - how much a model is to think before it answers.
 */
#ifndef DAEMON_MODEL_EFFORT_H
#define DAEMON_MODEL_EFFORT_H

#include <stdbool.h>

enum effort {
	EFFORT_NONE,
	EFFORT_LOW,
	EFFORT_MEDIUM,
	EFFORT_HIGH,
	EFFORT_XHIGH,
	EFFORT_MAX,
	EFFORTS,
};

/* How a model reasons, as the operator declares it. */
struct model_reasoning {
	bool on;
	unsigned int efforts; /* bit N: it takes level N by name; 0 = its effort cannot be set */
	bool budget;          /* messages: it is given a number of tokens instead of a level */
	bool summaries;       /* it is asked for a summary that people can read */
};

/* "none" to "max"; NULL beyond EFFORTS. */
const char *effort_name(enum effort effort);

/* EFFORTS when there is none of that name. */
enum effort effort_named(const char *name);

/*
 * The name of the level for a model: the wanted one, or the nearest below that it takes, or
 * its lowest.  NULL where none is wanted (NULL, "") or it takes none.
 */
const char *effort_for(const struct model_reasoning *r, const char *wanted);

bool effort_is_none(const char *wanted);

/* Share of an answer's tokens that reasoning gets; that of "medium" where none is named. */
int effort_percent(const char *name);

#endif
