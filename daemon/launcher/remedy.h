/* remedy.h - errors for operators say what to do. */
#ifndef DAEMON_LAUNCHER_REMEDY_H
#define DAEMON_LAUNCHER_REMEDY_H

#include "common/err.h"

#include <string.h>

/* Put "; <remedy>" behind the message.  Keeps the code.  Always returns -1. */
static inline int err_remedy(struct err *e, const char *remedy)
{
	char what[sizeof(e->text)];

	memcpy(what, e->text, sizeof(what));
	return err_set(e, e->code, "%s; %s", what, remedy);
}

#endif
