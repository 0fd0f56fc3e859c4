/*
 * probe.h - ask a gVisor binary what it is and can.
 */
#ifndef RUNNER_PROBE_H
#define RUNNER_PROBE_H

#include "common/err.h"
#include "runner/runsc.h"

/*
 * Find out what the binary at path knows.  It is asked once and the answer kept in
 * cache_dir (ours alone; NULL: always ask) for as long as the file is the same.
 */
int probe_facts(const char *path, const char *cache_dir, struct runsc_facts *ret, struct err *e)
	must_check;

/*
 * A part of it: what an answer that was kept says, when it is that of the file with this
 * identity, a line.  Behind that come the version's two lines, an empty line, and the flags.
 * text is of no use afterwards.
 */
bool probe_recall(char *text, const char *identity, struct runsc_facts *ret);

/* "probe --runsc FILE": write what was found as one line of JSON.  Returns an exit code. */
int probe_main(int argc, char *const *argv, struct err *e);

#endif
