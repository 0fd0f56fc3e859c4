#include "daemon/model/effort.h"

#include <stddef.h>
#include <string.h>

static const struct level {
	const char *name;
	int percent;
} levels[EFFORTS] = {
	[EFFORT_NONE] = { "none", 0 },      [EFFORT_LOW] = { "low", 10 },
	[EFFORT_MEDIUM] = { "medium", 25 }, [EFFORT_HIGH] = { "high", 50 },
	[EFFORT_XHIGH] = { "xhigh", 65 },   [EFFORT_MAX] = { "max", 80 },
};

const char *effort_name(enum effort effort)
{
	return effort < EFFORTS ? levels[effort].name : NULL;
}

enum effort effort_named(const char *name)
{
	enum effort i = EFFORT_NONE;

	while (i < EFFORTS && strcmp(levels[i].name, name) != 0)
		i++;
	return i;
}

const char *effort_for(const struct model_reasoning *r, const char *wanted)
{
	enum effort most = wanted && *wanted ? effort_named(wanted) : EFFORTS;
	enum effort found = EFFORTS;

	if (!r->on || most == EFFORTS)
		return NULL;
	for (enum effort i = EFFORT_NONE; i < EFFORTS; i++)
		if ((r->efforts & 1U << i) && (i <= most || found == EFFORTS))
			found = i;
	return effort_name(found);
}

bool effort_is_none(const char *wanted)
{
	return wanted && strcmp(wanted, levels[EFFORT_NONE].name) == 0;
}

int effort_percent(const char *name)
{
	enum effort effort = name ? effort_named(name) : EFFORT_MEDIUM;

	return levels[effort < EFFORTS ? effort : EFFORT_MEDIUM].percent;
}
